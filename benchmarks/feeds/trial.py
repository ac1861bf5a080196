"""Made feeds with log-normal rates of entries, read by the product and by a fixed poll."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from typing_extensions import override

from benchmarks.budget.trials import world_of
from recrawl_lab.policies.lineup import DEFAULT_PLAN
from recrawl_lab.replay.gated import Gate, GatedFleet, play_gated
from recrawl_lab.replay.staleness import Crawls
from recrawl_lab.worlds.simulated_time import Clock
from recrawl_lab.worlds.world import World
from service.connectors.feed_hints import DIFFERS_BY, importance, new_mean
from service.epochs.plan import Plan
from service.model.arrays import Floats, Ints

SIGMA = 2.0
"""Deviation of the logarithm of the rates."""
EVERY = 1 / 288
"""Time between two requests for leases, days."""
STEP = 0.25
"""Time between two epochs, days."""
LEARNT = 0.5
"""Share of the time from which entries count, because the rates are learnt by then."""
WINDOW = 20
"""Entries that a feed shows."""


class Delays(NamedTuple):
    """How entries waited for the read of their feed."""

    mean: float
    """Mean delay of an entry, days."""
    of_feeds: float
    """Mean over the feeds of their mean delays, days."""
    lost: float
    """Share of the entries that had left the window of their feed before a read."""
    requests: float
    """Reads of all feeds, 1/day."""


def feeds(
    n: int, days: float, median: float, rng: np.random.Generator, *, drawn: bool = False
) -> World:
    """Return feeds on hosts of their own, whose entries come at random.

    The rates are quantiles of the log-normal, because a hundred draws of it differ much in their
    largest ones; with `drawn` they are drawn.
    """
    normal = rng.standard_normal(n) if drawn else ndtri((rng.permutation(n) + 0.5) / n)
    rate = median * np.exp(SIGMA * normal)
    return world_of(rate, [f"https://f{i}.example/feed" for i in range(n)], days, rng)


class FeedFleet(GatedFleet):
    """A fleet that weighs each feed by its new entries of a read, as `recrawl watch` does."""

    def __init__(self, world: World, clock: Clock, plan: Plan, seed: int, gate: Gate) -> None:
        super().__init__(world, clock, plan, seed, gate)
        self.last_read = np.full(len(world), np.nan)
        self.importance = np.ones(len(world))
        """Importance of each feed as the service has it."""
        self.entries = np.zeros(len(world))

    @override
    def crawl(self, crawls: Crawls) -> Crawls:
        made = super().crawl(crawls)
        for i in np.lexsort((made.at, made.page)).tolist():
            feed, at = int(made.page[i]), float(made.at[i])
            if not np.isnan(self.last_read[feed]):
                before = self.world.version(feed, self.last_read[feed])
                n_new = self.world.version(feed, at) - before
                self.entries[feed] = new_mean(self.entries[feed], n_new)
            self.last_read[feed] = at
        stated = np.array([importance(mean) for mean in self.entries.tolist()])
        moved = np.abs(stated - self.importance) > DIFFERS_BY * self.importance
        self.importance[moved] = stated[moved]
        self.store.pages["importance"][self._page_id - 1] = self.importance
        return made


def learnt(world: World, requests: float, seed: int) -> Crawls:
    """Return the reads by the epochs, the estimates and the pace of the product."""
    clock, gate = Clock(), Gate(budget=lambda _: requests, every=EVERY)
    fleet = FeedFleet(world, clock, replace(DEFAULT_PLAN, bandwidth=requests), seed, gate)
    return play_gated(fleet, clock, step=STEP).crawls


def fixed(world: World, requests: float, rng: np.random.Generator) -> Crawls:
    """Return reads of all feeds at one interval, each from an instant of its own."""
    return periodic(np.full(len(world), requests / len(world)), world.days, rng)


def known(world: World, requests: float, rng: np.random.Generator) -> Crawls:
    """Return periodic reads at the rates of the least mean delay, by the true rates of entries."""
    root = np.sqrt(world.change_rate)
    return periodic(requests * root / root.sum(), world.days, rng)


def periodic(rate: Floats, days: float, rng: np.random.Generator) -> Crawls:
    """Return reads at (N,) rates, each feed's from an instant of its own."""
    times = np.ceil(days * rate).astype(np.int64)
    page = np.repeat(np.arange(len(rate)), times)
    turn = np.arange(len(page)) - np.repeat(np.cumsum(times) - times, times)
    at = (rng.random(len(rate))[page] + turn) / rate[page]
    return Crawls(page[at < days], at[at < days])


def delays(world: World, reads: Crawls) -> Delays:
    """Return the delays of the entries from `LEARNT` on that were read before the end."""
    order = np.lexsort((reads.at, reads.page))
    page, at = reads.page[order], reads.at[order]
    first = np.searchsorted(page, np.arange(len(world) + 1))
    waits, mean_of_feed, n_lost = [], [], 0
    begin = LEARNT * world.days
    for feed in range(len(world)):
        came, read = world.changes_of(feed), at[first[feed] : first[feed + 1]]
        after = np.searchsorted(read, came, side="left")
        counts = (came > begin) & (after < len(read))
        wait = read[after[counts]] - came[counts]
        waits.append(wait)
        if len(wait):
            mean_of_feed.append(wait.mean())
            n_lost += _n_lost(after[counts])
    whole = np.concatenate(waits)
    n_reads = np.count_nonzero(reads.at > begin)
    return Delays(
        float(whole.mean()),
        float(np.mean(mean_of_feed)),
        n_lost / len(whole),
        n_reads / (world.days - begin),
    )


def least_ratio(rate: Floats) -> float:
    """Return the least mean delay of periodic reads at known rates, by that of one interval."""
    return float(np.sqrt(rate).sum() ** 2 / (len(rate) * rate.sum()))


def _n_lost(read: Ints) -> int:
    """Return how many entries stood behind `WINDOW` others at the read that found them."""
    entries: Floats = np.bincount(read).astype(np.float64)
    return int(np.maximum(entries - WINDOW, 0.0).sum())
