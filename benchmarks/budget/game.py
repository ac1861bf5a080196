"""One game of a trial: a fleet plays it, and figures tell how the budget was kept."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from typing_extensions import override

from benchmarks.budget.trials import Trial
from recrawl_lab.policies.lineup import DEFAULT_PLAN
from recrawl_lab.replay.admitted import Admission
from recrawl_lab.replay.gated import Gate, GatedFleet, Played, play_gated
from recrawl_lab.replay.staleness import Crawls, averaged, uncrawled
from recrawl_lab.worlds.simulated_time import Clock
from recrawl_lab.worlds.world import World, offsets
from service.model.arrays import Bools, Codes, Floats, Ints
from service.model.columns import CapColumns

STEP = 0.25
"""Time between two epochs, days."""
WEEK = 7
JUNK = 1 << 62
"""Digest of all junk, which no other page has."""


class TrialFleet(GatedFleet):
    """A fleet whose pages may time out one by one; among junk, new pages wait for admission."""

    def __init__(self, trial: Trial, clock: Clock, seed: int, gate: Gate) -> None:
        plan = replace(DEFAULT_PLAN, bandwidth=gate.budget(0.0))
        super().__init__(trial.world, clock, plan, seed, gate)
        self.trial = trial
        self.admission = None if trial.junk is None else Admission(trial.world.url)

    @override
    def register(self, pages: Ints) -> None:
        super().register(pages)
        if self.admission is not None:
            self.admission.enter(pages)
            self.hold(self.admission)

    @override
    def crawl(self, crawls: Crawls) -> Crawls:
        made = super().crawl(crawls)
        if self.admission is not None:
            version = self._versions.at(*made)
            self.admission.answer(made.page, self.digests(made.page, version))
            self.hold(self.admission)
        return made

    def sample(self, day: float) -> None:
        """Admit a page of stopped groups, as the first request of a day does."""
        if self.admission is not None:
            self.admission.sample(self.trial.budget(day), int(day))
            self.hold(self.admission)

    def hold(self, admission: Admission) -> None:
        """Tell the store which new pages wait, so that they have no share in the budget."""
        page = np.flatnonzero(self._page_id > 0)
        self.store.hold(self._page_id[page], ~admission.admitted(page))

    @override
    def admitted(self, page: Ints) -> Bools:
        if self.admission is None:
            return super().admitted(page)
        return self.admission.admitted(page)

    @override
    def status(self, page: Ints, at: Floats) -> Codes:
        return self.trial.status(page, at)

    @override
    def digests(self, page: Ints, version: Ints) -> Ints:
        own, junk = super().digests(page, version), self.trial.junk
        return own if junk is None else np.where(junk[page], JUNK, own)


@dataclass(frozen=True)
class Game:
    """A trial that was played."""

    trial: Trial
    played: Played

    @property
    def by_day(self) -> Floats:
        """Crawls of each day."""
        return self._daily(np.ones(len(self.played.crawls.at)))

    @property
    def first_by_day(self) -> Floats:
        """First crawls of each day."""
        return self._daily(1.0 * self.played.first)

    def _daily(self, weight: Floats) -> Floats:
        n_days = int(self.trial.world.days)
        day = np.minimum(self.played.crawls.at.astype(np.int64), n_days - 1)
        return np.bincount(day, weight, n_days).astype(np.float64)

    @property
    def budgets(self) -> Floats:
        """Budget of each day."""
        days = range(int(self.trial.world.days))
        return np.array([self.trial.budget(day + 0.5) for day in days])

    def staleness(self, bins: int) -> Floats:
        """Return the harmonic staleness of the watched pages in bins of time."""
        world, played = self.trial.world, self.played
        crawls = Crawls(*(column[played.answered] for column in played.crawls))
        if self.trial.watched is not None:
            world, crawls = part_of(world, crawls, self.trial.watched)
        return averaged(world, uncrawled(world, crawls), bins).harmonic_curve


def part_of(world: World, crawls: Crawls, which: Bools) -> tuple[World, Crawls]:
    """Return some pages of a world, and the crawls of these pages."""
    row = np.flatnonzero(which)
    place = np.full(len(world), -1)
    place[row] = np.arange(len(row))
    kept = which[world.changed_page]
    part = replace(
        world,
        url=tuple(world.url[i] for i in row.tolist()),
        importance=world.importance[row],
        announced=world.announced[row],
        created=world.created[row],
        ended=world.ended[row],
        changed_at=world.changed_at[kept],
        first=offsets(np.diff(world.first)[row]),
        change_rate=world.change_rate[row],
    )
    own = which[crawls.page]
    return part, Crawls(place[crawls.page[own]], crawls.at[own])


def play(trial: Trial, seed: int, **how: Any) -> Game:
    """Play a trial; `how` has fields of the fleet's gate."""
    clock = Clock()
    fleet = TrialFleet(trial, clock, seed, Gate(budget=trial.budget, **how))

    def capped(_: GatedFleet, day: float) -> None:
        caps = trial.caps(day)
        fleet.cap[:] = [caps.get(host, np.inf) for host in fleet.hosts]
        fleet.store.caps = caps_of(fleet, caps)
        fleet.sample(day)

    played = play_gated(fleet, clock, step=STEP, notices=trial.notices, at_epoch=capped)
    return Game(trial, played)


def caps_of(fleet: GatedFleet, caps: dict[str, float]) -> CapColumns:
    """Return caps of hosts as an epoch loads them."""
    ids = sorted((fleet.store.host_ids[host], host) for host in caps)
    return CapColumns(
        host_id=np.array([host_id for host_id, _ in ids], np.int64),
        host=np.array([host for _, host in ids], object),
        max_crawl_rate=np.array([caps[host] for _, host in ids], np.float64),
        group_id=np.zeros(len(ids), np.int64),
        group=np.array([""] * len(ids), object),
        group_max_crawl_rate=np.full(len(ids), np.nan),
    )


def figures(game: Game) -> dict[str, float]:
    """Return how the budget was kept, and the staleness of each half of the time.

    A day is off by its crawls over the budget, less one crawl. The five days after a tenfold
    change are apart (`worst_near`), and weeks with such days do not count. `days_of_loan` is the
    most that any days in a row had beyond their budget, in days of the largest budget.
    """
    by_day, budget = game.by_day, game.budgets
    near = np.zeros(len(by_day), np.bool_)
    for day in game.trial.breaks:
        near[int(day) : int(day) + 5] = True
    off = by_day / budget - 1
    slack = 1 / budget
    n_weeks = len(by_day) // WEEK
    weeks = by_day[: WEEK * n_weeks].reshape(-1, WEEK).sum(1)
    of_weeks = weeks / budget[: WEEK * n_weeks].reshape(-1, WEEK).sum(1) - 1
    calm = ~near[: WEEK * n_weeks].reshape(-1, WEEK).any(1)
    sums = np.concatenate([[0.0], np.cumsum(by_day - budget)])
    beyond = sums - np.minimum.accumulate(sums)
    curve = game.staleness(len(by_day) // 5)
    return {
        "day_0": float(by_day[0] / budget[0]),
        "worst_day": float(np.maximum(np.abs(off[~near]) - slack[~near], 0).max()),
        "worst_near": float(np.maximum(np.abs(off[near]) - slack[near], 0).max(initial=0)),
        "worst_week": float(np.abs(of_weeks[calm]).max()),
        "days_of_loan": float(beyond.max() / budget.max()),
        "most_in_a_day": float((by_day / budget).max()),
        "used": float(by_day.sum() / budget.sum()),
        "staleness": float(curve[len(curve) // 2 :].mean()),
        "staleness_early": float(curve[: len(curve) // 2].mean()),
    }
