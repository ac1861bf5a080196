r"""The optimum where crawls have costs: a budget of bytes, of seconds or of money.

A crawl of a page takes c of the budget R, :math:`\sum c \rho = R`. The spend :math:`y = c \rho` of
a page solves the problem without costs at a change rate of :math:`c \Delta`, because the harmonic
cost depends on :math:`\Delta / \rho` alone. Bounds become :math:`c a \le y \le c b`.

Caps of hosts count crawls, so a page has the price :math:`\lambda c + \nu_h`, and the caps are no
longer budgets within the budget. The spend at the best rates within the caps falls with
:math:`\lambda`, as the derivative of a convex dual. One more root in :math:`s = 1/\lambda` is
around the search of the hosts' multipliers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from service.core.allocation.blocks import Pages
from service.core.allocation.certificate import Rates, certified
from service.core.allocation.demand import Taken, Work, demand, own_inverse
from service.core.allocation.multipliers import (
    UNLIMITED,
    PageSums,
    Roots,
    Solution,
    TreeLevel,
    Values,
    fold_up,
    grow,
    solve,
)
from service.core.allocation.problem import Allocation, Hosts
from service.core.allocation.sweeps import HostSweeps, Sweeps
from service.core.checks import Floats, InvalidInput
from service.core.common_values import Contribution, Joint, total


def spending(pages: Pages) -> Pages:
    """Return pages without costs whose optimal rates are the spend of these pages, amount a day.

    Raise `InvalidInput` where a change rate times a cost leaves the range of the solver.
    """
    cost, least, most = _cost(pages), pages.min_crawl_rate, pages.max_crawl_rate
    with np.errstate(over="ignore"):
        change_rate = pages.change_rate * cost
    beyond = (change_rate > 0) & ~((change_rate > LEAST) & (change_rate < MOST))
    if beyond.any():
        raise InvalidInput("cost", "times change_rate is out of range", np.flatnonzero(beyond))
    return pages._replace(
        change_rate=change_rate,
        min_crawl_rate=None if least is None else least * cost,
        max_crawl_rate=None if most is None else most * cost,
        cost=None,
    )


LEAST, MOST = 1e-60, 1e60
"""Bounds of a change rate times a cost, with which no product in a pass leaves float64."""


MARGIN = 1e-9
"""Relative distance of the bounds of roots from the least ones."""
MOST_STEPS = 60
"""Maximum number of steps of the outer search."""


class PricedSweeps(HostSweeps):
    """Passes over the pages of hosts, at a multiplier of the budget beside those of the hosts."""

    multiplier = 0.0
    r"""Multiplier of the budget, :math:`\lambda`."""

    @override
    def survey(self) -> PageSums:
        # a bound that is the root itself would hide the root from steps from above
        floor, *others = super().survey()
        return PageSums(floor, *(column * (1 + MARGIN) for column in others))

    @override
    def _demand(self, pages: Pages, s: Floats | float, work: Work) -> Taken:
        at = own_inverse(_cost(pages), s, self.multiplier)
        taken = demand(pages, at)
        with np.errstate(invalid="ignore"):
            shrink = np.where(s > 0, at / s, 1.0)
        return Taken(taken.rate, taken.slope * shrink * shrink)

    def spend(self, s: Floats) -> Floats:
        r"""Return the sums of :math:`c \rho`, w, c w and :math:`c^2 w` by host.

        w is the derivative of the crawls in :math:`1/\lambda`, if :math:`\lambda` rises by the same
        for each crawl.
        """
        return self._sum(self._spend, 4, s)

    def _spend(self, pages: Pages, s: Floats | float, work: Work) -> tuple[Floats, ...]:  # noqa: ARG002
        cost = _cost(pages)
        at = own_inverse(cost, s, self.multiplier)
        taken = demand(pages, at)
        share = at * self.multiplier
        slope = taken.slope * share * share
        return taken.rate * cost, slope, cost * slope, cost * cost * slope


def _cost(pages: Pages) -> Floats:
    if pages.cost is None:
        raise InvalidInput("cost", "is missing")
    return pages.cost


class Scaled(NamedTuple):
    """The problem in units of the smallest cost, so that no cost is below 1."""

    pages: Pages
    levels: list[TreeLevel]
    unit: float
    """The smallest cost."""


def _scaled(pages: Pages, hosts: Hosts, bandwidth: float) -> Joint[Scaled]:
    unit = yield Contribution(float(_cost(pages).min(initial=np.inf)), _least, exact=True)
    cost = _cost(pages) / unit
    return Scaled(pages._replace(cost=cost), grow(bandwidth / unit, hosts), unit)


def _least(values: Sequence[float]) -> float:
    return min(values)


def capped_optimum(
    pages: Pages, hosts: Hosts | None, bandwidth: float, start: float | None
) -> Joint[Allocation]:
    """Return the optimum within a budget in the unit of the costs, and caps in crawls a day.

    The parameters are those of this part; O(N) for each of about six steps of the outer search.

    Raises
    ------
    BandwidthInfeasible
        The minima of pages exceed the budget, or the cap of a host or group.
    """
    hosts = hosts or _one_host(pages.importance.size)
    scaled, levels, unit = yield from _scaled(pages, hosts, bandwidth)
    uncapped = Sweeps(spending(scaled))
    first = yield from solve(levels[:1], uncapped.take, uncapped.survey(), start and start * unit)
    n = pages.importance.size
    crawl_rate, crawl_probability = np.zeros(n), np.zeros(n)
    scratch = crawl_rate, crawl_probability
    sweeps = PricedSweeps(scaled, hosts.of_page, hosts.bandwidth.size, scratch)
    # caps leave more for the other pages, so the root is at least that without caps
    root = Roots(levels[0].bandwidth, first.levels[0], first.levels[0], evaluated=True)
    solution = yield from _outer(levels, sweeps, root)
    sweeps.settle(solution.levels[-1], crawl_rate, crawl_probability)
    rates = Rates(crawl_rate, crawl_probability)
    distance, own_passes = yield from certified(scaled, levels, solution, rates, hosts.of_page)
    s = float(solution.levels[0][0])
    multiplier = 0.0 if s >= UNLIMITED else 1 / s
    nested = [_above(of_level, s) + multiplier / unit for of_level in solution.levels[1:]]
    return Allocation(
        *rates,
        multiplier=multiplier / unit,
        bandwidth=bandwidth,
        **distance._replace(bandwidth_used=distance.bandwidth_used * unit)._asdict(),
        passes=first.passes + solution.passes + own_passes,
        host_multiplier=nested[-1],
        group_multiplier=nested[0] if len(nested) > 1 else None,
    )


def _one_host(n_pages: int) -> Hosts:
    """Return a host without a cap, for a part without hosts."""
    nothing = np.zeros(0, np.intp)
    return Hosts(np.zeros(n_pages, np.intp), np.array([np.inf]), nothing, np.zeros(0))


def _above(s: Floats, root: float) -> Floats:
    """Return the price of a crawl of hosts or groups that their caps add."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.maximum(1 / s - 1 / root, 0.0))


def _outer(levels: list[TreeLevel], sweeps: PricedSweeps, root: Roots) -> Joint[Solution]:
    """Search the multiplier at which the best rates within the caps use the budget up."""
    crawls = [levels[0]._replace(bandwidth=np.array([np.inf])), *levels[1:]]
    sums, passes, own_passes, which = sweeps.survey(), 0, 0, np.zeros(1, np.intp)
    for step in range(MOST_STEPS + 1):
        at = float(root.s[0])
        sweeps.multiplier = 0.0 if at >= UNLIMITED else 1 / at
        inner = yield from solve(crawls, sweeps.take, sums, None, sweeps.limit, root_s=at)
        passes, own_passes = passes + inner.passes + 1, own_passes + inner.own_passes
        if root.final.all() or step == MOST_STEPS:
            break
        values = yield from total(_values(levels, inner.levels, sweeps))
        root.learn(which, root.s, values)
    return Solution(inner.levels, passes, own_passes)


def _values(levels: list[TreeLevel], inverses: list[Floats], sweeps: PricedSweeps) -> Values:
    r"""Return the (1,) spend of all pages of this part, and its derivative in s.

    The number of crawls stays at a cap that binds, because their price falls. The derivative of
    a node at its cap is therefore :math:`\sum c^2 w - (\sum c w)^2 / \sum w`.
    """
    spent, *columns = sweeps.spend(inverses[-1])
    slope = float(columns[2].sum())
    for depth in reversed(range(1, len(levels))):
        parent = inverses[depth - 1]
        above = parent[levels[depth].parent] if parent.size > 1 else parent[0]
        binding = inverses[depth] < above
        by, times, _ = columns
        with np.errstate(divide="ignore", invalid="ignore"):
            kept = np.where(by > 0, times * times / by, 0.0)
        slope -= float(kept[binding].sum())
        rest = [np.where(binding, 0.0, column) for column in columns]
        columns = [fold_up(levels[: depth + 1], column, depth - 1) for column in rest]
    return Values(np.array([float(spent.sum())]), np.array([max(slope, 0.0)]))
