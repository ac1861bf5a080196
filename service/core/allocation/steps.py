r"""Newton steps of the multipliers of the budget and of all hosts at once. Pure.

The step of a host leads to its cap, by the parabola of `multipliers.Roots`. The step of the budget
follows from the spend after the steps of all hosts.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from service.core.allocation.multipliers import UNLIMITED, Solution, TreeLevel, least_s
from service.core.allocation.priced_sweeps import HostTotals, PricedSweeps
from service.core.checks import Floats
from service.core.common_values import Contribution, Joint

MOST_AT_ONCE = 16
"""Maximum number of steps of all multipliers at once; the search takes about six."""
FURTHEST = 16.0
"""Maximum factor of an s in one step of all at once."""


class Guess(NamedTuple):
    """Multipliers at the begin of the search."""

    s: float
    extra: Floats
    """(H,) prices that the caps of hosts add."""
    passes: int


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
    """Largest relative distance of a capped host from its cap; inf where it has no slope."""
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
    off = float(np.abs(missing[capped]).max(initial=0.0))
    # all pages of such a host are at their maxima
    stuck = (w == 0) & np.isfinite(extra) & (crawls > caps)
    return Slopes(
        step,
        share,
        spend_after,
        cost_2_w - float(share @ cost_w),
        np.inf if stuck.any() else off,
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


def at_once(
    levels: list[TreeLevel], sweeps: PricedSweeps, guess: Guess, close: float
) -> Joint[Solution | None]:
    r"""Search the multipliers of the budget and of all hosts by Newton steps of all at once.

    A step ends the search if the distance before it was at most `close`, relatively: the next one
    is about its square. None: the search does not end soon. It has no brackets. A budget that the
    caps leave unused has no root, and hosts whose pages are at their maxima have no slope.
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
        if not 0 < after < UNLIMITED or np.isinf(off):
            return None
        s = float(np.clip(after, s / FURTHEST, s * FURTHEST))
        step = own.extra - own.share * (1 / s - multiplier)
        extra = np.maximum(extra + np.where(np.isfinite(extra), step, 0.0), 0.0)
        if max(off, abs(spent / budget - 1)) <= close:
            of_hosts = np.where(extra > 0, 1 / (1 / s + extra), s)
            return Solution([np.array([s]), of_hosts], passes)
    return None
