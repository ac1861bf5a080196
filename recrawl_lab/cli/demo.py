"""`recrawl demo`: a simulated web crawled through a real server."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from service.cli.options import console, finite, heed_sigterm, settings

if TYPE_CHECKING:
    from recrawl_lab.demo.game import GameResult
    from recrawl_lab.worlds.scenario import Scenario

Trace = Annotated[
    Path | None,
    typer.Option(help="DIR/SITE of a recorded history (DIR/SITE.csv.gz, DIR/pages/SITE.…)"),
]
Pages = Annotated[
    int, typer.Option(min=2, max=100_000, help="Number of pages of the synthetic world")
]
Days = Annotated[
    float | None,
    typer.Option(
        min=1, max=3_660, callback=finite, help="Days to play (60; of a trace the last 3 years)"
    ),
]
BandwidthPerPage = Annotated[
    float | None,
    typer.Option(min=1e-6, callback=finite, help="Crawls a day per page (0.2; of a trace 0.02)"),
]
Step = Annotated[
    float | None,
    typer.Option(min=0.01, callback=finite, help="Days between epochs (1; of a trace 7)"),
]
Weights = Literal["equal", "lognormal"]
Importance = Annotated[
    Weights | None, typer.Option(help="Importance of pages; synthetic: in stages; trace: equal")
]
Bulk = Annotated[
    bool, typer.Option(help="Count revisions of a trace that touched over 200 pages at once")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random numbers")]
Plot = Annotated[Path, typer.Option(help="File of the plot")]
LiveSite = Annotated[
    bool, typer.Option("--live", help="Crawl a real web site on this machine instead")
]
Serve = Annotated[
    bool, typer.Option("--serve", help="Go on serving at the end: the console shows the result")
]
Seconds = Annotated[float, typer.Option(min=2, callback=finite, help="Duration of --live, seconds")]

GAME_SETTINGS = {
    "epoch_interval_s": 31_536_000,
    "estimator": "bursty",
    "timing": "periodic",
    "objective": "harmonic",
    "url_groups": True,
    "max_items": 10_000,
}


def demo(
    trace: Trace = None,
    pages: Pages = 2_000,
    days: Days = None,
    bandwidth_per_page: BandwidthPerPage = None,
    step: Step = None,
    importance: Importance = None,
    bulk: Bulk = False,
    seed: Seed = 1,
    plot: Plot = Path("demo.png"),
    live: LiveSite = False,
    seconds: Seconds = 60,
    serve: Serve = False,
) -> None:
    """Crawl a small web that changes, with a real server and a real client.

    Starts the server on a free port of this machine with a new SQLite file and a simulated clock.
    A fleet of crawlers crawls some simulated weeks over HTTP. The table compares the staleness of
    its copies with tuned StormCrawler, with uniform crawling and with hindsight, at the same number
    of crawls. The web is played three times: with pages alike, with pings, with importance as well.
    A recording, and a web of a stated --importance, are played once.

    With --serve, the last server stays at the end, until you stop it. Its console shows the crawls
    and the schedule.

    With --live, a web site on this machine changes in real time, with fast, slow, strict and
    unreliable hosts. The reference crawler follows the schedule for a minute, and the terminal
    shows the freshness of its copies.
    """
    heed_sigterm()
    if live:
        _crawl_live(seconds, seed, serve=serve)
    else:
        _refuse_missing_folder(plot)
        scenario = _scenario(
            trace, pages, days, bandwidth_per_page, step, importance, seed, bulk=bulk
        )
        _play(scenario, seed, plot, serve=serve, in_stages=trace is None and importance is None)


def _refuse_missing_folder(plot: Path) -> None:
    if not plot.parent.is_dir():
        raise typer.BadParameter(
            f"the folder {plot.parent} does not exist; create it or name another file",
            param_hint="--plot",
        )


def _scenario(
    trace: Path | None,
    pages: int,
    days: float | None,
    bandwidth_per_page: float | None,
    step: float | None,
    importance: Weights | None,
    seed: int,
    *,
    bulk: bool,
) -> "Scenario":
    from recrawl_lab.worlds.scenario import scenario

    return scenario(
        trace,
        seed=seed,
        n_pages=pages,
        days=days,
        bandwidth_per_page=bandwidth_per_page,
        step=step,
        importance=importance,
        bulk=bulk,
    )


def _play(scenario: "Scenario", seed: int, plot: Path, *, serve: bool, in_stages: bool) -> None:
    """Play a scenario, print the outcomes and draw them."""
    from recrawl_lab.demo import game
    from recrawl_lab.worlds.scenario import stages

    results = []
    scenarios = stages(scenario) if in_stages else [scenario]
    for base_url, result in games(scenarios, seed):
        results.append(result)
        if len(results) == len(scenarios):
            game.explain(Console())
            _draw(results, plot)
            if serve:
                _stay(base_url)


def games(scenarios: Sequence["Scenario"], seed: int) -> Iterator[tuple[str, "GameResult"]]:
    """Yield the address of a server and its game, of each scenario; the server runs meanwhile."""
    import httpx
    import numpy as np

    from recrawl_lab.demo import game
    from recrawl_lab.worlds.simulated_time import Clock

    for one in scenarios:
        clock, rng = Clock(), np.random.default_rng(seed)
        options = {"bandwidth": one.bandwidth, **GAME_SETTINGS}
        with (
            _serving(options, now=clock, rng=rng) as base_url,
            httpx.Client(base_url=base_url, timeout=60) as client,
        ):
            console.print(f"Recrawl serves at {base_url}; the fleet calls it over HTTP.")
            yield base_url, game.run(client, one, clock, console=Console())


def _draw(results: list["GameResult"], plot: Path) -> None:
    """Draw the outcomes, or name what is missing for it."""
    from recrawl_lab.demo import game

    if find_spec("matplotlib") is None:
        console.print("For a plot of staleness over time: pip install matplotlib")
    else:
        game.draw(results, plot)
        Console().print(f"Plot of staleness over time: {plot}")


def _crawl_live(seconds: float, seed: int, *, serve: bool) -> None:
    """Crawl a site that changes in real time, and print the freshness of its copies."""
    import numpy as np

    from recrawl_client import Client
    from recrawl_lab.demo import live

    with _serving(live.SETTINGS) as base_url, Client(base_url) as client:
        console.print(
            f"Recrawl serves at {base_url}; examples/crawler.py takes its crawls from there."
        )
        outcome = live.run(client, Console(), seconds, np.random.default_rng(seed))
        live.show(outcome, Console())
        if serve:
            _stay(base_url)


def _stay(base_url: str) -> None:
    """Print the address of the console, and wait until the process is interrupted."""
    import threading

    console.print(f"The console is at {base_url}/console?range=30d; stop it by Ctrl-C.")
    with suppress(KeyboardInterrupt):
        threading.Event().wait()


@contextmanager
def _serving(options: dict[str, Any], **clocks: Any) -> Iterator[str]:
    """Run a service on a new SQLite file; yield its address."""
    import tempfile

    from service.api.assembly import open_service
    from service.api.server import running
    from service.console.app import create_app_with_console
    from service.runtime.bootstrap import configure_logging

    configure_logging("warning")
    with tempfile.TemporaryDirectory(prefix="recrawl-demo-") as folder:
        chosen = settings(f"sqlite:///{folder}/demo.db", api_keys=(), **options)
        service = open_service(chosen, **clocks)
        with running(service, create_app_with_console(service)) as base_url:
            yield base_url
