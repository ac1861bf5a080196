"""Starts of crawls: what the time of a report counts for, with right and with wrong clocks."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.crawl_cases import SECOND, TTL, add, commit_reports, queue, take
from support.store_cases import DAY, T0, crawl_columns, instants, page_of, save

from service.leases.settle import LeasedCrawls
from service.leases.starts import EARLIEST, started
from service.leases.tokens import leased_since, new_tokens
from service.model.arrays import NO_TIME, instant
from service.model.columns import PageStates
from service.model.domain import ItemVerdict
from service.model.incarnations import Incarnation
from service.storage.queue.columns import LockedLeases

MINUTE = timedelta(minutes=1)
LEASED_AT = T0 + MINUTE
LIFE = Incarnation(1, "", T0 - DAY, "", "", 0, 0, 0, 0, 0, 0)
ACCEPTED, DUPLICATE, LATE = ItemVerdict.accepted, ItemVerdict.duplicate, ItemVerdict.late


def judged(stated, now, *, held=True, token=5, last=None, restore=None):
    """Return when one crawl of page 1 counts, and until when it answers requests."""
    lives = [] if restore is None else [LIFE, LIFE._replace(number=2, began_at=restore)]
    crawls = crawl_columns([1], instants([stated]), digest=1)
    crawls = replace(crawls, token=np.array([token]), leased_page_id=np.array([1]))
    locked = LockedLeases(
        queue_id=np.array([1]),
        held=np.array([held]),
        leased_at=instants([LEASED_AT if held else None]),
        due_rate=np.array([np.nan]),
        limited=np.array([False]),
        n_unfinished=np.array([0]),
        idle=np.array([False]),
    )
    after, starts = started(
        crawls, LeasedCrawls(np.array([0]), locked), state(last), now, lambda: lives
    )
    return after.observed_at[0], starts[0]


def state(last):
    empty = PageStates.empty(estimate=(2,))
    columns = {name: np.zeros((1, *a.shape[1:]), a.dtype) for name, a in empty.arrays().items()}
    columns |= {name: np.full(1, NO_TIME) for name, a in columns.items() if a.dtype.kind == "M"}
    return PageStates(**{**columns, "page_id": np.array([1]), "last_crawl_at": instants([last])})


@pytest.mark.parametrize(
    ("stated", "counts", "start"),
    [
        (LEASED_AT, LEASED_AT, LEASED_AT),
        (LEASED_AT + SECOND, LEASED_AT + SECOND, LEASED_AT + SECOND),
        (LEASED_AT + 119 * SECOND, LEASED_AT + 119 * SECOND, LEASED_AT + 119 * SECOND),
        (LEASED_AT + 119.1 * SECOND, LEASED_AT + 119.1 * SECOND, LEASED_AT),
        (LEASED_AT + 2 * MINUTE, LEASED_AT + 2 * MINUTE, LEASED_AT),
        (LEASED_AT - SECOND, LEASED_AT, LEASED_AT),
        (LEASED_AT - 9 * DAY, LEASED_AT, LEASED_AT),
        (LEASED_AT + 2 * MINUTE + SECOND, LEASED_AT + 2 * MINUTE, LEASED_AT),
        (LEASED_AT + 9 * DAY, LEASED_AT + 2 * MINUTE, LEASED_AT),
        (None, LEASED_AT, LEASED_AT),
    ],
)
def test_a_lease_in_force_bounds_the_start_of_its_crawl(stated, counts, start):
    assert judged(stated, LEASED_AT + 2 * MINUTE) == (instant(counts), instant(start))


def test_a_crawl_without_a_lease_starts_when_its_crawler_says():
    ahead = T0 + 4 * MINUTE
    assert judged(ahead, T0, held=False, token=0) == (instant(ahead), instant(ahead))


@pytest.mark.parametrize("stated", [None, T0 + DAY, T0 - 90 * 365 * DAY, T0 + 9 * MINUTE])
def test_a_report_whose_lease_has_ended_counts_with_the_last_crawl_if_it_may_be_repeated(stated):
    last = T0 + 5 * MINUTE
    counts, start = judged(stated, T0 + 10 * MINUTE, held=False, last=last)
    assert (counts, start) == (instant(last), EARLIEST)


@pytest.mark.parametrize("stated", [T0 - DAY, T0 + 11 * MINUTE])
def test_a_late_report_counts_at_its_time_and_answers_no_request(stated):
    counts, start = judged(stated, T0 + 12 * MINUTE, held=False, last=T0 + 5 * MINUTE)
    assert (counts, start) == (instant(stated), EARLIEST)


@pytest.mark.parametrize("stated", [None, T0 + DAY])
def test_a_late_report_of_a_page_never_crawled_counts_at_the_latest_now(stated):
    assert judged(stated, T0, held=False) == (instant(T0), EARLIEST)


@pytest.mark.parametrize(
    ("stated", "counts"),
    [
        (None, T0 + 10 * MINUTE),
        (T0 + DAY, T0 + 10 * MINUTE),
        (T0 + 6 * MINUTE, T0 + 6 * MINUTE),
    ],
)
def test_a_new_digest_under_a_lease_that_a_restore_lost_is_no_repeated_report(stated, counts):
    """`state` has no digest, so that of the report is new."""
    last, now = T0 + 5 * MINUTE, T0 + 10 * MINUTE
    lost = judged(stated, now, held=False, last=last, restore=T0 + 7 * MINUTE)
    assert lost == (instant(counts), EARLIEST)
    since = judged(stated, now, held=False, last=last, restore=T0 + 4 * MINUTE)
    assert since == (instant(last), EARLIEST)


seconds = st.integers(-400, 400).map(lambda s: timedelta(seconds=s))
later = st.integers(0, 4_000).map(lambda s: timedelta(seconds=s))


@given(fetched=later, took=later, skew=seconds, with_start=st.booleans(), again=later)
def test_any_clock_keeps_the_start_within_the_lease_and_a_repeated_report_a_duplicate(
    fetched, took, skew, with_start, again
):
    began = LEASED_AT + fetched
    now = began + took
    stated = began + skew if with_start else None
    counts, start = judged(stated, now)
    assert instant(LEASED_AT) <= start <= counts <= instant(now)
    if skew <= timedelta(0) or stated is None or stated > now:
        assert start <= instant(began), "a request from after the start would be lost"
    repeated, _ = judged(
        stated, now + again, held=False, last=counts.astype(object).replace(tzinfo=T0.tzinfo)
    )
    lead = timedelta(0) if stated is None else stated - now
    if lead <= 5 * MINUTE:
        assert repeated <= counts, "a repeated report would be a crawl"


# -- through the store


@pytest.fixture
def leased(queue_store):
    """A page with an earlier crawl, leased at T0."""
    (page,) = add(queue_store, 1)
    save(queue_store, [page], last_crawl_at=T0 - DAY, last_observed_at=T0 - DAY, requested_at=T0)
    (crawl,) = take(queue_store, T0)
    return crawl


@pytest.mark.parametrize("stated", [None, T0 - 3 * MINUTE, T0 + MINUTE, T0 + 4 * MINUTE, T0 + DAY])
def test_a_report_counts_once_whatever_its_clock(queue_store, leased, stated):
    now = T0 + 2 * MINUTE
    first = commit_reports(queue_store, [leased], stated, now, digest=1)
    assert (first.verdict.tolist(), first.lease_ended.tolist()) == ([ACCEPTED], [True])
    found = page_of(queue_store, leased.page_id)
    assert T0 <= found.last_crawl_at <= now
    for wait in (0 * MINUTE, 3 * MINUTE):
        again = commit_reports(queue_store, [leased], stated, now + wait, digest=1)
        assert again.verdict.tolist() in ([DUPLICATE], [LATE])
        assert page_of(queue_store, leased.page_id) == found


def test_a_report_twice_in_one_batch_counts_once(queue_store, leased):
    now = T0 + 2 * MINUTE
    for stated in (None, T0 + 4 * MINUTE):
        done = commit_reports(queue_store, [leased] * 2, stated, now, digest=1)
        assert sorted(done.verdict.tolist())[1] == DUPLICATE


def test_a_report_after_the_end_of_its_lease_leaves_the_page_due_for_a_request(queue_store, leased):
    """The page is leased to another crawler; the first one's clock is fast."""
    (page,) = {leased.page_id}
    # asked for again during the first lease, the page does not wait after it
    save(queue_store, [page], renewed_at=T0 + MINUTE)
    (other,) = take(queue_store, T0 + TTL)
    save(queue_store, [page], renewed_at=T0 + 6 * MINUTE)
    done = commit_reports(queue_store, [leased], T0 + 6 * MINUTE, T0 + 7 * MINUTE, digest=1)
    assert (done.verdict.tolist(), done.lease_ended.tolist()) == ([ACCEPTED], [False])
    commit_reports(queue_store, [other], T0 + 5.5 * MINUTE, T0 + 8 * MINUTE, digest=1)
    assert len(take(queue_store, T0 + 9 * MINUTE)) == 1


def test_a_slow_clock_does_not_lease_a_page_for_ever(queue_store, leased):
    """Otherwise the request that led to the crawl would be newer than the crawl."""
    commit_reports(queue_store, [leased], T0 - 9 * MINUTE, T0 + SECOND, digest=1)
    assert np.isnat(instants([page_of(queue_store, leased.page_id).requested_at]))[0]


@pytest.mark.parametrize("stated", [None, T0 + 4 * MINUTE, T0 + DAY])
def test_a_crawl_of_a_slow_worker_counts_once_though_its_page_was_crawled_just_before(
    queue_store, leased, stated
):
    """The lease ended before the report, and the page's last crawl is older than the lease."""
    page = leased.page_id
    assert commit_reports(queue_store, [leased], T0 + SECOND, T0 + 2 * MINUTE).verdict == ACCEPTED
    save(queue_store, [page], requested_at=T0 + 3 * MINUTE, renewed_at=T0 + 3 * MINUTE)
    queue(queue_store, [page], T0 + 3 * MINUTE)
    (slow,) = take(queue_store, T0 + 3 * MINUTE, ttl=MINUTE)
    # asked for again during the lease, the page does not wait after it
    save(queue_store, [page], renewed_at=T0 + 3.5 * MINUTE)
    assert len(take(queue_store, T0 + 4.5 * MINUTE)) == 1
    before = page_of(queue_store, page).last_crawl_at
    done = commit_reports(queue_store, [slow], stated, T0 + 5 * MINUTE, digest=1)
    assert (done.verdict.tolist(), done.lease_ended.tolist()) == ([ACCEPTED], [False])
    found = page_of(queue_store, page)
    assert before < found.last_crawl_at <= T0 + 5 * MINUTE
    again = commit_reports(queue_store, [slow], stated, T0 + 6 * MINUTE, digest=1)
    assert again.verdict == DUPLICATE
    assert page_of(queue_store, page) == found


@given(at=st.integers(0, 2**32 - 1), n=st.integers(0, 20), seed=st.integers(0, 2**32))
def test_a_token_is_positive_and_tells_the_second_of_its_lease(at, n, seed):
    leased_at = np.datetime64(at * 1_000_000 + 999_999, "us")
    tokens = new_tokens(n, leased_at, np.random.default_rng(seed))
    assert (tokens > 0).all()
    assert (leased_since(tokens) == np.datetime64(at, "s")).all()


def test_a_token_of_another_server_whose_clock_is_ahead_proves_nothing():
    last, now = T0 + 5 * MINUTE, T0 + 7 * MINUTE
    (ahead,) = new_tokens(1, instant(T0 + 9 * MINUTE), np.random.default_rng(1))
    assert judged(T0 + 6 * MINUTE, now, held=False, token=ahead, last=last)[0] == instant(last)
    (behind,) = new_tokens(1, instant(T0 + 6 * MINUTE), np.random.default_rng(1))
    later = judged(T0 + 6 * MINUTE, now, held=False, token=behind, last=last)[0]
    assert later == instant(T0 + 6 * MINUTE)
