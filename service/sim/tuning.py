"""Heuristics at their best: intervals scaled until they use the bandwidth up."""

from typing import Protocol, Self

import numpy as np

from service.sim.heuristics import Heuristic, play
from service.sim.staleness import Crawls
from service.sim.world import World

USED = (0.99, 0.998)
"""Share of the bandwidth that is used up: nearly all, without lasting queues."""
STRIDE = 4.0
ROUNDS = 24


class Scalable(Heuristic, Protocol):
    """A heuristic whose intervals can be stretched."""

    def scaled(self, factor: float) -> Self:
        """Give the heuristic with every interval `factor` times as long."""


def tuned(heuristic: Scalable, world: World, bandwidth: float) -> Crawls:
    """Play a heuristic at the longest intervals that use the bandwidth up (`USED`).

    All of its intervals are scaled by one factor, found by bisection over whole plays, as only an
    operator with hindsight could. Where no factor will do, the play that used the most.
    """
    if bandwidth == 0:
        return Crawls.none()
    enough, most = USED
    low, high, factor = 0.0, np.inf, 1.0
    best, used_best = Crawls.none(), 0.0
    for _ in range(ROUNDS):
        crawls = play(heuristic.scaled(factor), world, bandwidth)
        used = len(crawls.at) / (bandwidth * world.days)
        if used >= min(enough, used_best):
            best, used_best = crawls, used
        if enough <= used <= most:
            break
        low, high = (factor, high) if used > most else (low, factor)
        factor = _between(low, high)
    return best


def _between(low: float, high: float) -> float:
    """Halve a bracket of logarithms; search an open end in strides.

    >>> _between(1.0, np.inf), _between(0.0, 1.0), _between(1.0, 4.0)
    (4.0, 0.25, 2.0)
    """
    if high == np.inf:
        return STRIDE * low
    return float(np.sqrt(low * high)) if low > 0 else high / STRIDE
