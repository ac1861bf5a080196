"""`recrawl replay`: what Recrawl would have done for a site."""

import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from service.cli.parts import console, finite, heed_sigterm

if TYPE_CHECKING:
    import numpy as np

    from service.sim.comparison import Outcome
    from service.sim.lineup import Game
    from service.sim.world import World

Importance = Literal["equal", "lognormal", "column"]
Pings = Literal["none", "true", "delayed", "noisy", "sitemap", "lying-sitemap"]

SYNTHETIC_DAYS = 60.0
MOST_PAGE_DAYS = 100_000_000
"""Of a made-up site: its changes, on average 0.6 a page and day, are held in memory."""
MOST_CRAWLS = 50_000_000
"""All crawls of a policy are held in memory, with what was predicted of each."""
MOST_EPOCHS = 100_000
"""Nearly three centuries of days: a log that goes on for longer has an instant that is wrong."""

SOURCE, BUDGET, NOTICES, PLAY = "What is played", "Bandwidth", "Change notices", "How"


def replay(
    trace: Annotated[
        Path | None,
        typer.Option(
            help="DIR/SITE of recorded changes (DIR/SITE.csv.gz, DIR/pages/SITE.pages.csv.gz)",
            rich_help_panel=SOURCE,
        ),
    ] = None,
    crawl_log: Annotated[
        Path | None,
        typer.Option(
            help="CSV of a crawler: url, t and changed or digest; status, importance",
            rich_help_panel=SOURCE,
        ),
    ] = None,
    git: Annotated[
        Path | None,
        typer.Option(help="Clone of the git repository of the site's sources",
                     rich_help_panel=SOURCE),
    ] = None,
    rules: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="REGEX=/PAGE", rich_help_panel=SOURCE,
                     help=r"Which file is which page, e.g. `docs/(.*)\.md=/\1/`; may be repeated"),
    ] = None,
    pages: Annotated[
        int, typer.Option(min=2, help="Pages of a made-up site", rich_help_panel=SOURCE)
    ] = 2_000,
    days: Annotated[
        float | None,
        typer.Option(callback=finite, min=1, rich_help_panel=SOURCE,
                     help="The last so many days; default all, 60 of a made-up site"),
    ] = None,
    importance: Annotated[
        Importance | None,
        typer.Option(help="Of pages; default equal, lognormal for a made-up site",
                     rich_help_panel=SOURCE),
    ] = None,
    bulk: Annotated[
        bool,
        typer.Option("--bulk/--no-bulk", rich_help_panel=SOURCE,
                     help="Count revisions that touched over 200 pages at once"),
    ] = False,
    bandwidth: Annotated[
        float | None,
        typer.Option(callback=finite, min=1e-6, rich_help_panel=BUDGET,
                     help="Crawls a day over all pages"),
    ] = None,
    bandwidth_per_page: Annotated[
        float | None,
        typer.Option(callback=finite, min=1e-6, rich_help_panel=BUDGET,
                     help="Crawls a day for each page; default 0.02, 0.2 for a made-up site"),
    ] = None,
    pings: Annotated[
        Pings, typer.Option(help="Which notices Recrawl hears", rich_help_panel=NOTICES)
    ] = "none",
    ping_share: Annotated[
        float,
        typer.Option(callback=finite, min=0, max=1, help="Share of the pages that send them",
                     rich_help_panel=NOTICES),
    ] = 1.0,
    ping_delay: Annotated[
        float,
        typer.Option(callback=finite, min=0, help="delayed: mean days", rich_help_panel=NOTICES),
    ] = 1.0,
    ping_recall: Annotated[
        float,
        typer.Option(callback=finite, min=0, max=1, help="noisy: share of the changes told",
                     rich_help_panel=NOTICES),
    ] = 0.8,
    ping_precision: Annotated[
        float,
        typer.Option(callback=finite, min=0.001, max=1, help="noisy: share of true notices",
                     rich_help_panel=NOTICES),
    ] = 0.8,
    sitemap_every: Annotated[
        float,
        typer.Option(callback=finite, min=0.01, help="sitemap: days between fetches",
                     rich_help_panel=NOTICES),
    ] = 1.0,
    policies: Annotated[
        str,
        typer.Option(help="default, all, or names with commas", rich_help_panel=PLAY),
    ] = "default",
    list_: Annotated[
        bool,
        typer.Option("--list", help="Say which policies there are, and stop",
                     rich_help_panel=PLAY),
    ] = False,
    step: Annotated[
        float | None,
        typer.Option(callback=finite, min=0.01, rich_help_panel=PLAY,
                     help="Days between epochs; default half a page's mean interval, up to 1"),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Of everything random", rich_help_panel=PLAY)
    ] = 1,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Policies played at a time; default one a core",
                     rich_help_panel=PLAY),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for report.html, JSON and CSV", rich_help_panel=PLAY)
    ] = Path("replay"),
) -> None:  # fmt: skip
    """Play the past again: find out what Recrawl would have done for a site.

    Reads when the pages of a site have changed, lets Recrawl and other policies crawl them with
    the same bandwidth, and compares how stale their copies were. Recrawl plays through the same
    code as the service; it knows only what its own crawls have seen by then.

    Prints a table and what it means, and writes --out/report.html, with figures, and all numbers
    as JSON and CSV. Without --trace, --crawl-log or --git a site is made up.
    """
    import numpy as np

    from service.sim.comparison import Comparison
    from service.sim.lineup import LEFT_OUT, LINEUP, Game, chosen, suitable_step
    from service.sim.pings import PingSource, announced
    from service.sim.report import page
    from service.sim.results import Circumstances, document, write
    from service.sim.summary import show

    heed_sigterm()
    if list_:
        for entrant in LINEUP.values():
            typer.echo(f"{entrant.name:32} {entrant.description}")
        for name, reason in LEFT_OUT.items():
            typer.echo(f"{name:32} not played: {reason}")
        return
    names = chosen(policies)
    if bandwidth is not None and bandwidth_per_page is not None:
        raise typer.BadParameter("give --bandwidth or --bandwidth-per-page, not both")
    rng = np.random.default_rng(seed)
    world = _world(trace, crawl_log, git, rules, pages, days, importance, bulk, rng)
    source = PingSource(pings, ping_share, ping_delay, ping_recall, ping_precision, sitemap_every)
    world, notices, described = announced(world, source, rng)
    made_up = world.name == "synthetic"
    per_page = bandwidth_per_page or (0.2 if made_up else 0.02)
    budget = bandwidth or per_page * world.mean_pages
    if budget * world.days > MOST_CRAWLS:
        raise typer.BadParameter(
            f"{budget * world.days:,.0f} crawls in {world.days:,.0f} days are more than the "
            f"{MOST_CRAWLS:,} that are held in memory; give less --bandwidth or fewer --days"
        )
    step = step or suitable_step(world, budget)
    if world.days / step > MOST_EPOCHS:
        raise typer.BadParameter(
            f"{world.days:,.0f} days are {world.days / step:,.0f} epochs, more than the "
            f"{MOST_EPOCHS:,} that are played; see that every instant is meant, or give fewer "
            "--days or a longer --step"
        )
    game = Game(world, budget, step, notices, seed)
    out.mkdir(parents=True, exist_ok=True)
    outcomes = _played(game, names, processes or min(len(names), os.cpu_count() or 1))
    found = Comparison(game, outcomes)
    words = [os.fsencode(word).decode("utf-8", "backslashreplace") for word in sys.argv[1:]]
    command = shlex.join(["recrawl", *words])
    made = document(found, Circumstances(command, described))
    written = write(made, out)
    report = out / "report.html"
    report.write_text(page(made), encoding="utf-8")
    show(made, Console())
    told = ", ".join(path.name for path in (report, *written))
    console.print(f"{out}: {told}", highlight=False, soft_wrap=True)


def _world(
    trace: Path | None, crawl_log: Path | None, git: Path | None, rules: list[str] | None,
    pages: int, days: float | None, importance: Importance | None, bulk: bool,
    rng: "np.random.Generator",
) -> "World":  # fmt: skip
    """Read the one source that is given, or make a site up."""
    from service.sim.crawl_log import read_crawl_log
    from service.sim.git_history import read_git
    from service.sim.recording import recorded_world
    from service.sim.trace import read_trace
    from service.sim.world import synthetic_world

    if sum(source is not None for source in (trace, crawl_log, git)) > 1:
        raise typer.BadParameter("give one of --trace, --crawl-log and --git")
    if (git is None) != (not rules):
        raise typer.BadParameter(
            r"--git and --map belong together: --git PATH --map 'docs/(.*)\.md=/\1/'"
        )
    weighted = importance == "column"
    if trace is not None:
        recording = read_trace(trace, weighted=weighted)
    elif crawl_log is not None:
        recording = read_crawl_log(crawl_log, rng=rng, weighted=weighted)
    elif git is not None and rules:
        recording = read_git(git, rules)
    elif importance == "column":
        raise typer.BadParameter("a made-up site has no column of importance")
    else:
        window = days or SYNTHETIC_DAYS
        if pages * window > MOST_PAGE_DAYS:
            raise typer.BadParameter(
                f"{pages:,} pages over {window:,.0f} days are more than the {MOST_PAGE_DAYS:,} "
                "days of pages that are held in memory; give fewer --pages or --days"
            )
        return synthetic_world(
            pages, window, rng=rng, importance=importance or "lognormal",
            complete_share=0.0,
        )  # fmt: skip
    return recorded_world(
        recording, rng=rng, days=days or float("inf"), importance=importance or "equal", bulk=bulk
    )


def _played(game: "Game", names: tuple[str, ...], processes: int) -> "list[Outcome]":
    """Let the policies play, with a bar for each."""
    from service.logs import configure_logging
    from service.sim.contest import contest

    columns = (
        TextColumn("{task.description}"), BarColumn(),
        TextColumn("day {task.completed:,.0f}/{task.total:,.0f}"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        bars = {name: progress.add_task(name, total=game.world.days, start=False) for name in names}

        def told(name: str, day: float) -> None:
            progress.start_task(bars[name])
            progress.update(bars[name], completed=day)

        prepare = partial(configure_logging, "warning")
        return contest(game, names, told, processes=processes, prepare=prepare)
