"""The optimum of an epoch within its budget: bounds, caps, audits, doubt and open time. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from service.core.allocation import ALLOCATORS, SEARCHING
from service.core.allocation.harmonic import harmonic_optimum
from service.core.allocation.problem import Allocation
from service.core.checks import BandwidthInfeasible
from service.core.common_values import Contribution, Joint, anywhere, gathered, total
from service.core.doubt import counted_rate
from service.core.pings import PingEstimate, audit_rate
from service.core.prices import allocated
from service.epochs.capacities import MOST_ROUNDS, Capacities, limited
from service.epochs.constraints import CONSTRAINED, Audits, constrain
from service.epochs.division import UnitCosts
from service.epochs.plan import Plan
from service.epochs.windows import HostWindows
from service.estimation.estimates import RateEstimates, RatePosterior
from service.model.amounts import typical_cost
from service.model.arrays import Floats, places
from service.model.columns import CapColumns, EpochColumns
from service.model.domain import Observability

DOUBT_ROUNDS = 2
"""Solutions under doubt: the first begins at the multiplier of the optimum by mean rates."""
MAX_NAMES = 3
"""Maximum pages that the reason of a failed epoch names."""


class AllocationInput(NamedTuple):
    """The input of an allocation."""

    pages: EpochColumns
    estimates: RateEstimates
    objective: str
    bandwidth: float
    """Amount a day."""
    caps: CapColumns
    cost: Floats | None = None
    """Cost of a crawl of each page, in the unit of the bandwidth; None: 1."""
    posterior: RatePosterior | None = None
    """Posteriors of change rates in doubt; None: none is."""


def priced(pages: EpochColumns, unit: str, budget: float) -> Joint[tuple[EpochColumns, UnitCosts]]:
    """Return the pages and the costs of their crawls; a page above the day's budget has no share.

    Its minimum crawl rate is left out too, because no day could pay for a crawl. It does not count
    in the mean.
    """
    typical = min(typical_cost(unit), budget)
    cost = yield from allocated(pages.cost, pages.host_id, typical, budget)
    beyond = cost > budget
    within = cost[~beyond]
    n, of_all = yield from total((len(within), float(within.sum())))
    costs = UnitCosts(cost, of_all / n if n else typical)
    if not beyond.any():
        return pages, costs
    return (
        replace(
            pages,
            importance=np.where(beyond, 0.0, pages.importance),
            min_crawl_rate=np.where(beyond, np.nan, pages.min_crawl_rate),
        ),
        costs,
    )


def optimum(problem: AllocationInput, start: float | None) -> Joint[tuple[Allocation, Audits]]:
    """Return the optimum beside the audits, and the audits, crawls a day.

    `start` is the multiplier of a similar allocation.
    """
    allocation, audits = yield from _within_limits(problem, start)
    by_means, doubted = problem, problem.posterior is not None and problem.objective == CONSTRAINED
    for _ in range(DOUBT_ROUNDS if doubted else 0):
        problem = under_doubt(by_means, allocation.multiplier)
        allocation, audits = yield from _within_limits(problem, allocation.multiplier)
    return allocation, audits


def under_doubt(problem: AllocationInput, multiplier: float) -> AllocationInput:
    """Return the problem with change rates as they count under doubt (`core.doubt`).

    `multiplier` is that of a similar optimum.
    """
    pages, estimates, posterior = problem.pages, problem.estimates, problem.posterior
    if posterior is None or not 0 < multiplier < np.inf:
        return problem
    gain = pages.importance / (multiplier * (1.0 if problem.cost is None else problem.cost))
    counted = counted_rate(estimates.change_rate, posterior.a, posterior.b, gain)
    return problem._replace(estimates=estimates._replace(change_rate=counted))


def capacities_of(
    pages: EpochColumns, windows: HostWindows | None, plan: Plan
) -> Capacities | None:
    """Return what hosts can be crawled in their open time; None: all as often as is wanted."""
    if windows is None or plan.objective != CONSTRAINED:
        return None
    return Capacities(windows, places(pages.host_id, windows.host_id))


class Optimum(NamedTuple):
    """An optimum within the open time of hosts."""

    allocation: Allocation
    audits: Audits
    caps: CapColumns
    """Caps in force: those that are set, and the capacities of hosts."""
    crawls: Floats
    """(N,) crawls a day of pages, on the clock, audits included, and on pings."""


def optimum_in_windows(
    problem: AllocationInput, start: float | None, capacities: Capacities | None
) -> Joint[Optimum]:
    """Return the optimum within the open time of hosts; without `capacities` that of `optimum`."""
    caps = problem.caps
    result = yield from optimum(problem, start)
    crawls = crawls_of(problem, *result)
    if not (yield from anywhere(capacities is not None)):
        return Optimum(*result, caps, crawls)
    for _ in range(MOST_ROUNDS):
        exceeded = capacities is not None and capacities.exceeded(crawls)
        if not (yield from anywhere(exceeded)):
            break
        if capacities is not None:
            caps = limited(problem.caps, capacities.windows, capacities.limits)
        within = problem._replace(caps=caps)
        result = yield from optimum(within, result[0].multiplier)
        crawls = crawls_of(problem, *result)
    return Optimum(*result, caps, crawls)


def crawls_of(problem: AllocationInput, allocation: Allocation, audits: Audits) -> Floats:
    """Return (N,) crawls a day, on the clock and on pings, as bandwidth and caps count them."""
    estimates, crawls = problem.estimates, allocation.crawl_rate
    if audits.total > 0:
        crawls = crawls + audits.of_pages
    if not allocation.crawl_probability.any():
        return crawls
    complete = problem.pages.observability == Observability.complete
    announced = np.where(complete, 1.0, estimates.recall / estimates.precision)
    return crawls + allocation.crawl_probability * announced * estimates.change_rate


def _within_limits(
    problem: AllocationInput, start: float | None
) -> Joint[tuple[Allocation, Audits]]:
    """Return the optimum by mean rates beside the audits, and the audits, crawls a day."""
    pages, estimates, objective, bandwidth, caps, cost, _ = problem
    constraints = constrain(pages, estimates, caps, objective)
    complete = pages.observability == Observability.complete
    columns = np.ascontiguousarray(pages.importance), estimates.change_rate, complete

    def allocate(bandwidth: float, start: float | None, audits: ArrayLike) -> Joint[Allocation]:
        if objective != CONSTRAINED:
            return _gathered(objective, columns, bandwidth, start)
        limits = constraints.arguments(audits)
        return harmonic_optimum(*columns, bandwidth, start=start, cost=cost, **limits)

    try:
        allocation = yield from allocate(bandwidth, start, 0.0)
    except BandwidthInfeasible as error:
        highest = yield Contribution(highest_minima(pages), _highest, exact=True)
        raise BandwidthInfeasible(f"{error}; {greediest(highest)}") from error
    rates = audit_rates(pages, estimates, allocation)
    audits = yield from constraints.affordable(rates, bandwidth, cost)
    if audits.total > 0:
        # rounding must not leave less than the minima need
        spared = max(bandwidth - audits.total, audits.minima)
        allocation = yield from allocate(spared, allocation.multiplier, audits.of_pages)
    return allocation, audits


def _gathered(
    objective: str, columns: tuple[Any, ...], bandwidth: float, start: float | None
) -> Joint[Allocation]:
    """Return this part's share of an allocation whose solver needs the pages of all parts.

    Their columns cross processes, 33 bytes a page. This is for comparisons.
    """
    solved = partial(_allocated, objective=objective, bandwidth=bandwidth, start=start)
    allocation: Allocation = yield Contribution(columns, solved, own_reply=True)
    return allocation


def _allocated(
    parts: Sequence[tuple[Any, ...]], objective: str, bandwidth: float, start: float | None
) -> list[Allocation]:
    searching = {"start": start} if objective in SEARCHING else {}
    whole = ALLOCATORS[objective](*gathered(parts), bandwidth, **searching)
    ends = np.cumsum([len(columns[0]) for columns in parts])[:-1]
    rates = np.split(whole.crawl_rate, ends), np.split(whole.crawl_probability, ends)
    return [
        replace(whole, crawl_rate=rate, crawl_probability=probability)
        for rate, probability in zip(*rates, strict=True)
    ]


Minima = list[tuple[float, int]]
"""Minimum crawl rates, 1/day, with the page_id of each, highest rate first."""


def highest_minima(pages: EpochColumns) -> Minima:
    """Return the `MAX_NAMES` highest minimum crawl rates above 0."""
    low = np.nan_to_num(pages.min_crawl_rate)
    first = np.argsort(-low, kind="stable")[:MAX_NAMES]
    each = zip(low[first].tolist(), pages.page_id[first].tolist(), strict=True)
    return [(rate, page_id) for rate, page_id in each if rate > 0]


def _highest(parts: Sequence[Minima]) -> Minima:
    """Return the highest of all parts; of equal rates that of the lowest page_id."""
    each = (minimum for minima in parts for minimum in minima)
    return sorted(each, key=lambda minimum: (-minimum[0], minimum[1]))[:MAX_NAMES]


def greediest(highest: Minima) -> str:
    """Return a phrase that names the pages with the highest minimum crawl rates."""
    names = (f"page {page_id} ({rate:g})" for rate, page_id in highest)
    return f"the highest minimum crawl rates are those of {', '.join(names)}"


def audit_rates(pages: EpochColumns, estimates: RateEstimates, allocation: Allocation) -> Floats:
    """Return the audits of `auto` pages with pings, 1/day, which measure what the pings miss.

    A page gets audits only if the optimum has fewer crawls on its change hours, up to its maximum.
    """
    pinged = estimates.ping_rate > 0
    if not pinged.any():
        return np.broadcast_to(0.0, len(pages))
    unannounced = (1.0 - estimates.recall) * estimates.change_rate
    estimate = PingEstimate(unannounced, estimates.ping_rate, estimates.precision)
    target = audit_rate(estimate, allocation.crawl_probability)
    missing = np.fmin(np.maximum(target - allocation.crawl_rate, 0.0), pages.max_crawl_rate)
    return np.where(pinged, missing, 0.0)
