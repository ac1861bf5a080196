"""Requests of crawls: their place in the queue, and the crawls that answer them. Pure.

A ping or an operator requests a crawl. A crawl answers the requests from before its start, if it
shows the state of the page. A request that arrives during a crawl needs another crawl, because the
site may have sent the page before the change. Two instants are enough:

| column of a page | request | decides |
| --- | --- | --- |
| `requested_at` | the first since the last crawl | the place in the queue |
| `renewed_at` | the newest; NaT where that is the first | whether a crawl answers all |

Arrays are (P,) for pages.
"""

from typing import NamedTuple

import numpy as np

from service.leases.due import requested
from service.model.arrays import NO_TIME, Instants
from service.model.columns import PageStates

MICROSECOND = np.timedelta64(1, "us")


class Requests(NamedTuple):
    """(P,) requests without an answer, as in `PageStates`."""

    requested_at: Instants
    renewed_at: Instants


def requests_of(states: PageStates) -> Requests:
    """Return the requests of pages."""
    return Requests(states.requested_at, states.renewed_at)


def renewed(states: PageStates, first: Instants, newest: Instants) -> Requests:
    """Return the requests after further ones, the `first` and the `newest` of each page.

    NaT: the page has no further request. An open request keeps its place. A request that the last
    crawl did not answer has lost it. Otherwise a page that always fails would always be first.
    """
    wanted = ~np.isnat(first)
    if not wanted.any():
        return requests_of(states)
    opened = requested(states)
    requested_at = np.where(wanted & ~opened, first, states.requested_at)
    latest = np.where(opened, np.fmax(states.renewed_at, newest), newest)
    later = np.where(latest > requested_at, latest, NO_TIME)
    return Requests(requested_at, np.where(wanted, later, states.renewed_at))


def left(states: PageStates, crawled_at: Instants, began: Instants, answered: Instants) -> Requests:
    """Return the requests that crawls leave.

    Parameters
    ----------
    states
        The pages before the crawls.
    crawled_at
        Time at which the last crawl of each page counts.
    began
        Start of the last crawl, no later than `crawled_at` (`leases.starts`).
    answered
        Start of the last crawl that showed the state of its page; NaT: none.
    """
    if np.isnat(states.requested_at).all():
        return requests_of(states)
    newest = np.fmax(states.requested_at, states.renewed_at)
    first = np.where(states.requested_at <= crawled_at, newest, states.requested_at)
    # a request from during the last crawl waits on, newer than the time at which the crawl counts
    waits = requested(states) & (newest > began) & (first <= crawled_at)
    first = np.where(waits, crawled_at + MICROSECOND, first)
    first = np.where(newest <= answered, NO_TIME, first)
    return Requests(first, np.where(newest > first, newest, NO_TIME))
