"""Windows in leases: on each database, with the real due rule, queue and reports."""

from datetime import timedelta

import numpy as np
import pytest
from support.crawl_cases import POLITE, RUDE, SECOND, UNTIL, add, queue, take
from support.store_cases import T0, instants, register

from service.leases.due import next_crawl_at
from service.leases.host_settings import change_group, change_host
from service.leases.open_due import lease_end
from service.model.arrays import moment
from service.model.calendars import Calendars, HourRules
from service.storage.queue.columns import ALL_PAGES
from service.storage.queue.hours import follow_hours

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def window(begin, end):
    """Return a daily window between two times after T0."""
    return f"{T0 + begin:%H:%M}-{T0 + end:%H:%M} UTC"


CLOSED = window(2 * HOUR, 10 * HOUR)
"""A window that opens two hours after T0."""
OPEN = window(-HOUR, 7 * HOUR)


@pytest.fixture
def store(queue_store):
    queue_store.clock = lambda: T0
    queue_store.calendars = Calendars()
    return queue_store


def set_hours(store, host="example.org", group=None, members=None, **settings):
    with store.begin() as tx:
        if group is None:
            change_host(tx, host, settings, T0, POLITE)
        else:
            change_group(tx, group, settings, members, T0, POLITE)
    with store.begin(write=False) as tx:
        follow_hours(tx, tx.orders().hours)


def at(store, time):
    store.clock = lambda: time
    return time


def test_nothing_is_leased_before_the_opening_and_everything_from_then_on(store):
    add(store, 3)
    set_hours(store, windows=[CLOSED])
    assert take(store, T0 + SECOND) == []
    with store.begin(write=False) as tx:
        assert tx.next_ready_at(ALL_PAGES) == T0 + 2 * HOUR
    assert take(store, at(store, T0 + 2 * HOUR - SECOND)) == []
    assert len(take(store, at(store, T0 + 2 * HOUR))) == 3


def test_a_lease_ends_by_the_closing_and_none_is_given_in_the_last_30_seconds(store):
    add(store, 2)
    set_hours(store, windows=[OPEN])
    closing = T0 + 7 * HOUR
    at(store, closing - timedelta(minutes=2))
    (crawl,) = take(store, store.clock(), count=1)
    with store.begin(write=False) as tx:
        running, _ = tx.running_leases(0, 10, store.clock())
        longer = lease_end(tx, crawl.page_id, closing + HOUR, store.clock())
    assert [lease.expires_at for lease in running] == [closing]
    assert longer == closing
    assert take(store, at(store, closing - timedelta(seconds=30))) == []
    assert take(store, at(store, closing + SECOND)) == []


def test_a_page_of_a_group_follows_its_own_windows(sql_store):
    store = sql_store  # several databases divide a group of these hosts
    store.clock, store.calendars = lambda: T0, Calendars()
    (own,) = add(store, 1, host="own.example")
    (of_group,) = add(store, 1, host="member.example")
    set_hours(store, group="g", members=["own.example", "member.example"], windows=[CLOSED])
    set_hours(store, host="own.example", windows=[OPEN])
    assert [crawl.page_id for crawl in take(store, T0 + SECOND)] == [own]
    assert take(store, T0 + 2 * SECOND) == []
    taken = take(store, at(store, T0 + 2 * HOUR + SECOND))
    assert of_group in [crawl.page_id for crawl in taken]


def test_an_empty_list_lifts_the_windows_of_a_wider_level(store):
    add(store, 1)
    store.calendars = Calendars(HourRules((CLOSED,)))
    set_hours(store, host="other.example", windows=[OPEN])
    assert take(store, T0 + SECOND) == []
    set_hours(store, windows=[])
    assert len(take(store, T0 + 2 * SECOND)) == 1


def test_blackouts_of_all_levels_add_up(store):
    add(store, 1)
    today = f"{T0:%Y-%m-%d} UTC"
    store.calendars = Calendars(HourRules(None, (today,)))
    set_hours(store, windows=[OPEN], blackouts=[f"{T0 + DAY:%Y-%m-%d} UTC"])
    assert take(store, T0 + SECOND) == []
    assert take(store, at(store, T0 + DAY)) == []
    assert len(take(store, at(store, T0 + 2 * DAY))) == 1


def test_a_request_waits_for_the_opening_and_then_comes_first(store):
    page, *_ = add(store, 3)
    set_hours(store, windows=[CLOSED])
    with store.begin() as tx:
        tx.request_many(np.array([page]), T0)
    queue(store, [page], T0)
    assert take(store, T0 + SECOND) == []
    with store.begin(write=False) as tx:
        assert next_crawl_at(tx.page(page)) == T0 + 2 * HOUR
    (first,) = take(store, at(store, T0 + 2 * HOUR), count=1)
    assert first.page_id == page


def test_pages_show_the_opening_as_their_next_crawl(store):
    page, *_ = register(store, 2, T0).tolist()
    set_hours(store, windows=[CLOSED])
    with store.begin(write=False) as tx:
        assert next_crawl_at(tx.page(page)) == T0 + 2 * HOUR
        columns = tx.due_columns(np.array([page]))
    assert columns.hours is not None
    assert moment(columns.hours[0].opening(instants([T0]))[0]) == T0 + 2 * HOUR


def test_a_window_that_opens_sooner_holds_at_once(store):
    add(store, 1)
    set_hours(store, windows=[window(6 * HOUR, 8 * HOUR)])
    assert take(store, T0 + SECOND) == []
    set_hours(store, windows=[CLOSED])
    queue(store, [1], T0)
    assert len(take(store, at(store, T0 + 2 * HOUR))) == 1


def test_without_windows_no_array_and_no_statement_is_added(store):
    page, *_ = add(store, 2)
    with store.begin(write=False) as tx:
        asked = []
        tx.hosts_of = asked.append
        assert tx.due_columns(np.array([page])).hours is None
        assert not asked
        assert not tx.calendars.in_use
    assert len(take(store, T0 + SECOND, polite=RUDE, ttl=UNTIL)) == 2


def test_feeds_of_a_closed_host_hide_no_others(store):
    closed, (other,) = add(store, 80, host="closed.example"), add(store, 1, host="open.example")
    with store.begin() as tx:
        tx.set_kinds(np.sort(np.array([*closed, other])), feed=True)
    set_hours(store, host="closed.example", windows=[CLOSED])
    taken = [crawl.page_id for _ in range(3) for crawl in take(store, T0 + SECOND, feeds=True)]
    assert taken == [other]
    opens = at(store, T0 + 2 * HOUR)
    later = {crawl.page_id for crawl in take(store, opens, feeds=True, count=100)}
    assert later >= set(closed)
