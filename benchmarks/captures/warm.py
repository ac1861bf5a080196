"""A fleet that begins with captures of the days before, against one that begins with nothing.

An archive crawls each page at a fixed rate in the first days of a recorded site. The captures are
written as CDXJ and imported by the product's own import. Then both fleets crawl the same pages
through the gate, which keeps the same budget on each day. First crawls are free.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from recrawl_lab.policies.lineup import DEFAULT_PLAN, suitable_step
from recrawl_lab.replay.gated import Gate, GatedFleet, play_gated
from recrawl_lab.replay.staleness import Crawls, staleness
from recrawl_lab.worlds.recording import recorded_world
from recrawl_lab.worlds.simulated_time import START, Clock
from recrawl_lab.worlds.trace import read_trace
from recrawl_lab.worlds.versions import Versions
from recrawl_lab.worlds.world import World, offsets
from service.model.arrays import Ints
from service.model.urls import normalise
from service.transfer.capture_import import Teaching, import_captures

WORLD_SEED = 1
"""Seed of the instants within the days of a trace."""
Line = dict[str, Any]


class WarmFleet(GatedFleet):
    """A fleet that imports a file of captures before it discovers the first pages."""

    file: Path | None = None

    @override
    def discover(self, pages: Ints) -> None:
        if self.file is not None:
            teaching = Teaching(self.store, self.rules, self.clock, have_copies=False)
            for _ in import_captures({self.file: "cdxj"}, self.clock(), teaching):
                pass
            self.file = None
        super().discover(pages)


def since(world: World, day: float) -> World:
    """Return the world from a day on, with the pages that exist then or later."""
    alive = world.ended > day
    later = (world.changed_at > day) & alive[world.changed_page]
    counts = np.bincount(world.changed_page[later], minlength=len(world))[alive]
    return replace(
        world,
        days=world.days - day,
        url=tuple(url for url, lives in zip(world.url, alive.tolist(), strict=True) if lives),
        importance=world.importance[alive],
        announced=world.announced[alive],
        created=np.maximum(world.created[alive] - day, 0.0),
        ended=world.ended[alive] - day,
        changed_at=world.changed_at[later] - day,
        first=offsets(counts),
        change_rate=world.change_rate[alive],
    )


def until(world: World, day: float) -> World:
    """Return the world up to a day, with the pages that exist before it."""
    born = world.created < day
    kept = (world.changed_at <= day) & born[world.changed_page]
    counts = np.bincount(world.changed_page[kept], minlength=len(world))[born]
    return replace(
        world,
        days=day,
        url=tuple(url for url, here in zip(world.url, born.tolist(), strict=True) if here),
        importance=world.importance[born],
        announced=world.announced[born],
        created=world.created[born],
        ended=np.minimum(world.ended[born], day),
        changed_at=world.changed_at[kept],
        first=offsets(counts),
        change_rate=world.change_rate[born],
    )


def archive(world: World, days: float, rate: float, rng: np.random.Generator) -> Crawls:
    """Return the captures of the pages that live on after `days`, at a steady rate a page."""
    alive = np.flatnonzero((world.created < days) & (world.ended > days))
    n = int(np.ceil(days * rate))
    page = np.repeat(alive, n)
    at = (np.tile(np.arange(n), len(alive)) + np.repeat(rng.random(len(alive)), n)) / rate
    exists = (at >= world.created[page]) & (at < days)
    return Crawls(page[exists], at[exists])


def write_cdxj(path: Path, world: World, captures: Crawls, days: float) -> None:
    """Write captures of the days before `START` in the order of their URLs."""
    version = Versions(world).at(*captures)
    with path.open("w", encoding="utf-8") as file:
        for page, at, digest in zip(*map(np.ndarray.tolist, (*captures, version)), strict=True):
            moment = START + timedelta(days=at - days)
            item = {"url": world.url[page], "status": "200", "digest": f"V{digest}"}
            file.write(f"page{page} {moment:%Y%m%d%H%M%S} {json.dumps(item)}\n")


def played(world: World, bandwidth: float, seed: int, file: Path | None) -> Crawls:
    """Return the crawls of a fleet, with a file of captures or without; each day has the budget."""
    clock, step = Clock(), suitable_step(world, bandwidth)
    gate = Gate(budget=lambda _: bandwidth, first_share=0.0)
    plan = replace(DEFAULT_PLAN, bandwidth=bandwidth)
    fleet = WarmFleet(world, clock, plan, seed, gate)
    fleet.file = file
    return play_gated(fleet, clock, step=step).crawls


class Trial(NamedTuple):
    """Times of a trial, days, and its rates, 1/day for each page."""

    known: float = 90.0
    """Time that the archive has crawled."""
    days: float = 30.0
    """Time that is played."""
    rate: float = 0.1
    """Crawls of a fleet."""
    archive_rate: float = 0.1
    """Captures of the archive."""


def site_lines(
    traces: Path,
    sites: Sequence[str],
    seeds: Sequence[int],
    ends: Sequence[int],
    trial: Trial,
    *,
    bulk: bool,
) -> Iterator[Line]:
    """Yield a line for each site, seed and end of a month, in days before that of the recording."""
    for site in sites:
        recording = read_trace(str(traces / site))
        for end in ends:
            rng, days = np.random.default_rng(WORLD_SEED), trial.known + trial.days
            whole = recorded_world(recording, rng=rng, days=days + end, bulk=bulk)
            whole = until(whole, days)
            # a fleet in this process takes URLs as they are, the import their normal form
            whole = replace(whole, url=tuple(normalise(url).url for url in whole.url))
            for seed in seeds:
                yield {"site": site, "end": end, "seed": seed, **line_of(whole, trial, seed)}


def line_of(whole: World, trial: Trial, seed: int) -> Line:
    """Return the staleness of a fleet with captures, and of one without."""
    world = since(whole, trial.known)
    bandwidth = trial.rate * world.mean_pages
    captures = archive(whole, trial.known, trial.archive_rate, np.random.default_rng(seed))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "captures.cdxj"
        write_cdxj(file, whole, captures, trial.known)
        cold, warm = (played(world, bandwidth, seed, each) for each in (None, file))
    before, after = (staleness(world, crawls).harmonic for crawls in (cold, warm))
    return {
        "pages": len(world),
        "captures": len(captures.page),
        "crawls": len(cold.page),
        "of_crawls": len(warm.page) / len(cold.page),
        "cold": before,
        "warm": after,
        "ratio": after / before,
    }
