"""The state of a page in lists, and lists and counts of the pages in a state."""

from datetime import timedelta
from functools import partial

import numpy as np
import pytest
from support.store_cases import DAY, T0, page_of, publish, register, save, schedule_columns

from service.leases import listing
from service.leases.due import due_before, next_crawl_at
from service.leases.listing import MOVED, OVERDUE, PageState, Selection, count, states_of
from service.model.domain import ScheduleFilter
from service.model.errors import InvalidField
from service.model.listing import PageFilter
from service.model.outcomes import Outcome
from service.storage.pages.links import GONE_CHECKS

ALL = PageFilter()
LATER = T0 + 10 * DAY


@pytest.fixture
def world(sql_store):
    """Twelve pages: two in each state, scheduled to be crawled once in 20 days."""
    ids = np.sort(register(sql_store, 12))
    never, retired, gone, no_content, failing, active = ids.reshape(6, 2)
    save(sql_store, ids[2:], last_crawl_at=T0, last_observed_at=T0)
    save(sql_store, retired, gone=True, n_failures=GONE_CHECKS + 1)
    save(sql_store, gone, gone=True, n_failures=1)
    save(sql_store, no_content, n_failures=[3, 40])
    save(sql_store, failing, n_failures=[1, 2])
    publish(sql_store, schedule_columns(ids, 0.1, 0.05))
    return sql_store, dict(
        zip(
            PageState,
            map(np.ndarray.tolist, (never, retired, gone, no_content, failing, active)),
            strict=True,
        )
    )


def select(store, state, now=LATER, only=ALL):
    after, found = 0, []
    while after is not None:
        with store.begin(write=False) as tx:
            part = listing.list_pages(tx, after, listing.WALK_BLOCK, Selection(only, state), now)
        found += part.pages.page_id.tolist()
        after = part.after
    return found


def test_every_page_has_one_state(world):
    store, pages = world
    for state in PageState:
        assert select(store, state) == pages[state], state
    with store.begin(write=False) as tx:
        listed = tx.list_pages(0, 100, ALL).pages
    named = dict(zip(listed.page_id.tolist(), states_of(listed).tolist(), strict=True))
    assert named == {page: state for state, ids in pages.items() for page in ids}


def test_a_retired_page_with_a_request_is_gone(world):
    store, pages = world
    save(store, pages[PageState.retired][:1], requested_at=LATER)
    assert select(store, PageState.retired) == pages[PageState.retired][1:]
    assert select(store, PageState.gone) == pages[PageState.retired][:1] + pages[PageState.gone]


@pytest.mark.parametrize("days", [0, 1, 3, 30])
def test_overdue_pages_are_those_whose_due_time_has_passed(world, days):
    store, pages = world
    now = T0 + timedelta(days=days, seconds=1)
    due = {page: next_crawl_at(page_of(store, page)) for ids in pages.values() for page in ids}
    overdue = sorted(page for page, at in due.items() if at is not None and at < now)
    assert select(store, OVERDUE, now) == overdue
    assert overdue


def test_a_state_is_listed_in_parts_of_any_size_and_within_a_filter(world, monkeypatch):
    store, pages = world
    for block in (1, 2, 3):
        monkeypatch.setattr(listing, "WALK_BLOCK", block)
        assert select(store, PageState.retired) == pages[PageState.retired]
        assert select(store, PageState.active) == pages[PageState.active]
    host = PageFilter(host="example.org")
    assert select(store, PageState.gone, only=host) == pages[PageState.gone]
    assert select(store, PageState.gone, only=PageFilter(host="other.example")) == []


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_a_part_has_at_most_limit_pages_and_the_next_goes_on(world, limit):
    store, pages = world
    after, found = 0, []
    while after is not None:
        with store.begin(write=False) as tx:
            part = listing.list_pages(tx, after, limit, Selection(ALL, PageState.gone), LATER)
        assert len(part.pages) <= limit
        found += part.pages.page_id.tolist()
        after = part.after
    assert found == pages[PageState.gone]


def test_counts_of_few_pages_are_exact(world):
    store, _ = world
    begin = partial(store.begin, write=False)
    for exact in (True, False):
        assert count(begin, Selection(ALL), LATER, exact=exact) == (12, True)
        retired = Selection(ALL, PageState.retired)
        assert count(begin, retired, LATER, exact=exact) == (2, True)


def test_counts_of_many_pages_are_estimates_that_say_so(sql_store, monkeypatch):
    ids = np.sort(register(sql_store, 4_000))
    save(sql_store, ids[::4], gone=True, n_failures=1, last_crawl_at=T0)
    begin, gone = partial(sql_store.begin, write=False), Selection(ALL, PageState.gone)
    monkeypatch.setattr(listing, "SAMPLE", 50)
    assert count(begin, gone, LATER, exact=True) == (1_000, True)
    assert count(begin, gone, LATER, exact=False) == (1_000, False)
    monkeypatch.setattr(listing, "MOST_COUNTED", 900)
    for exact in (True, False):
        assert count(begin, gone, LATER, exact=exact) == (1_000, False)
        assert count(begin, Selection(ALL), LATER, exact=exact) == (4_000, False)


@pytest.mark.parametrize("only", [ALL, PageFilter(host="example.org"), PageFilter(gone=False)])
@pytest.mark.parametrize("block", [1, 3, 100])
def test_an_exact_count_is_the_length_of_the_list(world, monkeypatch, only, block):
    store, pages = world
    save(store, pages[PageState.gone][:1], gone=True, n_failures=1, outcome=Outcome.moved.value)
    save(store, pages[PageState.failing][:1], n_failures=1, outcome=Outcome.refused.value)
    with store.begin() as tx:
        tx.delete_many(np.array(pages[PageState.active][:1]))
    monkeypatch.setattr(listing, "COUNT_BLOCK", block)
    begin = partial(store.begin, write=False)
    for state in (*PageState, OVERDUE, MOVED, "refused", "unfinished", "set_aside", None):
        n = len(select(store, state, LATER, only))
        counted = count(begin, Selection(only, state), LATER, exact=True, clock=float)
        assert counted == (n, True), state


def test_an_exact_count_that_would_take_long_is_refused_at_once(world, monkeypatch):
    store, _ = world
    monkeypatch.setattr(listing, "COUNT_BLOCK", 1)
    begin, overdue = partial(store.begin, write=False), Selection(ALL, OVERDUE)
    seconds = iter(np.arange(0.0, 100.0, 0.13).tolist())
    assert count(begin, overdue, LATER, exact=True, clock=lambda: next(seconds)).exact
    slow = iter(np.arange(0.0, 100.0, 0.2).tolist())
    with pytest.raises(InvalidField, match=r"would take about 2 s.* send count=estimate"):
        count(begin, overdue, LATER, exact=True, clock=lambda: next(slow))
    assert next(slow) == pytest.approx(0.6), "two of twelve pages were counted"


def test_the_list_of_overdue_pages_agrees_with_the_schedule(world):
    store, _ = world
    with store.begin(write=False) as tx:
        scheduled = due_before(tx, 1, 0, 100, ScheduleFilter(), LATER).pages.page_id.tolist()
    assert select(store, OVERDUE) == scheduled
