"""`recrawl demo`: watch it work."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from service.cli.parts import console, finite, heed_sigterm, settings


def demo(
    trace: Annotated[
        Path | None,
        typer.Option(help="DIR/SITE of a recorded history (DIR/SITE.csv.gz, DIR/pages/SITE.…)"),
    ] = None,
    pages: Annotated[
        int, typer.Option(min=2, max=100_000, help="Pages of the made-up world")
    ] = 2_000,
    days: Annotated[
        float | None,
        typer.Option(
            min=1, max=3_660, callback=finite, help="Days to play (60; of a trace the last 3 years)"
        ),
    ] = None,
    bandwidth_per_page: Annotated[
        float | None,
        typer.Option(
            min=1e-6, callback=finite, help="Crawls a day per page (0.2; of a trace 0.02)"
        ),
    ] = None,
    step: Annotated[
        float | None,
        typer.Option(min=0.01, callback=finite, help="Days between epochs (1; of a trace 7)"),
    ] = None,
    importance: Annotated[
        Literal["equal", "lognormal"] | None,
        typer.Option(help="Made up: lognormal; of a trace: equal"),
    ] = None,
    bulk: Annotated[
        bool, typer.Option(help="Count revisions of a trace that touched over 200 pages at once")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random")] = 1,
    plot: Annotated[Path, typer.Option(help="Where to write the plot")] = Path("demo.png"),
    live: Annotated[
        bool, typer.Option("--live", help="Crawl a real web site on this machine instead")
    ] = False,
    seconds: Annotated[
        float, typer.Option(min=2, callback=finite, help="How long, with --live")
    ] = 60,
) -> None:
    """Watch it work: a real server, a real client, and a small web that changes.

    Starts the server on a free port of this machine with a fresh SQLite file and a clock of its
    own, lets a fleet of crawlers play some weeks against it over HTTP, and compares the
    staleness of what it kept with uniform crawling and with the optimum of hindsight, all at
    the same number of crawls.

    With --live nothing is played: a web site on this machine changes in real time, its hosts
    are fast, slow, lying and strict, and the reference crawler crawls it as the service says,
    for a minute, while the terminal shows how fresh the copies are.
    """
    heed_sigterm()
    if live:
        _live(seconds, seed)
    else:
        _played(trace, pages, days, bandwidth_per_page, step, importance, bulk, seed, plot)


def _played(
    trace: Path | None, pages: int, days: float | None, bandwidth_per_page: float | None,
    step: float | None, importance: Literal["equal", "lognormal"] | None, bulk: bool, seed: int,
    plot: Path,
) -> None:  # fmt: skip
    import tempfile

    import httpx
    import numpy as np

    from service.api.live import running
    from service.api.service import open_service
    from service.logs import configure_logging
    from service.sim import demo as played
    from service.sim.clock import Clock
    from service.sim.scenario import scenario

    if not plot.parent.is_dir():
        raise typer.BadParameter(f"the folder {plot.parent} does not exist", param_hint="--plot")
    configure_logging("warning")
    can_plot = find_spec("matplotlib") is not None
    chosen = scenario(
        trace, seed=seed, n_pages=pages, days=days, bandwidth_per_page=bandwidth_per_page,
        step=step, importance=importance, bulk=bulk,
    )  # fmt: skip
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="recrawl-demo-") as folder:
        service = open_service(
            settings(
                f"sqlite:///{folder}/demo.db", bandwidth=chosen.bandwidth, api_keys=(),
                epoch_interval_s=31_536_000, estimator="bursty", timing="periodic",
                objective="harmonic", siblings=True, max_items=10_000,
            ),
            now=clock,
            rng=np.random.default_rng(seed),
        )  # fmt: skip
        with running(service) as base_url, httpx.Client(base_url=base_url, timeout=60) as client:
            console.print(f"Recrawl serves at {base_url}; the fleet calls it over HTTP.")
            played.run(client, chosen, clock, console=Console(), plot=plot if can_plot else None)
    if not can_plot:
        console.print("For a plot of staleness over time: pip install 'recrawl[demo]'")


def _live(seconds: float, seed: int) -> None:
    import tempfile

    import numpy as np

    from recrawl_client import Client
    from service.api.live import running
    from service.api.service import open_service
    from service.logs import configure_logging
    from service.sim import live

    configure_logging("warning")
    with tempfile.TemporaryDirectory(prefix="recrawl-demo-") as folder:
        chosen = settings(f"sqlite:///{folder}/demo.db", api_keys=(), **live.SETTINGS)
        service = open_service(chosen)
        with running(service) as base_url, Client(base_url) as client:
            console.print(f"Recrawl serves at {base_url}; examples/crawler.py asks it what to do.")
            done = live.run(client, Console(), seconds, np.random.default_rng(seed))
    live.show(done, Console())
