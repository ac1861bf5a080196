"""Nested budgets: pages < hosts < groups < all pages, one multiplier each.

The members of a node take crawls, each at most its own bandwidth. Their sum increases with the
node's s = 1/multiplier. A node that stays below its bandwidth at the s of its parent inherits that
s. Any other node has its own root below it (docs/theory.md, "What is optimised").
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from service.core.allocation.blocks import Indices, blocks
from service.core.allocation.problem import Hosts
from service.core.checks import BandwidthInfeasible, Bools, Floats
from service.core.common_values import Joint, anywhere, total

UNLIMITED = 1e170
"""The s at which crawls cost nothing: every page takes as many as it can use."""

CLOSE = 1e-15
"""Maximum relative distance of a root from the target."""
NEAR = 5e-13
"""Maximum relative distance from the target at which one more small step is the last. Rounding adds
to it when the certificate sums the rates as written; the sum stays below 1e-12."""
EXACT = 2e-14
"""Maximum relative step in s that is left out near a target."""
WELL_KNOWN = 1e-9
"""Maximum relative length of a last step in s: the error is its square, or rounding."""
ADJACENT = 4e-16
"""Relative width of a bracket without a number inside."""

MOST_PASSES = 200
"""Maximum passes. Bisection alone needs fewer; the certificate shows the error that remains."""


class Values(NamedTuple):
    """(K,) values of the functions of equations, and their derivatives."""

    value: Floats
    slope: Floats

    def of(self, which: Indices) -> "Values":
        """Return the values of the equations that an index array selects."""
        return Values(self.value[which], self.slope[which])


class Roots:
    r"""Brackets of the roots of many equations f_k(s_k) = target_k, and the points to evaluate.

    A step replaces the inverse of f by the parabola through the origin that touches it at the last
    point. The parabola is exact for one page on the clock, :math:`s = (\rho + \rho^2/\Delta)/\mu`,
    and as good as a Newton step near a root. A bisection in log s replaces a step out of the
    bracket. It also follows a step that did not halve the distance from the target.

    Attributes
    ----------
    s : (K,)
        The next point to evaluate; the root where `final`.
    below, above : (K,)
        f(below) <= target <= f(above); `above` is infinite until a point above was evaluated.
        The root is `UNLIMITED` where f remains below its target.
    final : (K,) bool
        True where `s` is the root. With `evaluated`, a root is a point at which f was evaluated.
    """

    def __init__(self, target: Floats, lower: Floats, start: Floats, *, evaluated: bool) -> None:
        self.target, self._evaluated = target, evaluated
        self.s = np.maximum(start, lower)
        self.below = lower.copy()
        self.above = np.full(lower.size, np.inf)
        self.final = np.zeros(lower.size, np.bool_)
        self._off = np.full(lower.size, np.inf)

    def learn(self, which: Indices, at: Floats, values: Values) -> None:
        """Narrow the brackets of some equations by values at any points, and choose new points.

        The distance from the target must halve only where the point is the `s` chosen before.
        """
        target = self.target[which]
        missing, off = target - values.value, np.abs(target - values.value)
        below = np.where(missing > 0, np.maximum(at, self.below[which]), self.below[which])
        above = np.where(missing <= 0, np.minimum(at, self.above[which]), self.above[which])
        with np.errstate(all="ignore"):
            more, bend = missing / values.value, values.value / values.slope
            curve = np.maximum(bend - at, 0.0)
            step = np.minimum(at + (bend + curve * more) * more, UNLIMITED)
            middle = np.where(above < np.inf, np.sqrt(below) * np.sqrt(above), UNLIMITED)
        before = np.where(at == self.s[which], self._off[which], np.inf)
        final = (off <= CLOSE * target) | ((missing > 0) & (at >= UNLIMITED))
        final |= above <= below * (1 + ADJACENT)
        near, moved = off <= NEAR * target, np.abs(step - at)
        final |= near & (moved <= EXACT * at)
        stuck = off >= before / 2
        last = near & (moved <= WELL_KNOWN * at) & ~final
        final |= last & stuck
        last &= ~stuck & (not self._evaluated)
        slow = (off > before / 2) & (above < np.inf)
        inside = last | ((step > below) & (step < above) & ~slow)
        self.s[which] = np.where(final, at, np.where(inside, step, middle))
        final |= last
        self.below[which], self.above[which] = below, above
        self.final[which], self._off[which] = final, off

    def climb(self, function: Callable[[Indices, Floats], Values]) -> int:
        """Search all roots; return the number of passes.

        A pass evaluates `function` at the `s` of the equations that are not final.
        """
        passes = 0
        while (open_ := np.flatnonzero(~self.final)).size and passes < MOST_PASSES:
            passes += 1
            at = self.s[open_]
            self.learn(open_, at, function(open_, at))
        return passes


SLACK = 1e-12
"""Maximum relative excess of the sum of minima over a bandwidth that counts as rounding."""


class TreeLevel(NamedTuple):
    """Nodes of one depth."""

    name: str
    bandwidth: Floats
    parent: Indices


class PageSums(NamedTuple):
    """Sums over the pages of each leaf, which bound the demand of the leaf from above.

    At s a page takes at most floor + importance * s, and at most
    floor + ping_rate + spread * sqrt(s).
    """

    floor: Floats
    importance: Floats
    ping_rate: Floats
    spread: Floats


class Solution(NamedTuple):
    """1/multiplier of the nodes of each level, and the number of passes."""

    levels: list[Floats]
    passes: int
    own_passes: int = 0
    """Further passes over the pages of this part."""


def grow(bandwidth: float, hosts: Hosts | None) -> list[TreeLevel]:
    """Return the levels from the root to the leaves; without hosts the root is the only leaf."""
    root_index = np.intp(0)
    levels = [TreeLevel("the pages", np.array([bandwidth]), np.zeros(0, np.intp))]
    if hosts is None:
        return levels
    if hosts.group_bandwidth.size:
        below_root = np.broadcast_to(root_index, hosts.group_bandwidth.size)
        levels.append(TreeLevel("group", hosts.group_bandwidth, below_root))
        parent = hosts.group
    else:
        parent = np.broadcast_to(root_index, hosts.bandwidth.size)
    return [*levels, TreeLevel("host", hosts.bandwidth, parent)]


def solve(
    levels: list[TreeLevel],
    take: Callable[[Floats], Values],
    sums: PageSums,
    start: float | None,
    limit: Callable[[Floats, Values, Floats, Floats], int] | None = None,
    *,
    root_s: float | None = None,
) -> Joint[Solution]:
    """Return the s of every node; `take` returns the bandwidth that leaves take at an s (`sweeps`).

    The root is that of all parts. Each part has hosts and groups of its own, or none.

    The search solves all nodes above the leaves at once. In it, a leaf above its bandwidth counts
    with its bandwidth. `limit` then solves these leaves, on which no other node depends.

    `root_s` is the s of the root if the caller has it; the search is then below the root.

    Raises
    ------
    BandwidthInfeasible
        The minima of the pages of a node exceed its bandwidth.
    """
    *above, leaves = levels
    nested = yield from anywhere(above)
    depths = range(max(1, len(above)))
    folded = [PageSums(*(fold_up(levels, column, depth) for column in sums)) for depth in depths]
    folded[0] = yield from total(folded[0])
    nodes = zip(levels, folded, strict=False)
    roots = [_roots(level, of_level, evaluated=nested) for level, of_level in nodes]
    lower = least_s(leaves, sums) if above else roots[0].below
    del sums, folded  # columns of hosts
    if start is not None and 0 < start < np.inf:
        roots[0].s = np.clip(1 / start, roots[0].below, roots[0].above)
    if not nested:
        return Solution([roots[0].s], (yield from _ascend(roots[0], take)))
    if root_s is not None:
        roots[0].s[:] = root_s
    chosen, s, values, passes = yield from _descend(levels, roots, take, fixed=root_s is not None)
    if limit is None:
        return Solution([node.s for node in chosen], passes)
    s[lower == 0] = 0.0
    own_passes = limit(s, values, leaves.bandwidth, lower)
    return Solution([*(node.s for node in chosen), s], passes, own_passes)


def _ascend(root: Roots, take: Callable[[Floats], Values]) -> Joint[int]:
    """Search the root of all pages; return the number of passes."""
    passes, which = 0, np.zeros(1, np.intp)
    while not root.final.all() and passes < MOST_PASSES:
        passes += 1
        at = root.s[which]
        root.learn(which, at, (yield from total(take(at))))
    return passes


def _sum_capped(values: Values, leaves: TreeLevel, n: int) -> Values:
    """Return sums of leaves by parent; a leaf above its bandwidth counts with its bandwidth."""
    sums = np.zeros((2, n))
    for block in blocks(slice(0, leaves.bandwidth.size)):
        value, most, parent = values.value[block], leaves.bandwidth[block], leaves.parent[block]
        slope = np.where(value < most, values.slope[block], 0.0)
        sums[0] += _sum_by(parent, np.minimum(value, most), n)
        sums[1] += _sum_by(parent, slope, n)
    return Values(*sums)


class Nodes(NamedTuple):
    """The s at which the nodes of a level are evaluated next.

    `full`: the node reaches its bandwidth at or below the s of the parent. `final`: the node needs
    no further step, if the parent needs none.
    """

    s: Floats
    full: Bools
    final: Bools


def _descend(
    levels: list[TreeLevel], roots: list[Roots], take: Callable[[Floats], Values], *, fixed: bool
) -> Joint[tuple[list[Nodes], Floats, Values, int]]:
    """Return the nodes above the leaves, the s of each leaf's parent, its values and the passes.

    A node that reaches its bandwidth below the s of its parent is evaluated at its own root and
    counts with its bandwidth. Any other node is evaluated at the s of its parent, because the
    parent's value needs it. A part without hosts has the root alone. `fixed`: the s of the root
    stays.
    """
    *above, leaves = levels
    passes, nodes = 0, _choose(levels, roots)
    if fixed:  # after the choice, because the groups below are not final yet
        nodes[0].final[:] = roots[0].final[:] = True
    while True:
        passes += 1
        s = nodes[-1].s
        values = sums = take(s if s.size == 1 else s[leaves.parent])
        if above:
            sums = _sum_capped(values, leaves, above[-1].bandwidth.size)
        for depth in reversed(range(1, len(roots))):
            sums = _learn(levels[depth], roots[depth], nodes[depth], sums)
            parent, n = levels[depth].parent, levels[depth - 1].bandwidth.size
            sums = Values(*(_sum_by(parent, column, n) for column in sums))
        _learn(levels[0], roots[0], nodes[0], (yield from total(sums)))
        nodes = _choose(levels, roots)
        unfinished = yield from anywhere(not nodes[-1].final.all())
        if not unfinished or passes == MOST_PASSES:
            return nodes, s[leaves.parent] if above else s, values, passes


def _roots(level: TreeLevel, sums: PageSums, *, evaluated: bool) -> Roots:
    """Return the bracketed roots of a level; `sums` are those of its nodes."""
    lower = least_s(level, sums)
    roots = Roots(level.bandwidth, lower, lower, evaluated=evaluated)
    roots.above[lower == 0] = 0.0
    return roots


def least_s(level: TreeLevel, sums: PageSums) -> Floats:
    """Return a lower bound of the s at which nodes take their bandwidth; 0 only where s is 0."""
    check_feasible(level, sums.floor)
    spare = np.maximum(level.bandwidth - sums.floor, 0.0)
    beyond = np.maximum(spare - sums.ping_rate, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        linear = np.where(spare > 0, spare / sums.importance, 0.0)
        root = np.where(beyond > 0, beyond / sums.spread, 0.0)
    return np.asarray(np.minimum(np.maximum(linear, np.minimum(root, 1e85) ** 2), UNLIMITED))


def _choose(levels: list[TreeLevel], roots: list[Roots]) -> list[Nodes]:
    """Return the next points of the nodes, chosen from the root down."""
    nodes = [Nodes(roots[0].s.copy(), np.ones(1, np.bool_), roots[0].final.copy())]
    for level, root in zip(levels[1:], roots[1:], strict=False):
        s, final = nodes[-1].s[level.parent], nodes[-1].final[level.parent]
        full = np.where(root.final, root.s, root.above) <= s
        nodes.append(Nodes(np.where(full, root.s, s), full, np.where(full, root.final, final)))
    return nodes


def _learn(level: TreeLevel, root: Roots, node: Nodes, values: Values) -> Values:
    """Update the roots of a level by `values`; return them limited to the bandwidth of each node.

    The arrays of `values` stay as they are, because other parts may use them.
    """
    over = node.full | (values.value >= level.bandwidth)
    which = np.flatnonzero(over & ~node.final)
    root.learn(which, node.s[which], values.of(which))
    most = np.where(over, level.bandwidth, values.value)
    return Values(most, np.where(over, 0.0, values.slope))


def fold_up(levels: list[TreeLevel], leaf: Floats, depth: int) -> Floats:
    """Return the sums of a column of the leaves by node of a depth."""
    for above, level in zip(levels[depth:-1][::-1], levels[depth + 1 :][::-1], strict=True):
        leaf = _sum_by(level.parent, leaf, above.bandwidth.size)
    return leaf


def _sum_by(parent: Indices, column: Floats, n: int) -> Floats:
    if n == 1:
        return np.array([column.sum()])
    return np.bincount(parent, column, n).astype(np.float64, copy=False)


def check_feasible(level: TreeLevel, floor: Floats) -> None:
    """Raise `BandwidthInfeasible` where the (K,) minima of nodes exceed their bandwidth."""
    bad = np.flatnonzero(floor > level.bandwidth * (1 + SLACK))
    if bad.size:
        which = f"{level.name}s {', '.join(map(str, bad[:5]))}" if level.parent.size else level.name
        more = f" and {bad.size - 5} more" if bad.size > 5 else ""  # noqa: PLR2004
        raise BandwidthInfeasible(
            f"the minimum crawl rates of {which}{more} add up to {floor[bad[0]]:g} a day, "
            f"more than the bandwidth {level.bandwidth[bad[0]]:g}; lower them or raise it"
        )
