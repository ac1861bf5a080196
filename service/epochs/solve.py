"""Allocate the bandwidth of an epoch to its pages within constraints; certify the result. Pure.

The crawl rates are optimal in the long run and use up the bandwidth. The urgency is a factor on the
crawl rate. A page is due sooner after crawls found other pages of its URL group changed, and later
after crawls found them unchanged (`core.url_groups`).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from service.core.ages import AgeProfile
from service.core.allocation.problem import Allocation
from service.core.common_values import Joint, count, total
from service.core.costs import costs as costs_of
from service.core.division import Division, Wanted
from service.core.prices import n_assumed
from service.core.quantiles import percentiles
from service.core.shared_changes import ShareEvidence
from service.epochs.ages import exposures as aged_exposures
from service.epochs.ages import hot_apart
from service.epochs.capacities import WindowLoss, spells, worst
from service.epochs.change_hours import Hours
from service.epochs.constraints import CONSTRAINED, ROUNDING
from service.epochs.delay_losses import DelayLoss, delay_losses
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
from service.epochs.optimum import AllocationInput, capacities_of, optimum_in_windows, priced
from service.epochs.plan import Plan
from service.epochs.requests import NO_REQUESTS, RequestCounts, factor_after, joined, readers_after
from service.epochs.shifts import exposures, placed, shifted
from service.epochs.urgency import LastEpoch, Urgency, urgency
from service.epochs.windows import HostWindows, closing, demand
from service.estimation.estimates import RateEstimates, RatePosterior
from service.model.amounts import CRAWLS
from service.model.arrays import Floats, Ints, places
from service.model.columns import NOT_SHIFTED, CapColumns, EpochColumns, ScheduleColumns
from service.model.domain import Certificate, Epoch, Observability, Timing

NO_RATES: Floats = np.zeros(0)
COST_BLOCK = 1 << 14
"""Pages whose costs are computed at a time, so that their columns fit the cache."""


class Problem(NamedTuple):
    """The pages of a part, and what is learnt of them: all that an epoch allocates by."""

    pages: EpochColumns
    estimates: RateEstimates
    plan: Plan
    last: Epoch | None
    """The epoch in force."""
    caps: CapColumns
    now: np.datetime64
    evidence: ShareEvidence | None = None
    """Evidence of the shares of URL groups until the last epoch; None: none yet."""
    change_hours: Hours | None = None
    requests: RequestCounts = NO_REQUESTS
    """Requests of this part's history."""
    hazard: Floats | None = None
    """Changes expected by wide revisions since each page's last crawl; None: of no page."""
    profile: AgeProfile | None = None
    """Change rates by age; None: ages do not matter."""
    n_groups: int | None = None
    """Number of buckets of URL groups; None: by the number of pages."""
    posterior: RatePosterior | None = None
    """Change rates in doubt; None: none is."""
    windows: HostWindows | None = None
    """Hosts that may be closed, or that the budget may be too much for; None: there are none."""

    @property
    def hours_in_force(self) -> HoursInForce | None:
        """Change hours that the last epoch put in force."""
        return None if self.change_hours is None else self.change_hours.in_force


class EpochResult(NamedTuple):
    """The result of an epoch."""

    schedule: ScheduleColumns
    certificate: Certificate
    evidence: ShareEvidence | None
    """Evidence of the shares of URL groups from all crawls; None: none yet."""


class Rates(NamedTuple):
    """The rates of this part's pages, and the figures of the optimum of all parts."""

    crawl: Floats
    """(N,) crawls on the clock, audits included, 1/day."""
    crawl_probability: Floats
    """(N,) share of the pings that are crawled."""
    n_audits: float
    """Audits of all parts, 1/day."""
    optimum: Allocation
    """Figures of the optimum, without its arrays."""
    losses: tuple[WindowLoss, ...]
    """Hosts that lose most crawls to their windows."""
    delay_losses: tuple[DelayLoss, ...]
    """Hosts that lose much freshness to their delay."""


def solve(problem: Problem) -> Joint[EpochResult]:
    """Return the schedule of this part, and the certificate of all."""
    n_pages = yield from count(len(problem.pages))
    requests = yield from joined(problem.requests)
    problem, plan, costs = problem._replace(requests=requests), problem.plan, ONE_EACH
    n_assumed_costs = 0
    if plan.unit != CRAWLS and plan.bandwidth is not None:
        n_assumed_costs = yield from count(n_assumed(problem.pages.cost))
        pages, costs = yield from priced(problem.pages, plan.unit, plan.bandwidth)
        problem = problem._replace(pages=pages)
    pages, estimates = problem.pages, problem.estimates
    budget, wants = yield from division(
        pages, problem.caps, plan.bandwidth, plan.first_share, requests, problem.now, costs
    )
    place = placed(pages, problem.hours_in_force)
    rates = yield from _rates(problem, budget, wants, costs)
    urgencies, feedback = yield from _urgencies(problem, rates.crawl, wants, costs, place)
    since = LastEpoch.of(problem.last, problem.evidence)
    hours = problem.change_hours, place, problem.caps, since, problem.now
    closes = closing(problem.windows)
    shifts = shifted(pages, estimates, rates.crawl, urgencies.of_pages, *hours, closes)
    schedule = ScheduleColumns(
        page_id=pages.page_id,
        change_rate=estimates.change_rate,
        crawl_rate=rates.crawl,
        crawl_probability=rates.crawl_probability,
        urgency=shifts.urgency,
        shift=shifts.shift,
        carried=shifts.carried,
        observed_ratio=urgencies.hidden_ratio(shifts.urgency, shifts.shift != NOT_SHIFTED),
    )
    of_pages = rates.crawl, rates.crawl_probability
    a_day = rates.crawl if costs.of_pages is None else rates.crawl * costs.of_pages
    window_demand = yield from demand(problem.windows, pages.host_id, a_day)
    costs_of_part = total_costs(pages, estimates, of_pages, plan.timing, problem.windows)
    harmonic, binary = yield from total(costs_of_part)
    certificate = Certificate(
        bandwidth=budget.budget,
        unit=plan.unit,
        planned=budget.planned,
        overhead=budget.overhead,
        first_crawls=budget.first_crawls,
        bandwidth_used=rates.optimum.bandwidth_used + rates.n_audits,
        multiplier=rates.optimum.multiplier,
        harmonic_cost=harmonic,
        binary_cost=binary,
        kkt_residual=rates.optimum.kkt_residual,
        duality_gap=rates.optimum.duality_gap,
        passes=rates.optimum.passes,
        n_pages=n_pages,
        prior={},
        crawl_rate_quantiles=(yield from percentiles(rates.crawl)),
        seconds={},
        budget_factor=urgencies.budget_factor,
        observed_ratios=urgencies.observed_ratios,
        window_losses=tuple((*loss,) for loss in rates.losses),
        delay_losses=tuple((*loss,) for loss in rates.delay_losses),
        window_demand=window_demand,
        feedback=feedback,
        still_due=urgencies.still_due,
        n_assumed_costs=n_assumed_costs,
        min_bandwidth=wants.minima / (1 + ROUNDING) if plan.objective == CONSTRAINED else None,
    )
    return EpochResult(schedule, certificate, urgencies.evidence)


def _rates(problem: Problem, budget: Division, wants: Wanted, costs: UnitCosts) -> Joint[Rates]:
    """Return the rates of the optimum; those of pages without a copy are beside it.

    The arrays that only the optimum needs end with this call.
    """
    pages, plan, caps = problem.pages, problem.plan, problem.caps
    apart = divides(plan.objective, wants)
    of_sharers = AllocationInput(
        sharing(pages) if apart else pages,
        problem.estimates,
        plan.objective,
        budget.planned,
        caps,
        costs.of_pages,
        problem.posterior,
    )
    last = problem.last and problem.last.certificate
    start = last.multiplier if last and last.unit == plan.unit else None
    capacities = capacities_of(pages, problem.windows, plan)
    result = yield from optimum_in_windows(of_sharers, start, capacities)
    allocation, audits, in_force, crawls = result
    at, (by_windows, by_delay) = (
        _seconds(problem.now),
        _named_since(problem.last.certificate if problem.last else None),
    )
    losses = yield from worst(capacities, crawls, at, by_windows)
    own, timing = (pages.importance, problem.estimates.change_rate), plan.timing
    slow = yield from delay_losses(capacities, own, crawls, timing, at, by_delay)
    if apart:
        planned, of_pages = budget.planned, costs.of_pages
        add_rates_of_new(pages, problem.estimates, in_force, allocation, planned, of_pages)
    crawl_rate = allocation.crawl_rate
    if audits.total > 0:
        crawl_rate = crawl_rate + audits.of_pages
    figures = replace(allocation, crawl_rate=NO_RATES, crawl_probability=NO_RATES)
    return Rates(crawl_rate, allocation.crawl_probability, audits.total, figures, losses, slow)


def _seconds(at: np.datetime64) -> float:
    """Return an instant as seconds since 1970."""
    return float(at.astype("M8[us]").astype(np.int64)) / 1e6


def _named_since(last: Certificate | None) -> tuple[dict[str, float], dict[str, float]]:
    """Return since when the last epoch named hosts with losses by windows and by delays."""
    by_windows, by_delay = (last.window_losses, last.delay_losses) if last else ((), ())
    return (
        {host: since for host, *_, since in by_windows if not np.isnan(since)},
        {host: since for host, *_, since in by_delay},
    )


def _urgencies(
    problem: Problem, crawl_rate: Floats, wants: Wanted, costs: UnitCosts, place: Ints
) -> Joint[tuple[Urgency, float]]:
    """Return the urgency of each page, 1 where the plan leaves it out, and the feedback."""
    pages, now = problem.pages, problem.now
    if not problem.plan.with_urgency:
        return Urgency(np.broadcast_to(1.0, len(pages)), 1.0, (), problem.evidence), 1.0
    n_first = yield from count(n_first_crawled(pages, problem.requests.since, now))
    last, plan = problem.last, problem.plan
    if last and last.certificate and last.certificate.unit != plan.unit:
        last = None
    counted, sharing_it = (last, problem.requests, n_first), (wants.n_copies, costs.mean)
    feedback = factor_after(*counted, *sharing_it)
    on_all, readers = readers_after(*counted, feedback, *sharing_it)
    if readers is not None and problem.windows is not None:
        closing_hosts = problem.windows.host_id[problem.windows.closes]
        in_hours = places(pages.host_id, closing_hosts) >= 0
        readers = readers._replace(in_hours=in_hours)
    exposure, like = exposures(pages, problem.change_hours, place), pages
    if problem.profile is not None:
        exposure = aged_exposures(pages, problem.profile, now, exposure)
        like = hot_apart(pages, problem.profile, now)
    situation = like, problem.estimates, crawl_rate, problem.caps, now
    since = LastEpoch.of(problem.last, problem.evidence)
    beside = exposure, problem.hazard, problem.n_groups, readers
    return (yield from urgency(*situation, since, on_all, *beside)), feedback


def total_costs(
    pages: EpochColumns,
    estimates: RateEstimates,
    rates: tuple[Floats, Floats],
    timing: Timing,
    windows: HostWindows | None = None,
) -> tuple[float, float]:
    """Return the harmonic and the binary cost of all pages at crawl rates and probabilities.

    Pages with noisy pings count as on Poisson clocks, which bounds their costs from above. Pages
    of hosts with windows count by the intervals that their closures leave.
    """
    hours = None if windows is None else windows.of_pages(pages.host_id)
    if hours is None:
        return _total_costs(pages, estimates, rates, timing)
    of_spells = list(spells(hours, rates[0]))
    inside = np.zeros(len(pages), np.bool_)
    for row, *_ in of_spells:
        inside[row] = True
    outside = replace(pages, importance=np.where(inside, 0.0, pages.importance))
    sums = [_total_costs(outside, estimates, rates, timing)]
    for row, interval, share in of_spells:
        own = pages.take(row)
        own = replace(own, importance=own.importance * share)
        at = RateEstimates(*(column[row] for column in estimates))
        sums.append(_total_costs(own, at, (1.0 / interval, rates[1][row]), timing))
    harmonic, binary = (sum(each) for each in zip(*sums, strict=True))
    return harmonic, binary


def _total_costs(
    pages: EpochColumns, estimates: RateEstimates, rates: tuple[Floats, Floats], timing: Timing
) -> tuple[float, float]:
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
