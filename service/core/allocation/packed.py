r"""The passes of `interpreted` over pages of one budget without noise and bounds, in fewer steps.

Each thread's part of the pages is packed once: pages on the clock from the front, with
:math:`4\mu/\Delta` for their change rate, complete ones from the back. No pass has to tell them
apart again, and one over the clock is a square root, two divisions and two sums, since

.. math:: \rho(s) = 2 \mu s / (1 + r), \quad \rho'(s) = \mu / r, \quad r^2 = 1 + 4 \mu s / \Delta.
"""

from typing import NamedTuple

import numpy as np

from service.core.allocation.blocks import Pages, blocks, over_parts
from service.core.allocation.plain import NEVER_ZERO
from service.core.conditions import Floats

BLOCK = 1 << 15
"""More pages than elsewhere: steps are few, so that more columns fit the cache."""


class Part(NamedTuple):
    """Where the clock of a thread's part ends, where its complete pages begin.

    `sums` are those of importance, ping rate and spread (`tree.Reach`).
    """

    front: int
    back: int
    sums: Floats


class Packed(NamedTuple):
    """Pages set apart, and the parts by their start.

    `other` is 4 importance/change rate of pages on the clock, the change rate of complete ones.
    """

    importance: Floats
    other: Floats
    parts: dict[int, Part]


def pack(pages: Pages, scratch: tuple[Floats, Floats]) -> Packed:
    """Set pages apart in the memory of `scratch`, without those on the clock that take nothing."""
    importance, other = scratch

    def pack_part(part: slice) -> tuple[int, Part]:
        front, back = part.start, part.stop
        sums = np.zeros(3)
        for block in blocks(part, BLOCK):
            weight, change, complete = pages.cut(block)[:3]
            clock = change > 0
            clock &= weight > 0
            clock &= ~complete
            pinged = np.flatnonzero(complete)
            here = slice(front, front := front + np.count_nonzero(clock))
            there = slice(back - pinged.size, back)
            back = there.start
            importance[here], changes = weight[clock], change[clock]
            np.divide(importance[here], changes, out=other[here])
            other[here] *= 4
            changes *= importance[here]
            spread = np.sqrt(changes, out=changes).sum()
            importance[there], other[there] = weight[pinged], change[pinged]
            weights = importance[here].sum() + importance[there].sum()
            sums += weights, other[there].sum(), spread
        return part.start, Part(front, back, sums)

    return Packed(importance, other, dict(over_parts(pack_part, pages.importance.size)))


def survey(pages: Packed, host: None, part: slice, sums: Floats) -> None:  # noqa: ARG001
    """See `interpreted.survey`."""
    sums[1:, 0] += pages.parts[part.start].sums


def take(pages: Packed, host: None, part: slice, s: Floats, sums: Floats) -> None:  # noqa: ARG001
    """See `interpreted.take`."""
    at = float(s[0])
    clock, pinged = _columns(pages, part)
    buffers = np.empty((2, BLOCK))
    for block in blocks(slice(0, clock[0].size), BLOCK):
        importance = clock[0][block]
        root, answer = buffers[:, : importance.size]
        np.multiply(clock[1][block], at, out=root)
        root += 1
        np.sqrt(root, out=root)
        sums[1] += np.divide(importance, root, out=answer).sum()
        root += 1
        sums[0] += 2 * at * np.divide(importance, root, out=answer).sum()
    for block in blocks(slice(0, pinged[0].size), BLOCK):
        importance, change = pinged[0][block], pinged[1][block]
        wanted, rising = importance * at, buffers[0, : change.size]
        np.multiply(importance, wanted < change, out=rising)
        sums[0] += np.minimum(wanted, change, out=wanted).sum()
        sums[1] += rising.sum()


def settle(
    pages: Pages,
    host: None,  # noqa: ARG001
    part: slice,
    s: Floats,
    crawl_rate: Floats,
    crawl_probability: Floats,
) -> tuple[float, float, float]:
    r"""See `interpreted.settle`; :math:`\rho (\rho + \Delta)` is to be :math:`\mu s \Delta`.

    Complete pages take what they want at s or all that there is, so that none can be off.
    """
    at = float(s[0])
    used = missed = worst = 0.0
    buffers = np.empty((2, BLOCK))
    for block in blocks(part, BLOCK):
        importance, change, complete = pages.cut(block)[:3]
        rate, probability = crawl_rate[block], crawl_probability[block]
        ideal, off = buffers[:, : rate.size]
        np.multiply(importance, at, out=ideal)
        pinged = np.flatnonzero(complete)
        wanted, most = ideal[pinged], change[pinged]
        ideal[pinged] = 0.0
        _by_clock(ideal, change, rate, off)
        np.add(rate, change, out=off)
        off *= rate
        off -= ideal
        ideal += NEVER_ZERO
        off /= ideal
        np.abs(off, out=off)
        worst = max(worst, float(off.max()))
        off *= rate
        missed += float(off.sum())
        followed = np.minimum(wanted, most)
        used += float(rate.sum()) + float(followed.sum())
        probability[:] = 0.0
        most += NEVER_ZERO
        probability[pinged] = followed / most
    return used, missed / max(at, NEVER_ZERO), worst


def _by_clock(ideal: Floats, change_rate: Floats, rate: Floats, root: Floats) -> None:
    """Write rates (`plain.by_clock`) at `ideal` = importance * s, which is multiplied by change."""
    np.multiply(ideal, 4, out=root)
    root += change_rate
    root *= change_rate
    np.sqrt(root, out=root)
    root += change_rate
    root += NEVER_ZERO
    ideal *= change_rate
    np.divide(ideal, root, out=rate)
    rate *= 2


def _columns(pages: Packed, part: slice) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """View the columns of a part: of pages on the clock, of complete ones."""
    front, back, _ = pages.parts[part.start]
    clock, pinged = slice(part.start, front), slice(back, part.stop)
    return (
        (pages.importance[clock], pages.other[clock]),
        (pages.importance[pinged], pages.other[pinged]),
    )
