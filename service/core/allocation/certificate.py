r"""Distance of an allocation from the least harmonic cost, computed from the rates as written.

The multipliers of a search are only a guess here. Because any multiplier bounds the least cost
from below, a wrong guess makes the distance larger, never smaller.

Let a page be crawled c times a day, and :math:`f(c)` be its cost if pings come before the clock.
Its *price* :math:`-\mu / f'(c)` grows with c, at least in proportion. The price is :math:`\mu s`
at the optimum, :math:`s = 1/\lambda`, unless a bound of the page explains the difference.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from service.core.allocation.blocks import BLOCK, Indices, Pages, blocks, over_parts
from service.core.allocation.demand import (
    NEVER_ZERO,
    NEW,
    Work,
    false_share,
    own_inverse,
    pings,
    with_pings,
)
from service.core.allocation.multipliers import UNLIMITED, Solution, TreeLevel, fold_up
from service.core.checks import Floats
from service.core.common_values import Contribution, Joint, added, alone

ROUNDING = 1e-12
"""Maximum relative rounding error of a page's crawls, a sum over the clock and pings."""
FAR = 0.38
"""Largest v that exceeds (v/(1 - v))^2."""


class Rates(NamedTuple):
    """(N,) rates as written."""

    crawl_rate: Floats
    crawl_probability: Floats


class Distance(NamedTuple):
    """Distance of rates from the optimum."""

    bandwidth_used: float
    """Crawls a day, on the clock and on pings, or their costs."""
    kkt_residual: float
    """Largest relative violation of a condition of the optimum, in [0, 1]."""
    duality_gap: float
    """Upper bound of the cost above the least cost; infinite if a page is never crawled."""


class PartSums(NamedTuple):
    """Sums over a part of the pages."""

    worst: float
    """The largest violation."""
    missed: float
    """Upper bound of the cost above the least cost at the multipliers."""
    pinged: Indices
    """Pages with pings."""
    on_pings: Floats
    """Crawls of these pages on pings, 1/day."""


def certify(
    pages: Pages,
    levels: list[TreeLevel],
    inverses: list[Floats],
    rates: Rates,
    host: Indices | None = None,
) -> Distance:
    """Return the distance of rates from the least harmonic cost within budgets and bounds. O(N).

    `levels` are the budgets from the root to the leaves, `inverses` the s of their nodes, and
    `host` is the leaf of each page; None without hosts.
    """
    distance, _ = alone(certified(pages, levels, Solution(inverses, 0), rates, host))
    return distance


class Seen(NamedTuple):
    """The share of one part in the distance from the optimum."""

    bandwidth_used: float
    of_root: Floats
    """(1,) crawls a day, or their costs, summed up the tree."""
    missed: float
    gaps: Floats
    """(2,) costs that the budgets of groups and of hosts miss."""


def certified(
    pages: Pages,
    levels: list[TreeLevel],
    solution: Solution,
    rates: Rates,
    host: Indices | None = None,
) -> Joint[tuple[Distance, int]]:
    """Return the distance of the rates of all parts, and the most `own_passes` of a part.

    The parameters are those of this part (`certify`).
    """
    inverses = solution.levels
    n, leaf = pages.importance.size, inverses[-1]

    def certify_part(part: slice) -> PartSums:
        buffers = np.empty((4, min(BLOCK, n)))
        parts = [NOTHING]
        for block in blocks(part):
            own, *work = buffers[:, : block.stop - block.start]
            s = float(leaf[0]) if host is None else leaf.take(host[block], out=own, mode="clip")
            written = Rates(*(column[block] for column in rates))
            some = pages.cut(block)
            if some.cost is not None:
                s = own_inverse(some.cost, s, 1 / float(inverses[0][0]))
            one = _certify_block(some, s, written, Work(*work))
            parts.append(one._replace(pinged=one.pinged + block.start))
        return _together(parts)

    every = _together(over_parts(certify_part, n))
    leaves = _used(rates.crawl_rate, every, host, levels[-1].bandwidth.size)
    used = [fold_up(levels, leaves, depth) for depth in range(len(levels))]
    inner = zip(levels[1:], inverses[1:], used[1:], inverses, strict=False)
    below = [_unspent(*level) for level in inner]
    gaps = np.zeros(MOST_NESTED)
    gaps[: len(below)] = [gap for _, gap in below]
    worst = max([every.worst, *(off for off, _ in below)])
    spent = used[0] if pages.cost is None else _spent(pages.cost, rates.crawl_rate, every)
    seen = Seen(float(spent.sum()), spent, every.missed, gaps)
    seen, worst, own_passes = yield Contribution((seen, worst, solution.own_passes), _seen_by_all)
    off, gap = _unspent(levels[0], inverses[0], seen.of_root, np.array([UNLIMITED]))
    for missed in seen.gaps.tolist():
        gap += missed
    return Distance(seen.bandwidth_used, max(off, worst), gap + seen.missed), own_passes


def _seen_by_all(shares: Sequence[tuple[Seen, float, int]]) -> tuple[Seen, float, int]:
    seen, worst, own_passes = zip(*shares, strict=True)
    return added(seen), max(worst), max(own_passes)


MOST_NESTED = 2
"""Maximum number of levels below the root: groups and hosts."""
NO_PAGES = np.zeros(0, np.intp)
NOTHING = PartSums(0.0, 0.0, NO_PAGES, np.zeros(0))


def _together(parts: list[PartSums]) -> PartSums:
    worst, missed, pinged, on_pings = zip(*parts, strict=True)
    return PartSums(max(worst), sum(missed), np.concatenate(pinged), np.concatenate(on_pings))


def _certify_block(pages: Pages, s: Floats | float, rates: Rates, work: Work) -> PartSums:
    crawl_rate, probability = rates
    pinged, ping_rate = with_pings(pages)
    on_pings = probability[pinged] * ping_rate
    crawls = np.add(crawl_rate, 0.0, out=work.rate)
    crawls[pinged] += on_pings
    off = violation(pages, s, crawls, work)
    worst, missed = _missed(off, s, crawls)
    worst = max(worst, _out_of_bounds(pages, crawls))
    misplaced = np.minimum(crawl_rate[pinged], ping_rate - on_pings)
    if misplaced.any():
        share, more = _misplaced(pages.cut(pinged), ping_rate, crawls[pinged], misplaced)
        worst, missed = max(worst, share), missed + more
    return PartSums(worst, missed, pinged, on_pings)


def violation(pages: Pages, s: Floats | float, crawls: Floats, work: Work = NEW) -> Floats:
    r"""Return the differences of the pages' prices from :math:`\mu s`, as shares of the larger.

    Positive for a page that is crawled too often, negative for one that is crawled too seldom, 0
    where a bound explains the difference. `work.rate` is not used, so `crawls` may be there.
    """
    exact = pages.ping_recall is None
    off = (_exact_violation if exact else _noisy_violation)(pages, s, crawls, work)
    if pages.min_crawl_rate is not None and pages.max_crawl_rate is not None:
        low = crawls <= pages.min_crawl_rate * (1 + ROUNDING)
        high = crawls >= pages.max_crawl_rate * (1 - ROUNDING)
        off[(low & (off > 0)) | (high & (off < 0))] = 0.0
    if np.max(s) >= UNLIMITED:  # crawls cost nothing
        off[(off > 0) & np.greater_equal(s, UNLIMITED)] = 0.0
    return off


def _exact_violation(pages: Pages, s: Floats | float, crawls: Floats, work: Work) -> Floats:
    r"""Compare :math:`c (c + \Delta)` with :math:`\mu s \Delta`; of complete pages, c with mu s."""
    wanted = np.multiply(pages.importance, pages.change_rate, out=work.root)
    wanted *= s
    price = np.add(crawls, pages.change_rate, out=work.slope)
    price *= crawls
    complete = np.flatnonzero(pages.complete)
    price[complete] = crawls[complete]
    at = s[complete] if isinstance(s, np.ndarray) else s
    wanted[complete] = pages.importance[complete] * at
    off = _relative(price, wanted)
    spare = crawls[complete] - pages.change_rate[complete]
    full = complete[spare >= 0]
    off[full] = np.maximum(off[full], 0.0)
    off[complete[spare > ROUNDING * crawls[complete]]] = 1.0  # more crawls than pings
    return off


def _noisy_violation(pages: Pages, s: Floats | float, crawls: Floats, _: Work) -> Floats:
    r"""Compare with the prices on both sides of the kink at the ping rate g.

    Up to g the price is :math:`c ((1-q) c + \Delta) / \Delta`, above g :math:`c (c + \alpha) /
    \alpha`.
    """
    change, wanted = pages.change_rate, pages.importance * s
    unannounced, ping_rate = pings(pages)
    on_pings = _relative(crawls * (false_share(pages) * crawls + change), wanted * change)
    beyond = _relative(crawls * (crawls + unannounced), wanted * unannounced)
    over = np.where(crawls <= ping_rate, on_pings, beyond)
    under = np.where(crawls < ping_rate, on_pings, beyond)
    return np.asarray(np.maximum(over, 0.0) + np.minimum(under, 0.0))


def _relative(price: Floats, wanted: Floats) -> Floats:
    """Return the differences as shares of the larger number; writes into both arrays."""
    larger = np.maximum(price, wanted)
    larger += NEVER_ZERO
    price -= wanted
    price /= larger
    return price


def _missed(off: Floats, s: Floats | float, crawls: Floats) -> tuple[float, float]:
    r"""Return the largest violation, and a bound on the cost of all; writes into `off`.

    The cost is convex, and the price grows at least in proportion. Therefore a violation v costs at
    most :math:`\lambda c v` if the page is crawled too often. If it is crawled too seldom, the cost
    is at most :math:`\lambda c (v/(1-v))^2`, which is less than the former up to `FAR`.
    """
    far = np.flatnonzero(off < -FAR) if off.min() < -FAR else NO_PAGES
    np.abs(off, out=off)
    worst = float(off.max())
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        off[far] = (off[far] / (1 - off[far])) ** 2
        off *= crawls
        off /= np.maximum(s, NEVER_ZERO)
        total = float(off.sum())
    return worst, np.inf if np.isnan(total) else total


def _misplaced(
    pages: Pages, ping_rate: Floats, crawls: Floats, misplaced: Floats
) -> tuple[float, float]:
    """Return the largest share and a bound on the cost of crawls that belong on pings.

    These are crawls on the clock while pings are ignored, or negative: crawls on more pings than
    there are.
    """
    true_share = 1 - false_share(pages)
    stale = pages.change_rate + crawls - true_share * np.minimum(crawls, ping_rate)
    cost = pages.importance * true_share * np.maximum(misplaced, 0.0) / (stale + NEVER_ZERO)
    return float((np.abs(misplaced) / (crawls + NEVER_ZERO)).max()), float(cost.sum())


def _out_of_bounds(pages: Pages, crawls: Floats) -> float:
    """Return the largest relative distance of crawls from the bounds of their page."""
    if pages.min_crawl_rate is None or pages.max_crawl_rate is None:
        return 0.0
    few = np.maximum(pages.min_crawl_rate - crawls, 0.0) / (pages.min_crawl_rate + NEVER_ZERO)
    many = np.maximum(crawls - pages.max_crawl_rate, 0.0) / (crawls + NEVER_ZERO)
    return float(max(few.max(), many.max()))


def _used(crawl_rate: Floats, every: PartSums, host: Indices | None, n_hosts: int) -> Floats:
    """Return the crawls a day of each host; (1,) without hosts."""
    if host is None:
        return np.array([crawl_rate.sum() + every.on_pings.sum()])
    used = np.bincount(host, crawl_rate, n_hosts).astype(np.float64)
    used += np.bincount(host[every.pinged], every.on_pings, n_hosts)
    return used


def _spent(cost: Floats, crawl_rate: Floats, every: PartSums) -> Floats:
    """Return the (1,) costs a day of all pages."""
    # a product of vectors would start the threads of BLAS, which wait busily for each other
    on_clock = np.einsum("i,i", crawl_rate, cost)
    return np.array([on_clock + np.einsum("i,i", every.on_pings, cost[every.pinged])])


def _unspent(level: TreeLevel, s: Floats, used: Floats, above: Floats) -> tuple[float, float]:
    """Return the largest relative violation of a budget, and a bound on the cost that it causes.

    A violation is overspending, underspending of a budget with a positive multiplier, or a
    multiplier below that of the parent. `s` and `used`, crawls a day, are those of the nodes;
    `above` has the s of their parents' level.
    """
    worst = gap = 0.0
    for block in blocks(slice(0, s.size)):
        parent = above if above.size == 1 else above[level.parent[block]]
        cap, at, spent = level.bandwidth[block], s[block], used[block]
        limited = cap < np.inf
        spare = np.where(limited, cap - spent, 0.0)
        larger = np.where(limited, np.maximum(cap, spent), 1.0) + NEVER_ZERO
        own = (parent - at) / (np.maximum(parent, at) + NEVER_ZERO)
        off = np.maximum(np.maximum(-spare, own * spare) / larger, -own)
        worst = max(worst, float(off.max()))
        missed = np.where(
            np.abs(spare) > ROUNDING * larger, np.maximum(own, 0.0) * np.abs(spare), 0.0
        )
        gap += float((missed / np.maximum(at, NEVER_ZERO)).sum())
    return worst, gap
