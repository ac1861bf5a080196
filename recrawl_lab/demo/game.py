"""The demo: a fleet of crawlers crawls a simulated web through the service, over HTTP."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from recrawl_lab.demo.fleet import Fleet
from recrawl_lab.policies import plain
from recrawl_lab.policies.peers import PEERS
from recrawl_lab.replay.playing import announcements, crawl
from recrawl_lab.replay.staleness import Crawls, Staleness, merged, staleness
from recrawl_lab.worlds.scenario import Scenario
from recrawl_lab.worlds.simulated_time import Clock
from recrawl_lab.worlds.world import World

NO_GAP = 0.01
"""Least gain of hindsight over uniform that counts as a gap, share of uniform's staleness."""
INKS = ("#1f4e9c", "-"), ("#7570b3", "-."), ("#d95f02", "--"), ("#777777", ":")
"""Colour and style of the line of each policy."""
STORMCRAWLER = PEERS["stormcrawler-tuned"].policy


@dataclass(frozen=True, slots=True)
class GameOutcome:
    """Crawls of one policy in a world, and their staleness."""

    policy: str
    crawls: Crawls
    """Crawls without the first crawl of each page, which is the same for all policies."""
    staleness: Staleness


@dataclass(frozen=True, slots=True)
class GameResult:
    """Recrawl and three policies for comparison, with the same number of crawls."""

    world: World
    bandwidth: float
    recrawl: GameOutcome
    stormcrawler: GameOutcome
    uniform: GameOutcome
    hindsight: GameOutcome

    @property
    def outcomes(self) -> tuple[GameOutcome, GameOutcome, GameOutcome, GameOutcome]:
        """Rows of the table."""
        return self.recrawl, self.stormcrawler, self.uniform, self.hindsight

    @property
    def gain(self) -> float:
        """Reduction of harmonic staleness, as a share of the staleness of uniform crawling."""
        base = self.uniform.staleness.harmonic
        return 1.0 - self.recrawl.staleness.harmonic / base if base else 0.0

    @property
    def gap_closed(self) -> float | None:
        """Recrawl's gain over uniform as a share of hindsight's gain; None without a gap."""
        worst, best = self.uniform.staleness.harmonic, self.hindsight.staleness.harmonic
        if worst - best <= NO_GAP * worst:
            return None
        return (worst - self.recrawl.staleness.harmonic) / (worst - best)


def play(
    client: httpx.Client,
    world: World,
    clock: Clock,
    *,
    bandwidth: float,
    step: float = 1.0,
    progress: Callable[[float], None] = lambda _: None,
) -> GameResult:
    """Crawl the world by the service's schedule, and compare with policies that crawl as often.

    Parameters
    ----------
    client
        Client of a new server whose time is `clock` and whose bandwidth is `bandwidth`.
    bandwidth
        Bandwidth of the fleet, crawls a day.
    step
        Time from one epoch to the next, days; within it the fleet follows one schedule.
    progress
        Function that receives each day when it is reached.

    Raises
    ------
    UnexpectedAnswer
        The service refused a request.
    """
    crawls = Crawls.none()
    fleet = Fleet(client, world)
    for day, more in crawl(fleet, clock, announcements(world), bandwidth, step):
        crawls = merged(crawls, more)
        progress(day)
    n = len(crawls.at)
    return GameResult(
        world,
        bandwidth,
        _outcome("Recrawl", world, crawls),
        _outcome("StormCrawler, tuned", world, plain.matched(STORMCRAWLER, world, n)),
        _outcome("uniform", world, plain.matched(plain.uniform, world, n)),
        _outcome("hindsight", world, plain.matched(plain.hindsight, world, n)),
    )


def _outcome(name: str, world: World, crawls: Crawls) -> GameOutcome:
    return GameOutcome(name, crawls, staleness(world, crawls))


# -- output


def run(
    client: httpx.Client,
    scenario: Scenario,
    clock: Clock,
    *,
    console: Console | None = None,
) -> GameResult:
    """Play a scenario with a progress bar and print the table; see `play`."""
    console = console or Console()
    world = scenario.world
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("day {task.completed:.0f}/{task.total:.0f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(f"{len(world):,} pages over HTTP", total=world.days)
        result = play(
            client,
            world,
            clock,
            bandwidth=scenario.bandwidth,
            step=scenario.step,
            progress=lambda day: bar.update(task, completed=day),
        )
    show(result, console)
    return result


def show(result: GameResult, console: Console) -> None:
    """Print the table and the explanations of its columns."""
    world = result.world
    per_page = result.bandwidth / world.mean_pages
    table = Table(
        title=f"Staleness, {world.name}: {len(world):,} pages, {world.days:.0f} days\n"
        f"budget {result.bandwidth:,.1f} crawls a day ({per_page:.3g} per existing page)"
    )
    table.add_column("policy")
    for name in ("staleness", "vs uniform", "outdated", "vs uniform", "crawls"):
        table.add_column(name, justify="right")
    base = result.uniform.staleness
    for row in result.outcomes:
        table.add_row(
            row.policy,
            f"{row.staleness.harmonic:.4f}",
            _change(row.staleness.harmonic, base.harmonic),
            f"{row.staleness.binary:.4f}",
            _change(row.staleness.binary, base.binary),
            f"{len(row.crawls.at):,}",
        )
    console.print(table)
    closed = result.gap_closed
    console.print(
        "Hindsight gains nothing over uniform crawling here: there is no gap to close."
        if closed is None
        else f"Share of the gap between uniform and hindsight that Recrawl closes: {closed:.0%}"
    )
    for note in world.notes:
        console.print(f"Note: {note}")


def explain(console: Console) -> None:
    """Print the meaning of the columns of `show`."""
    console.print(
        "Averages over time and pages, weighted by importance; n changes that no crawl has seen "
        "cost 1 + 1/2 + … + 1/n (staleness) or 1 (outdated). StormCrawler has its intervals scaled "
        "until it makes as many crawls. Hindsight knows the true mean change rates from the "
        "start. The first crawl of each page is the same for all policies and not counted."
    )


def draw(results: Sequence[GameResult], path: Path) -> None:
    """Write staleness over time, a panel each, as PNG or as SVG by the suffix."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(4 * len(results), 6), 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(results), sharey=True, squeeze=False)[0]
    for axes, result in zip(panels, results, strict=True):
        for outcome, (ink, style) in zip(result.outcomes, INKS, strict=True):
            curve = outcome.staleness
            axes.stairs(
                curve.harmonic_curve,
                curve.edges,
                baseline=None,
                color=ink,
                ls=style,
                lw=1.8,
                label=f"{outcome.policy} {curve.harmonic:.3f}",
            )
        axes.set(xlabel="day", title=result.world.name, ylim=(0, None))
        axes.title.set_fontsize("medium")
        axes.legend(fontsize="small", title="mean", title_fontsize="small")
        axes.grid(visible=True, alpha=0.3)
    panels[0].set_ylabel("staleness (0: always fresh)")
    with mpl.rc_context({"svg.hashsalt": "recrawl", "svg.fonttype": "none"}):
        if path.suffix == ".svg":
            figure.savefig(path, format="svg", metadata={"Date": None})
        else:
            figure.savefig(path, dpi=120, format="png")


def _change(value: float, base: float) -> str:
    return "" if value == base else f"{value / base - 1:+.1%}"
