"""What holds pages in the queue: places, host queues in reach, and bounded counts."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from storage.test_contract_census import leased, queued
from support.store_cases import T0, instants, register

from service.model.arrays import instant
from service.model.errors import PageNotFound
from service.storage.queue.columns import ALL_PAGES, LeaseFilter, QueueRows

MINUTE = timedelta(minutes=1)
A, B = "a.example", "b.example"


def read(store, name, *values, **named):
    with store.begin(write=False) as tx:
        return getattr(tx, name)(*values, **named)


@pytest.fixture
def two_hosts(queue_store):
    """Five due pages of a host, of which one is leased, and one page of another host."""
    a, b = np.sort(register(queue_store, 5, host=A)), register(queue_store, 1, host=B)
    queued(queue_store, a, [T0 + n * MINUTE for n in range(5)])
    queued(queue_store, b, [T0 + MINUTE])
    leased(queue_store, a[:1], [T0 + 9 * MINUTE])
    return queue_store, a, b


def queue_of(store, *hosts):
    with store.begin() as tx:
        return tx.host_ids(list(hosts))


def test_a_page_has_a_place_in_the_queue_of_its_host(two_hosts):
    store, a, _ = two_hosts
    (queue_id,) = queue_of(store, A).tolist()
    first, second = (read(store, "page_place", int(page_id)) for page_id in a[:2])
    assert first == (queue_id, None, T0 + 9 * MINUTE, "w", T0 + 9 * MINUTE)
    assert second == (queue_id, None, T0 + MINUTE, None, None)
    (unqueued,) = register(store, 1, host="c.example").tolist()
    assert read(store, "page_place", unqueued)[1:] == (None, None, None, None)


def test_a_page_that_was_deleted_has_no_place(two_hosts):
    store, a, _ = two_hosts
    with store.begin() as tx:
        tx.delete_page(int(a[1]))
    with pytest.raises(PageNotFound):
        read(store, "page_place", int(a[1]))


def test_rows_that_come_before_are_counted_up_to_a_maximum(two_hosts):
    store, _, _ = two_hosts
    queue_id = queue_of(store, A, B)

    def n_due(minutes, each=9, of=ALL_PAGES):
        before = T0 + minutes * MINUTE
        return read(store, "n_due_rows", queue_id, before, each, of).tolist()

    assert n_due(1) == [0, 0]  # the leased page does not count, and neither does the instant
    assert n_due(3) == [2, 1]
    assert n_due(9) == [4, 1]
    assert n_due(9, each=2) == [2, 1]
    assert n_due(9, of=LeaseFilter((B,))) == [4, 1]  # host queues of hosts have no other pages
    assert read(store, "n_due_rows", queue_id[:0], T0, 9).tolist() == []


def test_rows_of_both_kinds_are_counted_apart(two_hosts):
    store, a, _ = two_hosts
    new = np.sort(np.setdiff1d(register(store, 8, host=A), a))
    queued(store, new, [T0] * 3)
    with store.begin() as tx:
        rows = QueueRows(
            page_id=a[1:],
            next_at=instants([T0 + n * MINUTE for n in range(1, 5)]),
            last_crawl_at=instants([T0 - MINUTE] * 4),
            crawl_rate=np.ones(4),
            requested=np.zeros(4, np.bool_),
        )
        tx.requeue(rows)
    place = read(store, "page_place", int(a[3]))
    counts = store, "n_before_in_turns", int(a[3]), place
    assert read(*counts, T0 + 8 * MINUTE, 9, first=False) == (2, 3, False)
    assert read(*counts, T0 + 8 * MINUTE, 2, first=False) == (2, 2, True)
    place = read(store, "page_place", int(new[1]))
    counts = store, "n_before_in_turns", int(new[1]), place
    assert read(*counts, T0 + 2 * MINUTE, 9, first=True) == (1, 2, False)


def test_the_lease_that_ends_first_has_its_worker(two_hosts):
    store, _, _ = two_hosts
    one, other = queue_of(store, A, B).tolist()
    lease = read(store, "next_to_end", one, T0)
    assert (lease.worker, lease.expires_at) == ("w", T0 + 9 * MINUTE)
    assert read(store, "next_to_end", other, T0) is None
    assert read(store, "next_to_end", one, T0 + 9 * MINUTE) is None


def test_rows_come_before_by_their_bounds_then_by_their_pages(two_hosts):
    store, a, _ = two_hosts
    more = np.sort(register(store, 8, host=A))[-3:]
    queued(store, more, [T0 + 3 * MINUTE] * 3)
    (queue_id,) = queue_of(store, A).tolist()

    def n_before(minutes, page_id, most=9):
        return read(store, "n_before", queue_id, T0 + minutes * MINUTE, int(page_id), most)

    assert n_before(1, a[1]) == (0, False)  # the leased page does not count
    assert [n_before(3, page_id)[0] for page_id in (a[3], *more)] == [2, 3, 4, 5]
    assert n_before(4, a[4], most=2) == (2, True)


def test_of_a_group_only_pages_of_the_filters_hosts_count(two_hosts):
    store, a, _ = two_hosts
    with store.begin() as tx:
        queue_id = np.array([-tx.group_id("g", near=A)])
        host_id = np.sort(tx.host_ids([A]))
        tx.lock_hosts(host_id)
        tx.lock_host_queues(queue_id)
        tx.move_hosts(host_id, np.full(1, queue_id[0]))
    place = read(store, "page_place", int(a[1]))
    assert (place.queue_id, place.group) == (queue_id[0], "g")
    before = T0 + 9 * MINUTE
    assert read(store, "n_due_rows", queue_id, before, 9).tolist() == [4]
    assert read(store, "n_due_rows", queue_id, before, 9, LeaseFilter((A,))).tolist() == [4]
    assert read(store, "n_due_rows", queue_id, before, 9, LeaseFilter((B,))).tolist() == [0]
    assert read(store, "queue_names", np.append(queue_id, queue_of(store, B))) == ["g", B]


def test_host_queues_in_reach_are_those_that_open_first(two_hosts):
    store, _, _ = two_hosts
    a, b = queue_of(store, A, B).tolist()
    with store.begin() as tx:
        locked = tx.lock_host_queues(np.array(sorted([a, b])))
        until = np.where(locked.queue_id == a, instant(T0 + 5 * MINUTE), np.datetime64("NaT"))
        tx.save_host_queues(
            replace(locked, paused_until=until, next_at=np.fmax(until, locked.next_at))
        )
    assert read(store, "next_in_reach").queue_id.tolist() == sorted([a, b])
    (first,) = read(store, "next_in_reach", ALL_PAGES, 1).queue_id.tolist()
    assert first == b
    assert read(store, "next_in_reach", LeaseFilter((A,))).queue_id.tolist() == [a]
    slices = [read(store, "next_in_reach", LeaseFilter((), n, 2)).queue_id for n in (0, 1)]
    assert sorted(np.concatenate(slices).tolist()) == sorted([a, b])
    (of_a,) = read(store, "read_host_queues", np.array([a])).paused_until.tolist()
    assert of_a == (T0 + 5 * MINUTE).replace(tzinfo=None)


def test_pages_that_are_put_off_are_counted_within_a_filter(two_hosts):
    store, _, _ = two_hosts
    store.holds_new = True
    register(store, 7, host=A)  # two of them are new
    register(store, 2, host=B)
    assert read(store, "n_put_off", T0) == (3, 0)
    assert read(store, "n_put_off", T0, LeaseFilter((A,))) == (2, 0)
    assert sum(read(store, "n_put_off", T0, LeaseFilter((), n, 2))[0] for n in (0, 1)) == 3


def test_the_newest_lease_is_known_while_it_runs(two_hosts):
    store, _, _ = two_hosts
    assert read(store, "newest_lease") == T0


def test_leases_that_run_are_counted_by_host_queue(two_hosts):
    store, _, _ = two_hosts
    queue_id = queue_of(store, A, B)
    assert read(store, "n_running", queue_id, T0 + MINUTE).tolist() == [1, 0]
    assert read(store, "n_running", queue_id, T0 + 9 * MINUTE).tolist() == [0, 0]


def test_the_ends_of_leases_and_the_first_rows_are_those_of_host_queues(two_hosts):
    store, _, _ = two_hosts
    queue_id = queue_of(store, A, B)
    queues, ends = read(store, "lease_ends", queue_id, T0 + 8 * MINUTE)
    assert (queues.tolist(), ends.tolist()) == (queue_id[:1].tolist(), [instant(T0 + 9 * MINUTE)])
    assert not len(read(store, "lease_ends", queue_id[1:], T0)[0])
    assert not len(read(store, "lease_ends", queue_id, T0 + 9 * MINUTE)[0])
    firsts = [instant(T0 + MINUTE)] * 2
    unknown = np.append(queue_id, 10**9)
    assert read(store, "first_rows", unknown).tolist()[:2] == [at.item() for at in firsts]
    assert np.isnat(read(store, "first_rows", unknown)[2])
