"""What outlives a deletion: crawls that run, and the pauses of hosts."""

from datetime import timedelta

import numpy as np
import pytest
from support.crawl_cases import (
    HOUR,
    POLITE,
    RULES,
    SECOND,
    TTL,
    UNTIL,
    add,
    ids,
    release,
    report,
    take,
)
from support.store_cases import T0, page_columns

from service.leases.host_settings import (
    change_group,
    change_host,
    delete_group,
    delete_host,
    pauses,
)
from service.leases.politeness import Politeness
from service.leases.settle import LeaseSettler
from service.model.errors import HostNotFound

ONE_AT_A_TIME = Politeness(delay_s=0, concurrency=1)
HOST = "example.org"
PAGE = f"https://{HOST}/0"


@pytest.fixture
def store(queue_store):
    queue_store.clock = lambda: T0
    return queue_store


def at(store, now):
    store.clock = lambda: now
    for part in store.parts:
        part.clock = store.clock
    return now


def delete(store, *page_ids, now=T0):
    at(store, now)
    with store.begin() as tx:
        assert tx.delete_many(np.sort(np.array(page_ids))) == len(page_ids)


def again(store, url, now):
    """Register a page as a request does."""
    at(store, now)
    settler = LeaseSettler(POLITE, UNTIL, RULES.rng)
    with store.begin() as tx:
        page_id, created = tx.register(page_columns([url]), now)
        assert created.all()
        settler.queue_pinged(tx, page_id, now)
    return int(page_id[0])


def change(store, host, now=T0, polite=POLITE, **settings):
    at(store, now)
    with store.begin() as tx:
        change_host(tx, host, settings, now, polite)


def drop_host(store, host, now=T0, polite=POLITE):
    at(store, now)
    with store.begin() as tx:
        delete_host(tx, host, now, polite)


def test_a_page_that_is_deleted_and_added_again_is_not_leased_twice_at_once(store):
    (old,) = add(store, 1)
    (first,) = take(store, T0)
    delete(store, old)
    new = again(store, PAGE, T0 + SECOND)
    assert new != old
    assert take(store, T0 + TTL - SECOND) == []
    # the lease ended without a report, so the page waits as its URL would have without a deletion
    assert take(store, T0 + TTL) == []
    assert take(store, T0 + TTL + HOUR - SECOND) == []
    (second,) = take(store, T0 + TTL + HOUR)
    assert (second.page_id, second.token != first.token) == (new, True)


def test_a_fill_of_the_queue_does_not_free_the_new_page_sooner(store):
    from service.leases.queue import fill_queue

    (old,) = add(store, 1)
    take(store, T0)
    delete(store, old)
    again(store, PAGE, T0 + SECOND)
    for part in store.parts:
        fill_queue(part, T0 + UNTIL)
    assert take(store, T0 + 2 * SECOND) == []


def test_a_page_without_a_running_lease_is_leased_at_once_when_it_comes_again(store):
    (old,) = add(store, 1)
    take(store, T0)
    later = T0 + TTL
    delete(store, old, now=later)
    new = again(store, PAGE, later)
    assert ids(take(store, later)) == [new]


def test_the_lease_of_a_deleted_page_counts_for_its_host(store):
    first, *others = sorted(add(store, 3))
    (crawl,) = take(store, T0, count=1, polite=ONE_AT_A_TIME)
    assert crawl.page_id == first
    delete(store, first)
    assert take(store, T0 + SECOND, polite=ONE_AT_A_TIME) == []
    assert ids(take(store, T0 + TTL, polite=ONE_AT_A_TIME)) == others[:1]


def test_a_report_ends_the_lease_of_a_deleted_page(store):
    first, *others = sorted(add(store, 3))
    (crawl,) = take(store, T0, count=1, polite=ONE_AT_A_TIME)
    delete(store, first)
    assert report(store, [crawl], T0 + SECOND, polite=ONE_AT_A_TIME) == [True]
    assert ids(take(store, T0 + SECOND, polite=ONE_AT_A_TIME)) == others[:1]
    assert report(store, [crawl], T0 + SECOND, polite=ONE_AT_A_TIME) == [False]


def test_reports_of_deleted_and_living_pages_end_their_leases_together(store):
    page_ids = add(store, 5)
    crawls = take(store, T0)
    delete(store, *page_ids[::2])
    assert report(store, crawls, T0 + SECOND) == [True] * 5
    with store.begin(write=False) as tx:
        assert tx.queue_census(T0 + SECOND).n_leased == 0


def test_a_returned_lease_of_a_deleted_page_frees_its_host(store):
    first, *others = sorted(add(store, 3))
    (crawl,) = take(store, T0, count=1, polite=ONE_AT_A_TIME)
    delete(store, first)
    assert release(store, [crawl], T0 + SECOND, polite=ONE_AT_A_TIME) == [True]
    assert ids(take(store, T0 + SECOND, polite=ONE_AT_A_TIME)) == others[:1]


def test_leases_of_deleted_pages_leave_the_queue_when_they_end(store):
    page_ids = add(store, 4)
    take(store, T0)
    delete(store, *page_ids)
    with store.begin(write=False) as tx:
        assert tx.queue_census(T0).n_leased == 4
    assert take(store, T0 + TTL) == []
    with store.begin(write=False) as tx:
        assert tx.queue_census(T0 + TTL).n_queued == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lease_moves_with_its_host_into_a_group(sql_store, when):
    """Other hosts of the group wait for the crawl of the deleted page."""
    store = sql_store
    (page,) = add(store, 1)
    (other,) = add(store, 1, host="other.example.org")
    (crawl,) = take(store, T0, hosts=[HOST], polite=ONE_AT_A_TIME)
    members = [HOST, "other.example.org"]
    if when == "before":
        delete(store, page)
    at(store, T0)
    with store.begin() as tx:
        change_group(tx, "one", {}, members, T0, ONE_AT_A_TIME)
    if when == "after":
        delete(store, page)
    assert take(store, T0 + SECOND, polite=ONE_AT_A_TIME) == []
    assert report(store, [crawl], T0 + SECOND, polite=ONE_AT_A_TIME) == [True]
    assert ids(take(store, T0 + SECOND, polite=ONE_AT_A_TIME)) == [other]


def test_a_lease_moves_with_its_host_out_of_a_group_that_is_deleted(store):
    first, second = add(store, 2)
    at(store, T0)
    with store.begin() as tx:
        change_group(tx, "one", {}, [HOST], T0, ONE_AT_A_TIME)
    (crawl,) = take(store, T0, count=1, polite=ONE_AT_A_TIME)
    delete(store, crawl.page_id)
    at(store, T0)
    with store.begin() as tx:
        delete_group(tx, "one", T0, ONE_AT_A_TIME)
    assert take(store, T0 + SECOND, polite=ONE_AT_A_TIME) == []
    (left,) = {first, second} - {crawl.page_id}
    assert ids(take(store, T0 + TTL, polite=ONE_AT_A_TIME)) == [left]


def test_a_host_that_is_deleted_with_its_pages_still_waits_for_its_crawl(store):
    (page,) = add(store, 1)
    take(store, T0, polite=ONE_AT_A_TIME)
    delete(store, page)
    drop_host(store, HOST)
    new = again(store, f"https://{HOST}/new", T0 + SECOND)
    assert take(store, T0 + SECOND, polite=ONE_AT_A_TIME) == []
    assert ids(take(store, T0 + TTL, polite=ONE_AT_A_TIME)) == [new]


def paused(store, host):
    with store.begin(write=False) as tx:
        ends = pauses(tx.host(host).host_queue).values()
        return max((end for end in ends if end is not None), default=None)


@pytest.mark.parametrize("by", ["site", "operator"])
def test_a_host_that_is_deleted_and_added_again_stays_paused(store, by):
    (page,) = add(store, 1)
    if by == "site":
        crawls = take(store, T0)
        report(store, crawls, T0, status=429, retry_after_s=3_600.0)
    else:
        change(store, HOST, blocked_until=T0 + HOUR)
    until = paused(store, HOST)
    assert until >= T0 + HOUR
    delete(store, page)
    drop_host(store, HOST)
    with pytest.raises(HostNotFound):
        paused(store, HOST)
    new = again(store, PAGE, T0 + SECOND)
    assert paused(store, HOST) == until
    assert take(store, until - SECOND) == []
    assert ids(take(store, until)) == [new]


def test_a_pause_outlives_a_host_that_is_named_by_its_settings(store):
    change(store, HOST, blocked_until=T0 + HOUR)
    drop_host(store, HOST)
    change(store, HOST, max_concurrency=2)
    assert paused(store, HOST) == T0 + HOUR


def test_a_host_of_a_group_takes_the_pause_of_the_group_along(store):
    (page,) = add(store, 1)
    at(store, T0)
    with store.begin() as tx:
        change_group(tx, "one", {"blocked_until": T0 + HOUR}, [HOST], T0, POLITE)
    delete(store, page)
    drop_host(store, HOST)
    again(store, PAGE, T0 + SECOND)
    assert paused(store, HOST) == T0 + HOUR


def test_a_long_delay_outlives_its_host(store):
    (page,) = add(store, 1)
    slow = Politeness(delay_s=3_600.0, concurrency=1)
    (crawl,) = take(store, T0, polite=slow)
    report(store, [crawl], T0 + SECOND, polite=slow)
    delete(store, page)
    drop_host(store, HOST)
    new = again(store, f"https://{HOST}/new", T0 + 2 * SECOND)
    assert take(store, T0 + HOUR - SECOND, polite=slow) == []
    assert ids(take(store, T0 + HOUR + SECOND, polite=slow)) == [new]


def test_a_pause_that_is_over_is_forgotten_with_its_host(store):
    change(store, HOST, blocked_until=T0 + SECOND)
    drop_host(store, HOST, now=T0 + HOUR)
    again(store, PAGE, T0 + HOUR)
    assert paused(store, HOST) is None


def test_another_host_inherits_nothing(store):
    """On SQLite it may have the id of the deleted one."""
    (page,) = add(store, 1)
    take(store, T0, polite=ONE_AT_A_TIME)
    change(store, HOST, blocked_until=T0 + HOUR)
    delete(store, page)
    drop_host(store, HOST)
    new = again(store, "https://other.example/", T0 + SECOND)
    assert paused(store, "other.example") is None
    assert ids(take(store, T0 + SECOND, polite=ONE_AT_A_TIME)) == [new]


def test_a_pause_is_kept_over_two_deletions(store):
    change(store, HOST, blocked_until=T0 + HOUR)
    for n in range(3):
        drop_host(store, HOST, now=T0 + n * timedelta(minutes=1))
        change(store, HOST, now=T0 + n * timedelta(minutes=1), max_concurrency=n + 1)
        assert paused(store, HOST) == T0 + HOUR
