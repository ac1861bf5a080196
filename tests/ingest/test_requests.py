"""Requests of crawls: which crawl answers them, and which place in the queue their page has."""

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.ingest_cases import HOUR, crawl, log, rules
from support.store_cases import (
    DAY,
    MICROSECOND,
    T0,
    crawl_columns,
    due_of,
    instants,
    page_of,
    ping_columns,
    publish,
    register,
    save,
    schedule_columns,
    states_of,
)

from recrawl_lab.memory.store import MemoryStore
from service.ingest.record import ping, record
from service.ingest.requests import left, renewed
from service.model.arrays import NO_TIME, instant
from service.model.columns import PageStates
from service.model.domain import Observability, PingReason
from service.storage.log.contract import n_after

MINUTE = timedelta(minutes=1)


@pytest.fixture
def complete(memory):
    """The id of a `complete` page whose every ping is crawled, and which is due by pings only."""
    (page_id,) = register(memory, 1, observability=Observability.complete)
    crawl(memory, page_id, T0, digest=1)
    publish(memory, schedule_columns([page_id], crawl_rate=0.0, crawl_probability=1.0))
    return int(page_id)


def announce(store, page_id, now, changed_at=None):
    """Send a ping of a change; return whether the page is to be crawled now."""
    at = now if changed_at is None else changed_at
    with store.begin() as tx:
        return bool(ping(tx, ping_columns([page_id], at), rules(), now).crawl[0])


def report(store, page_id, observed_at, start=None, **fields):
    """Report a crawl that answers requests until its start."""
    starts = None if start is None else np.array([instant(start)])
    with store.begin() as tx:
        record(tx, crawl_columns([page_id], observed_at, **fields), rules(), starts=starts)


def requests(store, page_id):
    states = states_of(store, [page_id])
    return states.requested_at[0], states.renewed_at[0]


def test_a_ping_during_the_crawl_that_an_earlier_ping_requested_is_not_lost(memory, complete):
    assert announce(memory, complete, T0 + HOUR)
    assert announce(memory, complete, T0 + HOUR + 2 * MINUTE)
    report(memory, complete, T0 + HOUR + MINUTE, digest=1)
    assert due_of(memory, complete) == T0 + HOUR + 2 * MINUTE
    report(memory, complete, T0 + HOUR + 3 * MINUTE, digest=2)
    assert due_of(memory, complete) is None
    assert np.isnat(requests(memory, complete)).all()


def test_requests_from_before_the_start_of_a_crawl_are_all_answered(memory, complete):
    for minute in (1, 2, 3):
        assert announce(memory, complete, T0 + minute * MINUTE)
    report(memory, complete, T0 + 3 * MINUTE, digest=1)
    assert np.isnat(requests(memory, complete)).all()
    assert due_of(memory, complete) is None


def test_a_page_that_is_requested_again_keeps_its_place(memory, complete):
    for minute in (1, 2, 3):
        announce(memory, complete, T0 + minute * MINUTE)
        assert due_of(memory, complete) == T0 + MINUTE
    assert requests(memory, complete) == (instant(T0 + MINUTE), instant(T0 + 3 * MINUTE))


def test_a_late_date_of_a_change_does_not_answer_its_ping(memory, complete):
    """A publisher's clock is slow: the change is dated before the crawl, and came after it."""
    assert announce(memory, complete, T0 + HOUR, changed_at=T0 + 50 * MINUTE)
    report(memory, complete, T0 + 55 * MINUTE, digest=1)
    assert due_of(memory, complete) == T0 + HOUR


def test_a_page_that_a_fast_publisher_announces_is_due_at_once(memory, complete):
    assert announce(memory, complete, T0 + HOUR, changed_at=T0 + HOUR + 4 * MINUTE)
    assert due_of(memory, complete) == T0 + HOUR
    report(memory, complete, T0 + HOUR + MINUTE, digest=1)
    assert due_of(memory, complete) is None


def test_a_crawl_dated_ahead_by_a_fast_clock_hides_no_request(sql_store):
    page_id = np.sort(register(sql_store, 2, observability=Observability.complete))
    ahead = T0 + 4 * MINUTE
    for page in page_id.tolist():
        crawl(sql_store, page, ahead, digest=1)
    assert announce(sql_store, int(page_id[0]), T0 + MINUTE, changed_at=T0 + 5 * MINUTE)
    with sql_store.begin() as tx:
        assert tx.request_many(page_id[1:], T0 + MINUTE).tolist() == page_id[1:].tolist()
    for page in page_id.tolist():
        assert due_of(sql_store, page) == ahead + MICROSECOND


@pytest.mark.parametrize(
    ("seen", "answers"),
    [
        ({"status": 200, "digest": 1}, True),
        ({"status": 304}, True),
        ({"digest": 2}, True),
        ({"status": 404}, False),
        ({"status": 301, "redirects_to": -1}, False),
        ({"status": 302, "redirects_to": -1}, False),
        ({"status": 200, "digest": 3, "redirects_to": -1}, False),
        ({"status": 403}, False),
        ({"status": 204}, False),
        ({"status": 0}, False),
        ({"status": 429}, False),
        ({"status": 503}, False),
        ({"status": 999}, False),
    ],
    ids=str,
)
def test_only_a_crawl_that_shows_the_page_answers_a_request(memory, complete, seen, answers):
    announce(memory, complete, T0 + HOUR)
    report(memory, complete, T0 + 2 * HOUR, **seen)
    assert np.isnat(requests(memory, complete)[0]) == answers
    due = due_of(memory, complete)
    assert due is None if answers else T0 + 2 * HOUR < due <= T0 + 2 * HOUR + DAY
    report(memory, complete, T0 + 3 * HOUR, digest=1)
    assert due_of(memory, complete) is None


def test_a_confirmed_absence_answers_a_request(memory, complete):
    announce(memory, complete, T0 + HOUR)
    report(memory, complete, T0 + 2 * HOUR, status=404)
    report(memory, complete, T0 + 4 * HOUR, status=404)
    assert page_of(memory, complete).gone
    assert np.isnat(requests(memory, complete)).all()


def test_a_request_during_a_crawl_that_fails_is_due_at_once(memory, complete):
    announce(memory, complete, T0 + HOUR)
    announce(memory, complete, T0 + HOUR + 2 * MINUTE)
    report(memory, complete, T0 + HOUR + MINUTE, status=503)
    assert due_of(memory, complete) == T0 + HOUR + 2 * MINUTE


def test_a_ping_of_a_page_that_failed_is_due_at_once_and_after_those_that_waited(memory, complete):
    announce(memory, complete, T0 + HOUR)
    report(memory, complete, T0 + 2 * HOUR, status=503)
    assert due_of(memory, complete) == T0 + 3 * HOUR
    assert announce(memory, complete, T0 + 2 * HOUR + MINUTE)
    assert due_of(memory, complete) == T0 + 2 * HOUR + MINUTE
    report(memory, complete, T0 + 2 * HOUR + 2 * MINUTE, status=503)
    assert due_of(memory, complete) > T0 + 2 * HOUR + 2 * MINUTE


def test_of_a_batch_the_crawl_that_answered_clears_and_the_one_that_failed_does_not(
    memory, complete
):
    announce(memory, complete, T0 + HOUR)
    announce(memory, complete, T0 + 3 * HOUR)
    with memory.begin() as tx:
        at = [T0 + 2 * HOUR, T0 + 4 * HOUR]
        crawls = crawl_columns([complete] * 2, instants(at), digest=[1, 0], status=[200, 503])
        record(tx, crawls, rules())
    assert requests(memory, complete)[0] == instant(T0 + 3 * HOUR)
    assert due_of(memory, complete) == T0 + 5 * HOUR


def test_a_crawl_with_an_unsure_start_leaves_the_request_and_the_page_due(memory, complete):
    """Of a fast clock only the start of the lease is sure; the crawl counts at its report."""
    announce(memory, complete, T0 + HOUR)
    announce(memory, complete, T0 + HOUR + 2 * MINUTE)
    reported_at = T0 + HOUR + 3 * MINUTE
    report(memory, complete, reported_at, start=T0 + HOUR + MINUTE, digest=1)
    assert page_of(memory, complete).last_crawl_at == reported_at
    assert due_of(memory, complete) == reported_at + MICROSECOND
    report(memory, complete, reported_at + MINUTE, digest=1)
    assert due_of(memory, complete) is None


def test_a_crawl_of_unknown_start_answers_no_request(memory, complete):
    announce(memory, complete, T0 + HOUR)
    report(memory, complete, T0 + 2 * HOUR, start=T0 - 9 * DAY, digest=1)
    assert due_of(memory, complete) == T0 + 2 * HOUR + MICROSECOND


# -- requests of operators, and of those who register a retired page


def test_a_repeated_recrawl_keeps_the_place_and_outlives_the_crawl_before_it(sql_store):
    page_id = np.sort(register(sql_store, 2))
    for page in page_id.tolist():
        crawl(sql_store, page, T0, digest=1)
    with sql_store.begin() as tx:
        assert tx.request_many(page_id, T0 + HOUR).tolist() == page_id.tolist()
    with sql_store.begin() as tx:
        assert tx.request_many(page_id[:1], T0 + 2 * HOUR).tolist() == []
    for page in page_id.tolist():
        assert due_of(sql_store, page) == T0 + HOUR
        report(sql_store, page, T0 + HOUR + MINUTE, digest=1)
    assert due_of(sql_store, int(page_id[0])) == T0 + 2 * HOUR
    assert np.isnat(requests(sql_store, int(page_id[1]))).all()


def test_a_retired_page_that_is_registered_during_its_crawl_is_crawled_again(store):
    (page_id,) = register(store, 1)
    crawl(store, page_id, T0, digest=1)
    save(store, [page_id], gone=True, n_failures=9, last_crawl_at=T0, absent_since=T0)
    with store.begin() as tx:
        assert tx.wake(np.array([page_id]), T0 + HOUR).tolist() == [page_id]
    with store.begin() as tx:
        assert tx.wake(np.array([page_id]), T0 + 3 * HOUR).tolist() == [page_id]
    report(store, page_id, T0 + 2 * HOUR, status=404)
    assert states_of(store, [page_id]).requested_at.tolist() == [instant(T0 + 3 * HOUR).item()]
    report(store, page_id, T0 + 4 * HOUR, status=404)
    assert np.isnat(requests(store, page_id)).all()
    with store.begin() as tx:
        assert tx.wake(np.array([page_id]), T0 + 5 * HOUR).tolist() == [page_id]


# -- any requests and crawls, against a list of all requests

times = st.integers(0, 30)
steps = st.lists(
    st.tuples(st.just("request"), times) | st.tuples(st.sampled_from([True, False]), times),
    max_size=12,
)


def columns(requested_at, renewed_at, last):
    """Return the state of one page with these minutes."""
    empty = PageStates.empty(estimate=(2,))
    zeros = {name: np.zeros((1, *a.shape[1:]), a.dtype) for name, a in empty.arrays().items()}
    never = {name: np.full(1, NO_TIME) for name, a in zeros.items() if a.dtype.kind == "M"}
    times = {"requested_at": requested_at, "renewed_at": renewed_at, "last_crawl_at": last}
    return PageStates(**{**zeros, **never, **{name: minutes(at) for name, at in times.items()}})


def minutes(*at):
    return instants([None if minute is None else T0 + minute * MINUTE for minute in at])


@settings(max_examples=examples(60, 200))
@given(steps=steps)
def test_two_instants_keep_what_a_list_of_all_requests_would(steps):
    """Requests come in the order of time, crawls are reported at their starts or later."""
    requested, asked, now, last = (NO_TIME, NO_TIME), [], 0, None
    for kind, minute in steps:
        state = columns(None, None, last)
        state.requested_at[:], state.renewed_at[:] = requested
        if kind == "request":
            now += minute
            asked.append(now)
            after = renewed(state, minutes(now), minutes(now))
        else:
            start = max(now - minute, -1 if last is None else last + 1)
            answered = minutes(start if kind else None)
            after = left(state, minutes(start), minutes(start), answered)
            last, now = start, max(now, start)
            if kind:
                asked = [at for at in asked if at > start]
        requested = after.requested_at[0], after.renewed_at[0]
        newest = np.fmax(*requested)
        assert np.isnat(newest) == (not asked)
        if asked:
            assert newest == instant(T0 + asked[-1] * MINUTE)
            waits = [at for at in asked if last is None or at > last]
            # the place is that of a request that waits, and never later than the newest
            places = [instant(T0 + at * MINUTE) for at in waits]
            assert not waits or requested[0] in places


# -- pings as evidence


@pytest.fixture
def pinged(store):
    """An `auto` page with a crawl at noon and three pings, two of them during the next crawl."""
    (page_id,) = register(store, 1)
    crawl(store, page_id, T0, digest=1)
    for minute in (10, 31, 32):
        assert not announce(store, page_id, T0 + minute * MINUTE)
    return int(page_id)


def test_pings_during_a_crawl_belong_to_the_next_interval(store, pinged):
    report(store, pinged, T0 + 30 * MINUTE, digest=1)
    assert states_of(store, [pinged]).pings_since_crawl.tolist() == [2]
    report(store, pinged, T0 + 60 * MINUTE, digest=2)
    assert states_of(store, [pinged]).pings_since_crawl.tolist() == [0]


def test_a_ping_during_the_crawl_is_no_false_one(store, pinged):
    """Both crawls of this page say the same of its pings as crawls of no duration."""
    report(store, pinged, T0 + 30 * MINUTE, digest=1)
    report(store, pinged, T0 + 60 * MINUTE, digest=2)
    other = MemoryStore(2)
    (page_id,) = register(other, 1)
    crawl(other, page_id, T0, digest=1)
    announce(other, page_id, T0 + 10 * MINUTE)
    report(other, page_id, T0 + 30 * MINUTE, digest=1)
    for minute in (31, 32):
        announce(other, page_id, T0 + minute * MINUTE)
    report(other, page_id, T0 + 60 * MINUTE, digest=2)
    found, wanted = states_of(store, [pinged]), states_of(other, [page_id])
    for name in ("real_pings", "false_pings", "trust", "pings_since_crawl", "estimate"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-12)


def test_pings_are_divided_by_the_start_of_a_crawl_and_not_by_its_report(store, pinged):
    report(store, pinged, T0 + 40 * MINUTE, start=T0 + 30 * MINUTE, digest=1)
    assert states_of(store, [pinged]).pings_since_crawl.tolist() == [2]


def test_late_crawls_of_a_batch_divide_many_pings_exactly(store):
    page_id = np.sort(register(store, 3)).tolist()
    for page in page_id:
        crawl(store, page, T0, digest=1)
        for minute in range(1, 10):
            announce(store, page, T0 + minute * MINUTE)
    with store.begin() as tx:
        at = [T0 + minute * MINUTE for minute in (2.5, 6.5, 4.5, 20)]
        crawls = crawl_columns([page_id[0]] * 2 + page_id[1:], instants(at), digest=1)
        record(tx, crawls, rules())
    assert states_of(store, page_id).pings_since_crawl.tolist() == [3, 5, 0]


def test_the_log_is_read_only_for_pages_with_several_pings_and_one_of_them_late(
    memory, monkeypatch
):
    asked = []
    (page_id,) = register(memory, 1)
    crawl(memory, page_id, T0, digest=1)
    with memory.begin() as tx:
        monkeypatch.setattr(type(tx), "pings_after", lambda *args: asked.append(args) or 2)
    announce(memory, page_id, T0 + MINUTE)
    report(memory, page_id, T0 + 0.5 * MINUTE, digest=1)
    announce(memory, page_id, T0 + 2 * MINUTE)
    report(memory, page_id, T0 + 3 * MINUTE, digest=1)
    assert not asked
    for minute in (4, 5):
        announce(memory, page_id, T0 + minute * MINUTE)
    report(memory, page_id, T0 + 3.5 * MINUTE, digest=1)
    assert len(asked) == 1


entries = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), max_size=20)


@given(pings=entries, crawls=entries)
def test_pings_after_instants_are_those_that_are_counted_one_by_one(pings, crawls):
    pinged, page_id = (np.array([p for p, _ in each], np.int64) for each in (pings, crawls))
    pinged_at, at = (np.array([t for _, t in each], "M8[us]") for each in (pings, crawls))
    counts = [sum(p == page and t > time for p, t in pings) for page, time in crawls]
    assert n_after(pinged, pinged_at, page_id, at).tolist() == counts


def test_pings_after_an_instant_are_read_across_days_and_pages(store):
    page_id = np.sort(register(store, 3))
    for page in page_id.tolist():
        crawl(store, page, T0 - 9 * DAY, digest=1)
        for hour in range(0, 96, 8):
            announce(store, page, T0 - 4 * DAY + hour * HOUR)
    with store.begin(write=False) as tx:
        at = instants([T0 - 4 * DAY, T0 - DAY, T0 - 9 * DAY, T0])
        rows = page_id[[0, 1, 2, 0]]
        assert tx.pings_after(rows, at).tolist() == [11, 2, 12, 0]
    assert log(store, int(page_id[0]))[0].observed_at == T0 - 8 * HOUR


def test_a_ping_that_spends_no_credit_requests_nothing(memory, complete):
    publish(memory, schedule_columns([complete], crawl_rate=0.0, crawl_probability=0.0))
    with memory.begin() as tx:
        answer = ping(tx, ping_columns([complete], T0 + HOUR), rules(), T0 + HOUR)
    assert answer.reason.tolist() == [PingReason.saving]
    assert np.isnat(requests(memory, complete)).all()
