"""Heuristics at their best: intervals scaled until they use the bandwidth up."""

from dataclasses import replace
from typing import NamedTuple, Protocol, Self

import numpy as np

from recrawl_lab.policies.heuristics import Heuristic, play
from recrawl_lab.replay.staleness import Crawls
from recrawl_lab.worlds.world import World, offsets

USED = (0.99, 0.998)
"""Share of the bandwidth that is used up: nearly all, without lasting queues."""
TARGET = 0.994
PILOT_PAGES = 500
"""In larger worlds so many pages tell about which scale it will be."""
COARSE, FINE = 4.0, 1.02
"""Steps of the search where all is used, before and after the pilot."""
BUDGET_FACTOR = 1.5
"""Adaptive intervals follow a scale only in part: it shrinks by ever more than what use lacks."""
ROUNDS = 24


class Scalable(Heuristic, Protocol):
    """A heuristic whose intervals can be stretched."""

    def scaled(self, factor: float) -> Self:
        """Return the heuristic with every interval `factor` times as long."""


class TunedSetting(NamedTuple):
    """A scale of the intervals, and what was crawled at it."""

    factor: float
    crawls: Crawls


def tuned(heuristic: Scalable, world: World, bandwidth: float) -> Crawls:
    """Play a heuristic at the longest intervals that use the bandwidth up (`USED`).

    All of its intervals are scaled by one factor, found over whole plays, as only an operator with
    hindsight could. Where no factor will do, the play that used the most.
    """
    if bandwidth == 0:
        return Crawls.none()
    every = len(world) // PILOT_PAGES
    if every <= 1:
        return _search(heuristic, world, bandwidth, 1.0, COARSE).crawls
    pilot = _sample(world, every)
    per_page = bandwidth / world.mean_pages
    guess = _search(heuristic, pilot, per_page * pilot.mean_pages, 1.0, COARSE).factor
    return _search(heuristic, world, bandwidth, guess, FINE).crawls


def _search(
    heuristic: Scalable, world: World, bandwidth: float, factor: float, step: float
) -> TunedSetting:
    """Search between factors that use too much, where one steps up, and too little."""
    enough, most = USED
    low, high, power = 0.0, np.inf, 1.0
    best, used_best = TunedSetting(factor, Crawls.none()), 0.0
    for _ in range(ROUNDS):
        crawls = play(heuristic.scaled(factor), world, bandwidth)
        used = len(crawls.at) / (bandwidth * world.days)
        if used >= min(enough, used_best):
            best, used_best = TunedSetting(factor, crawls), used
        if enough <= used <= most:
            break
        if used > most:
            low, guess = factor, step * factor
        else:
            high, guess = factor, factor * max((used / TARGET) ** power, 1.0 / COARSE)
            power *= BUDGET_FACTOR
        factor = guess if low < guess < high else float(np.sqrt(low * high))
    return best


def _sample(world: World, every: int) -> World:
    """Take every so many-th page."""
    sample = np.arange(len(world)) % every == 0
    return replace(
        world,
        url=world.url[::every],
        importance=world.importance[sample],
        announced=world.announced[sample],
        created=world.created[sample],
        ended=world.ended[sample],
        changed_at=world.changed_at[sample[world.changed_page]],
        first=offsets(np.diff(world.first)[sample]),
        change_rate=world.change_rate[sample],
    )
