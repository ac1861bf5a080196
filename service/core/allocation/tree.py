"""Nested budgets: pages < hosts < groups < everything, one multiplier each.

A node whose members would take more than its bandwidth at the multiplier of its parent has a
larger multiplier of its own. What the members of a node take, each capped by its own bandwidth, is
an increasing function of the node's s = 1/multiplier, so the roots are found from the top down:
a node that stays below its bandwidth inherits the s of its parent (THEORY 1, hosts).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from service.core.allocation.inputs import Hosts, Indices
from service.core.allocation.roots import Values, climb
from service.core.conditions import BandwidthInfeasible, Floats

UNLIMITED = 1e170
"""The s of bandwidth that costs nothing: every page takes all that it can use."""

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
    root = np.zeros(0, np.intp)
    levels = [Level("the pages", np.array([bandwidth]), root)]
    if hosts is None:
        return levels
    if hosts.group_bandwidth.size:
        below_root = np.zeros(hosts.group_bandwidth.size, np.intp)
        levels.append(Level("group", hosts.group_bandwidth, below_root))
        parent = hosts.group
    else:
        parent = np.zeros(hosts.bandwidth.size, np.intp)
    return [*levels, Level("host", hosts.bandwidth, parent)]


def descend(
    levels: list[Level], taken: Callable[[Floats], Values], reach: Reach, start: float | None
) -> Solution:
    """Find the s of every node, given what the leaves take at an s for each of them.

    Raises
    ------
    BandwidthInfeasible
        The minima of the pages of a node exceed its bandwidth.
    """
    solved: list[Floats] = []
    passes = 0
    for depth, level in enumerate(levels):
        below = Reach(*(fold_up(levels, column, depth) for column in reach))
        _check_feasible(level, below.floor)
        upper = solved[-1][level.parent] if solved else np.array([UNLIMITED])
        upper = np.where(level.bandwidth <= below.floor, 0.0, upper)
        lower = np.minimum(_lower(level.bandwidth, below), upper)
        leaf = _ancestors(levels, depth)

        def within(s: Floats, depth: int = depth, leaf: Indices = leaf) -> Values:
            return _capped(levels, taken(s[leaf]), depth)

        first = upper if solved else lower
        if not solved and start is not None and 0 < start < np.inf:
            first = np.array([1 / start])
        s, more = climb(within, level.bandwidth, lower, first, upper)
        solved.append(s)
        passes += more
    return Solution(solved, passes)


def fold_up(levels: list[Level], leaf: Floats, depth: int) -> Floats:
    """Sum a column of the leaves up to the nodes of a depth."""
    for above, level in zip(levels[depth:-1][::-1], levels[depth + 1 :][::-1], strict=True):
        leaf = _sum_by(level.parent, leaf, above.bandwidth.size)
    return leaf


def _capped(levels: list[Level], leaf: Values, depth: int) -> Values:
    """Sum up to a depth what the leaves take, no node below that depth beyond its bandwidth."""
    value, slope = leaf
    for above, level in zip(levels[depth:-1][::-1], levels[depth + 1 :][::-1], strict=True):
        slope = np.where(value < level.bandwidth, slope, 0.0)
        value = np.minimum(value, level.bandwidth)
        n = above.bandwidth.size
        value, slope = _sum_by(level.parent, value, n), _sum_by(level.parent, slope, n)
    return Values(value, slope)


def _sum_by(parent: Indices, column: Floats, n: int) -> Floats:
    if n == 1:
        return np.array([column.sum()])
    return np.bincount(parent, column, n).astype(np.float64, copy=False)


def _ancestors(levels: list[Level], depth: int) -> Indices:
    """Map each leaf to its node of a depth."""
    index: Indices = np.arange(levels[-1].bandwidth.size)
    for level in levels[:depth:-1]:
        index = level.parent[index]
    return index


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
