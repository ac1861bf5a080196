"""Real pages of a running service while 5,000 URLs come beside them: how stale they become.

The worlds are those of `benchmarks.budget.trials`. Two workers crawl 1,000 pages with 200 crawls a
day. Some days later the others come at once. The same world without them is the comparison.
"""

import shutil
from datetime import timedelta

import numpy as np
import pytest
from support.budget_cases import Fleet, service

from benchmarks.budget.game import part_of
from benchmarks.budget.optimum import least_staleness
from benchmarks.budget.trials import good_new, junk
from recrawl_lab.replay.staleness import Crawls, averaged, uncrawled
from recrawl_lab.worlds.versions import Versions

N, N_NEW, A_DAY = 1_000, 5_000, 200
BEGIN = 8.0
"""Day on which the others come; until then change rates are learnt."""
ASKS = 4
"""Requests of the fleet for crawls, and epochs, a day."""
A_MOMENT = 1e-6
"""Time before the end of a step at which the fleet asks, days."""
MOST = {"directory": 1.05, "among": 1.05, "directories": 1.05, "hosts": 1.08}
"""Maximum staleness of real pages in any five days beside junk, over that without it."""
SEEDS = {"sqlite": (1, 2, 3), "postgresql": (1,)}
"""Seeds of the worlds, by kind of database; the bounds are those of the means."""
AT_ONCE = 1_000
"""URLs in one request."""


class World(Fleet):
    """Two workers on the pages of a trial, some of which come later."""

    def __init__(self, live, trial):
        super().__init__(live)
        self.trial, self.world = trial, trial.world
        self.versions, self.start = Versions(trial.world), live.clock()
        self.page_of, self.made, self.first_of = {}, [], {}
        """Page by id, page and day of each crawl, and day of each page's first one."""
        known = np.flatnonzero(self.world.created == 0).tolist()
        ids = self.register(known)
        # copies of several ages, so that some pages are due from the first day on
        report = [
            {
                "page_id": one,
                "observed_at": (self.start - timedelta(days=1 + n % 7)).isoformat(),
                "digest": f"{page} 0",
            }
            for n, (one, page) in enumerate(zip(ids, known, strict=True))
        ]
        assert live.post("/observations", report).json()["accepted"] == len(ids)

    @property
    def day(self):
        """Days since the start of the trial."""
        return (self.live.clock() - self.start) / timedelta(days=1)

    def register(self, pages):
        ids = []
        for begin in range(0, len(pages), AT_ONCE):
            some = pages[begin : begin + AT_ONCE]
            ids += self.live.register(*(self.world.url[page] for page in some))
        self.page_of |= dict(zip(ids, pages, strict=True))
        return ids

    def crawl(self, items):
        super().crawl(items)
        day, at = self.day, self.live.clock().isoformat()
        pages = [self.page_of[each["page_id"]] for each in items]
        self.made += [(page, day) for page in pages]
        for page in pages:
            self.first_of.setdefault(page, day)
        version = self.versions.at(np.array(pages), np.full(len(pages), day)).tolist()
        is_junk = np.zeros(len(self.world), bool) if self.trial.junk is None else self.trial.junk
        return [
            {
                "lease": each["lease"],
                "observed_at": at,
                "digest": "junk" if is_junk[page] else f"{page} {n}",
            }
            for each, page, n in zip(items, pages, version, strict=True)
        ]

    def play_trial(self, days):
        """Play some days, and return the staleness of the real pages on each."""
        later = np.flatnonzero(self.world.created > 0).tolist()
        for step in range(round(days * ASKS)):
            self.live.clock.now = self.start + timedelta(days=step / ASKS)
            if step == BEGIN * ASKS:
                self.register(later)
            self.live.service.runner.run_once()
            self.live.clock.now = self.start + timedelta(days=(step + 1) / ASKS - A_MOMENT)
            self.ask()
        page, at = zip(*self.made, strict=True)
        world, crawls = part_of(self.world, Crawls(np.array(page), np.array(at)), self.real)
        return averaged(world, uncrawled(world, crawls), round(self.world.days)).harmonic_curve

    @property
    def real(self):
        return np.arange(len(self.world)) < N

    def first_by_day(self):
        """Return the first crawls of pages that came later, by the day after that."""
        day = [day - BEGIN for page, day in self.first_of.items() if page >= N]
        return np.bincount(np.array(day, int), minlength=2)


@pytest.fixture
def databases(request, tmp_path, database_url):
    """A function that returns an empty database at each call, of the kind of `database_url`."""
    if database_url.startswith("sqlite"):
        names = (tmp_path / f"{n}.db" for n in range(20))
        template = request.getfixturevalue("sqlite_template")
        return lambda: f"sqlite:///{shutil.copy(template, next(names))}"

    def emptied():
        request.getfixturevalue("postgres_clone").empty()
        return database_url

    return emptied


def played(database_url, trial, days, **options):
    """Return the fleet of a trial, and the staleness of real pages by day from `BEGIN` on."""
    with service(database_url, bandwidth=A_DAY, admission="learned", **options) as live:
        fleet = World(live, trial)
        curve = fleet.play_trial(days)
    assert max(fleet.days()) <= A_DAY + 1
    return fleet, curve[round(BEGIN) : round(days)]


@pytest.fixture(scope="module")
def alone():
    """Staleness of real pages without junk, by kind of database and seed."""
    return {}


@pytest.mark.slow
@pytest.mark.parametrize("place", MOST)
def test_real_pages_lose_nearly_nothing_to_junk(databases, alone, place):
    ratios = []
    kind = databases().partition(":")[0]
    for seed in SEEDS[kind]:
        if (kind, seed) not in alone:
            trial = junk(N, seed, 0, begin=BEGIN)
            _, alone[kind, seed] = played(databases(), trial, BEGIN + 30)
        fleet, beside = played(databases(), junk(N, seed, N_NEW, place, BEGIN), BEGIN + 30)
        first = fleet.first_by_day()
        assert first[0] <= (150 if place == "hosts" else 40)
        assert first[1:].max() <= 0.01 * A_DAY
        ratios.append([beside, alone[kind, seed]])
    of_days, without = np.mean(ratios, axis=0)
    fives = [of_days[d : d + 5].mean() / without[d : d + 5].mean() for d in range(26)]
    assert max(fives) <= MOST[place]
    assert of_days.mean() <= 1.02 * without.mean()


@pytest.mark.slow
def test_good_pages_leave_real_ones_what_the_share_of_refreshes_can_do(databases):
    share = 0.5
    trial = good_new(N, 1, N_NEW, begin=BEGIN)
    days = 1.1 * N_NEW / (share * A_DAY)
    fleet, curve = played(databases(), trial, BEGIN + days, first_share=share)
    first = fleet.first_by_day()
    assert first.sum() == N_NEW
    assert first.max() <= share * A_DAY + 1
    rate = trial.world.change_rate
    have_copy = np.linspace(0, N_NEW, 11).astype(int)
    least = [
        least_staleness(rate[: N + k], (1 - share) * A_DAY)[:N].mean() for k in have_copy.tolist()
    ]
    assert curve[: round(N_NEW / (share * A_DAY))].mean() <= 1.05 * np.mean(least)
