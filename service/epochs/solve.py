"""Allocate the bandwidth of an epoch to its pages within constraints; certify the result. Pure.

The crawl rates are optimal in the long run and use up the bandwidth. The urgency is a factor on the
crawl rate. A page is due sooner after crawls found other pages of its URL group changed, and later
after crawls found them unchanged (`core.url_groups`).
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import structlog
from numpy.typing import ArrayLike, NDArray

from service.core.allocation import ALLOCATORS, SEARCHING
from service.core.allocation.problem import Allocation
from service.core.conditions import BandwidthInfeasible
from service.core.costs import costs
from service.core.estimators.base import Estimator
from service.core.pings import PingEstimate, audit_rate
from service.core.shares import ShareEvidence
from service.epochs.clocks import Clocks
from service.epochs.moves import exposures, most_crawled, moved, places
from service.epochs.urgency import LastEpoch, Urgency, urgency
from service.estimation.estimates import RateEstimates
from service.model.arrays import Floats, Ints
from service.model.columns import CapColumns, EpochColumns, HostClocks, ScheduleColumns
from service.model.domain import Certificate, Epoch, Observability, Timing


@dataclass(frozen=True, slots=True)
class Plan:
    """Aims of an epoch."""

    estimator: Estimator[Any]
    objective: str = "harmonic"
    timing: Timing = Timing.periodic
    bandwidth: float | None = None
    """Crawls a day; None: 0.2 for each page."""
    retention: timedelta | None = None
    """Time for which the log is kept; None: without limit."""
    audit_retention: timedelta | None = None
    """Time for which the audit is kept; None: without limit."""
    history_retention: timedelta | None = None
    """Time for which the history is kept; None: without limit."""
    url_groups: bool = True
    """True if the latest crawls of a page's URL group move its next crawl. This needs periodic
    timing, because the estimators for Poisson timing assume the rates in force."""
    clocks: bool = True
    """True if crawls are moved to the hours after a host's pages change. This needs periodic timing
    too, and an estimator with a posterior of the change rate."""
    host_delay_s: float = 0.0
    """Delay between two crawls of hosts without one of their own, seconds."""

    @property
    def with_urgency(self) -> bool:
        """True if urgency moves the next crawls of pages."""
        return self.url_groups and self.timing is Timing.periodic

    @property
    def with_clocks(self) -> bool:
        """True if clocks of hosts move the next crawls of pages."""
        return self.clocks and self.timing is Timing.periodic and self.estimator.steady is not None


CONSTRAINED = "harmonic"
"""The objective whose solver takes constraints."""

LEAST = 1e-9
"""Smallest bound passed to the solver, crawls a day; the smallest maximum of the API."""
ROUNDING = 1e-9
"""Maximum relative rounding error of a sum of minima, in any order."""

NO_HOSTS: Ints = np.zeros(0, np.int64)

log = structlog.get_logger()


class CapLevel(NamedTuple):
    """(K,) hosts or groups with a cap, and a last entry for all others."""

    of: Ints
    """Index of the cap of each page, or of each host."""
    limits: Floats
    """Caps, crawls a day; infinite for no cap."""
    minima: Floats
    """Sums of the minimum crawl rates of the pages, crawls a day."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """Bounds of pages by the solver's parameters, and the levels of caps: hosts, then groups."""

    of_pages: dict[str, Floats]
    levels: tuple[CapLevel, ...] = ()

    def arguments(self, granted: ArrayLike) -> dict[str, Any]:
        """Return the solver's keyword arguments; maxima and caps exclude the granted crawls."""
        arguments: dict[str, Any] = dict(self.of_pages)
        if "max_crawl_rate" in arguments:
            spare = arguments["max_crawl_rate"] - granted
            arguments["max_crawl_rate"] = np.maximum(spare, arguments.get("min_crawl_rate", 0.0))
        names = (("host", "host_bandwidth"), ("host_group", "group_bandwidth"))
        for level, (members, bandwidth) in zip(self.levels, names, strict=False):
            each = np.broadcast_to(granted, level.of.shape)
            granted = np.bincount(level.of, each, len(level.limits))
            spare = np.maximum(level.limits - granted, level.minima)
            arguments |= {members: level.of, bandwidth: spare}
        return arguments

    @property
    def minima(self) -> float:
        """Sum of the minimum crawl rates, crawls a day."""
        return float(np.sum(self.of_pages.get("min_crawl_rate", 0.0)))

    def affordable(self, audits: Floats, bandwidth: float) -> Floats:
        """Return the audits, reduced to the room that minima leave within every limit.

        The limits are the maximum of a page, the caps of its host and group, and the bandwidth.
        """
        least, most = (self.of_pages.get(f"{name}_crawl_rate") for name in ("min", "max"))
        if most is not None:
            audits = np.minimum(audits, most - (0.0 if least is None else least))
        of_page: Ints | slice = slice(None)
        for level in self.levels:
            of_page = level.of[of_page]
            audits_of = np.bincount(of_page, audits, len(level.limits))
            audits = audits * _share(level.limits - level.minima, audits_of)[of_page]
        return audits * _share(bandwidth - self.minima, audits.sum())


def _share(room: ArrayLike, needed: ArrayLike) -> Floats:
    """Return the share of what is needed that fits into the room, in [0, 1]."""
    tiny = np.finfo(np.float64).tiny
    return np.asarray(np.clip(room, 0.0, needed) / np.maximum(needed, tiny))


def constrain(
    pages: EpochColumns, estimates: RateEstimates, caps: CapColumns, objective: str
) -> Constraints:
    """Return the constraints that this objective supports; warn of the others."""
    if objective == CONSTRAINED:
        return Constraints(bounds(pages, estimates), tree(pages, caps))
    if len(caps):
        log.warning("this objective ignores caps of hosts", objective=objective)
    if (pages.min_crawl_rate >= LEAST).any() or np.isfinite(pages.max_crawl_rate).any():
        log.warning("this objective ignores bounds of pages", objective=objective)
    return Constraints({})


def bounds(pages: EpochColumns, estimates: RateEstimates) -> dict[str, Floats]:
    """Return the bounds and ping qualities of pages.

    A minimum above its maximum replaces the maximum. A minimum below `LEAST` is ignored.
    """
    arguments = {}
    low = np.where(pages.min_crawl_rate >= LEAST, pages.min_crawl_rate, 0.0)
    if low.any():
        arguments["min_crawl_rate"] = low
    if np.isfinite(pages.max_crawl_rate).any():
        high = np.nan_to_num(pages.max_crawl_rate, nan=np.inf)
        arguments["max_crawl_rate"] = np.maximum(high, low)
    if estimates.ping_rate.any():
        arguments |= {"ping_recall": estimates.recall, "ping_precision": estimates.precision}
    return arguments


def tree(pages: EpochColumns, caps: CapColumns) -> tuple[CapLevel, ...]:
    """Return the levels of caps: hosts, and groups if any has a cap; none without caps."""
    if not len(caps):
        return ()
    host = np.minimum(caps.host_id.searchsorted(pages.host_id), len(caps) - 1)
    host = np.where(caps.host_id[host] == pages.host_id, host, len(caps))
    minima = np.nan_to_num(pages.min_crawl_rate)
    hosts = _level("host", caps.host, caps.max_crawl_rate, host, minima)
    grouped = np.flatnonzero(caps.group_id)
    if not grouped.size:
        return (hosts,)
    _, first, group = np.unique(caps.group_id[grouped], return_index=True, return_inverse=True)
    group_of_host = np.full(len(hosts.limits), len(first))
    group_of_host[grouped] = group
    capped = caps.take(grouped[first])
    groups = _level("group", capped.group, capped.group_max_crawl_rate, group_of_host, hosts.minima)
    return hosts, groups


def _level(
    kind: str, names: NDArray[np.object_], limits: Floats, of: Ints, minima: Floats
) -> CapLevel:
    """Return a level; minima that exceed a cap replace the cap, so that no epoch fails."""
    sums = (1 + ROUNDING) * np.bincount(of, minima, len(limits) + 1).astype(np.float64)
    for node in np.flatnonzero(limits < sums[:-1]).tolist():
        log.warning(
            "minimum crawl rates exceed a cap and replace it",
            max_crawl_rate=float(limits[node]),
            min_crawl_rates=float(sums[node]),
            **{kind: names[node]},
        )
    return CapLevel(of, np.append(np.nan_to_num(limits, nan=np.inf), np.inf), sums)


PAGES_PER_CRAWL = 5
"""Pages for each crawl a day where no bandwidth is set, the ratio of K19's experiments."""
COST_BLOCK = 1 << 16
"""Pages whose costs are computed at a time."""
UNUSED = 1e-6
"""Maximum share of the bandwidth that one crawl a day may leave unused."""
MAX_NAMES = 3
"""Maximum pages that the reason of a failed epoch names."""


class Solution(NamedTuple):
    """The result of an epoch."""

    schedule: ScheduleColumns
    certificate: Certificate
    evidence: ShareEvidence | None
    """Evidence of the shares of URL groups from all crawls; None: none yet."""


def solve(
    pages: EpochColumns,
    estimates: RateEstimates,
    plan: Plan,
    last: Epoch | None,
    caps: CapColumns,
    now: np.datetime64,
    evidence: ShareEvidence | None = None,
    clocks: Clocks | None = None,
) -> Solution:
    """Return the schedule and its certificate; `last` is the epoch in force."""
    start = last.certificate.multiplier if last and last.certificate else None
    bandwidth = plan.bandwidth
    if bandwidth is None:
        bandwidth = len(pages) / PAGES_PER_CRAWL
    problem = Problem(pages, estimates, plan.objective, bandwidth, caps)
    allocation, audits = optimum(problem, start, None if clocks is None else clocks.hosts)
    crawl_rate = allocation.crawl_rate + audits
    since = LastEpoch.of(last, evidence)
    pace = Urgency(np.ones(len(pages)), 1.0, evidence)
    place = places(pages.host_id, NO_HOSTS if clocks is None else clocks.hosts.host_id)
    if plan.with_urgency:
        exposure = exposures(pages, clocks, place)
        pace = urgency(pages, estimates, crawl_rate, caps, now, since, bandwidth, exposure)
    moves = moved(pages, estimates, crawl_rate, pace.of_pages, clocks, place, since, now)
    schedule = ScheduleColumns(
        page_id=pages.page_id,
        change_rate=estimates.change_rate,
        crawl_rate=crawl_rate,
        crawl_probability=allocation.crawl_probability,
        urgency=moves.urgency,
        shift=moves.shift,
        carried=moves.carried,
    )
    rates = crawl_rate, allocation.crawl_probability
    harmonic, binary = total_costs(pages, estimates, rates, plan.timing)
    certificate = Certificate(
        bandwidth=bandwidth,
        bandwidth_used=allocation.bandwidth_used + float(audits.sum()),
        multiplier=allocation.multiplier,
        harmonic_cost=harmonic,
        binary_cost=binary,
        kkt_residual=allocation.kkt_residual,
        duality_gap=allocation.duality_gap,
        passes=allocation.passes,
        n_pages=len(pages),
        prior={},
        crawl_rate_quantiles=percentiles(crawl_rate),
        seconds={},
        budget_factor=pace.budget_factor,
    )
    return Solution(schedule, certificate, pace.evidence)


class Problem(NamedTuple):
    """The input of an allocation."""

    pages: EpochColumns
    estimates: RateEstimates
    objective: str
    bandwidth: float
    """Crawls a day."""
    caps: CapColumns


def optimum(
    problem: Problem, start: float | None, hosts: HostClocks | None
) -> tuple[Allocation, Floats]:
    """Return the optimum beside the audits, and the audits, crawls a day.

    `start` is the multiplier of a similar allocation, `hosts` are those with a clock.
    """
    allocation, audits = _within_limits(problem, start)
    if hosts is None or not len(hosts):
        return allocation, audits
    return _once_a_day(problem, allocation, audits, hosts)


def _once_a_day(
    problem: Problem, allocation: Allocation, audits: Floats, hosts: HostClocks
) -> tuple[Allocation, Floats]:
    """Return the optimum with one crawl a day for pages to which clocks leave no use of a second.

    The bandwidth must find other pages, otherwise the optimum without clocks stays.
    """
    pages, change_rate = problem.pages, problem.estimates.change_rate
    unclocked = allocation.crawl_rate, allocation.multiplier
    most = most_crawled(pages, change_rate, *unclocked, hosts)
    if most is None:
        return allocation, audits
    fewer = replace(pages, max_crawl_rate=np.fmin(pages.max_crawl_rate, most))
    clocked = _within_limits(problem._replace(pages=fewer), allocation.multiplier)
    used = clocked[0].bandwidth_used + clocked[1].sum()
    return clocked if used >= (1 - UNUSED) * problem.bandwidth else (allocation, audits)


def _within_limits(problem: Problem, start: float | None) -> tuple[Allocation, Floats]:
    """Return the optimum without clocks beside the audits, and the audits, crawls a day."""
    pages, estimates, objective, bandwidth, caps = problem
    constraints = constrain(pages, estimates, caps, objective)
    complete = pages.observability == Observability.complete
    columns = np.ascontiguousarray(pages.importance), estimates.change_rate, complete

    def allocate(bandwidth: float, start: float | None, audits: ArrayLike) -> Allocation:
        searching = {"start": start} if objective in SEARCHING else {}
        arguments = constraints.arguments(audits)
        return ALLOCATORS[objective](*columns, bandwidth, **searching, **arguments)

    try:
        allocation = allocate(bandwidth, start, 0.0)
    except BandwidthInfeasible as error:
        raise BandwidthInfeasible(f"{error}; {greediest(pages)}") from error
    audits = constraints.affordable(audit_rates(pages, estimates, allocation), bandwidth)
    if audits.any():
        spared = max(bandwidth - float(audits.sum()), constraints.minima)
        allocation = allocate(spared, allocation.multiplier, audits)
    return allocation, audits


def greediest(pages: EpochColumns) -> str:
    """Return a phrase that names the pages with the highest minimum crawl rates."""
    low = np.nan_to_num(pages.min_crawl_rate)
    first = np.argsort(-low, kind="stable")[:MAX_NAMES]
    names = (f"page {pages.page_id[i]} ({low[i]:g})" for i in first.tolist() if low[i] > 0)
    return f"the highest minimum crawl rates are those of {', '.join(names)}"


def audit_rates(pages: EpochColumns, estimates: RateEstimates, allocation: Allocation) -> Floats:
    """Return the audits of `auto` pages with pings, 1/day, which measure what the pings miss.

    A page gets audits only if the optimum has fewer crawls on its clock, up to its maximum.
    """
    pinged = estimates.ping_rate > 0
    if not pinged.any():
        return np.broadcast_to(0.0, len(pages))
    unannounced = (1.0 - estimates.recall) * estimates.change_rate
    estimate = PingEstimate(unannounced, estimates.ping_rate, estimates.precision)
    target = audit_rate(estimate, allocation.crawl_probability)
    missing = np.fmin(np.maximum(target - allocation.crawl_rate, 0.0), pages.max_crawl_rate)
    return np.where(pinged, missing, 0.0)


def percentiles(values: Floats) -> tuple[float, ...]:
    """Return the minimum, 99 percentiles and the maximum, faster than `np.quantile`."""
    if not len(values):
        return ()
    ranks, ordered = np.arange(len(values)), np.sort(values)
    return tuple(np.interp(np.linspace(0, len(values) - 1, 101), ranks, ordered).tolist())


def total_costs(
    pages: EpochColumns, estimates: RateEstimates, rates: tuple[Floats, Floats], timing: Timing
) -> tuple[float, float]:
    """Return the harmonic and the binary cost of all pages at crawl rates and probabilities.

    Pages with noisy pings count as on Poisson clocks, which bounds their costs from above.
    """
    total = np.zeros(2)
    for start in range(0, len(pages), COST_BLOCK):
        block = slice(start, start + COST_BLOCK)
        complete = pages.observability[block] == Observability.complete
        columns = (
            pages.importance[block],
            estimates.change_rate[block],
            *(rate[block] for rate in rates),
            complete,
        )
        pinged = estimates.ping_rate[block] > 0
        quality = estimates.recall[block][pinged], estimates.precision[block][pinged]
        noise = dict(zip(("ping_recall", "ping_precision"), quality, strict=True))
        for where, model in ((~pinged, {"timing": timing.value}), (pinged, noise)):
            if where.any():
                total += np.sum(costs(*(column[where] for column in columns), **model), axis=1)
    return float(total[0]), float(total[1])
