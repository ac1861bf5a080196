"""The numbers of the queue: pages due and leased, and host queues that are shut."""

from datetime import timedelta

import numpy as np
from support.store_cases import T0, register

from service.model.arrays import NO_TIME, instant
from service.storage.queue.columns import Leases, QueueCensus, QueueRows

MINUTE = timedelta(minutes=1)


def queued(store, page_id, next_at):
    n = len(page_id)
    rows = QueueRows(
        page_id=page_id,
        next_at=np.array([instant(at) for at in next_at]),
        last_crawl_at=np.full(n, NO_TIME),
        crawl_rate=np.full(n, np.nan),
        requested=np.zeros(n, np.bool_),
    )
    with store.begin() as tx:
        tx.lower_host_queues(tx.enqueue(rows))


def leased(store, page_id, ends):
    n, workers = len(page_id), np.empty(len(page_id), object)
    workers[:] = "w"
    with store.begin() as tx:
        leases = Leases(
            page_id=page_id,
            token=np.arange(1, n + 1),
            worker=workers,
            expires_at=np.array([instant(at) for at in ends]),
        )
        tx.lease(leases, T0)


def census(store, now):
    with store.begin(write=False) as tx:
        return tx.queue_census(now)


def test_an_empty_queue_has_zeros(queue_store):
    assert census(queue_store, T0) == QueueCensus(*[0] * 11)


def test_pages_count_as_due_leased_or_expired_at_the_instant(queue_store):
    ids = np.sort(register(queue_store, 6))
    queued(queue_store, ids, [T0, T0, T0, T0, T0, T0 + 9 * MINUTE])
    leased(queue_store, ids[:3], [T0 + 2 * MINUTE, T0 + 4 * MINUTE, T0 + 4 * MINUTE])
    numbers = {m: census(queue_store, T0 + m * MINUTE) for m in (1, 2, 5, 9)}
    assert {m: (c.n_queued, c.n_due, c.n_leased, c.n_expired) for m, c in numbers.items()} == {
        1: (6, 2, 3, 0),
        2: (6, 3, 2, 1),  # a lease ends at its instant, and its page is due again
        5: (6, 5, 0, 3),
        9: (6, 6, 0, 3),
    }


def test_blocked_and_paused_host_queues_are_counted_apart_until_their_end(queue_store):
    """A host queue with both pauses counts as the operator's."""
    for host in ("a.example", "b.example", "c.example"):
        register(queue_store, 1, host=host)
    until = {"a.example": T0 + 5 * MINUTE, "b.example": T0 + 9 * MINUTE}
    with queue_store.begin() as tx:
        host_id = tx.host_ids(list(until))
        locked = tx.lock_host_queues(np.sort(host_id))
        order = locked.queue_id.searchsorted(host_id)
        locked.blocked_until[order] = [instant(T0 + 5 * MINUTE), NO_TIME]
        locked.paused_until[order] = [instant(at) for at in until.values()]
        tx.save_host_queues(locked)
        tx.save_blocks(locked)
    numbers = [census(queue_store, T0 + m * MINUTE) for m in (0, 5, 9)]
    assert [(c.n_host_queues, c.n_blocked, c.n_paused) for c in numbers] == [
        (2, 1, 1),
        (2, 0, 1),
        (2, 0, 0),
    ]
