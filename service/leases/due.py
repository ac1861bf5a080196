"""Due times of pages, on columns as the stores return them. Pure except for `due_before`.

The rules apply in this order; `interval` is `interval_factor / rate` days, at most `MAX_DUE_DAYS`.
The rate is `due_rate`. A page that lacks content (`outcomes.lacks_content`), or has no share, takes
its `retry_rate` instead, the rate of its last share. Therefore its retries do not drift when the
epoch takes the share away, and a page that is back is due before the next epoch.

1. A page never crawled is due from its registration on, and never while it is held
   (`budget.admission`).
2. A page that is gone is due 1 day x 2^(n-2) after the last crawl, n = `n_failures`, at least 2.
   With n above `GONE_CHECKS` the page is retired, which means never due. The exception is a retired
   page with a request that no crawl has answered: such a page waits as with n = `GONE_CHECKS`.
3. A page without content in its last n crawls, whatever their outcomes, is due by the outcome of
   the last one (`model.outcomes`). A page that was absent or doubtful waits for its second look
   min(`RETRY_S`, interval). A page elsewhere, refused or empty waits interval x 2^(n-1), any other
   page min(`RETRY_S`, interval) x 2^(n-1). The wait is at most `MOST_WAIT_DAYS`. The interval
   counts as 1 day if the page has never had a share.
4. A page known only as the target of redirects (`ingest.redirects`) is retired after at least three
   crawls in a row without content. Its next crawl would then come more than `TARGET_DAYS` after the
   first of them. It is retired at once, without content, when no page redirects to it any more.
5. A page whose site has asked for a price is due one interval after the last crawl, but not within
   `OFFER_DAYS`. By then, an epoch has taken the price into the rate.
6. Any other page is due one interval after the last crawl. Like (5), it is never due without a
   rate.

Pages of a host with windows are due in its open time (`core.open_hours`): after an interval of open
time, or at the opening after a request. A wait after a crawl without content is not shorter for it.

A request that is newer than the last crawl makes the page due no later than the request. Such a
page comes first, unless its pings have earned the crawl (`earned`): then it is as late as the
crawls that it has missed by its plan.
"""

from datetime import datetime
from typing import Any

import numpy as np

from service.leases.open_due import due_in_open_time, opened, openings
from service.model.arrays import (
    DAY,
    INSTANT,
    NO_TIME,
    Bools,
    Floats,
    Instants,
    Ints,
    instant,
    moment,
)
from service.model.columns import DueColumns, PageStates, ScheduledPages, SchedulePart
from service.model.domain import Page, ScheduleFilter
from service.model.outcomes import IS_PATIENT, IS_STEADY, OFFER, lacks_content
from service.storage.epochs.schedule import MOST_SCANNED
from service.storage.pages.links import GONE_CHECKS, LEAST_TRIES
from service.storage.stores.contract import Transaction

MAX_DUE_DAYS = 36_500.0
"""Maximum interval, days: a century."""

LEAST_RATE = 1e-200
"""Minimum rate that counts, 1/day."""

RETRY_S = 3_600.0
"""Maximum wait after the first crawl that failed, seconds."""

MOST_WAIT_DAYS = 30.0
"""Maximum wait after a crawl without content, days."""

TARGET_DAYS = 7.0
"""Time for which a target of redirects is tried without content, days."""

OFFER_DAYS = 1.0 / 24.0
"""Minimum wait after a site has asked for a price, days."""

MOST_DOUBLINGS = 60
"""Number of crawls without content after which the wait no longer doubles."""

LONG = 1.5
"""Factor on an interval from which a page ranks by its wait, mean intervals."""

DAY_S = 86_400.0
"""Length of a day, seconds."""

DAY_US = DAY / np.timedelta64(1, "us")
"""Length of a day, microseconds."""

WALK_BLOCK = 10_000
"""Maximum rows that `due_before` reads at a time."""


def due_at(pages: DueColumns) -> Instants:
    """Return (N,) due times, rounded down to the μs; NaT where only a ping makes the page due.

    >>> one = {name: np.array([value]) for name, value in {
    ...     "page_id": 1, "created_at": np.datetime64("2026-01-01", "us"),
    ...     "last_crawl_at": np.datetime64("2026-05-01", "us"), "requested_at": NO_TIME,
    ...     "gone": False, "n_failures": 0, "outcome": 0, "hops": 0, "retry_rate": 0.0,
    ...     "interval_factor": 1.5, "due_rate": 0.5}.items()}
    >>> due_at(DueColumns(**one)).tolist()
    [datetime.datetime(2026, 5, 4, 0, 0)]
    """
    last, rate = pages.last_crawl_at, _rates(pages)
    scheduled = rate > 0
    wait, never = _interval_days(pages.interval_factor, rate, scheduled), ~scheduled
    if (pages.gone | (pages.n_failures > 0)).any():
        wait, never = _after_failures(pages, wait, never)
    if (offered := (pages.outcome == OFFER) & ~pages.gone).any():
        wait = np.where(offered, np.maximum(wait, OFFER_DAYS), wait)
    due = last + (wait * DAY_US).astype(np.int64).astype("m8[us]")
    if pages.hours is not None:
        waits = pages.gone | (pages.n_failures > 0) | offered
        due = due_in_open_time(pages.hours, due, last, wait, waits)
    due = np.where(np.isnat(last), _first_due(pages), np.where(never, NO_TIME, due))
    request = np.where(requested(pages), pages.requested_at, NO_TIME)
    # fmin skips NaT: a page that is never due is due at its request
    earlier: Instants = np.fmin(due, request)
    return earlier if pages.hours is None else opened(pages.hours, earlier)


def next_at(pages: DueColumns, now: np.datetime64) -> Instants:
    """Return (N,) due times; overdue pages whose host is closed now are due at its opening.

    So readers of the schedule crawl no page in a closure that they have missed before it.
    """
    due = due_at(pages)
    if pages.hours is not None:
        late = np.flatnonzero(due < now)
        opens = openings(pages.hours[late], now)
        due[late] = np.where(np.isnat(opens), due[late], opens)
    return due


def _rates(pages: DueColumns) -> Floats:
    """Return (N,) rates of the pages' intervals, 1/day; 0 or NaN where there is none."""
    own = pages.retry_rate
    if not own.any():
        return pages.due_rate
    shares = (pages.due_rate > 0) & ~lacks_content(pages.gone, pages.n_failures)
    return np.where((own > 0) & ~shares, own, pages.due_rate)


def _after_failures(pages: DueColumns, interval: Floats, never: Bools) -> tuple[Floats, Bools]:
    """Return (N,) days from the last crawl to the next, and which pages are never due (2 and 3)."""
    n, gone, outcome = pages.n_failures, pages.gone, pages.outcome
    lacking = ~gone & (n > 0)
    first = _first_wait(pages, interval)
    doublings = np.where(IS_STEADY[outcome], 1, np.clip(n, 1, MOST_DOUBLINGS)) - 1
    wait = np.where(lacking, np.minimum(first * np.exp2(doublings), MOST_WAIT_DAYS), interval)
    wait = np.where(gone, np.exp2(np.clip(n, 2, GONE_CHECKS) - 2), wait)
    # an answer clears older requests, so a request before the last crawl still waits for one
    retired = (n > GONE_CHECKS) & ~(pages.requested_at <= pages.last_crawl_at)
    return wait, np.where(gone, retired, (~lacking & never) | given_up(pages))


def _first_due(pages: DueColumns) -> Instants:
    """Return the time of the first crawl: the registration; never if held or unlinked."""
    never = pages.hops < 0
    if pages.held is not None:
        never |= pages.held == 1
    return np.where(never, NO_TIME, pages.created_at)


def _first_wait(pages: DueColumns, interval: Floats) -> Floats:
    """Return (N,) days to the next crawl after a first one without content."""
    at_most = np.minimum(interval, RETRY_S / DAY_S)
    return np.where(IS_PATIENT[pages.outcome], interval, at_most)


def given_up(pages: DueColumns) -> Bools:
    """Return which pages are targets of redirects that are no longer tried (4)."""
    n, hops, none = pages.n_failures, pages.hops, np.zeros(len(pages), np.bool_)
    if not hops.any():
        return none
    unlinked = (hops < 0) & ((n > 0) | np.isnat(pages.last_crawl_at))
    rate = _rates(pages)
    interval = _interval_days(pages.interval_factor, rate, rate > 0)
    # waits of 1, 2, 4, …, 2^(n-1) add up to 2^n - 1
    tried = _first_wait(pages, interval) * (np.exp2(np.clip(n, 0, MOST_DOUBLINGS)) - 1.0)
    late = (hops > 0) & (n >= LEAST_TRIES) & (tried > TARGET_DAYS)
    ended: Bools = ~pages.gone & (unlinked | late)
    return ended


def _interval_days(factor: Floats, rate: Floats, scheduled: Bools) -> Floats:
    """Return (N,) days between crawls of the scheduled pages, 1 for the others."""
    # with a lower rate the interval would overflow
    interval = factor / np.maximum(rate, LEAST_RATE)
    # every database can add a century to a date
    return np.where(scheduled, np.minimum(interval, MAX_DUE_DAYS), 1.0)


def ranking_rates(pages: DueColumns, due: Instants | None = None) -> Floats:
    """Return (N,) rates that rank pages due at these times, 1/day; 0 or NaN where there is none.

    None: the times by the rule.

    A page whose last crawl had no content ranks by its wait. So a retry after 16 days is no more
    overdue than a crawl after the interval of any other page. So does a page whose interval is much
    longer than its rate states. A page whose pings have earned a crawl ranks by all crawls of its
    plan.
    """
    late, rate = pages.gone | (pages.n_failures > 0), pages.due_rate
    late |= pages.interval_factor > LONG
    if pages.retry_rate.any():
        rate = np.where(earned(pages), pages.retry_rate, rate)
    if not late.any():
        return rate
    wait = ((due_at(pages) if due is None else due) - pages.last_crawl_at) / DAY
    late &= wait > 0
    return np.where(late, 1.0 / np.where(late, wait, 1.0), rate)


def first_retry_days(pages: DueColumns) -> Floats:
    """Return (N,) days from the first crawl that failed to the next: min(`RETRY_S`, interval)."""
    rate = _rates(pages)
    interval = _interval_days(pages.interval_factor, rate, rate > 0)
    return np.minimum(interval, RETRY_S / DAY_S)


def requested(pages: DueColumns | PageStates) -> Bools:
    """Return (N,) whether a request is newer than the last crawl."""
    waiting: Bools = ~np.isnat(pages.requested_at) & ~(pages.last_crawl_at >= pages.requested_at)
    return waiting


def earned(pages: DueColumns) -> Bools:
    """Return (N,) whether the pings of a page have earned its next crawl, now or later.

    A page with content and a share has a `retry_rate` only then (`ingest.credit`).
    """
    ranked: Bools = (pages.retry_rate > 0) & (pages.due_rate > 0)
    ranked &= ~pages.gone & (pages.n_failures == 0)
    return ranked


def comes_first(pages: DueColumns) -> Bools:
    """Return (N,) whether a request has a page crawled before all that are due."""
    first = requested(pages)
    return first & ~earned(pages) if pages.retry_rate.any() else first


def of_crawled(states: PageStates) -> DueColumns:
    """Return the values that decide when crawled pages are due, with NaN for the rate."""
    names = (
        "page_id",
        "last_crawl_at",
        "requested_at",
        "gone",
        "n_failures",
        "outcome",
        "hops",
        "retry_rate",
        "interval_factor",
    )
    never, none = np.full(len(states), NO_TIME), np.full(len(states), np.nan)
    columns = {name: getattr(states, name) for name in names}
    return DueColumns(**columns, created_at=never, due_rate=none)


def of_new(page_id: Ints, created_at: datetime) -> DueColumns:
    """Return the values that decide when pages registered at an instant are due."""
    n = len(page_id)
    never, none, codes = np.full(n, NO_TIME), np.full(n, np.nan), np.zeros(n, np.int16)
    return DueColumns(
        page_id=page_id,
        created_at=np.full(n, instant(created_at)),
        last_crawl_at=never,
        requested_at=never,
        gone=np.zeros(n, np.bool_),
        n_failures=np.zeros(n, np.int64),
        outcome=codes,
        hops=codes,
        retry_rate=np.zeros(n),
        interval_factor=np.ones(n),
        due_rate=none,
    )


def of_page(page: Page) -> DueColumns:
    """Return the values that decide when one page is due, as columns of one row."""
    cells: dict[str, Any] = {
        name: np.array([getattr(page, name)])
        for name in (
            "page_id",
            "gone",
            "n_failures",
            "outcome",
            "hops",
            "retry_rate",
            "interval_factor",
        )
    }
    for name in ("created_at", "last_crawl_at", "requested_at"):
        at = getattr(page, name)
        cells[name] = np.array([NO_TIME if at is None else instant(at)], INSTANT)
    cells["due_rate"] = np.array([page.due_rate], np.float64)
    cells["held"] = np.array([bool(page.held)], np.int16)
    if page.hours is not None:
        cells["hours"] = np.array([page.hours], object)
    return DueColumns(**cells)


def next_crawl_at(page: Page, now: datetime | None = None) -> datetime | None:
    """Return the due time of one page, as `next_at` does; None if only a ping makes the page due.

    Without `now`, an overdue page has its due time, although its host may be closed.
    """
    columns = of_page(page)
    return moment((due_at(columns) if now is None else next_at(columns, instant(now)))[0])


def retired(page: Page) -> bool:
    """Return whether only a ping makes a page due: it is gone for long, or a target given up."""
    ended = page.gone or (page.hops != 0 and bool(given_up(of_page(page))[0]))
    return ended and next_crawl_at(page) is None


def due_before(
    tx: Transaction, epoch: int, after: int, limit: int, only: ScheduleFilter, before: datetime
) -> SchedulePart:
    """Return the rows of `tx.schedule` that are due before an instant, at most `limit`.

    Because `MOST_SCANNED` and the store limit the rows scanned, an empty part may not be the last.
    """
    parts: list[ScheduledPages] = []
    n_read, size, place, now = 0, limit, after, instant(tx.clock())
    while True:
        size = min(size, WALK_BLOCK)
        part = tx.schedule(epoch, place, size, only)
        parts.append(part.pages.where(next_at(part.pages, now) < instant(before)))
        limit -= len(parts[-1])
        n_read += len(part.pages)
        if limit < 0:
            parts[-1] = parts[-1].take(slice(limit))
            return SchedulePart(ScheduledPages.concatenate(parts), int(parts[-1].page_id[-1]))
        if part.after is None or not limit or len(part.pages) < size or n_read >= MOST_SCANNED:
            return SchedulePart(ScheduledPages.concatenate(parts), part.after)
        place, size = part.after, 2 * size
