"""When a page is due: golden values, a scalar oracle, and properties of the rule."""

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.store_cases import publish, register, save, schedule_columns

from recrawl_lab.memory.store import MemoryStore
from service.leases.due import due_at, due_before, ranking_rates, requested
from service.model.arrays import INSTANT, NO_TIME, instant, moment
from service.model.columns import DueColumns
from service.model.domain import ScheduleFilter
from service.model.outcomes import Outcome
from service.storage.epochs.schedule import MOST_SCANNED

T0 = datetime(2026, 5, 1, tzinfo=UTC)
CREATED = T0 - timedelta(days=30)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
NEVER = None


def columns(*rows):
    """Rows of (last_crawl_at, requested_at, gone, n_failures, factor, due_rate), and more or not:
    the outcome, the hops, and the retry rate."""
    rows = [(*row, *(Outcome.failed, 0, 0.0)[len(row) - 6 :]) for row in rows]
    last, request, gone, n, factor, rate, outcome, hops, retry = zip(*rows, strict=True)
    return DueColumns(
        page_id=np.arange(len(rows)),
        created_at=instants([CREATED] * len(rows)),
        last_crawl_at=instants(last),
        requested_at=instants(request),
        gone=np.array(gone),
        n_failures=np.array(n),
        outcome=np.array(outcome, np.int16),
        hops=np.array(hops, np.int16),
        retry_rate=np.array(retry, float),
        interval_factor=np.array(factor),
        due_rate=np.array(rate, float),
    )


def instants(moments):
    return np.array([NO_TIME if m is None else instant(m) for m in moments], INSTANT)


def due(*rows):
    return [moment(at) for at in due_at(columns(*rows))]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ((None, None, False, 0, 1.0, None), CREATED),
        ((None, None, True, 9, 1.0, 0.0), CREATED),
        ((None, CREATED - DAY, False, 0, 1.0, None), CREATED - DAY),
        ((T0, None, False, 0, 1.5, 0.5), T0 + 3 * DAY),
        ((T0, None, False, 0, 1.0, 0.0), NEVER),
        ((T0, None, False, 0, 1.0, None), NEVER),
        ((T0, T0 + HOUR, False, 0, 1.0, 0.0), T0 + HOUR),
        ((T0, T0 + HOUR, False, 0, 1.0, 1.0), T0 + HOUR),
        ((T0, T0 + 2 * DAY, False, 0, 1.0, 1.0), T0 + DAY),
        ((T0, T0, False, 0, 1.0, 1.0), T0 + DAY),
        ((T0, None, False, 0, 1.0, 1e-300), T0 + 36_500 * DAY),
        ((T0, None, False, 0, 2.0**-53, 1e300), T0),
        ((T0, None, False, 0, 1.0, np.inf), T0),
        ((T0, None, False, 1, 1.0, 1.0), T0 + HOUR),
        ((T0, None, False, 3, 1.0, 1.0), T0 + 4 * HOUR),
        ((T0, None, False, 9, 1.0, 1.0), T0 + 256 * HOUR),
        ((T0, None, False, 40, 1.0, 1.0), T0 + 30 * DAY),
        ((T0, None, False, 1, 1.0, 1.0, Outcome.elsewhere), T0 + DAY),
        ((T0, None, False, 3, 1.0, 1.0, Outcome.refused), T0 + 4 * DAY),
        ((T0, None, False, 9, 1.0, 1.0, Outcome.empty), T0 + 30 * DAY),
        ((T0, None, False, 2, 1.0, None, Outcome.empty), T0 + 2 * DAY),
        ((T0, None, False, 1, 1.0, 1.0, Outcome.absent), T0 + HOUR),
        ((T0, None, False, 7, 1.0, 48.0, Outcome.moved), T0 + HOUR / 2),
        ((T0, None, False, 7, 1.0, 1.0, Outcome.doubtful), T0 + HOUR),
        ((T0, None, False, 1, 1.0, 48.0), T0 + HOUR / 2),
        ((T0, None, False, 9, 40.0, 1.0), T0 + 256 * HOUR),
        ((T0, None, False, 1_000, 4.0, None), T0 + 30 * DAY),
        ((T0, None, False, 4, 1.0, 0.0), T0 + 8 * HOUR),
        ((T0, None, False, 4, 1.0, 0.0, Outcome.refused), T0 + 8 * DAY),
        ((T0, None, False, 1, 1.0, 0.0, Outcome.refused, 0, 0.5), T0 + 2 * DAY),
        ((T0, None, False, 2, 1.0, 1.0, Outcome.refused, 0, 0.5), T0 + 2 * DAY),
        ((T0, None, False, 3, 1.0, 1.0, Outcome.refused, 0, 0.5), T0 + 8 * DAY),
        ((T0, None, False, 3, 1.5, 0.0, Outcome.refused, 0, 2.0), T0 + 3 * DAY),
        ((T0, None, False, 3, 1.0, 0.0, Outcome.failed, 0, 48.0), T0 + 2 * HOUR),
        ((T0, None, False, 0, 1.5, 0.0, Outcome.content, 0, 0.5), T0 + 3 * DAY),
        ((T0, None, False, 0, 1.0, 2.0, Outcome.content, 0, 0.5), T0 + DAY / 2),
        ((T0, None, True, 3, 1.0, 0.0, Outcome.absent, 0, 0.5), T0 + 2 * DAY),
        ((T0, T0 - DAY, False, 2, 1.0, 0.0), T0 + 2 * HOUR),
        ((T0, None, True, 0, 1.0, 1.0), T0 + DAY),
        ((T0, None, True, 2, 1.0, 1.0), T0 + DAY),
        ((T0, None, True, 4, 1.0, 1.0), T0 + 4 * DAY),
        ((T0, None, True, 6, 1.0, 1.0), T0 + 16 * DAY),
        ((T0, None, True, 7, 1.0, 1.0), NEVER),
        ((T0, T0 - DAY, True, 7, 1.0, 1.0), T0 + 16 * DAY),
        ((T0, T0 + DAY, True, 7, 1.0, 1.0), T0 + DAY),
        ((T0, None, False, 0, 1.0, 1.0, Outcome.content, 2), T0 + DAY),
        ((T0, T0 - DAY, False, 3, 1.0, None, Outcome.elsewhere, 2), T0 + 4 * DAY),
        ((T0, T0 - DAY, False, 4, 1.0, None, Outcome.elsewhere, 2), NEVER),
        ((T0, T0 - DAY, False, 4, 1.0, None, Outcome.elsewhere, 0), T0 + 8 * DAY),
        ((T0, T0 + HOUR, False, 4, 1.0, None, Outcome.elsewhere, 2), T0 + HOUR),
        ((T0, T0 - DAY, False, 7, 1.0, None, Outcome.failed, 1), T0 + 64 * HOUR),
        ((T0, T0 - DAY, False, 8, 1.0, None, Outcome.failed, 1), NEVER),
        ((T0, None, False, 2, 30.0, 1.0, Outcome.refused, 1), T0 + 30 * DAY),
        ((T0, None, False, 3, 30.0, 1.0, Outcome.refused, 1), NEVER),
        ((T0, None, True, 4, 1.0, 1.0, Outcome.absent, 1), T0 + 4 * DAY),
        ((T0, T0 - DAY, False, 1, 1.0, None, Outcome.elsewhere, -1), NEVER),
        ((T0, T0 + DAY, False, 1, 1.0, None, Outcome.elsewhere, -1), T0 + DAY),
        ((T0, None, False, 0, 1.0, 1.0, Outcome.content, -1), T0 + DAY),
        ((None, None, False, 0, 1.0, None, Outcome.content, -1), NEVER),
        ((None, T0, False, 0, 1.0, None, Outcome.content, -1), T0),
        ((None, None, False, 0, 1.0, None, Outcome.content, 5), CREATED),
    ],
)
def test_golden_values(state, expected):
    assert due(state) == [expected]


def due_by_hand(last, request, gone, n, factor, rate, outcome=Outcome.failed, hops=0, retry=0.0):
    """The rule at the head of `leases.due`, in plain Python."""
    if retry and (not rate or (n >= 3 and not gone)):
        rate = retry
    asks = request is not None and (last is None or request > last)
    if last is None:
        clock = CREATED if hops >= 0 else None
    elif not gone and n > 0 and hops != 0 and ended_by_hand(n, factor, rate, outcome, hops):
        clock = None
    elif gone:
        unanswered = request is not None and not asks
        waits = [1, 1, 1, 2, 4, 8, 16]
        clock = None if n > 6 and not unanswered else last + DAY * waits[min(n, 6)]
    elif n > 0:
        interval = min(factor / rate, 36_500.0) if rate else 1.0
        patient = outcome in (Outcome.elsewhere, Outcome.refused, Outcome.empty)
        delay = interval if patient else min(1 / 24, interval)
        steady = outcome in (Outcome.absent, Outcome.moved, Outcome.doubtful, Outcome.offered)
        for _ in range(0 if steady else min(n, 60) - 1):
            delay *= 2
        clock = last + min(delay, 30.0) * DAY
    else:
        clock = last + min(factor / rate, 36_500.0) * DAY if rate else None
    if clock is not None and last is not None and outcome is Outcome.offered and not gone:
        clock = max(clock, last + HOUR)
    return min((at for at in (request if asks else None, clock) if at is not None), default=None)


def ended_by_hand(n, factor, rate, outcome, hops):
    """Rule 4: the waits so far, one after the other."""
    interval = min(factor / rate, 36_500.0) if rate else 1.0
    patient = outcome in (Outcome.elsewhere, Outcome.refused, Outcome.empty)
    first = interval if patient else min(1 / 24, interval)
    return hops < 0 or (n >= 3 and sum(first * 2**k for k in range(min(n, 60))) > 7)


GRID = list(
    product(
        (None, T0),
        (None, T0 - HOUR, T0, T0 + HOUR, T0 + 40 * DAY),
        (False, True),
        (0, 1, 2, 3, 5, 6, 9, 40, 1_000),
        (0.0, 0.3, 1.0),
        (None, 0.0, 0.125, 1.0, 144.0, 5e5),
        Outcome,
        (0, 3, -1),
        (0.0, 0.25),
    )
)


STEPS = [7, pytest.param(1, marks=pytest.mark.dear)]
"""Distances in `GRID`; 7 divides no number of values, so each pair of two columns has its turn."""


@pytest.mark.dear
@pytest.mark.parametrize("step", STEPS)
def test_a_grid_of_states_is_due_as_by_hand(step):
    states = GRID[::step]
    for state, found in zip(states, due(*states), strict=True):
        expected = due_by_hand(*state)
        assert (found is None) is (expected is None), state
        assert found is None or abs(found - expected) <= timedelta(microseconds=1), state


moments = st.timedeltas(-DAY * 120, DAY * 240).map(lambda span: T0 + span)
states = st.tuples(
    st.none() | moments,
    st.none() | moments,
    st.booleans(),
    st.integers(0, 1_000),
    st.just(0.0) | st.floats(1e-6, 40),
    st.none() | st.just(0.0) | st.floats(1e-300, 1e300),
    st.sampled_from(Outcome),
    st.integers(-5, 5),
    st.just(0.0) | st.floats(1e-300, 1e300),
)


@given(st.lists(states, min_size=1, max_size=20))
def test_each_page_is_decided_by_itself_and_as_by_hand(rows):
    together = due(*rows)
    assert together == [due(row)[0] for row in rows]
    for state, found in zip(rows, together, strict=True):
        expected = due_by_hand(*state)
        assert (found is None) is (expected is None)
        assert found is None or abs(found - expected) <= timedelta(microseconds=2)


@given(states)
def test_a_request_makes_a_page_due_no_later_than_the_request(state):
    last, request = state[:2]
    (at,) = due(state)
    waiting = request is not None and (last is None or request > last)
    assert requested(columns(state)).tolist() == [waiting]
    if waiting:
        assert at <= request
    elif last is not None:
        assert at is None or at >= last


@given(states, st.floats(1.0, 1e3))
def test_a_higher_rate_makes_no_page_due_later(state, ratio):
    last, request, gone, _, factor, rate, *_ = state
    rate = rate or 1.0
    slow, fast = due(
        (last, request, gone, 0, factor, rate), (last, request, gone, 0, factor, rate * ratio)
    )
    assert slow == fast is None or fast <= slow


def test_nothing_is_due_of_no_pages_and_read_only_columns_are_left_alone():
    assert len(due_at(DueColumns.empty())) == 0
    pages = columns(*GRID[::97])
    for field in fields(pages):
        column = getattr(pages, field.name)
        if column is not None:
            column.flags.writeable = False
    every_other = pages.take(slice(None, None, 2))
    np.testing.assert_array_equal(due_at(every_other), due_at(pages)[::2])


@pytest.fixture
def walked():
    """A schedule of 300 pages, every tenth of which is due on the first day."""
    store = MemoryStore(2)
    ids = np.sort(register(store, 300))
    save(store, ids, last_crawl_at=T0, interval_factor=1.0)
    rates = np.where(np.arange(300) % 10 == 0, 2.0, 0.01)
    return store, publish(store, schedule_columns(ids, crawl_rate=rates)), ids[::10].tolist()


@pytest.mark.parametrize("limit", [1, 4, 7, 29, 30, 31, 1000])
def test_due_before_pages_exactly(walked, limit):
    store, epoch, expected = walked
    parts, page_id, after = [], [], 0
    with store.begin(write=False) as tx:
        while after is not None:
            part = due_before(tx, epoch, after, limit, ScheduleFilter(), T0 + DAY)
            assert len(part.pages) <= limit
            parts.append(part.pages.page_id.tolist())
            page_id += parts[-1]
            after = part.after
    assert page_id == expected
    assert all(len(part) == limit for part in parts[:-2])


def test_a_filter_that_matches_little_costs_a_bounded_walk(walked):
    store, epoch, _ = walked
    rows_read = []

    class Counting:
        """A transaction that has as many rows as are asked for, none of them due."""

        clock = staticmethod(lambda: T0)

        def schedule(self, epoch, after, limit, only):
            rows_read.append(limit)
            part = tx.schedule(epoch, 0, limit, only)
            row = np.zeros(limit, int)
            return type(part)(part.pages.take(row), after + limit)

    with store.begin(write=False) as tx:
        part = due_before(Counting(), epoch, 0, 1, ScheduleFilter(), T0 - DAY)
    assert (len(part.pages), part.after) == (0, sum(rows_read))
    assert MOST_SCANNED <= sum(rows_read) < 1.2 * MOST_SCANNED
    assert len(rows_read) < 30


def test_a_page_whose_interval_is_long_ranks_by_its_wait():
    """Brought forward by an idle budget, it is no more overdue than one that has waited as long."""
    pages = columns(*((T0, None, False, 0, factor, 0.5) for factor in (0.5, 1.0, 1.4, 2.0, 3.0)))
    assert ranking_rates(pages) == pytest.approx([0.5, 0.5, 0.5, 0.25, 1 / 6])
