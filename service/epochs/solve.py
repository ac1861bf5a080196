"""Allocate the bandwidth of an epoch to its pages within constraints; certify the result. Pure.

The crawl rates are optimal in the long run and use up the bandwidth. The urgency is a factor on the
crawl rate. A page is due sooner after crawls found other pages of its URL group changed, and later
after crawls found them unchanged (`core.url_groups`).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from service.core.ages import AgeProfile
from service.core.common_values import Joint, count, total
from service.core.costs import costs as costs_of
from service.core.quantiles import percentiles
from service.core.shared_changes import ShareEvidence
from service.epochs.ages import exposures as aged_exposures
from service.epochs.ages import hot_apart
from service.epochs.change_hours import Hours
from service.epochs.division import (
    ONE_EACH,
    add_rates_of_new,
    divides,
    division,
    n_first_crawled,
    sharing,
)
from service.epochs.optimum import AllocationInput, capacities_of, optimum_in_windows, priced
from service.epochs.plan import Plan
from service.epochs.requests import NO_REQUESTS, RequestCounts, factor_after, joined
from service.epochs.shifts import exposures, placed, shifted
from service.epochs.urgency import LastEpoch, Urgency, urgency
from service.epochs.windows import HostWindows, worst
from service.estimation.estimates import RateEstimates, RatePosterior
from service.model.amounts import CRAWLS
from service.model.arrays import Floats
from service.model.columns import NOT_SHIFTED, CapColumns, EpochColumns, ScheduleColumns
from service.model.domain import Certificate, Epoch, Observability, Timing

NO_RATES: Floats = np.zeros(0)


COST_BLOCK = 1 << 14
"""Pages whose costs are computed at a time, so that their columns fit the cache."""


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
