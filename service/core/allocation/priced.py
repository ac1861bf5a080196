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

from service.core.allocation.blocks import LARGE, Pages
from service.core.allocation.certificate import Rates, certified
from service.core.allocation.multipliers import (
    UNLIMITED,
    Roots,
    Solution,
    TreeLevel,
    Values,
    check_feasible,
    fold_up,
    grow,
    least_s,
    solve,
)
from service.core.allocation.priced_sweeps import PricedSweeps
from service.core.allocation.problem import Allocation, Hosts
from service.core.allocation.spending import check_range, cost_of, spending
from service.core.allocation.steps import Guess, at_once
from service.core.allocation.sweeps import Sweeps
from service.core.checks import Floats
from service.core.common_values import Contribution, Joint, anywhere, offset, total

MOST_STEPS = 60
"""Maximum number of steps of the outer search."""
HOSTS_ALONE = 2
"""Number of levels of a tree of hosts without groups."""
SMALL_STEP, ROUGH = 1e-7, 1e-2
"""Relative distances before the last step: of the search, and of that in a sample."""
SAMPLE, MOST_SAMPLED = 32, 1 << 17
"""Pages per page of the sample in which the search begins; maximum size of the sample."""


class Scaled(NamedTuple):
    """The problem in units of the smallest cost, so that no cost is below 1."""

    pages: Pages
    levels: list[TreeLevel]
    unit: float
    """The smallest cost."""


def _scaled(pages: Pages, hosts: Hosts, bandwidth: float) -> Joint[Scaled]:
    unit = yield Contribution(float(cost_of(pages).min(initial=np.inf)), _least, exact=True)
    cost = cost_of(pages) / unit
    return Scaled(pages._replace(cost=cost), grow(bandwidth / unit, hosts), unit)


def _least(values: Sequence[float]) -> float:
    return min(values)


def capped_optimum(
    pages: Pages, hosts: Hosts | None, bandwidth: float, start: float | None
) -> Joint[Allocation]:
    """Return the optimum within a budget in the unit of the costs, and caps in crawls a day.

    The parameters are those of this part; O(N) a pass, about seven passes.

    Raises
    ------
    BandwidthInfeasible
        The minima of pages exceed the budget, or the cap of a host or group.
    """
    hosts = hosts or _one_host(pages.importance.size)
    scaled = yield from _scaled(pages, hosts, bandwidth)
    levels, unit = scaled.levels, scaled.unit
    n = pages.importance.size
    crawl_rate, crawl_probability = np.zeros(n), np.zeros(n)
    scratch = crawl_rate, crawl_probability
    sweeps = PricedSweeps(scaled.pages, hosts.of_page, hosts.bandwidth.size, scratch)
    guess = yield from _guess(scaled, hosts, start and start * unit)
    solution = yield from _solved(scaled, sweeps, guess)
    s = float(solution.levels[0][0])
    sweeps.multiplier = multiplier = 0.0 if s >= UNLIMITED else 1 / s
    sweeps.settle(solution.levels[-1], crawl_rate, crawl_probability)
    rates = Rates(crawl_rate, crawl_probability)
    distance, own_passes = yield from certified(
        scaled.pages, levels, solution, rates, hosts.of_page
    )
    nested = [_above(of_level, s) + multiplier / unit for of_level in solution.levels[1:]]
    return Allocation(
        *rates,
        multiplier=multiplier / unit,
        bandwidth=bandwidth,
        **distance._replace(bandwidth_used=distance.bandwidth_used * unit)._asdict(),
        passes=solution.passes + own_passes,
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


def _guess(scaled: Scaled, hosts: Hosts, start: float | None) -> Joint[Guess]:
    """Return the optimum without caps, or with many pages that of a sample with caps."""
    pages, levels, _ = scaled
    before, n = yield from offset(pages.importance.size)
    if n < LARGE:
        return (yield from _without_caps(scaled, start))
    check_range(pages)
    step = max(SAMPLE, n // MOST_SAMPLED)
    row = slice(-before % step, None, step)
    of_page, n_hosts = np.ascontiguousarray(hosts.of_page[row]), hosts.bandwidth.size
    whole, part = (np.bincount(host, minlength=n_hosts) for host in (hosts.of_page, of_page))
    with np.errstate(invalid="ignore"):
        caps = np.where(part > 0, hosts.bandwidth * (part / np.maximum(whole, 1)), np.inf)
    # an index copies the columns, which passes then read in order
    sample = pages.cut(np.arange(row.start, pages.importance.size, step))
    sample = sample._replace(min_crawl_rate=None, max_crawl_rate=None)
    few = Hosts(of_page, caps, np.zeros(0, np.intp), np.zeros(0))
    within = Scaled(sample, grow(float(levels[0].bandwidth[0]) / step, few), 1.0)
    at = yield from _without_caps(within, start)
    scratch = np.empty(of_page.size), np.empty(of_page.size)
    near = yield from at_once(
        within.levels, PricedSweeps(sample, of_page, n_hosts, scratch), at, ROUGH
    )
    if near is None:
        return at._replace(passes=0)
    s, of_hosts = float(near.levels[0][0]), near.levels[1]
    return Guess(s, _above(of_hosts, s), 0)


def _without_caps(scaled: Scaled, start: float | None) -> Joint[Guess]:
    sweeps = Sweeps(spending(scaled.pages))
    levels = scaled.levels
    root = yield from solve(levels[:1], sweeps.take, sweeps.survey(), start)
    return Guess(float(root.levels[0][0]), np.zeros(levels[-1].bandwidth.size), root.passes)


def _solved(scaled: Scaled, sweeps: PricedSweeps, guess: Guess) -> Joint[Solution]:
    """Return the multipliers, by steps of all at once where that ends."""
    levels, solution = scaled.levels, None
    floor = yield from total(sweeps.minimum_spend)
    check_feasible(levels[0], np.array([floor]))
    if not (yield from anywhere(len(levels) > HOSTS_ALONE)):
        solution = yield from at_once(levels, sweeps, guess, SMALL_STEP)
    if solution is None:
        sums = yield from total(Sweeps(spending(scaled.pages)).survey())
        # caps leave more for the other pages, so the root is at least that without caps
        lower = least_s(levels[0], sums)
        root = Roots(levels[0].bandwidth, lower, np.array([guess.s]), evaluated=True)
        solution = yield from _outer(levels, sweeps, root)
    return solution._replace(passes=guess.passes + solution.passes)


def _outer(levels: list[TreeLevel], sweeps: PricedSweeps, root: Roots) -> Joint[Solution]:
    """Search the multiplier at which the best rates within the caps use the budget up."""
    crawls = [levels[0]._replace(bandwidth=np.array([np.inf])), *levels[1:]]
    sums, passes, own_passes, which = sweeps.survey(), 0, 0, np.zeros(1, np.intp)
    for step in range(1, MOST_STEPS + 1):
        at = float(root.s[0])
        sweeps.multiplier = 0.0 if at >= UNLIMITED else 1 / at
        inner = yield from solve(crawls, sweeps.take, sums, None, sweeps.limit, root_s=at)
        passes, own_passes = passes + inner.passes + 1, own_passes + inner.own_passes
        values = yield from total(_values(levels, inner.levels, sweeps))
        root.learn(which, root.s, values)
        if root.final.all() or step == MOST_STEPS:
            break
    return Solution(inner.levels, passes, own_passes)


def _values(levels: list[TreeLevel], inverses: list[Floats], sweeps: PricedSweeps) -> Values:
    r"""Return the (1,) spend of all pages of this part, and its derivative in s.

    The number of crawls stays at a cap that binds, because their price falls. The derivative of
    a node at its cap is therefore :math:`\sum c^2 w - (\sum c w)^2 / \sum w`.
    """
    _, *columns, slope, spent = sweeps.totals_at(inverses[-1])
    for depth in reversed(range(1, len(levels))):
        parent = inverses[depth - 1]
        above = parent[levels[depth].parent] if parent.size > 1 else parent[0]
        binding = inverses[depth] < above
        by, times = columns
        with np.errstate(divide="ignore", invalid="ignore"):
            kept = np.where(by > 0, times * times / by, 0.0)
        slope -= float(kept[binding].sum())
        rest = [np.where(binding, 0.0, column) for column in columns]
        columns = [fold_up(levels[: depth + 1], column, depth - 1) for column in rest]
    slope *= sweeps.multiplier * sweeps.multiplier
    return Values(np.array([spent]), np.array([max(slope, 0.0)]))
