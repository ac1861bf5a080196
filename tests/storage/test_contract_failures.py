"""What every store promises of pages that fail, are gone or redirect."""

from datetime import timedelta
from itertools import product

import numpy as np
import pytest
from support.store_cases import (
    DAY,
    MICROSECOND,
    T0,
    due_of,
    instants,
    page_of,
    publish,
    read_schedule,
    register,
    save,
    schedule_columns,
    states_of,
)

from service.model.outcomes import Outcome

HOUR = timedelta(hours=1)


def due(store, page_id):
    return due_of(store, page_id)


def due_by_hand(last, requested, gone, n, rate, interval_factor, retry):
    """The rules at the head of the schedule in `storage.base`, in seconds and plain Python."""
    if retry and (not rate or (n >= 3 and not gone)):
        rate = retry
    asked = requested if requested is not None and (last is None or requested > last) else None
    if last is None:
        clock = T0
    elif gone:
        unanswered = requested is not None and requested <= last
        waits = [1, 1, 1, 2, 4, 8, 16]
        clock = None if n > 6 and not unanswered else last + DAY * waits[min(n, 6)]
    elif n > 0:
        interval = 86_400.0 * (interval_factor / rate if rate else 1)
        delay = min(3_600.0, interval)
        for _ in range(min(n, 40) - 1):
            delay *= 2
        clock = last + timedelta(seconds=min(delay, 30 * 86_400.0))
    else:
        clock = last + interval_factor / rate * DAY if rate else None
    return min((at for at in (asked, clock) if at is not None), default=None)


@pytest.mark.dear
def test_when_a_page_is_due_follows_from_its_state_as_by_hand(store):
    """Over a grid of all that decides it, in the schedule and on the page's own answer."""
    grid = list(
        product(
            (None, T0 + HOUR),
            (None, T0 + timedelta(minutes=30), T0 + timedelta(minutes=90), T0 + 40 * DAY),
            (False, True),
            (0, 1, 2, 3, 5, 6, 9, 40, 1_000),
            (None, 0.0, 0.125, 1.0, 24.0, 144.0, 5e5),
            (0.5, 1.0),
            (0.0, 0.5),
        )
    )
    ids = np.sort(register(store, len(grid)))
    last, requested, gone, n, rate, interval_factor, retry = map(list, zip(*grid, strict=True))
    save(
        store,
        ids,
        last_crawl_at=last,
        requested_at=requested,
        gone=gone,
        n_failures=n,
        outcome=Outcome.failed,
        interval_factor=interval_factor,
        retry_rate=retry,
    )
    scheduled = np.array([r is not None for r in rate])
    rates = np.array([r for r in rate if r is not None])
    epoch = publish(store, schedule_columns(ids[scheduled], crawl_rate=rates))
    shown = {row.page_id: row.next_crawl_at for row in read_schedule(store, epoch, limit=len(ids))}
    for i in range(len(grid)):
        expected = due_by_hand(*grid[i])
        if scheduled[i]:
            found = shown[ids[i]]
            assert (found is None) is (expected is None), grid[i]
            assert found is None or abs(found - expected) <= 2 * MICROSECOND, grid[i]
    for i in np.flatnonzero(~scheduled)[::7]:
        found, expected = due(store, ids[i]), due_by_hand(*grid[i])
        assert found == expected, grid[i]


def test_a_retired_page_is_woken_and_no_other(store):
    ids = np.sort(register(store, 6))
    gone = [True, True, True, False, False, True]
    save(store, ids, gone=gone, n_failures=[7, 6, 9, 9, 0, 8], last_crawl_at=T0)
    save(store, ids[5:], requested_at=T0 - DAY)
    with store.begin() as tx:
        assert sorted(tx.wake(ids[::-1], T0 + DAY).tolist()) == ids[[0, 2]].tolist()
    assert due(store, ids[0]) == due(store, ids[2]) == T0 + DAY
    with store.begin() as tx:
        # a crawl may be under way, so that a further request is one more
        assert sorted(tx.wake(ids, T0 + 2 * DAY).tolist()) == ids[[0, 2]].tolist()
        assert tx.wake(np.array([10**9]), T0).tolist() == []
    assert due(store, ids[0]) == T0 + DAY
    assert states_of(store, ids[[0]]).renewed_at.tolist() == instants([T0 + 2 * DAY]).tolist()
    assert due_of(store, ids[5]) == T0 + 16 * DAY


def test_a_page_names_the_page_that_it_redirects_to_as_long_as_that_is_there(store):
    one, other = np.sort(register(store, 2))
    save(store, [one], redirects_to=other)
    page = page_of(store, one)
    assert (page.redirects_to, page.redirects_to_url) == (other, page_of(store, other).url)
    with store.begin() as tx:
        tx.delete_page(int(other))
    page = page_of(store, one)
    assert (page.redirects_to, page.redirects_to_url) == (other, None)
