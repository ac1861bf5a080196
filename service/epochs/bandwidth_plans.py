"""Plans of other bandwidths: what an epoch would publish with each. Pure."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from recrawl_client.wire.plan import BudgetPlan, DelayLossAnswer, WindowLossAnswer
from service.core.allocation.problem import Allocation
from service.core.checks import BandwidthInfeasible
from service.core.common_values import alone
from service.core.division import Division, Wanted, divided, reserved
from service.epochs.capacities import Capacities, WindowLoss, worst
from service.epochs.constraints import CONSTRAINED, LEAST
from service.epochs.delay_losses import DelayLoss, delay_losses
from service.epochs.division import ONE_EACH, UnitCosts
from service.epochs.optimum import (
    AllocationInput,
    Optimum,
    capacities_of,
    optimum_in_windows,
    priced,
)
from service.epochs.plan import Plan
from service.epochs.requests import NO_REQUESTS, RequestCounts
from service.epochs.solve import total_costs
from service.epochs.windows import HostWindows
from service.estimation.estimates import RateEstimates, RatePosterior
from service.model.amounts import CRAWLS
from service.model.arrays import Bools, Floats, Ints, element_types
from service.model.columns import CapColumns, EpochColumns
from service.model.domain import Certificate
from service.model.known_shares import expected_share

MOST_LISTED = 1_000
"""Maximum number of hosts, of tags and of starved pages that a plan lists."""
MORE = 0.01
"""Part of a bandwidth by which the plan is larger that shows the gain of one more crawl."""
USED_UP = 1e-9
"""Relative distance of a host's multiplier above that of all pages that means a full cap."""
PLANNED = {
    *("page_id", "importance", "observability", "host_id", "url_group"),
    *("min_crawl_rate", "max_crawl_rate", "cost"),
}
"""Columns of pages that an allocation and its costs read beside the estimates."""


class Members(NamedTuple):
    """Pages by host, or by tag."""

    row: Any
    """(M,) rows of the pages, or a slice of all."""
    code: Ints
    """(M,) position in `ids` of the host or tag."""
    ids: Ints
    """(K,) host_id or tag_id, ascending."""
    n_pages: Ints
    """(K,) numbers of pages."""

    @classmethod
    def of(cls, row: Any, each: Ints) -> "Members":
        """Return the members with the (M,) host_id or tag_id of rows."""
        ids, code, n_pages = np.unique(each, return_inverse=True, return_counts=True)
        return cls(row, code.astype(np.int32), ids, n_pages)


@dataclass(frozen=True, slots=True)
class Basis:
    """The input of all plans, as of one instant."""

    epoch: int
    at: datetime
    in_force: Certificate
    wants: Wanted
    pages: EpochColumns
    """Pages with a share, with values in the columns `PLANNED` alone (`reduced`)."""
    estimates: RateEstimates
    caps: CapColumns
    hosts: Members
    tags: Members
    has_copy: Bools
    """(N,) which pages have a copy: only they are refreshed, and may be fresh."""
    importance_apart: float
    """Importance of pages without a share that wait for their first crawls, unless a rule or a stop
    of their URL group forbids these."""
    n_assumed: int
    """Pages without evidence, whose change rates are assumed."""
    n_assumed_costs: int = 0
    """As in `Certificate`."""
    requests: RequestCounts = NO_REQUESTS
    """Requests as an epoch of this instant counts them."""
    posterior: RatePosterior | None = None
    """As in `AllocationInput`."""
    windows: HostWindows | None = None
    """Hosts that may be closed, or have a delay; None: there are none."""


class Ranked(NamedTuple):
    """(K,) hosts or tags with the most crawls, busiest first."""

    position: Ints
    """Position in `Members.ids`."""
    crawl_rate: Floats
    """Crawls a day."""


Freshness = tuple[float | None, float | None, float | None]
"""Harmonic and binary cost, and the fresh share; None: not known."""
UNKNOWN = None, None, None
"""Costs and fresh share while all change rates are assumed."""
NONE = Ranked(np.zeros(0, np.int64), np.zeros(0))


class Solved(NamedTuple):
    """A plan, its busiest hosts and tags without their names, and its starved pages."""

    figures: BudgetPlan
    """The plan without lists."""
    hosts: Ranked = NONE
    tags: Ranked = NONE
    at_cap: frozenset[int] = frozenset()
    """host_id of the hosts whose cap, or whose group's cap, is used up."""
    starved: Ints = NONE.position
    """Rows of pages whose minima do not fit, highest minimum first."""


def reduced(pages: EpochColumns) -> EpochColumns:
    """Return pages with the columns in `PLANNED`; the others take no memory."""
    n = len(pages)
    types = element_types(EpochColumns).items()
    others = {name: kind for name, kind in types if name not in PLANNED}
    return replace(
        pages, **{name: np.broadcast_to(np.zeros((), kind), n) for name, kind in others.items()}
    )


class _Allocated(NamedTuple):
    """An allocation of a bandwidth, and its costs."""

    budget: Division
    optimum: Optimum
    capacities: Capacities | None
    harmonic: float | None
    """The costs of the pages with a copy, and the fresh share of all; None: not known."""
    binary: float | None
    fresh_share: float | None


def planned(basis: Basis, plan: Plan, bandwidth: float, start: float | None = None) -> Solved:
    """Return the plan of a bandwidth; `start` is the multiplier of a similar plan."""
    pages, costs = basis.pages, ONE_EACH
    if plan.unit != CRAWLS:
        pages, costs = alone(priced(pages, plan.unit, bandwidth))
    try:
        own = _allocated(basis, plan, (pages, costs), bandwidth, start)
    except BandwidthInfeasible:
        return _infeasible(pages, bandwidth, plan.unit, costs.of_pages)
    budget, (allocation, audits, caps, crawls) = own.budget, own.optimum
    has_any = bool(basis.has_copy.any())
    of_pages = pages.importance, basis.estimates.change_rate
    slow = alone(delay_losses(own.capacities, of_pages, crawls, plan.timing))
    figures = BudgetPlan(
        bandwidth=bandwidth,
        planned=budget.planned if has_any else 0.0,
        overhead=budget.overhead,
        reserved=reserved(bandwidth, budget.planned if has_any else 0.0, budget.overhead),
        first_crawls=budget.first_crawls,
        feasible=True,
        bandwidth_used=allocation.bandwidth_used + audits.total if has_any else 0.0,
        multiplier=_finite(allocation.multiplier) if has_any else None,
        gain=_gain(basis, plan, (pages, costs), own),
        harmonic_cost=own.harmonic,
        binary_cost=own.binary,
        fresh_share=own.fresh_share,
        window_losses=[_loss(loss) for loss in alone(worst(own.capacities, crawls))],
        delay_losses=[_delay_loss(loss) for loss in slow],
    )
    crawls = np.where(basis.has_copy, crawls, 0.0)
    ranked = _ranked(basis.hosts, crawls), _ranked(basis.tags, crawls)
    return Solved(figures, *ranked, _at_cap(basis.caps, caps, allocation))


def _allocated(
    basis: Basis,
    plan: Plan,
    at: tuple[EpochColumns, UnitCosts],
    bandwidth: float,
    start: float | None,
) -> _Allocated:
    """Return the optimum of a bandwidth, `at` pages and costs; raise `BandwidthInfeasible`."""
    pages, costs = at
    budget = _division(basis, plan, bandwidth, costs.mean)
    problem = AllocationInput(
        pages,
        basis.estimates,
        plan.objective,
        budget.planned,
        basis.caps,
        costs.of_pages,
        basis.posterior,
    )
    capacities = capacities_of(pages, basis.windows, plan)
    optimum = alone(optimum_in_windows(problem, start, capacities))
    rates = optimum.allocation.crawl_rate + optimum.audits.of_pages
    freshness: Freshness = UNKNOWN
    if basis.has_copy.any():
        freshness = _freshness(basis, pages, (rates, optimum.allocation.crawl_probability), plan)
    return _Allocated(budget, optimum, capacities, *freshness)


def _gain(
    basis: Basis, plan: Plan, at: tuple[EpochColumns, UnitCosts], own: _Allocated
) -> float | None:
    """Return the decrease of the harmonic cost by one more of the budget; None: it is not known.

    The multiplier is no such decrease. It belongs to crawls at random times, and to change rates
    as they count under doubt. The cost is that of the timing in force, by mean rates.
    """
    if own.harmonic is None:
        return None
    bandwidth, more = own.budget.budget, own.budget.budget * MORE
    above = _allocated(basis, plan, at, bandwidth + more, own.optimum.allocation.multiplier)
    return None if above.harmonic is None else (own.harmonic - above.harmonic) / more


def _freshness(
    basis: Basis, pages: EpochColumns, rates: tuple[Floats, Floats], plan: Plan
) -> Freshness:
    """Return the two costs of the pages that have a copy, and the fresh share of all pages."""
    own = np.where(basis.has_copy, pages.importance, 0.0)
    copies = replace(pages, importance=own)
    harmonic, binary = total_costs(copies, basis.estimates, rates, plan.timing, basis.windows)
    of_all = float(pages.importance.sum()) + basis.importance_apart
    share = expected_share(float(own.sum()) - binary, of_all, len(pages) - basis.n_assumed)
    return UNKNOWN if share is None else (_finite(harmonic), binary, share)


def _division(basis: Basis, plan: Plan, bandwidth: float, each: float) -> Division:
    """Return the parts of a budget; all plans subtract the first crawls that are wanted now.

    Without a budget, first crawls come beyond the bandwidth in force. Its plan is that of a budget
    of this size, so that it can be compared with the others.
    """
    overhead = basis.requests.overhead_of(bandwidth / each) * each
    return divided(bandwidth, basis.wants, overhead, plan.first_share, each)


def minima(pages: EpochColumns, plan: Plan) -> float:
    """Return the sum of the minimum crawl rates that an epoch keeps, in the unit of the budget."""
    if plan.objective != CONSTRAINED:
        return 0.0
    row = pages.min_crawl_rate >= LEAST
    if plan.unit == CRAWLS:
        return float(pages.min_crawl_rate[row].sum())
    _, costs = alone(priced(pages, plan.unit, np.inf))
    each = 1.0 if costs.of_pages is None else costs.of_pages
    return float((pages.min_crawl_rate * each)[row].sum())


def _infeasible(pages: EpochColumns, bandwidth: float, unit: str, cost: Floats | None) -> Solved:
    """Return the plan of a bandwidth that minimum crawl rates exceed."""
    each = pages.min_crawl_rate if cost is None else pages.min_crawl_rate * cost
    row = np.flatnonzero(pages.min_crawl_rate >= LEAST)
    # lowest first, so that as many minima as possible fit
    row = row[np.argsort(each[row], kind="stable")]
    used = np.cumsum(each[row])
    n_fit = int(used.searchsorted(bandwidth, side="right"))
    figures = BudgetPlan(
        bandwidth=bandwidth,
        feasible=False,
        reason=f"minimum crawl rates need {used[-1]:g} {unit} a day, {used[-1] - bandwidth:g} more "
        "than this bandwidth; an epoch would fail",
        n_starved=len(row) - n_fit,
    )
    return Solved(figures, starved=row[n_fit:][::-1][:MOST_LISTED].copy())


def _ranked(members: Members, crawls: Floats) -> Ranked:
    weights = crawls[members.row]
    sums = np.bincount(members.code, weights, len(members.ids)).astype(np.float64, copy=False)
    busiest = np.argsort(-sums, kind="stable")[:MOST_LISTED]
    return Ranked(busiest, sums[busiest])


def _loss(loss: WindowLoss) -> WindowLossAnswer:
    host, wanted, by_delay, by_closures, _ = loss
    return WindowLossAnswer(host=host, wanted=wanted, by_delay=by_delay, by_closures=by_closures)


def _delay_loss(loss: DelayLoss) -> DelayLossAnswer:
    host, wanted, permitted, staler, _ = loss
    return DelayLossAnswer(host=host, wanted=wanted, permitted=permitted, staler=staler)


def _at_cap(caps: CapColumns, in_force: CapColumns, allocation: Allocation) -> frozenset[int]:
    """Return the hosts whose own cap, or that of their group, is used up.

    `in_force` has the caps of the allocation. A host that is at the capacity of its open time does
    not use up a higher cap.
    """
    if allocation.host_multiplier is None or not len(caps):
        return frozenset()
    own = in_force.host_id.searchsorted(caps.host_id)
    above = allocation.host_multiplier[own] > allocation.multiplier * (1.0 + USED_UP)
    for name in ("max_crawl_rate", "group_max_crawl_rate"):
        above &= ~(getattr(in_force, name)[own] < np.nan_to_num(getattr(caps, name), nan=np.inf))
    return frozenset(caps.host_id[above].tolist())


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
