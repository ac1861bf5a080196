"""The work of `recrawl replay`: read or generate a site, play policies, write a report.

The command imports this module only when it runs, so that `--help` loads no numpy.
"""

import os
import shlex
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import typer
from msgspec import json
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from recrawl_lab.policies.lineup import (
    DEFAULT_PLAN,
    LEFT_OUT,
    LINEUP,
    LOGGED,
    Game,
    chosen,
    suitable_step,
)
from recrawl_lab.replay.comparison import Comparison, PolicyMeasures
from recrawl_lab.replay.contest import contest
from recrawl_lab.replay.freshness import study, summary, table
from recrawl_lab.reports.page import page
from recrawl_lab.reports.results import Circumstances, document, write
from recrawl_lab.reports.summary import show
from recrawl_lab.worlds.crawl_log import read_crawl_log
from recrawl_lab.worlds.git_history import read_git
from recrawl_lab.worlds.hourly import Kind, hourly_world
from recrawl_lab.worlds.pings import PingSource, announced
from recrawl_lab.worlds.recording import Recording, Weighting, recorded_world, window
from recrawl_lab.worlds.service_log import read_service_log
from recrawl_lab.worlds.simulated_time import START
from recrawl_lab.worlds.trace import read_trace
from recrawl_lab.worlds.world import World, synthetic_world
from service.cli.file_steps import opened_store
from service.cli.options import console, heed_sigterm
from service.model.calendars import ALWAYS, HourRules, never_open
from service.model.errors import InvalidField
from service.model.windows import WINDOWS, checked, parts_of
from service.runtime.bootstrap import configure_logging

__all__ = ["PingSource", "Source", "print_policies", "run"]

SYNTHETIC_DAYS = 60.0
"""Default length of a synthetic site, days."""
MADE_UP, RECORDED = 0.2, 0.02
"""Default bandwidth of synthetic and of other sites, crawls a page and day."""
OUTAGE_STREAM = 11
"""Number of the stream of random numbers that draws outages."""
MAX_PAGE_DAYS = 100_000_000
"""Maximum page-days of a synthetic site, with up to one change a page and day."""
MAX_CRAWLS = 50_000_000
"""Maximum crawls of a policy; memory holds all crawls with their predictions."""
MAX_EPOCHS = 100_000
"""Maximum epochs, nearly three centuries of days; a longer log contains a wrong instant."""


@dataclass(frozen=True, slots=True)
class Source:
    """Site to play: one of `trace`, `crawl_log`, `git` and `database`, otherwise synthetic."""

    trace: Path | None
    crawl_log: Path | None
    git: Path | None
    database: str | None
    """Address of a service's database."""
    rules: list[str] | None
    pages: int
    """Number of pages of a synthetic site."""
    change_hours: Kind | None
    """Kind of a synthetic site with change hours; None: it changes at random."""
    days: float | None
    importance: Weighting | None
    bulk: bool
    outages: bool = False
    """True if the site is away for an hour a week."""
    windows: str | None = None
    """Windows of the site, with semicolons between them; None: it is always open."""

    def world(self, rng: np.random.Generator) -> World:
        """Return the site with its changes; raise `BadParameter` for contradictory options."""
        self._check()
        recording = self._recording(rng)
        if recording is None:
            return self._made_up(rng)
        return recorded_world(
            recording,
            rng=rng,
            days=self.days or float("inf"),
            importance=self.importance or "equal",
            bulk=self.bulk,
        )

    @property
    def made_up(self) -> bool:
        """Return whether the site is synthetic."""
        return not any(self._recorded())

    def hours(self) -> HourRules:
        """Return when the site may be crawled; raise `BadParameter` for wrong windows."""
        if self.windows is None:
            return ALWAYS
        try:
            rules = HourRules(checked(WINDOWS, parts_of(self.windows), "--windows") or None)
        except InvalidField as error:
            raise typer.BadParameter(error.detail) from None
        if reason := never_open(rules, START):
            raise typer.BadParameter(f"--windows: {reason}")
        return rules

    def _recorded(self) -> tuple[Path | str | None, ...]:
        return self.trace, self.crawl_log, self.git, self.database

    def _check(self) -> None:
        if sum(source is not None for source in self._recorded()) > 1:
            raise typer.BadParameter(
                "--trace, --crawl-log, --git and --database exclude each other; use only one"
            )
        if self.change_hours is not None and not self.made_up:
            raise typer.BadParameter(
                "--change-hours makes up a site; leave out --trace, --crawl-log, --git and "
                "--database"
            )
        if (self.git is None) != (not self.rules):
            raise typer.BadParameter(
                r"--git and --map belong together: --git PATH --map 'docs/(.*)\.md=/\1/'"
            )

    def _recording(self, rng: np.random.Generator) -> Recording | None:
        weighted = self.importance == "column"
        if self.trace is not None:
            return read_trace(self.trace, weighted=weighted)
        if self.crawl_log is not None:
            return read_crawl_log(self.crawl_log, rng=rng, weighted=weighted)
        if self.git is not None and self.rules:
            return read_git(self.git, self.rules)
        if self.database is not None:
            with opened_store(self.database, existing=True) as base:
                return read_service_log(base.store, rng=rng)
        return None

    def _made_up(self, rng: np.random.Generator) -> World:
        if self.importance == "column":
            raise typer.BadParameter(
                "--importance column needs --crawl-log or --database; a synthetic site has no "
                "such column"
            )
        days, weighting = self.days or SYNTHETIC_DAYS, self.importance or "lognormal"
        if self.pages * days > MAX_PAGE_DAYS:
            raise typer.BadParameter(
                f"{self.pages:,} pages over {days:,.0f} days are more than the {MAX_PAGE_DAYS:,} "
                "page-days that fit in memory; choose fewer --pages or --days"
            )
        if self.change_hours is not None:
            return hourly_world(self.change_hours, self.pages, days, rng=rng, importance=weighting)
        return synthetic_world(self.pages, days, rng=rng, importance=weighting, complete_share=0.0)


def print_policies() -> None:
    """Print the names of all policies, and the reasons why some cannot be played."""
    for entrant in LINEUP.values():
        typer.echo(f"{entrant.name:32} {entrant.description}")
    for name, reason in LEFT_OUT.items():
        typer.echo(f"{name:32} not played: {reason}")


def run(
    source: Source,
    notices: PingSource,
    bandwidth: float | None,
    bandwidth_per_page: float | None,
    step: float | None,
    policies: str,
    seed: int,
    processes: int | None,
    out: Path,
) -> None:
    """Play the policies on a site, print the table and write the report to a folder."""
    heed_sigterm()
    names = chosen(policies)
    if source.database is not None:
        names = tuple(dict.fromkeys((LOGGED, *names)))
    elif LOGGED in names:
        raise typer.BadParameter(f"{LOGGED!r} plays the crawls of a log: add --database")
    game, description = _game(source, notices, bandwidth, bandwidth_per_page, step, seed)
    out.mkdir(parents=True, exist_ok=True)
    outcomes = _play(game, names, processes or min(len(names), os.cpu_count() or 1))
    _report(Comparison(game, outcomes), description, out)


def judge(
    source: Source,
    notices: PingSource,
    bandwidth: float | None,
    bandwidth_per_page: float | None,
    step: float | None,
    seed: int,
    out: Path,
) -> None:
    """Compare verdicts about copies with maximum ages, and write the figures to a folder."""
    for name, value in (("--outages", source.outages), ("--windows", source.windows)):
        if value:
            raise typer.BadParameter(
                f"--freshness asks about copies of a site without {name}; leave one out"
            )
    heed_sigterm()
    game, _ = _game(source, notices, bandwidth, bandwidth_per_page, step, seed)
    configure_logging("warning")
    result = study(
        game.world,
        game.bandwidth,
        DEFAULT_PLAN,
        step=game.step or 1.0,
        notices=game.notices,
        seed=seed,
    )
    out.mkdir(parents=True, exist_ok=True)
    path = out / "freshness.json"
    path.write_bytes(json.encode({"command": _command(), **summary(result)}))
    for line in table(result):
        typer.echo(line)
    console.print(f"{path}", highlight=False, soft_wrap=True)


def _game(
    source: Source,
    notices: PingSource,
    bandwidth: float | None,
    bandwidth_per_page: float | None,
    step: float | None,
    seed: int,
) -> tuple[Game, str]:
    """Return the game of the options, and a description of its change notices."""
    if bandwidth is not None and bandwidth_per_page is not None:
        raise typer.BadParameter(
            "--bandwidth and --bandwidth-per-page exclude each other; use only one"
        )
    hours = source.hours()
    rng = np.random.default_rng(seed)
    world, crawls, description = announced(source.world(rng), notices, rng)
    if source.outages:
        # numbers of their own, so that the pages are those of the replay without outages
        world = world.with_outages(np.random.default_rng([seed, OUTAGE_STREAM]))
    per_page = bandwidth_per_page or (MADE_UP if source.made_up else RECORDED)
    budget = bandwidth or per_page * world.mean_pages
    if len(world.logged_at) and bandwidth is None and bandwidth_per_page is None:
        budget = len(world.logged_at) / world.days
    _refuse_many_crawls(world, budget)
    step = step or suitable_step(world, budget)
    _refuse_many_epochs(world, step)
    return Game(world, budget, step, crawls, seed, hours.windows or ()), description


def _refuse_many_crawls(world: World, bandwidth: float) -> None:
    n_crawls = bandwidth * world.days
    if n_crawls > MAX_CRAWLS:
        raise typer.BadParameter(
            f"{n_crawls:,.0f} crawls in {window(world.days)} are more than the {MAX_CRAWLS:,} "
            "that fit in memory; choose less --bandwidth or fewer --days"
        )


def _refuse_many_epochs(world: World, step: float) -> None:
    n_epochs = world.days / step
    if n_epochs > MAX_EPOCHS:
        raise typer.BadParameter(
            f"{window(world.days)} are {n_epochs:,.0f} epochs, more than the {MAX_EPOCHS:,} "
            "allowed; check the instants for errors, or choose fewer --days or a longer "
            "--step"
        )


def _play(game: Game, names: tuple[str, ...], processes: int) -> list[PolicyMeasures]:
    """Play every policy, with a progress bar for each, and return the outcomes."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("day {task.completed:,.0f}/{task.total:,.0f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bars = {name: progress.add_task(name, total=game.world.days, start=False) for name in names}

        def show_day(name: str, day: float) -> None:
            progress.start_task(bars[name])
            progress.update(bars[name], completed=day)

        prepare = partial(configure_logging, "warning")
        return contest(game, names, show_day, processes=processes, prepare=prepare)


def _report(comparison: Comparison, notices: str, out: Path) -> None:
    """Write the files of a comparison and print its table."""
    results = document(comparison, Circumstances(_command(), notices))
    files = write(results, out)
    report = out / "report.html"
    report.write_text(page(results), encoding="utf-8")
    show(results, Console())
    names = ", ".join(path.name for path in (report, *files))
    console.print(f"{out}: {names}", highlight=False, soft_wrap=True)


def _command() -> str:
    words = [os.fsencode(word).decode("utf-8", "backslashreplace") for word in sys.argv[1:]]
    return shlex.join(["recrawl", *words])
