"""The passes over the pages: sums per host at a multiplier, and the final read-off."""

from typing import NamedTuple

import numpy as np

from service.core.allocation.blocks import Pages, blocks, over_parts
from service.core.allocation.demand import demand, pings, price
from service.core.allocation.inputs import Indices
from service.core.allocation.roots import Values
from service.core.allocation.tree import Reach
from service.core.conditions import Floats


class Settled(NamedTuple):
    """What the read-off found besides the rates: `used` (H,), and the pages' part of the proof."""

    used: Floats
    residual: float
    gap: float


def survey(pages: Pages, host: Indices | None, n_hosts: int) -> Reach:
    """Sum what bounds the demand of each host."""

    def part(part: slice) -> Floats:
        sums = np.zeros((4, n_hosts))
        for block in blocks(part):
            chosen = pages.cut(block)
            unannounced, ping_rate, _ = pings(chosen)
            floor = chosen.min_crawl_rate
            spread = np.sqrt(chosen.importance * unannounced)
            for row, column in zip(
                sums, (floor, chosen.importance, ping_rate, spread), strict=True
            ):
                if column is not None:
                    _add(row, column, host, block)
        return sums

    return Reach(*np.sum(over_parts(part, pages.importance.size), axis=0))


def taken(pages: Pages, host: Indices | None, s: Floats) -> Values:
    """Bandwidth that the pages of each host take at the host's `s`, and its derivative."""

    def part(part: slice) -> Floats:
        sums = np.zeros((2, s.size))
        for block in blocks(part):
            at = demand(pages.cut(block), _of_pages(s, host, block))
            _add(sums[0], at.rate, host, block)
            _add(sums[1], at.slope, host, block)
        return sums

    return Values(*np.sum(over_parts(part, pages.importance.size), axis=0))


def settle(
    pages: Pages, host: Indices | None, s: Floats, crawl_rate: Floats, crawl_probability: Floats
) -> Settled:
    """Write the rates that pages have at their host's `s`, and check them against it.

    The residual is how far s lies outside of a page's one-sided prices, relatively.
    """

    def part(part: slice) -> tuple[Floats, float, float]:
        used, worst, gap = np.zeros(s.size), 0.0, 0.0
        for block in blocks(part):
            chosen, at = pages.cut(block), _of_pages(s, host, block)
            rate = demand(chosen, at).rate
            _, ping_rate, _ = pings(chosen)
            np.maximum(rate - ping_rate, 0.0, out=crawl_rate[block])
            followed = np.minimum(rate, ping_rate)
            np.divide(followed, ping_rate, out=crawl_probability[block], where=ping_rate > 0)
            _add(used, rate, host, block)
            below, above = price(chosen, rate)
            off = np.maximum(np.maximum(below - at, at - above), 0.0)
            np.divide(off, at, out=off, where=at > 0)
            worst = max(worst, float(off.max()))
            at = np.broadcast_to(at, off.shape)
            gap += float(np.divide(rate * off, at, out=np.zeros_like(off), where=at > 0).sum())
        return used, worst, gap

    parts = over_parts(part, pages.importance.size)
    used, worst, gap = zip(*parts, strict=True)
    return Settled(np.sum(used, axis=0), max(worst), sum(gap))


def _of_pages(s: Floats, host: Indices | None, block: slice) -> Floats | float:
    return float(s[0]) if host is None else s[host[block]]


def _add(sums: Floats, column: Floats, host: Indices | None, block: slice) -> None:
    """Add a column of a block to the sums of its hosts."""
    if host is None:
        sums[0] += column.sum()
    else:
        np.add.at(sums, host[block], column)
