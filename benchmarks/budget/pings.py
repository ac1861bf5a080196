"""Run `python -m benchmarks.budget.pings`: floods of false pings, and bursts of honest ones.

Each trial is a fleet of Recrawl's own use cases on the store in memory. The pace gives the fleet
`PER_PAGE` crawls a day for each page, in the order of a lease. What is left over goes to pages that
are not due yet. Half of the pages ping at 80 % of their changes, and once more for each of these
pings. From day 40 on:

- `false`: these pages ping ten times as often, and all further pings are false.
- `honest`: instead, the pages of three hosts ping at 95 % of their changes. Those of one host
  change, and ping, ten times as often for a day.

The staleness is the mean harmonic one. Its error is the standard error over the seeds.
"""

import argparse
import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import structlog

from recrawl_lab.policies.lineup import DEFAULT_PLAN
from recrawl_lab.replay.replay import EVERYTHING, LocalFleet, instants_of
from recrawl_lab.replay.staleness import Crawls, averaged, merged, uncrawled
from recrawl_lab.worlds.simulated_time import Clock
from recrawl_lab.worlds.world import World, in_order, offsets
from service.core import pace
from service.leases.dealt import how_overdue
from service.leases.due import comes_first, due_at, requested
from service.model.arrays import Bools, Floats, Ints
from service.model.domain import ScheduleFilter

PER_PAGE = 0.2
"""Crawls a day for each page."""
DAYS, FROM = 80.0, 40.0
"""Length of a trial, and the begin of its disturbance, days."""
EPOCH_EVERY, ASKS_EVERY = 0.25, 0.0625
"""Time between epochs, and between two requests of the fleet for crawls, days."""
LEAST_WAITED = 0.1
"""Minimum share of its interval that a page has waited before it is brought forward."""
TIMES = 10.0
"""Factor of the disturbance."""
MEDIAN_RATE, SPREAD = 0.3, 1.2
"""Median change rate, 1/day, and deviation of its logarithm."""
N_HOSTS, N_HONEST = 10, 3
"""Number of hosts, and of those that ping in the trial `honest`."""


class Trial(NamedTuple):
    """A world, its pings, and the pages that are measured."""

    world: World
    notices: Crawls
    measured: Bools


def made_world(page: Ints, at: Floats, host: Ints, days: float) -> World:
    """Return a world of equally important pages with these changes."""
    n = len(host)
    counts = np.bincount(page, minlength=n)
    return World(
        name="budget",
        days=days,
        url=tuple(f"https://h{h}.example/d{i % 5}/p{i}" for i, h in enumerate(host.tolist())),
        importance=np.ones(n),
        announced=np.zeros(n, np.bool_),
        created=np.zeros(n),
        ended=np.full(n, days),
        changed_at=in_order(page, at),
        first=offsets(counts),
        change_rate=counts / days,
    )


def drawn(rate: Floats, begin: float, end: float, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Return pages and instants of Poisson events."""
    page = np.repeat(np.arange(len(rate)), rng.poisson(rate * (end - begin)))
    return page, begin + (end - begin) * (1.0 - rng.random(len(page)))


def false_pings(
    n: int, seed: int, times: float = TIMES, days: float = DAYS, begin: float = FROM
) -> Trial:
    """Return the trial `false`; `times` 1 is without the flood, 0 without any pings."""
    rng = np.random.default_rng(seed)
    rate, host = rng.lognormal(np.log(MEDIAN_RATE), SPREAD, n), np.arange(n) % N_HOSTS
    page, at = drawn(rate, 0.0, days, rng)
    world = made_world(page, at, host, days)
    pinging = rng.random(n) < 0.5
    true = pinging[page] & (rng.random(len(page)) < 0.8)
    more = 0.8 * np.where(pinging, rate, 0.0)
    # before the flood, one false ping for each true one
    before = drawn(more, 0.0, begin, rng)
    flood = drawn(more * max(2 * times - 1, 0.0), begin, days, rng)
    parts = (page[true], at[true]), before, flood
    pings = merged(*(Crawls(*part) for part in parts)) if times else Crawls.none()
    return Trial(world, _arrived(pings, days), np.ones(n, np.bool_))


def honest_burst(
    n: int, seed: int, times: float = TIMES, days: float = DAYS, begin: float = FROM
) -> Trial:
    """Return the trial `honest`; the pages of the host with the burst are measured."""
    rng = np.random.default_rng(seed)
    rate, host = rng.lognormal(np.log(MEDIAN_RATE), SPREAD, n), np.arange(n) % N_HOSTS
    usual = drawn(rate, 0.0, days, rng)
    bursting = host == 0
    burst = drawn(np.where(bursting, rate * (times - 1), 0.0), begin, begin + 1, rng)
    page, at = (np.concatenate(part) for part in zip(usual, burst, strict=True))
    world = made_world(page, at, host, days)
    told = (host < N_HONEST)[page] & (rng.random(len(page)) < 0.95)
    return Trial(world, _arrived(Crawls(page[told], at[told]), days), bursting)


def _arrived(pings: Crawls, days: float) -> Crawls:
    """Return pings in the order of their arrival, a moment after the change."""
    order = np.argsort(pings.at, kind="stable")
    at = np.minimum(pings.at[order] + 1e-4, days - 1e-6)
    return Crawls(pings.page[order], at)


class GatedFleet(LocalFleet):
    """A fleet whose crawls the pace gives out."""

    def __init__(self, world: World, clock: Clock, seed: int) -> None:
        budget = PER_PAGE * len(world)
        super().__init__(world, clock, replace(DEFAULT_PLAN, bandwidth=budget), seed)
        self.budget = budget
        self.pace = pace.Pace.starting(budget, 0.0)
        self.n_requested = 0
        self._rng = np.random.default_rng(seed + 77)

    def take(self, at: float) -> Crawls:
        """Return the crawls that the pace gives out at an instant, and take them from it."""
        self.pace = pace.advanced(self.pace, at, self.budget)
        room = pace.room(self.pace)
        with self.store.begin(write=False) as tx:
            pages = tx.schedule(tx.number_in_force(), 0, EVERYTHING, ScheduleFilter()).pages
        now = instants_of(np.array([at]))[0]
        due, asked = due_at(pages) <= now, requested(pages) & (pages.requested_at <= now)
        overdue = np.where(comes_first(pages), np.inf, how_overdue(pages, now))
        order = np.lexsort((pages.page_id, -overdue, ~due))
        order = order[due[order] | (overdue[order] >= LEAST_WAITED)]
        n_due = min(int(due.sum()), int(room.due))
        n_all = max(n_due, min(len(order), int(room.ahead)))
        picked = order[: n_due if n_due < due.sum() else n_all]
        self.pace = pace.taken(self.pace, pace.TakenAmounts(float(len(picked))))
        self.n_requested += int(asked[picked].sum())
        page = self._page[pages.page_id[picked]]
        return Crawls(page, np.full(len(page), at))


def crawls_of(trial: Trial, seed: int) -> tuple[Crawls, int]:
    """Return all crawls of a trial, and how many pings requested."""
    clock = Clock()
    fleet = GatedFleet(trial.world, clock, seed)
    fleet.discover(np.arange(len(trial.world)))
    done, known = [Crawls.none()], 0
    every = round(EPOCH_EVERY / ASKS_EVERY)
    for k in range(round(DAYS / ASKS_EVERY)):
        if k % every == 0:
            fleet.new_epoch()
        end = (k + 1) * ASKS_EVERY
        clock.advance(end)
        until = int(np.searchsorted(trial.notices.at, end, side="right"))
        fleet.announce(Crawls(*(column[known:until] for column in trial.notices)))
        known = until
        done.append(fleet.crawl(fleet.take(end - 1e-6)))
    return merged(*done), fleet.n_requested


def stale_by_day(trial: Trial, crawls: Crawls) -> Floats:
    """Return the mean staleness of the measured pages by day."""
    world, chosen = trial.world, np.flatnonzero(trial.measured)
    number = np.full(len(world), -1)
    number[chosen] = np.arange(len(chosen))
    page = world.changed_page
    kept, seen = trial.measured[page], trial.measured[crawls.page]
    host = np.zeros(len(chosen), np.int64)
    part = made_world(number[page[kept]], world.changed_at[kept], host, world.days)
    own = Crawls(number[crawls.page[seen]], crawls.at[seen])
    return averaged(part, uncrawled(part, own), round(world.days)).harmonic_curve


TRIALS = {
    "none": lambda n, seed: false_pings(n, seed, 0.0),
    "steady": lambda n, seed: false_pings(n, seed, 1.0),
    "false": false_pings,
    "honest": honest_burst,
}
SPANS = {
    "20-40": (20, 40),
    "40-45": (40, 45),
    "45-50": (45, 50),
    "50-60": (50, 60),
    "60-80": (60, 80),
    "40": (40, 41),
    "41": (41, 42),
}
"""Days whose staleness is shown."""


def rows(names: list[str], n: int, seeds: int) -> Iterator[dict[str, object]]:
    """Play trials and yield their staleness, with its error, by span of days."""
    for name in names:
        curves, used = [], []
        for seed in range(1, seeds + 1):
            trial = TRIALS[name](n, seed)
            crawls, n_requested = crawls_of(trial, seed)
            curves.append(stale_by_day(trial, crawls))
            used.append((len(crawls.at) / (DAYS * PER_PAGE * n), n_requested / len(crawls.at)))
        spans = np.array([[curve[a:b].mean() for a, b in SPANS.values()] for curve in curves])
        error = spans.std(0, ddof=1) / np.sqrt(seeds) if seeds > 1 else np.full(len(SPANS), np.nan)
        cells = zip(SPANS, spans.mean(0).round(3).tolist(), error.round(3).tolist(), strict=True)
        yield {
            "trial": name,
            **{span: [mean, deviation] for span, mean, deviation in cells},
            "used": round(float(np.mean(used, 0)[0]), 4),
            "by_ping": round(float(np.mean(used, 0)[1]), 3),
        }


def main() -> None:
    """Print a line of JSON for each trial."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", nargs="+", choices=TRIALS, default=list(TRIALS))
    parser.add_argument("--pages", type=int, default=800)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    for row in rows(args.trials, args.pages, args.seeds):
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
