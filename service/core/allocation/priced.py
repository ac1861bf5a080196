r"""The optimum where crawls have costs: a budget of bytes, of seconds or of money.

A crawl of a page takes c of the budget R, :math:`\sum c \rho = R`. The spend :math:`y = c \rho` of
a page solves the problem without costs at a change rate of :math:`c \Delta`, because the harmonic
cost depends on :math:`\Delta / \rho` alone. Bounds become :math:`c a \le y \le c b`.

Caps of hosts count crawls, so a page has the price :math:`\lambda c + \nu_h`, and the caps are no
longer budgets within the budget. The spend at the best rates within the caps falls with
:math:`\lambda`, as the derivative of a convex dual. One more root in :math:`s = 1/\lambda` is
around the search of the hosts' multipliers.
"""

from collections.abc import Iterator, Sequence
from math import fsum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from service.core.allocation.blocks import BLOCK, LARGE, Indices, Pages, blocks
from service.core.allocation.certificate import Rates, certified
from service.core.allocation.demand import Taken, Work, demand
from service.core.allocation.multipliers import (
    UNLIMITED,
    PageSums,
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
from service.core.allocation.problem import Allocation, Hosts
from service.core.allocation.sweeps import Form, HostSweeps, Sweeps
from service.core.checks import Floats, InvalidInput
from service.core.common_values import Contribution, Joint, anywhere, offset, total


def spending(pages: Pages) -> Pages:
    """Return pages without costs whose optimal rates are the spend of these pages, amount a day.

    Raise `InvalidInput` where a change rate times a cost leaves the range of the solver.
    """
    check_range(pages)
    cost, least, most = _cost(pages), pages.min_crawl_rate, pages.max_crawl_rate
    return pages._replace(
        change_rate=pages.change_rate * cost,
        min_crawl_rate=None if least is None else least * cost,
        max_crawl_rate=None if most is None else most * cost,
        cost=None,
    )


def check_range(pages: Pages) -> None:
    """Raise `InvalidInput` where a change rate times a cost leaves the range of the solver."""
    cost, change_rate = _cost(pages), pages.change_rate
    if not cost.size or (
        cost.min() * change_rate.min() > LEAST and cost.max() * change_rate.max() < MOST
    ):
        return
    with np.errstate(over="ignore"):
        product = change_rate * cost
    beyond = (product > 0) & ~((product > LEAST) & (product < MOST))
    if beyond.any():
        raise InvalidInput("cost", "times change_rate is out of range", np.flatnonzero(beyond))


LEAST, MOST = 1e-60, 1e60
"""Bounds of a change rate times a cost, with which no product in a pass leaves float64."""


ONE_BUCKET = 2
"""Number of edges of one bucket, whose pages keep their order."""
BY_HOST = 3
"""Number of sums by host of `HostTotals`."""
MARGIN = 1e-9
"""Relative distance of the bounds of roots from the least ones."""
MOST_STEPS = 60
"""Maximum number of steps of the outer search."""
HOSTS_ALONE = 2
"""Number of levels of a tree of hosts without groups."""
MOST_AT_ONCE = 16
"""Maximum number of steps of all multipliers at once; the search takes about six."""
FURTHEST = 16.0
"""Maximum factor of an s in one step of all at once."""
SMALL_STEP, ROUGH = 1e-7, 1e-2
"""Relative distances before the last step: of the search, and of that in a sample."""
SAMPLE, MOST_SAMPLED = 32, 1 << 17
"""Pages per page of the sample in which the search begins; maximum size of the sample."""


class HostTotals(NamedTuple):
    r"""Sums over pages at prices :math:`\lambda c + \nu_h`.

    w is the derivative of the crawls in the price, with a minus.
    """

    crawls: Floats
    """(H,) sums by host, as `w` and `cost_w`."""
    w: Floats
    cost_w: Floats
    cost_2_w: float
    """Sum over all hosts of this part."""
    spend: float
    """Sum over all hosts of this part."""


class PricedSweeps(HostSweeps):
    """Passes over the pages of hosts, at a multiplier of the budget beside those of the hosts."""

    multiplier = 0.0
    r"""Multiplier of the budget, :math:`\lambda`."""

    def __init__(
        self, pages: Pages, host: Indices, n_hosts: int, scratch: tuple[Floats, Floats]
    ) -> None:
        super().__init__(pages, host, n_hosts, scratch)
        self._starts = None if len(self._buckets.edges) <= ONE_BUCKET else self._in_order()

    def _in_order(self) -> list[NDArray[np.intp]]:
        """Order the pages of each bucket by host; return the first page of each host, and the end.

        Sums over runs of pages take a tenth of the time of `np.bincount`.
        """
        buckets = self._buckets

        def order_part(part: slice) -> list[NDArray[np.intp]]:
            starts = []
            for bucket in range(part.start, part.stop):
                block, hosts = buckets.pages_of(bucket), self._hosts(bucket)
                if buckets.relative:
                    order = buckets.host[block].argsort(kind="stable")
                    for column in (*buckets.pages, buckets.host):
                        if column is not None:
                            column[block] = column[block][order]
                host = buckets.hosts_in(bucket, block)
                edges = np.searchsorted(host, np.arange(hosts.stop - hosts.start + 1))
                starts.append(edges + block.start)
            return starts

        return [each for part in self._over_buckets(order_part) for each in part]

    @override
    def _sum(self, form: Form, n_columns: int, s: Floats) -> Floats:
        if self._starts is None:
            return super()._sum(form, n_columns, s)
        starts, buckets = self._starts, self._buckets
        sums = np.zeros((n_columns, self._n_hosts))

        def sum_part(part: slice) -> None:
            buffers = np.empty((3, min(BLOCK, self._n)))
            for bucket in range(part.start, part.stop):
                hosts = self._hosts(bucket)
                of_hosts = np.broadcast_to(s, self._n_hosts)[hosts]
                for block in blocks(buckets.pages_of(bucket)):
                    edges = np.clip(starts[bucket], block.start, block.stop) - block.start
                    size = np.diff(edges)
                    some = np.flatnonzero(size)
                    at = np.repeat(of_hosts[some], size[some])
                    work = Work(*buffers[:, : at.size])
                    for row, column in enumerate(form(buckets.pages.cut(block), at, work)):
                        own = sums[row, hosts]
                        own[some] += np.add.reduceat(column, edges[some])

        self._over_buckets(sum_part)
        return sums

    @override
    def survey(self) -> PageSums:
        # a bound that is the root itself would hide the root from steps from above
        floor, *others = super().survey()
        return PageSums(floor, *(column * (1 + MARGIN) for column in others))

    @override
    def _point(self, s: Floats) -> Floats:
        """Return the price that the caps of hosts add to each crawl."""
        with np.errstate(divide="ignore"):
            return np.broadcast_to(
                1 / s - self.multiplier, self._n_hosts if s.size == 1 else s.size
            )

    @override
    def _values(self, s: Floats, sums: Floats) -> Values:
        with np.errstate(divide="ignore", invalid="ignore"):
            return Values(sums[0], np.where(s > 0, sums[1] / s / s, 0.0))

    @override
    def _demand(self, pages: Pages, s: Floats | float, work: Work) -> Taken:
        # `s` is the price that caps add, in memory of this block alone
        at = np.asarray(s)
        at += np.multiply(_cost(pages), self.multiplier, out=work.root)
        np.reciprocal(at, out=at)
        taken = demand(pages, at, work)
        slope = taken.slope
        slope *= at
        slope *= at
        return taken

    def totals(self, extra: Floats) -> HostTotals:
        r"""Return the sums at the (H,) prices :math:`\nu` that the caps of hosts add."""
        spend: list[float] = []
        cost_2_w: list[float] = []

        def columns(pages: Pages, s: Floats | float, work: Work) -> Iterator[Floats]:
            cost = _cost(pages)
            rate, slope = self._demand(pages, s, work)
            yield rate
            rate *= cost
            spend.append(float(rate.sum()))
            yield slope
            slope *= cost
            yield slope
            slope *= cost
            cost_2_w.append(float(slope.sum()))

        by_host = self._sum(columns, BY_HOST, extra)
        # exact sums do not depend on the order in which threads end
        crawls, w, cost_w = by_host
        return HostTotals(crawls, w, cost_w, fsum(cost_2_w), fsum(spend))

    def totals_at(self, s: Floats) -> HostTotals:
        """Return the sums at the (H,) s of hosts."""
        return self.totals(self._point(s))

    @property
    def has_minima(self) -> bool:
        """True if pages have minimum crawl rates."""
        return self._pages.min_crawl_rate is not None

    @property
    def minimum_spend(self) -> float:
        """Costs of the minimum crawl rates, a day."""
        least = self._pages.min_crawl_rate
        return 0.0 if least is None else float(least @ _cost(self._pages))


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


class Guess(NamedTuple):
    """Multipliers at the begin of the search."""

    s: float
    extra: Floats
    """(H,) prices that the caps of hosts add."""
    passes: int


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
    near = yield from _at_once(
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
        solution = yield from _at_once(levels, sweeps, guess, SMALL_STEP)
    if solution is None:
        sums = yield from total(Sweeps(spending(scaled.pages)).survey())
        # caps leave more for the other pages, so the root is at least that without caps
        lower = least_s(levels[0], sums)
        root = Roots(levels[0].bandwidth, lower, np.array([guess.s]), evaluated=True)
        solution = yield from _outer(levels, sweeps, root)
    return solution._replace(passes=guess.passes + solution.passes)


class Slopes(NamedTuple):
    """Numbers of the hosts of a part for the next step of all multipliers."""

    extra: Floats
    """(H,) steps of the prices of capped hosts if the multiplier of the budget stays."""
    share: Floats
    """(H,) fall of these prices for a rise of that multiplier."""
    spend: float
    """Spend after these steps, nearly."""
    slope: float
    """Fall of the spend for a rise of the multiplier, with the crawls of capped hosts kept."""
    off: float
    """Largest relative distance of a capped host from its cap."""
    spent: float


def _slopes(caps: Floats, extra: Floats, multiplier: float, here: HostTotals) -> Slopes:
    """Return the steps of hosts whose caps bind, by the parabola of `Roots` for each."""
    crawls, w, cost_w, cost_2_w, spend = here
    with np.errstate(all="ignore"):
        at = 1 / (multiplier + extra)
        missing = caps / crawls - 1
        after = _next(at, crawls * at * at / w, missing)
        step = 1 / np.maximum(after, at / FURTHEST) - 1 / at
        step = np.maximum(step, -extra)
        capped = (w > 0) & np.isfinite(extra) & ((crawls > caps) | (extra > 0))
        step, share = np.where(capped, step, 0.0), np.where(capped, cost_w / w, 0.0)
        # long steps would leave the tangent, so the crawls go to the cap at most
        gained = np.where(capped, np.minimum(caps - crawls, -w * step), 0.0)
        gained = np.where(step > 0, caps - crawls, gained)
    spend_after = spend + float(share @ gained)
    # a host that leaves its cap takes part in the fall of the spend
    share = np.where(extra + step > 0, share, 0.0)
    return Slopes(
        step,
        share,
        spend_after,
        cost_2_w - float(share @ cost_w),
        float(np.abs(missing[capped]).max(initial=0.0)),
        spend,
    )


def _next(at: ArrayLike, bend: ArrayLike, missing: ArrayLike) -> Floats:
    """Return the s at which amounts are larger by the share `missing`; `bend` is their tangent.

    The parabola of `Roots` is not monotonic far below a point where few pages still respond. A
    power of the amount with the same tangent is.
    """
    at, bend, missing = (np.asarray(each, np.float64) for each in (at, bend, missing))
    curved = at + (bend + np.maximum(bend - at, 0.0) * missing) * missing
    power = at * (1 + missing) ** (bend / at)
    return np.where((missing < 0) & (bend > 2 * at), power, curved)


def _all_slopes(parts: Sequence[tuple[float, float, float, float]]) -> tuple[float, ...]:
    spend, slope, off, spent = zip(*parts, strict=True)
    return sum(spend), sum(slope), max(off), sum(spent)


def _at_once(
    levels: list[TreeLevel], sweeps: PricedSweeps, guess: Guess, close: float
) -> Joint[Solution | None]:
    r"""Search the multipliers of the budget and of all hosts by Newton steps of all at once.

    A step ends the search if the distance before it was at most `close`, relatively: the next one
    is about its square. None: the search does not end soon. It has no brackets, and a budget that
    the caps leave unused has no root.
    """
    caps, budget = levels[-1].bandwidth, float(levels[0].bandwidth[0])
    s, extra = guess.s, np.where(caps > 0, guess.extra, np.inf)
    if sweeps.has_minima:
        extra[least_s(levels[-1], sweeps.survey()) == 0] = np.inf
    for passes in range(1, MOST_AT_ONCE + 1):
        sweeps.multiplier = multiplier = 1 / s
        own = _slopes(caps, extra, multiplier, sweeps.totals(extra))
        spend, slope, off, spent = yield Contribution(own[2:], _all_slopes)
        with np.errstate(all="ignore"):
            bend = np.float64(spend) / slope / (multiplier * multiplier)
            after = float(_next(np.float64(s), bend, np.float64(budget) / spend - 1))
        if not 0 < after < UNLIMITED:
            return None
        s = float(np.clip(after, s / FURTHEST, s * FURTHEST))
        step = own.extra - own.share * (1 / s - multiplier)
        extra = np.maximum(extra + np.where(np.isfinite(extra), step, 0.0), 0.0)
        if max(off, abs(spent / budget - 1)) <= close:
            of_hosts = np.where(extra > 0, 1 / (1 / s + extra), s)
            return Solution([np.array([s]), of_hosts], passes)
    return None


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
