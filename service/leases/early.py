"""Pages that an idle budget brings forward: those that have waited longest for their next crawl.

The share of a page's interval that has passed ranks the pages. Each fill of the queue counts the
pages by this share, and the next fill queues as many as the idle budget may bring forward.
"""

from datetime import datetime

import numpy as np

from service.core.open_hours import DAY_US
from service.core.pace import Pace, advanced, at_last_request
from service.leases.open_due import opened, passed
from service.model.arrays import DAY, Bools, Floats, Instants, instant
from service.model.columns import DueColumns

LEAST_WAIT = 0.1
"""Minimum share of its interval that a page has waited before it is brought forward."""
LEAST_QUEUED = 1_000.0
"""Minimum of early pages that are queued, at most a day's budget.

Servers hold allotments, so a small idle budget is not seen in the pace."""
N_BINS = 90
"""Number of bins of the share from `LEAST_WAIT` to 1."""


def waited(pages: DueColumns, due: Instants, now: datetime) -> Floats:
    """Return the (N,) shares of the intervals that have passed; 0 for pages to be left.

    Pages that were never crawled, or had no content in their last crawl, keep their due times. On
    hosts with windows the shares are those of open time, so that no page ripens in a closure.
    """
    at, last = instant(now), pages.last_crawl_at
    span = (due - last) / DAY
    counts = ~np.isnat(due) & ~np.isnat(last) & ~pages.gone & (pages.n_failures == 0) & (span > 0)
    share = np.where(counts, (at - last) / DAY, 0.0) / np.where(counts, span, 1.0)
    if pages.hours is not None:
        own = np.flatnonzero(counts)
        share[own] = passed(pages.hours[own], share[own], last[own], due[own], at)
    return np.clip(share, 0.0, 1.0)


class EarlyPages:
    """The choice of pages beyond the horizon of the queue, from one fill to the next."""

    def __init__(self, budget: float | None) -> None:
        self.budget = budget
        self.each = 1.0
        """Mean cost of a crawl, in the unit of the budget."""
        self.least = np.inf
        """Minimum share of a page that is queued; inf: none is."""
        self.n_pages = np.zeros(N_BINS, np.int64)
        """Numbers of pages by share, of the fill that runs."""
        self.horizon = np.timedelta64(0, "us")
        """Time ahead for which the fill that runs queues pages."""

    def begin(
        self, pace: Pace | None, at: float, horizon_days: float, *, in_windows: bool = False
    ) -> None:
        """Begin a fill: set the minimum share by the counts of the last one.

        `at` is the present instant, days since 1970. Without a pace nothing has been leased yet.
        With `in_windows` some hosts have windows, whose early crawls may take a day's budget.
        """
        self.horizon = np.timedelta64(round(horizon_days * DAY_US), "us")
        idle = 0.0
        if self.budget is not None and pace is not None:
            ahead = (
                self.budget
                if in_windows
                else at_last_request(advanced(pace, at, self.budget), pace.at).ahead
            )
            own = (ahead + self.budget * horizon_days) / self.each
            idle = max(own, min(self.budget / self.each, LEAST_QUEUED))
        above = np.cumsum(self.n_pages[::-1])[::-1]
        fits = np.flatnonzero(above <= idle)
        self.least = np.inf
        if idle >= 1.0 and self.n_pages.any():
            # the bin before holds the last of the pages
            first = max((fits[0] if len(fits) else N_BINS) - 1, 0)
            self.least = LEAST_WAIT + first * (1.0 - LEAST_WAIT) / N_BINS
        self.n_pages = np.zeros(N_BINS, np.int64)

    def choose(self, pages: DueColumns, due: Instants, now: datetime) -> Bools:
        """Return which pages are queued before they are due soon, and count all pages."""
        share = waited(pages, due, now)
        if pages.hours is not None:
            # else pages that stay closed would keep the places of others; the fill after this one
            # needs the counts of those that open by then
            at = np.full(len(share), instant(now))
            share[opened(pages.hours, at) > at + 2 * self.horizon] = 0.0
        some = share[(share >= LEAST_WAIT) & (share < 1.0)]
        bins = ((some - LEAST_WAIT) / (1.0 - LEAST_WAIT) * N_BINS).astype(np.int64)
        self.n_pages += np.bincount(np.minimum(bins, N_BINS - 1), minlength=N_BINS)
        chosen: Bools = share >= self.least
        return chosen
