"""The sums that a solver needs of a part of the pages, in numpy, block by block.

`compiled` has the same functions for pages without noise and bounds. `host` is None where
the pages have one budget; `sums` are added to, one column a host.
"""

import numpy as np

from service.core.allocation.blocks import Pages, blocks
from service.core.allocation.demand import demand, violation
from service.core.allocation.inputs import Indices
from service.core.allocation.noisy import pings
from service.core.conditions import Floats


def survey(pages: Pages, host: Indices | None, part: slice, sums: Floats) -> None:
    """Add what bounds the demand: floor, importance, ping rate and spread (`tree.Reach`)."""
    for block in blocks(part):
        chosen = pages.cut(block)
        unannounced, ping_rate = pings(chosen)
        spread = np.sqrt(chosen.importance * unannounced)
        if chosen.min_crawl_rate is not None:
            _add(sums[0], chosen.min_crawl_rate, host, block)
        _add(sums[1], chosen.importance, host, block)
        _add(sums[2], ping_rate, host, block)
        _add(sums[3], spread, host, block)


def take(pages: Pages, host: Indices | None, part: slice, s: Floats, sums: Floats) -> None:
    """Add the crawls a day that pages take at the `s` of their host, and the derivatives.

    Hosts with a negative s are not asked about.
    """
    for block in blocks(part):
        which: slice | Indices = block
        at = _of_pages(s, host, block)
        if isinstance(at, np.ndarray) and at.min() < 0:
            asked = np.flatnonzero(at >= 0)
            which, at = asked + block.start, at[asked]
        taken = demand(pages.cut(which), at)
        _add(sums[0], taken.rate, host, which)
        _add(sums[1], taken.slope, host, which)


def settle(
    pages: Pages,
    host: Indices | None,
    part: slice,
    s: Floats,
    crawl_rate: Floats,
    crawl_probability: Floats,
) -> tuple[float, float, float]:
    """Write the rates.

    Returns the sums of crawls a day and of these times violation times multiplier, and the worst
    violation.
    """
    used = missed = worst = 0.0
    for block in blocks(part):
        chosen, at = pages.cut(block), _of_pages(s, host, block)
        rate = demand(chosen, at).rate
        if chosen.ping_recall is None:
            _split_plain(chosen, rate, crawl_rate[block], crawl_probability[block])
        else:
            ping_rate = pings(chosen)[1]
            np.maximum(rate - ping_rate, 0.0, out=crawl_rate[block])
            followed = np.minimum(rate, ping_rate)
            np.divide(followed, ping_rate, out=crawl_probability[block], where=ping_rate > 0)
        over, under = violation(chosen, at, rate)
        off = np.maximum(over, under, out=over)
        np.maximum(off, 0.0, out=off)
        worst = max(worst, float(off.max()))
        used += float(rate.sum())
        off *= rate
        missed += float(np.divide(off, at, out=np.zeros_like(off), where=np.greater(at, 0)).sum())
    return used, missed, worst


def _split_plain(pages: Pages, rate: Floats, clock: Floats, probability: Floats) -> None:
    """Write what complete pages take as a probability, up to 1, and the rest as a rate."""
    clock[:] = rate
    pinged = np.flatnonzero(pages.complete & (pages.change_rate > 0))
    change, taken = pages.change_rate[pinged], rate[pinged]
    clock[pinged] = np.maximum(taken - change, 0.0)
    probability[pinged] = np.minimum(taken / change, 1.0)


def _of_pages(s: Floats, host: Indices | None, block: slice) -> Floats | float:
    return float(s[0]) if host is None else s[host[block]]


def _add(sums: Floats, column: Floats, host: Indices | None, block: slice | Indices) -> None:
    """Add a column of a block to the sums of its hosts."""
    if host is None:
        sums += column.sum()
    else:
        np.add.at(sums, host[block], column)
