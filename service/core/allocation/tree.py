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

FOUND = -1.0
"""Asks nothing about the pages of a leaf, whose s is known."""

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
    """1/multiplier of the nodes of each level, and the passes that found them."""

    levels: list[Floats]
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
    levels: list[Level], taken: Callable[[Floats], Values], reach: Reach, start: float | None
) -> Solution:
    """Find the s of every node, given what the leaves take at an s for each of them.

    All roots are looked for at once. A node known to reach its bandwidth below the s of its parent
    is asked about its own root and counts with its bandwidth; any other is asked about the s of
    its parent, which gives the parent's value there.

    Raises
    ------
    BandwidthInfeasible
        The minima of the pages of a node exceed its bandwidth.
    """
    roots = [_roots(levels, depth, reach) for depth in range(len(levels))]
    del reach  # four columns of hosts
    if start is not None and 0 < start < np.inf:
        roots[0].s = np.clip(1 / start, roots[0].below, roots[0].above)
    passes = 0
    nodes = [_unknown(level.bandwidth.size) for level in levels]
    _choose(levels, roots, nodes)
    while not nodes[-1].known.all() and passes < MOST_PASSES:
        passes += 1
        asked = nodes[-1].s.copy()
        asked[nodes[-1].known] = FOUND
        values = taken(asked)
        for depth in reversed(range(len(levels))):
            _learn(levels[depth], roots[depth], nodes[depth], values)
            if depth:
                parent, n = levels[depth].parent, levels[depth - 1].bandwidth.size
                values = Values(*(_sum_by(parent, column, n) for column in values))
        _choose(levels, roots, nodes)
    return Solution([node.s for node in nodes], passes)


class Nodes(NamedTuple):
    """Of the nodes of a level: the s to ask about, and what is known of it.

    `full`: the bandwidth is reached at or below the s of the parent. `known`: the s is final,
    if that of the parent is.
    """

    s: Floats
    full: Bools
    known: Bools


def _roots(levels: list[Level], depth: int, reach: Reach) -> Roots:
    """Bracket the roots of a level."""
    below = Reach(*(fold_up(levels, column, depth) for column in reach))
    level = levels[depth]
    _check_feasible(level, below.floor)
    nothing = level.bandwidth <= below.floor
    lower = np.empty_like(level.bandwidth)

    def bound(block: slice) -> None:
        lower[block] = _lower(level.bandwidth[block], Reach(*(column[block] for column in below)))

    in_blocks(bound, lower.size)
    lower[nothing] = 0.0
    evaluated = level is not levels[-1]
    roots = Roots(level.bandwidth, lower, lower, evaluated=evaluated)
    roots.above[nothing] = 0.0
    return roots


def _unknown(n: int) -> Nodes:
    return Nodes(np.empty(n), np.ones(n, np.bool_), np.empty(n, np.bool_))


def _choose(levels: list[Level], roots: list[Roots], nodes: list[Nodes]) -> None:
    """Choose from the top down what to ask about."""
    np.copyto(nodes[0].s, roots[0].s)
    np.copyto(nodes[0].known, roots[0].found)
    for depth in range(1, len(levels)):
        _choose_below(nodes[depth - 1], levels[depth].parent, roots[depth], nodes[depth])


def _choose_below(above: Nodes, parent: Indices, root: Roots, node: Nodes) -> None:
    def choose(block: slice) -> None:
        s, known = above.s, above.known
        if s.size > 1:
            s, known = s[parent[block]], known[parent[block]]
        own, found = root.s[block], root.found[block]
        full = np.where(found, own, root.above[block]) <= s
        node.full[block] = full
        node.s[block] = np.where(full, own, s)
        node.known[block] = np.where(full, found, known)

    in_blocks(choose, node.s.size)


def _learn(level: Level, root: Roots, node: Nodes, values: Values) -> None:
    """Tell the roots of a level what was found, and cap that by the bandwidth of each node."""

    def learn(block: slice) -> None:
        value, slope = values.value[block], values.slope[block]
        over = node.full[block] | (value >= level.bandwidth[block])
        which = block.start + np.flatnonzero(over & ~node.known[block])
        if which.size:
            of_which = Values(values.value[which], values.slope[which])
            root.learn(which, node.s[which], of_which)
        np.copyto(value, level.bandwidth[block], where=over)
        np.copyto(slope, 0.0, where=over)

    in_blocks(learn, node.s.size)


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
            f"more than the bandwidth {level.bandwidth[bad[0]]:g}"
        )
