"""Incidents of hosts in each store: rows, locks, counts and their end."""

import threading
from datetime import timedelta

import numpy as np
import pytest
from support.store_cases import DAY, T0, register, save

from service.ingest.incidents import HostWatch, incidents_of, watches_of
from service.model.arrays import instant
from service.model.errors import RowLocked
from service.model.incidents import Incident, Sign
from service.storage.queue.incidents import MOST_LOOKED_AT

HOUR = timedelta(hours=1)
NONE = np.zeros(0, np.int64)


def us(at):
    return int(instant(at).astype(np.int64))


def hosts_of(store, *names):
    for name in names:
        register(store, 1, host=name)
    with store.begin() as tx:
        return np.sort(tx.host_ids(names))


def test_suspected_hosts_get_rows_and_the_others_none(queue_store):
    ids = hosts_of(queue_store, "a.example", "b.example", "c.example")
    with queue_store.begin() as tx:
        assert not tx.has_incidents()
        locked = tx.lock_incidents(ids, ids[:2])
    assert list(watches_of(locked).values()) == [HostWatch(host_id) for host_id in ids[:2].tolist()]
    with queue_store.begin() as tx:
        assert tx.has_incidents()
        assert tx.lock_incidents(ids, NONE).host_id.tolist() == ids[:2].tolist()
        tx.drop_incidents(ids[:1])
    with queue_store.begin() as tx:
        assert tx.lock_incidents(ids, NONE).host_id.tolist() == ids[1:2].tolist()


def test_rows_are_kept_as_they_were_written(queue_store):
    (host_id,) = hosts_of(queue_store, "a.example").tolist()
    watch = HostWatch(
        host_id, us(T0), 5, 4, 3, 2, 1, -9, 8, 7, us(T0 + HOUR), 1, us(T0), us(T0 + HOUR)
    )
    watch.n_pages = 6
    with queue_store.begin() as tx:
        tx.lock_incidents(np.array([host_id]), np.array([host_id]))
        tx.save_incidents(incidents_of([watch]))
    with queue_store.begin() as tx:
        assert watches_of(tx.lock_incidents(np.array([host_id]), NONE)) == {host_id: watch}
        assert tx.incident_of(host_id) == Incident(Sign.absent, T0, 6)
        assert tx.host("a.example").incident == Incident(Sign.absent, T0, 6)
        assert tx.queue_census(T0 + HOUR).n_incidents == 1
        assert tx.queue_census(T0 + DAY).n_incidents == 0
        watch.ended_at = us(T0 + HOUR)
        tx.save_incidents(incidents_of([watch]))
    with queue_store.begin() as tx:
        assert tx.incident_of(host_id) is None
        assert tx.host("a.example").incident is None


def test_pages_count_by_their_last_crawl(queue_store):
    page_id = np.sort(register(queue_store, 6, host="a.example"))
    other = register(queue_store, 3, host="b.example")
    save(queue_store, other, last_crawl_at=T0)
    for i, page in enumerate(page_id[:5].tolist()):
        save(queue_store, [page], last_crawl_at=T0 + i * HOUR)
    with queue_store.begin() as tx:
        (host_id,) = tx.host_ids(["a.example"]).tolist()
        assert tx.crawled_between(host_id, T0, T0 + 3 * HOUR, NONE) == 3
        assert tx.crawled_between(host_id, T0, T0 + 3 * HOUR, page_id[:2]) == 1
        assert tx.crawled_between(host_id, T0 - DAY, T0, NONE) == 0
    assert len(page_id) < MOST_LOOKED_AT


def test_pages_that_are_gone_since_an_incident(store):
    page_id = np.sort(register(store, 6, host="a.example"))
    other = register(store, 1, host="b.example")
    save(store, [*page_id[:4], *other], gone=True, absent_since=T0 + HOUR)
    save(store, page_id[:1], absent_since=T0)
    save(store, page_id[1:2], absent_since=T0 + 2 * HOUR)
    save(store, page_id[4:], absent_since=T0 + 2 * HOUR)
    with store.begin() as tx:
        (host_id, _) = tx.lock_states(np.sort([page_id[0], other[0]])).host_id.tolist()
        assert tx.gone_since(host_id, T0 + HOUR).tolist() == page_id[1:4].tolist()
        assert tx.gone_since(host_id, T0 + 3 * HOUR).tolist() == []


def test_old_rows_are_forgotten_and_those_in_use_are_not(queue_store):
    a, b, c, d = hosts_of(queue_store, *(f"{name}.example" for name in "abcd")).tolist()
    now = T0 + 40 * DAY
    rows = [
        HostWatch(a, opened_at=us(now - 2 * HOUR)),
        HostWatch(b, opened_at=us(now - HOUR / 2)),
        HostWatch(c, kind=Sign.absent, since=us(now - 31 * DAY), ended_at=us(now - 30 * DAY)),
        HostWatch(d, kind=Sign.absent, since=us(now - 2 * DAY)),
    ]
    ids = np.array([a, b, c, d])
    with queue_store.begin() as tx:
        tx.lock_incidents(ids, ids)
        tx.save_incidents(incidents_of(rows))
    with queue_store.begin() as tx:
        tx.forget_incidents(now)
    with queue_store.begin() as tx:
        assert tx.lock_incidents(ids, NONE).host_id.tolist() == [b, d]


def test_a_deleted_host_leaves_no_row(queue_store):
    page_id = register(queue_store, 1, host="a.example")
    ids = hosts_of(queue_store, "a.example")
    with queue_store.begin() as tx:
        tx.lock_incidents(ids, ids)
        tx.delete_many(page_id)
    with queue_store.begin() as tx:
        tx.hold_hosts()
        tx.delete_host(tx.host("a.example"))
    with queue_store.begin() as tx:
        assert not len(tx.lock_incidents(ids, NONE))


def test_transactions_that_suspect_the_same_hosts_wait_and_never_deadlock(postgres_store):
    ids = hosts_of(postgres_store, *(f"{i}.example" for i in range(8)))
    rng, failed = np.random.default_rng(5), []

    def work(seed):
        own = np.random.default_rng(seed)
        try:
            for _ in range(25):
                some = np.sort(own.choice(ids, 5, replace=False))
                with postgres_store.begin() as tx:
                    locked = tx.lock_incidents(some, some[own.random(5) < 0.5])
                    tx.drop_incidents(locked.host_id[own.random(len(locked)) < 0.5])
        except Exception as error:  # noqa: BLE001 - shown by the assertion
            failed.append(error)

    threads = [threading.Thread(target=work, args=[seed]) for seed in rng.integers(99, size=4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def lock_in_a_hurry(store, ids):
    with store.begin() as tx:
        tx.hurry()
        tx.lock_incidents(ids, NONE)


@pytest.mark.dear
def test_a_locked_incident_is_found_as_a_lock_on_the_pages_of_its_host(postgres_store):
    page_id = register(postgres_store, 2, host="a.example")
    free = register(postgres_store, 2, host="b.example")
    with postgres_store.begin() as tx:
        ids = tx.host_ids(["a.example"])
        tx.lock_incidents(ids, ids)
    with postgres_store.begin() as holder:
        holder.lock_incidents(ids, NONE)
        with postgres_store.begin() as tx:
            every = np.sort(np.concatenate([page_id, free]))
            assert tx.locked_pages(every).tolist() == np.sort(page_id).tolist()
        with pytest.raises(RowLocked):
            lock_in_a_hurry(postgres_store, ids)
