"""The division of an epoch's budget among refreshes, first crawls and other requests. Pure.

Pages without a copy have no share in the allocation. Their rates are those of pages like them at
the same multiplier, so that their intervals are right after their first crawls.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from service.core.allocation.harmonic import harmonic_rates
from service.core.allocation.problem import Allocation
from service.core.budget_factor import Window
from service.core.common_values import Joint, count, total
from service.core.division import Division, Wanted, divided
from service.core.waits import JITTER
from service.epochs.constraints import CONSTRAINED, LEAST, ROUNDING, CapLevel, bounds, tree
from service.epochs.requests import RequestCounts
from service.estimation.estimates import RateEstimates
from service.model.arrays import Bools, Floats, days
from service.model.columns import CapColumns, EpochColumns
from service.model.domain import Observability

PAGES_PER_CRAWL = 5
"""Pages with a copy for each crawl a day where no budget is set, the ratio of K19's experiments."""


class UnitCosts(NamedTuple):
    """Costs of crawls in the unit of the budget."""

    of_pages: Floats | None = None
    """(N,) cost of a crawl of each page; None: 1."""
    mean: float = 1.0
    """Mean cost of a crawl, over the pages of all parts."""


ONE_EACH = UnitCosts()
"""Costs of crawls under a budget of crawls."""
NEW = Window(1.0, -np.inf)
"""Time in which first crawls show how many a day are wanted."""


def with_copy(pages: EpochColumns) -> Bools:
    """Return (N,) which pages have a copy."""
    return ~np.isnat(pages.last_observed_at)


def divides(objective: str, wants: Wanted) -> bool:
    """Return whether pages without a copy have no share.

    The rules for comparison know no multiplier, and in a corpus without any copy all pages share.
    """
    return objective == CONSTRAINED and wants.n_copies > 0


def wanted_within(
    pages: EpochColumns,
    caps: CapColumns,
    first_share: float,
    now: np.datetime64,
    cost: Floats | None = None,
    crawled: float = 1.0,
) -> Wanted:
    """Return what the pages of this part want beside refreshes; `cost` is that of a crawl each.

    `crawled` is the share of the first crawls of the last day that crawlers made (`share_crawled`).

    New pages want as many first crawls a day as wait now, or as there were within the last day.
    First crawls have the same share of the caps of hosts and groups as of the budget. A host may
    have a share of its own.
    """
    has_copy = with_copy(pages)
    shares = pages.importance > 0
    waiting = ~has_copy & shares & np.isnat(pages.last_failure_at)
    copies = has_copy & shares
    low = pages.min_crawl_rate if cost is None else pages.min_crawl_rate * cost
    minima = low[has_copy & (pages.min_crawl_rate >= LEAST)]
    of_first = _first_crawled(pages, has_copy, NEW, now)
    levels = _levels(pages, caps)
    shares_of = _first_shares(caps, levels, first_share)
    columns = [np.asarray(mask, np.float64) for mask in (waiting, of_first, copies)]
    columns[1] *= crawled
    of_hosts = [_sums(column, levels) for column in columns]
    return Wanted(
        n_copies=int(np.count_nonzero(copies)),
        n_waiting=int(np.count_nonzero(waiting)),
        first_crawls=_within_caps(np.maximum(*of_hosts[:2]), of_hosts[2], levels, shares_of),
        # the solver adds the minima in another order, and must not find their sum above
        minima=(1 + ROUNDING) * float(minima.sum()),
    )


def _levels(pages: EpochColumns, caps: CapColumns) -> tuple[CapLevel, ...]:
    """Return the levels of caps without minima, which the allocation warns of."""
    none = np.broadcast_to(np.nan, len(pages))
    return tree(replace(pages, min_crawl_rate=none), caps)


def _sums(column: Floats, levels: tuple[CapLevel, ...]) -> Floats:
    """Return the sums of a column by host with a cap, and of all other hosts."""
    return _of_level(levels[0], column) if levels else np.array([column.sum()])


def _of_level(level: CapLevel, column: Floats) -> Floats:
    return np.asarray(np.bincount(level.of, column, len(level.limits)), np.float64)


def _first_shares(
    caps: CapColumns, levels: tuple[CapLevel, ...], first_share: float
) -> tuple[Floats, ...]:
    """Return the maximum share of first crawls of each cap, by level; hosts may have their own."""
    shares = tuple(np.full(len(level.limits), first_share) for level in levels)
    if shares and caps.first_share is not None:
        own = ~np.isnan(caps.first_share)
        shares[0][: len(caps)][own] = caps.first_share[own]
    return shares


def _within_caps(
    first: Floats, copies: Floats, levels: tuple[CapLevel, ...], shares: tuple[Floats, ...]
) -> float:
    """Return first crawls a day within the caps of hosts, then of groups."""
    for i, (level, share) in enumerate(zip(levels, shares, strict=True)):
        if i:
            first, copies = _of_level(level, first), _of_level(level, copies)
        has_limit = np.isfinite(level.limits)
        limits = level.limits[has_limit]
        # a host of new pages only has its whole cap for them
        spare = np.maximum(share[has_limit] * limits, limits - copies[has_limit])
        first[has_limit] = np.minimum(first[has_limit], spare)
    return float(first.sum())


def _first_crawled(
    pages: EpochColumns, has_copy: Bools, since: Window, now: np.datetime64
) -> Bools:
    """Return which pages had their first crawl with content within a time."""
    row = np.flatnonzero(has_copy & (pages.n_observations <= 1))
    once = pages.n_observations[row] == 1
    age = days(now - pages.last_observed_at[row])
    age += np.where(once, np.abs(pages.last_interval[row]), 0.0)
    # the first interval of a page is a random part of a whole one
    first = once | (pages.interval_factor[row] < 1.0 - JITTER)
    recent = np.zeros(len(pages), np.bool_)
    recent[row] = first & (age <= since.start) & (age > since.end)
    return recent


def n_first_crawled(pages: EpochColumns, since: Window, now: np.datetime64) -> int:
    """Return the number of first crawls with content within a time."""
    return int(np.count_nonzero(_first_crawled(pages, with_copy(pages), since, now)))


def share_crawled(n_first: int, requests: RequestCounts) -> float:
    """Return the share of the first crawls of the last day that crawlers can have made.

    The others are copies that were imported, which no budget pays for.

    >>> share_crawled(2_000, RequestCounts()), share_crawled(10, RequestCounts(n_of_day=40.0))
    (0.0, 1.0)
    """
    return min(requests.n_of_day / max(n_first, 1), 1.0)


def division(
    pages: EpochColumns,
    caps: CapColumns,
    bandwidth: float | None,
    first_share: float,
    requests: RequestCounts,
    now: np.datetime64,
    costs: UnitCosts = ONE_EACH,
) -> Joint[tuple[Division, Wanted]]:
    """Return the division of the budget of all parts, and what their pages want.

    Without a budget, the crawls of refreshes are a fifth of the pages that have a copy, and
    nothing limits first crawls. A corpus without any copy counts all of its pages.
    """
    n_first = yield from count(n_first_crawled(pages, NEW, now))
    crawled = share_crawled(n_first, requests)
    wanted = wanted_within(pages, caps, first_share, now, costs.of_pages, crawled)
    sums, n_pages = yield from total((wanted, len(pages)))
    if bandwidth is not None:
        overhead = requests.overhead_of(bandwidth / costs.mean) * costs.mean
        return divided(bandwidth, sums, overhead, first_share, costs.mean), sums
    crawls = (sums.n_copies or n_pages) / PAGES_PER_CRAWL
    return Division(crawls, crawls, requests.overhead, None), sums


def sharing(pages: EpochColumns) -> EpochColumns:
    """Return the pages with a share in the allocation: none for those without a copy."""
    has_copy = with_copy(pages)
    if has_copy.all():
        return pages
    return replace(
        pages,
        importance=np.where(has_copy, pages.importance, 0.0),
        min_crawl_rate=np.where(has_copy, pages.min_crawl_rate, np.nan),
    )


def add_rates_of_new(
    pages: EpochColumns,
    estimates: RateEstimates,
    caps: CapColumns,
    allocation: Allocation,
    most: float,
    cost: Floats | None = None,
) -> None:
    """Write the rates of pages without a copy into an allocation, at the multipliers in force.

    `caps` are those of the allocation, whose hosts its multipliers have. `most` is the
    maximum amount a day of a page where a multiplier is 0. `cost` has the amount of a crawl of each
    page.
    """
    row = np.flatnonzero(~with_copy(pages) & (pages.importance > 0))
    if not row.size:
        return
    new = pages.take(row)
    own = RateEstimates(*(column[row] for column in estimates))
    price: Floats | float = allocation.multiplier
    if allocation.host_multiplier is not None:
        price = allocation.host_multiplier[_levels(new, caps)[0].of]
    most_crawls: ArrayLike = most
    if cost is not None:
        # caps count crawls, so their part of the price is the same for all pages of a host
        price = price + allocation.multiplier * (cost[row] - 1.0)
        most_crawls = most / cost[row]
    complete = new.observability == Observability.complete
    columns = new.importance, own.change_rate, complete
    rates = harmonic_rates(*columns, price, most=most_crawls, **bounds(new, own))
    allocation.crawl_rate[row], allocation.crawl_probability[row] = rates
