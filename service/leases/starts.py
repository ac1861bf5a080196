"""Starts of crawls, in the time of the service. Pure.

`observed_at` is the instant at which a crawler sent its request, by the crawler's own clock. The
lease of a crawl bounds it by the service's clock:

| under a lease in force, the crawler states | the crawl counts at | it answers requests until |
| --- | --- | --- |
| a time from the start of the lease on, `PROMPT` before the report | that time | that time |
| a later time, up to the report | that time | the start of the lease |
| a time before the lease (a slow clock), or none | the start of the lease | the same |
| a time after the report (a fast clock) | the report | the start of the lease |

The earliest possible start decides about requests. It costs at most one crawl more, for a request
that came before the page was fetched; a later one could lose a request. Just before the report a
crawler may state the time of the report itself.

| under a lease that has ended, the crawler states | the report is |
| --- | --- |
| none, a time after the report, or about that of the page's last crawl | a repeated one |
| another time | late: the crawl counts then, and answers no request |

A repeated report gets the time of the last crawl, so that it is a duplicate. A crawl without a
lease counts, and answers requests, at the time that its crawler states.

No report is repeated if the last crawl is older than its lease, whose token has its second. The
same holds where that crawl is older than a restore, which loses leases and their reports, and has
another digest. Such a report is late. It counts at its arrival if its time is wrong or missing.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from service.leases.settle import LeasedCrawls
from service.leases.tokens import leased_since
from service.model.arrays import NO_TIME, Bools, Instants, Ints, instant
from service.model.columns import CrawlColumns, PageStates
from service.model.incarnations import Incarnation, restored_at

EARLIEST = np.datetime64("1990-01-01", "us")
"""Earliest time of a crawl; a crawl with this start answers no request."""
PROMPT = np.timedelta64(1, "s")
"""Time before a report in which the stated time may be that of the report."""
SLOW, FAST = np.timedelta64(1, "s"), np.timedelta64(5, "m")
"""Lag and lead of a crawler's clock up to which a repeated report is known again.

With a longer lag it is late, which changes as little. A report without a lease may have the same
lead (`api.requests.rules`)."""


def started(
    crawls: CrawlColumns,
    leased: LeasedCrawls,
    states: PageStates,
    now: datetime,
    incarnations: Callable[[], Sequence[Incarnation]] = list,
) -> tuple[CrawlColumns, Instants]:
    """Return the crawls at the times at which they count, and the (N,) starts for requests.

    `states` are the locked states of their pages, and `now` is the arrival of the report.
    `incarnations` returns those of the database.
    """
    row, locked = leased.row, leased.locked
    if not len(row):
        return crawls, crawls.observed_at
    stated, at = crawls.observed_at[row], instant(now)
    sure = (stated >= locked.leased_at) & (stated <= at - PROMPT)
    unsure = (crawls.token[row] != 0) & ~sure
    if not unsure.any():
        return crawls, crawls.observed_at
    row, stated, held = row[unsure], stated[unsure], locked.held[unsure]
    leased_at = np.fmin(locked.leased_at[unsure], at)
    observed_at, starts = crawls.observed_at.copy(), crawls.observed_at.copy()
    starts[row] = np.where(held, leased_at, EARLIEST)
    # fmin and fmax take the other one of two times if one is none
    times = np.fmin(np.fmax(stated, leased_at), at)
    if not held.all():
        last, is_new = _before(crawls.page_id[row], crawls.digest[row], states)
        is_new &= ~held
        restore = restored_at(incarnations()) if is_new.any() else None
        is_new &= False if restore is None else last < instant(restore)
        since = leased_since(crawls.token[row])
        is_new |= (last < since) & (since <= at)
        times = np.where(held, times, _after_lease(stated, last, at, is_new))
    observed_at[row] = times
    return replace(crawls, observed_at=observed_at), starts


def _after_lease(stated: Instants, last: Instants, at: np.datetime64, is_new: Bools) -> Instants:
    """Return the (N,) times of reports whose leases have ended; those that are new are late."""
    wrong = np.isnat(stated) | (stated > at) | (stated < EARLIEST)
    again = wrong | ((stated >= last - SLOW) & (stated <= last + FAST))
    again &= ~np.isnat(last) & ~is_new
    times: Instants = np.where(again, last, np.where(wrong, at, stated))
    return times


def _before(page_id: Ints, digest: Ints, states: PageStates) -> tuple[Instants, Bools]:
    """Return the (N,) times of the last crawls of pages, NaT: none, and which digests are new."""
    if not len(states):
        return np.full(len(page_id), NO_TIME), np.zeros(len(page_id), np.bool_)
    place = np.minimum(states.page_id.searchsorted(page_id), len(states) - 1)
    is_there = states.page_id[place] == page_id
    last: Instants = np.where(is_there, states.last_crawl_at[place], NO_TIME)
    return last, is_there & (digest != 0) & (digest != states.digest[place])
