"""What every database promises of kinds of pages, and of their rows of the queue."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
from support.crawl_cases import RUDE, queue, take
from support.store_cases import DAY, T0, page_columns

from service.leases.host_settings import change_group
from service.storage.queue.columns import LeaseFilter

FEEDS = LeaseFilter(feeds=True)
URLS = [f"https://{host}.example/{n}" for host in "abc" for n in range(2)]


def stocked(store):
    """Two due pages of each of three hosts; return their ids in the order of `URLS`."""
    with store.begin() as tx:
        page_id = tx.register(page_columns(URLS), T0).page_id
    queue(store, np.sort(page_id), T0)
    return page_id


def set_kinds(store, page_id, *, feed):
    with store.begin() as tx:
        tx.lock_page_rows(np.sort(page_id))
        return tx.set_kinds(np.sort(page_id), feed=feed).tolist()


def test_only_pages_of_another_kind_change(queue_store):
    ids = stocked(queue_store)
    assert set_kinds(queue_store, ids[:2], feed=True) == sorted(ids[:2].tolist())
    assert set_kinds(queue_store, ids[:3], feed=True) == [ids[2]]
    assert set_kinds(queue_store, ids[3:], feed=False) == []
    assert set_kinds(queue_store, ids[[0, 5]], feed=False) == [ids[0]]
    with queue_store.begin(write=False) as tx:
        assert [tx.page(int(i)).feed for i in ids] == [False, True, True, False, False, False]


def test_each_request_gets_the_pages_of_its_kind(queue_store):
    ids = stocked(queue_store)
    set_kinds(queue_store, ids[[0, 3]], feed=True)
    taken = [crawl.page_id for crawl in take(queue_store, T0, feeds=True)]
    assert sorted(taken) == sorted(ids[[0, 3]].tolist())
    with queue_store.begin(write=False) as tx:
        assert tx.next_ready_at(FEEDS) > T0  # the ends of their leases
    taken = [crawl.page_id for crawl in take(queue_store, T0)]
    assert sorted(taken) == sorted(ids[[1, 2, 4, 5]].tolist())


def test_the_bounds_of_rows_are_by_host_queue(queue_store):
    ids = stocked(queue_store)
    with queue_store.begin(write=False) as tx:
        bounds = tx.queued_bounds(np.sort(ids[:4]))
        assert len(bounds) == 2
        assert (bounds.next_at <= np.datetime64((T0 + DAY).replace(tzinfo=None))).all()
        assert len(tx.queued_bounds(ids[:0])) == 0


def test_no_feed_is_ready_where_none_is_queued(queue_store):
    stocked(queue_store)
    with queue_store.begin(write=False) as tx:
        assert tx.next_ready_at(FEEDS) is None
    assert take(queue_store, T0, feeds=True) == []


def test_hosts_and_slices_choose_among_feeds(queue_store):
    ids = stocked(queue_store)
    with queue_store.begin() as tx:
        change_group(tx, "shared", {}, ("b.example", "c.example"), T0, RUDE)
    set_kinds(queue_store, ids[::2], feed=True)
    assert [crawl.host for crawl in take(queue_store, T0, hosts=["b.example"], feeds=True)] == [
        "b.example"
    ]
    taken = []
    for n in range(3):
        reach = {"slice": n, "slices": 3, "feeds": True}
        while crawls := take(queue_store, T0, **reach):
            taken += [crawl.host for crawl in crawls]
    assert sorted(taken) == ["a.example", "c.example"]


def test_a_feed_waits_for_the_delay_of_its_host(queue_store):
    ids = stocked(queue_store)
    set_kinds(queue_store, ids[:1], feed=True)
    slow = replace(RUDE, delay_s=10)
    assert len(take(queue_store, T0, polite=slow, hosts=["a.example"])) == 1
    assert take(queue_store, T0, polite=slow, feeds=True) == []
    with queue_store.begin(write=False) as tx:
        assert tx.next_ready_at(FEEDS) == T0 + timedelta(seconds=10)
    taken = take(queue_store, T0 + timedelta(seconds=10), polite=slow, feeds=True)
    assert [crawl.page_id for crawl in taken] == [ids[0]]
