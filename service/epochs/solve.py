"""Allocate the bandwidth of an epoch to its pages within constraints; certify the result. Pure.

The crawl rates are optimal in the long run and use up the bandwidth. The urgency is a factor on the
crawl rate. A page is due sooner after crawls found other pages of its URL group changed, and later
after crawls found them unchanged (`core.url_groups`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from service.budget.in_force import BudgetInForce
from service.core.ages import AgeProfile
from service.core.allocation import ALLOCATORS, SEARCHING
from service.core.allocation.harmonic import harmonic_optimum
from service.core.allocation.problem import Allocation
from service.core.checks import BandwidthInfeasible
from service.core.common_values import Contribution, Joint, anywhere, count, gathered, total
from service.core.costs import costs as costs_of
from service.core.division import FIRST_SHARE
from service.core.doubt import counted_rate
from service.core.estimators.base import Estimator
from service.core.pings import PingEstimate, audit_rate
from service.core.prices import allocated
from service.core.quantiles import percentiles
from service.core.shared_changes import ShareEvidence
from service.epochs.ages import exposures as aged_exposures
from service.epochs.ages import hot_apart
from service.epochs.change_hours import Hours
from service.epochs.constraints import CONSTRAINED, Audits, constrain
from service.epochs.division import (
    ONE_EACH,
    UnitCosts,
    add_rates_of_new,
    divides,
    division,
    n_first_crawled,
    sharing,
)
from service.epochs.group_hours import HoursInForce
from service.epochs.requests import NO_REQUESTS, RequestCounts, factor_after, joined
from service.epochs.shifts import exposures, most_crawled, placed, shifted
from service.epochs.urgency import LastEpoch, Urgency, urgency
from service.epochs.windows import MOST_ROUNDS, Capacities, HostWindows, limited, worst
from service.estimation.estimates import RateEstimates, RatePosterior
from service.model.amounts import CRAWLS, typical_cost
from service.model.arrays import Floats, Ints, places
from service.model.columns import NOT_SHIFTED, CapColumns, EpochColumns, ScheduleColumns
from service.model.domain import Certificate, Epoch, Observability, Timing


@dataclass(frozen=True, slots=True)
class Plan:
    """Aims of an epoch."""

    estimator: Estimator[Any]
    objective: str = "harmonic"
    timing: Timing = Timing.periodic
    bandwidth: float | None = None
    """Amount a day in the unit of the budget; None: 0.2 crawls for each page that has a copy."""
    unit: str = CRAWLS
    """Unit of the budget (`model.amounts`). It needs the objective `harmonic` unless crawls."""
    first_share: float = FIRST_SHARE
    """Maximum share of the bandwidth for first crawls."""
    retention: timedelta | None = None
    """Time for which the log is kept; None: without limit."""
    audit_retention: timedelta | None = None
    """Time for which the audit is kept; None: without limit."""
    history_retention: timedelta | None = None
    """Time for which the history is kept; None: without limit."""
    url_groups: bool = True
    """True if the latest crawls of a page's URL group shift its next crawl. This needs periodic
    timing, because the estimators for Poisson timing assume the rates in force."""
    change_hours: bool = True
    """True if crawls are shifted to the hours after a host's pages change. This needs periodic
    timing too, and an estimator with a posterior of the change rate."""
    group_hours: bool = True
    """True if URL groups may keep change hours of their own."""
    wide_revisions: bool = True
    """True if revisions of most pages of a host make the others urgent, as URL groups do."""
    ages: bool = True
    """True if change rates follow the ages of pages, as far as crawls prove that they do."""
    host_delay_s: float = 0.0
    """Delay between two crawls of hosts without one of their own, seconds."""

    def within(self, budget: BudgetInForce | None) -> "Plan":
        """Return the plan with the budget in force; None: with its own."""
        if budget is None:
            return self
        amount = budget.amount
        bandwidth = None if amount is None else amount.value
        unit = CRAWLS if amount is None else amount.unit
        return replace(self, bandwidth=bandwidth, unit=unit)

    @property
    def with_urgency(self) -> bool:
        """True if urgency shifts the next crawls of pages."""
        return self.url_groups and self.timing is Timing.periodic

    @property
    def with_change_hours(self) -> bool:
        """True if change hours of hosts shift the next crawls of pages."""
        return (
            self.change_hours
            and self.timing is Timing.periodic
            and self.estimator.steady is not None
        )


NO_RATES: Floats = np.zeros(0)

COST_BLOCK = 1 << 16
"""Pages whose costs are computed at a time."""
DOUBT_ROUNDS = 2
"""Solutions under doubt: the first begins at the multiplier of the optimum by mean rates."""
UNUSED = 1e-6
"""Maximum share of the bandwidth that one crawl a day may leave unused."""
MAX_NAMES = 3
"""Maximum pages that the reason of a failed epoch names."""


class EpochResult(NamedTuple):
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
    change_hours: Hours | None = None,
    requests: RequestCounts = NO_REQUESTS,
    hazard: Floats | None = None,
    profile: AgeProfile | None = None,
    n_groups: int | None = None,
    posterior: RatePosterior | None = None,
    windows: HostWindows | None = None,
) -> Joint[EpochResult]:
    """Return the schedule of this part, and the certificate of all; `last` is in force.

    `requests` are those of this part's history. `hazard` has the changes expected by wide revisions
    since each page's last crawl; None: of no page. `profile` has the ages; None: they do not
    matter. `n_groups` is the number of buckets of URL groups; None: by the number of pages.
    `posterior` has the change rates in doubt; None: none is. `windows` has the hosts that may be
    closed; None: all are open at all times.
    """
    start, before = last.certificate.multiplier if last and last.certificate else None, last
    if last and last.certificate and last.certificate.unit != plan.unit:
        start, before = None, None
    n_pages = yield from count(len(pages))
    requests = yield from joined(requests)
    costs = ONE_EACH
    if plan.unit != CRAWLS and plan.bandwidth is not None:
        pages, costs = yield from priced(pages, plan.unit, plan.bandwidth)
    budget, wants = yield from division(
        pages, caps, plan.bandwidth, plan.first_share, requests, now, costs
    )
    apart = divides(plan.objective, wants)
    sharers = sharing(pages) if apart else pages
    problem = AllocationInput(
        sharers, estimates, plan.objective, budget.planned, caps, costs.of_pages, posterior
    )
    hours = None if change_hours is None else change_hours.in_force
    place = placed(pages, hours)
    capacities = capacities_of(pages, windows, plan)
    optimal = optimum_in_windows(problem, start, hours, place, capacities)
    allocation, audits = yield from optimal
    losses = yield from worst(capacities, allocation.crawl_rate)
    if apart:
        add_rates_of_new(pages, estimates, caps, allocation, budget.planned, costs.of_pages)
    crawl_rate = allocation.crawl_rate
    if audits.total > 0:
        crawl_rate = crawl_rate + audits.of_pages
    n_audits, crawl_probability = audits.total, allocation.crawl_probability
    allocation = replace(allocation, crawl_rate=NO_RATES, crawl_probability=NO_RATES)
    del audits, optimal, problem, sharers  # arrays of pages, which nothing after this needs
    since = LastEpoch.of(last, evidence)
    urgencies = Urgency(np.broadcast_to(1.0, len(pages)), 1.0, (), evidence)
    if plan.with_urgency:
        n_first = yield from count(n_first_crawled(pages, requests.since, now))
        on_all = factor_after(before, requests, n_first, wants.n_copies, costs.mean)
        exposure = exposures(pages, change_hours, place)
        if profile is not None:
            exposure = aged_exposures(pages, profile, now, exposure)
        like = pages if profile is None else hot_apart(pages, profile, now)
        situation = like, estimates, crawl_rate, caps, now
        urgencies = yield from urgency(*situation, since, on_all, exposure, hazard, n_groups)
    situation_of_hours = change_hours, place, caps, since, now, windows
    shifts = shifted(pages, estimates, crawl_rate, urgencies.of_pages, *situation_of_hours)
    schedule = ScheduleColumns(
        page_id=pages.page_id,
        change_rate=estimates.change_rate,
        crawl_rate=crawl_rate,
        crawl_probability=crawl_probability,
        urgency=shifts.urgency,
        shift=shifts.shift,
        carried=shifts.carried,
        observed_ratio=urgencies.hidden_ratio(shifts.urgency, shifts.shift != NOT_SHIFTED),
    )
    rates = crawl_rate, crawl_probability
    harmonic, binary = yield from total(total_costs(pages, estimates, rates, plan.timing))
    certificate = Certificate(
        bandwidth=budget.budget,
        unit=plan.unit,
        planned=budget.planned,
        overhead=budget.overhead,
        first_crawls=budget.first_crawls,
        bandwidth_used=allocation.bandwidth_used + n_audits,
        multiplier=allocation.multiplier,
        harmonic_cost=harmonic,
        binary_cost=binary,
        kkt_residual=allocation.kkt_residual,
        duality_gap=allocation.duality_gap,
        passes=allocation.passes,
        n_pages=n_pages,
        prior={},
        crawl_rate_quantiles=(yield from percentiles(crawl_rate)),
        seconds={},
        budget_factor=urgencies.budget_factor,
        observed_ratios=urgencies.observed_ratios,
        window_losses=tuple((*loss,) for loss in losses),
    )
    return EpochResult(schedule, certificate, urgencies.evidence)


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
    cost = yield from allocated(pages.cost, pages.host_id, typical_cost(unit))
    beyond = cost > budget
    within = cost[~beyond]
    n, of_all = yield from total((len(within), float(within.sum())))
    costs = UnitCosts(cost, of_all / n if n else min(typical_cost(unit), budget))
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


def optimum(
    problem: AllocationInput, start: float | None, hours: HoursInForce | None, place: Ints
) -> Joint[tuple[Allocation, Audits]]:
    """Return the optimum beside the audits, and the audits, crawls a day.

    `start` is the multiplier of a similar allocation, `hours` are the change hours in force, and
    `place` has the row of each page among them.
    """
    allocation, audits = yield from _within_limits(problem, start)
    by_means, doubted = problem, problem.posterior is not None and problem.objective == CONSTRAINED
    for _ in range(DOUBT_ROUNDS if doubted else 0):
        problem = under_doubt(by_means, allocation.multiplier)
        allocation, audits = yield from _within_limits(problem, allocation.multiplier)
    if hours is None:
        return allocation, audits
    return (yield from _once_a_day(problem, allocation, audits, hours, place))


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
    """Return what hosts can be crawled in their open time; None: all are open at all times."""
    if windows is None or plan.objective != CONSTRAINED:
        return None
    return Capacities(windows, places(pages.host_id, windows.host_id))


def optimum_in_windows(
    problem: AllocationInput,
    start: float | None,
    hours: HoursInForce | None,
    place: Ints,
    capacities: Capacities | None,
) -> Joint[tuple[Allocation, Audits]]:
    """Return the optimum within the open time of hosts; without `capacities` that of `optimum`."""
    result = yield from optimum(problem, start, hours, place)
    if not (yield from anywhere(capacities is not None)):
        return result
    for _ in range(MOST_ROUNDS):
        exceeded = capacities is not None and capacities.exceeded(result[0].crawl_rate)
        if not (yield from anywhere(exceeded)):
            break
        within = problem
        if capacities is not None:
            caps = limited(problem.caps, capacities.windows, capacities.limits)
            within = problem._replace(caps=caps)
        result = yield from optimum(within, result[0].multiplier, hours, place)
    return result


def _once_a_day(
    problem: AllocationInput,
    allocation: Allocation,
    audits: Audits,
    hours: HoursInForce,
    place: Ints,
) -> Joint[tuple[Allocation, Audits]]:
    """Return the optimum with one crawl a day for pages that change hours leave no use of a second.

    The bandwidth must find other pages, otherwise the optimum without change hours stays.
    """
    pages, change_rate, most = problem.pages, problem.estimates.change_rate, None
    if len(hours.rows):
        price = allocation.multiplier * (1.0 if problem.cost is None else problem.cost)
        before = allocation.crawl_rate, price
        most = most_crawled(pages, change_rate, *before, hours, place)
    if not (yield from anywhere(most is not None)):
        return allocation, audits
    if most is not None:
        pages = replace(pages, max_crawl_rate=np.fmin(pages.max_crawl_rate, most))
    fewer = problem._replace(pages=pages)
    once = yield from _within_limits(fewer, allocation.multiplier)
    used = once[0].bandwidth_used + once[1].total
    return once if used >= (1 - UNUSED) * problem.bandwidth else (allocation, audits)


def _within_limits(
    problem: AllocationInput, start: float | None
) -> Joint[tuple[Allocation, Audits]]:
    """Return the optimum without change hours beside the audits, and the audits, crawls a day."""
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
                total += np.sum(costs_of(*(column[where] for column in columns), **model), axis=1)
    return float(total[0]), float(total[1])
