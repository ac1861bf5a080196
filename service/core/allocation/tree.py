"""Nested budgets: pages < hosts < groups < everything, one multiplier each.

A node whose members would take more than its bandwidth at the multiplier of its parent has a
larger multiplier of its own. What the members of a node take, each capped by its own bandwidth, is
an increasing function of the node's s = 1/multiplier. A node that stays below its bandwidth at the
s of its parent inherits that (THEORY 1, hosts); the others have a root of their own below it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from service.core.allocation.blocks import in_blocks
from service.core.allocation.inputs import Hosts, Indices
from service.core.allocation.roots import MOST_PASSES, UNLIMITED, Roots, Values
from service.core.conditions import BandwidthInfeasible, Bools, Floats

SLACK = 1e-12
"""By how much the sum of minima may exceed a bandwidth through rounding alone."""


class Level(NamedTuple):
    """Nodes of one depth."""

    name: str
    bandwidth: Floats
    parent: Indices


class Reach(NamedTuple):
    """Sums over the pages of each leaf that bound what they take from above.

    At s a page takes no more than floor + importance * s, nor than
    floor + ping_rate + spread * sqrt(s).
    """

    floor: Floats
    importance: Floats
    ping_rate: Floats
    spread: Floats


class Solution(NamedTuple):
    """1/multiplier of the nodes of each level, what leaves take at it, and the passes."""

    levels: list[Floats]
    used: Floats | None
    """None where the root is the only leaf."""
    passes: int


def grow(bandwidth: float, hosts: Hosts | None) -> list[Level]:
    """Levels from the root to the leaves; without hosts the root is the only leaf."""
    root_index = np.intp(0)
    levels = [Level("the pages", np.array([bandwidth]), np.zeros(0, np.intp))]
    if hosts is None:
        return levels
    if hosts.group_bandwidth.size:
        below_root = np.broadcast_to(root_index, hosts.group_bandwidth.size)
        levels.append(Level("group", hosts.group_bandwidth, below_root))
        parent = hosts.group
    else:
        parent = np.broadcast_to(root_index, hosts.bandwidth.size)
    return [*levels, Level("host", hosts.bandwidth, parent)]


def solve(
    levels: list[Level],
    taken: Callable[[Floats], Values],
    limit: Callable[[Floats, Values, Floats, Floats], int],
    reach: Reach,
    start: float | None,
) -> Solution:
    """Find the s of every node, given what the leaves take at an s for each of them (`Sweeps`).

    First of all nodes above the leaves at once, where a leaf that would take more than its
    bandwidth counts with that; then of these leaves, on which no other depends.

    Raises
    ------
    BandwidthInfeasible
        The minima of the pages of a node exceed its bandwidth.
    """
    *above, leaves = levels
    roots = [_roots(levels, depth, reach) for depth in range(max(1, len(above)))]
    lower = _bound(leaves, reach) if above else roots[0].below
    del reach  # four columns of hosts
    if start is not None and 0 < start < np.inf:
        roots[0].s = np.clip(1 / start, roots[0].below, roots[0].above)
    if not above:
        return Solution([roots[0].s], None, roots[0].climb(lambda _, s: taken(s)))
    nodes, s, values, passes = _descend(levels, roots, taken)
    s[lower == 0] = 0.0
    passes += limit(s, values, leaves.bandwidth, lower)
    return Solution([*(node.s for node in nodes), s], values.value, passes)


def _capped(values: Values, bandwidth: Floats) -> Values:
    """Count leaves that would take more than their bandwidth with that."""
    capped = Values(*map(np.empty_like, values))

    def cap(block: slice) -> None:
        value, most = values.value[block], bandwidth[block]
        np.minimum(value, most, out=capped.value[block])
        capped.slope[block] = np.where(value < most, values.slope[block], 0.0)

    in_blocks(cap, bandwidth.size)
    return capped


class Nodes(NamedTuple):
    """Of the nodes of a level: the s to ask about, and what is known of it.

    `full`: the bandwidth is reached at or below the s of the parent. `known`: the s is final,
    if that of the parent is.
    """

    s: Floats
    full: Bools
    known: Bools


def _descend(
    levels: list[Level], roots: list[Roots], taken: Callable[[Floats], Values]
) -> tuple[list[Nodes], Floats, Values, int]:
    """Find the s of the nodes above the leaves.

    A node known to reach its bandwidth below the s of its parent is asked about its own root and
    counts with its bandwidth; any other is asked about the s of its parent, which gives the
    parent's value there. Returns with the nodes the s of each leaf's parent, and values there.
    """
    leaves, passes = levels[-1], 0
    nodes = _choose(levels, roots)
    while True:
        passes += 1
        s = nodes[-1].s[leaves.parent]
        values = taken(s)
        sums = _capped(values, leaves.bandwidth)
        for depth in reversed(range(len(roots))):
            parent, n = levels[depth + 1].parent, levels[depth].bandwidth.size
            sums = Values(*(_sum_by(parent, column, n) for column in sums))
            _learn(levels[depth], roots[depth], nodes[depth], sums)
        nodes = _choose(levels, roots)
        if nodes[-1].known.all() or passes == MOST_PASSES:
            return nodes, s, values, passes


def _roots(levels: list[Level], depth: int, reach: Reach) -> Roots:
    """Bracket the roots of a level; of nodes above the leaves they are to be evaluated."""
    level = levels[depth]
    lower = _bound(level, Reach(*(fold_up(levels, column, depth) for column in reach)))
    roots = Roots(level.bandwidth, lower, lower, evaluated=level is not levels[-1])
    roots.above[lower == 0] = 0.0
    return roots


def _bound(level: Level, reach: Reach) -> Floats:
    """Bound the s at which nodes take their bandwidth from below, by 0 only where it is that."""
    _check_feasible(level, reach.floor)
    lower = np.empty_like(level.bandwidth)

    def bound(block: slice) -> None:
        lower[block] = _lower(level.bandwidth[block], Reach(*(column[block] for column in reach)))

    in_blocks(bound, lower.size)
    return lower


def _choose(levels: list[Level], roots: list[Roots]) -> list[Nodes]:
    """Choose from the top down what to ask about."""
    nodes = [Nodes(roots[0].s.copy(), np.ones(1, np.bool_), roots[0].found.copy())]
    for level, root in zip(levels[1:], roots[1:], strict=False):
        s, known = nodes[-1].s[level.parent], nodes[-1].known[level.parent]
        full = np.where(root.found, root.s, root.above) <= s
        nodes.append(Nodes(np.where(full, root.s, s), full, np.where(full, root.found, known)))
    return nodes


def _learn(level: Level, root: Roots, node: Nodes, values: Values) -> None:
    """Tell the roots of a level what was found, and cap that by the bandwidth of each node."""
    over = node.full | (values.value >= level.bandwidth)
    which = np.flatnonzero(over & ~node.known)
    root.learn(which, node.s[which], values.of(which))
    np.copyto(values.value, level.bandwidth, where=over)
    np.copyto(values.slope, 0.0, where=over)


def fold_up(levels: list[Level], leaf: Floats, depth: int) -> Floats:
    """Sum a column of the leaves up to the nodes of a depth."""
    for above, level in zip(levels[depth:-1][::-1], levels[depth + 1 :][::-1], strict=True):
        leaf = _sum_by(level.parent, leaf, above.bandwidth.size)
    return leaf


def _sum_by(parent: Indices, column: Floats, n: int) -> Floats:
    if n == 1:
        return np.array([column.sum()])
    return np.bincount(parent, column, n).astype(np.float64, copy=False)


def _lower(bandwidth: Floats, reach: Reach) -> Floats:
    """Bound from below the s at which a node takes its bandwidth."""
    spare = np.maximum(bandwidth - reach.floor, 0.0)
    beyond = np.maximum(spare - reach.ping_rate, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        linear = np.where(spare > 0, spare / reach.importance, 0.0)
        root = np.where(beyond > 0, beyond / reach.spread, 0.0)
    return np.asarray(np.minimum(np.maximum(linear, np.minimum(root, 1e85) ** 2), UNLIMITED))


def _check_feasible(level: Level, floor: Floats) -> None:
    bad = np.flatnonzero(floor > level.bandwidth * (1 + SLACK))
    if bad.size:
        which = f"{level.name}s {', '.join(map(str, bad[:5]))}" if level.parent.size else level.name
        more = f" and {bad.size - 5} more" if bad.size > 5 else ""  # noqa: PLR2004
        raise BandwidthInfeasible(
            f"the minimum crawl rates of {which}{more} add up to {floor[bad[0]]:g} a day, "
            f"more than the bandwidth {level.bandwidth[bad[0]]:g}; lower them or raise it"
        )
