"""Heuristics at their best: intervals scaled until the crawls use the whole bandwidth."""

from dataclasses import replace
from typing import NamedTuple, Protocol, Self

import numpy as np

from recrawl_lab.policies.heuristics import Heuristic, play
from recrawl_lab.replay.staleness import Crawls
from recrawl_lab.worlds.world import World, offsets

USED = (0.99, 0.998)
"""Range of the bandwidth used after tuning, share: nearly all, without lasting queues."""
TARGET = 0.994
PILOT_PAGES = 500
"""Number of sampled pages that determine an approximate scale in larger worlds."""
COARSE, FINE = 4.0, 1.02
"""Step factors of the search for a scale, before and after the pilot."""
BUDGET_FACTOR = 1.5
"""Growth of a correction's exponent, because adaptive intervals only partly follow a scale."""
ROUNDS = 24


class Scalable(Heuristic, Protocol):
    """A heuristic with a method that scales its intervals."""

    def scaled(self, factor: float) -> Self:
        """Return the heuristic with every interval `factor` times as long."""


class TunedSetting(NamedTuple):
    """A scale of the intervals, with the crawls at that scale."""

    factor: float
    crawls: Crawls


def tuned(heuristic: Scalable, world: World, bandwidth: float) -> Crawls:
    """Return the crawls of a heuristic at the longest intervals that use the bandwidth (`USED`).

    One factor scales all intervals. The search plays whole games, so it has hindsight that no real
    operator has. If no factor reaches the range, the result is the play that used the most.
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
    """Return a play in the range `USED`; `step` multiplies factors that use too much."""
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
    """Return a world of every `every`-th page."""
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
