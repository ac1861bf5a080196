"""A22, figure 1: estimators on the recorded history of one page.

The paper took five months of edits of one Wikipedia page: 4,043 edits, or 1.11 an hour. The time
between the edits was exponential. The paper crawled the page at random 0.45 and 0.09 times as often
as it changed. That history is not available. With `trace`, the page of the recording with the most
changes replaces it. Without `trace`, the page is synthetic: as many edits in the same time, in
sessions. A Poisson page with as many changes shows the effect of burstiness.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recrawl_lab.errors import InvalidTrace
from recrawl_lab.experiments.base import Experiment, Result, ResultTable, Setup
from recrawl_lab.experiments.checks import Check, Order, Value, apart, distance, factor
from recrawl_lab.experiments.runs import (
    INK,
    CrawlRuns,
    band,
    checkpoints,
    estimates,
    relative_error,
    start_at,
)
from recrawl_lab.worlds.recording import recorded_world
from recrawl_lab.worlds.trace import read_trace
from service.core.estimators.base import Estimator
from service.core.estimators.gamma import Gamma
from service.core.estimators.lln import LLN
from service.core.estimators.mle import MLE
from service.core.estimators.naive import Naive
from service.core.estimators.stochastic import SA, SAM
from service.model.arrays import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUNS = 1_000
N_CHANGES, HOURS = 4_043, 3_672.0
SESSION, PAUSE = 3.0, 0.1
"""Parameters of the synthetic page: mean edits a session, mean hours between two edits."""
FREQUENT, RARE = 0.5 / 1.1098, 0.1 / 1.1098
"""Crawls per change, as in the paper."""
MAX_DISTANCE = 0.1
"""Kolmogorov-Smirnov distance up to which points "roughly fall on" the diagonal of a Q-Q plot."""
CLOSE = 2.0
"""Maximum ratio of errors that are comparable."""
SMALLEST = 20
"""Minimum number of changes of a page in the experiment."""


class EditHistory(NamedTuple):
    """One page with its name and the instants of its changes."""

    name: str
    changed_at: Floats
    """(M,) ascending, in [0, span]."""
    span: float
    unit: str

    @property
    def change_rate(self) -> float:
        """Changes per unit of time."""
        return len(self.changed_at) / self.span


def history(setup: Setup, rng: np.random.Generator) -> EditHistory:
    """Return the page with most changes in the recording, or a synthetic page.

    A recorded page runs from its first change to its last, because many are observed long before.
    """
    if setup.trace is None:
        return made_up(rng)
    world = recorded_world(read_trace(setup.trace), rng=rng)
    counts = np.diff(world.first)
    page = int(counts.argmax())
    if counts[page] <= SMALLEST:
        raise InvalidTrace(
            f"{setup.trace}: the busiest page changed {counts[page]} times; use a recording "
            f"with a page of more than {SMALLEST} changes"
        )
    first, *later = world.changes_of(page).tolist()
    at = np.array(later) - first
    return EditHistory(world.url[page], at, float(at[-1]), "day")


def made_up(rng: np.random.Generator) -> EditHistory:
    """Return a synthetic page whose edits come in sessions that start at Poisson instants."""
    n_sessions = round(N_CHANGES / SESSION)
    edits = rng.geometric(1.0 / SESSION, n_sessions)
    first = np.cumsum(edits) - edits
    pause = rng.exponential(PAUSE, int(edits.sum()))
    pause[first] = 0.0
    since_any = np.cumsum(pause)
    since = since_any - np.repeat(since_any[first], edits)
    at = np.repeat(rng.random(n_sessions) * HOURS, edits) + since
    return EditHistory("made-up page, edits in sessions", np.sort(at % HOURS), HOURS, "hour")


def crawl(rng: np.random.Generator, page: EditHistory, crawl_rate: float, n_runs: int) -> CrawlRuns:
    """Return R runs of crawls of the page on Poisson clocks, with the expected number of crawls."""
    n_crawls = max(2, round(crawl_rate * page.span))
    at = np.sort(rng.random((n_crawls, n_runs)), axis=0) * page.span
    interval = np.diff(at, axis=0, prepend=0.0)
    n_changes = np.searchsorted(page.changed_at, at, side="right")
    return CrawlRuns(interval, np.diff(n_changes, axis=0, prepend=0) > 0, crawl_rate)


def distance_to_exponential(gaps: Floats) -> float:
    """Return the largest difference of their distribution from the exponential of the same mean.

    >>> round(distance_to_exponential(-np.log(np.linspace(0.001, 0.999, 999))), 2)
    0.0
    """
    expected = -np.expm1(-np.sort(gaps) / gaps.mean())
    n = len(gaps)
    above, below = np.arange(1, n + 1) / n - expected, expected - np.arange(n) / n
    return float(max(above.max(), below.max()))


class ErrorsByTime(NamedTuple):
    """(C, R) estimates by estimator, over the change rate, of one page and crawl rate."""

    after: Ints
    estimate: dict[str, Floats]

    def rmse(self, name: str) -> float:
        """Return the relative error after all crawls."""
        return float(relative_error(self.estimate[name][-1], 1.0).rmse)


def measure(rng: np.random.Generator, page: EditHistory, share: float, n_runs: int) -> ErrorsByTime:
    """Return the errors at `share` crawls a change."""
    crawl_rate = share * page.change_rate
    start = start_at(crawl_rate)
    chosen: tuple[Estimator[Any], ...] = (
        Naive(start),
        LLN(prior=start),
        SA(prior=start),
        SAM(prior=start),
        MLE(prior=start),
        Gamma(start),
    )
    runs = crawl(rng, page, crawl_rate, n_runs)
    after = checkpoints(len(runs.interval), 20)
    return ErrorsByTime(
        after, {e.name: estimates(e, runs, after) / page.change_rate for e in chosen}
    )


def on_a_history(setup: Setup) -> Result:
    """Run figure 1."""
    rng = setup.rng()
    page = history(setup, rng)
    even = EditHistory(
        "Poisson page", np.sort(rng.random(len(page.changed_at))) * page.span, page.span, page.unit
    )
    errors: dict[tuple[str, float], ErrorsByTime] = {}
    for which in (page, even):
        for share in (FREQUENT, RARE):
            errors[which.name, share] = measure(rng, which, share, setup.runs(RUNS))
            setup.progress(len(errors) / 4)
    gaps = np.diff(page.changed_at, prepend=0.0)
    return Result(
        title=f"Estimators on {page.name}: {len(gaps):,} changes, {page.change_rate:.3g} per "
        f"{page.unit}",
        tables=[
            _table(where, errors[which.name, share], share)
            for share in (FREQUENT, RARE)
            for where, which in (("this page", page), ("Poisson page", even))
        ],
        checks=[
            _exponential(gaps),
            *_checks("on this page", errors[page.name, FREQUENT], errors[page.name, RARE]),
            *_checks("on a Poisson page", errors[even.name, FREQUENT], errors[even.name, RARE]),
        ],
        draw=lambda figure: _draw(figure, gaps, [errors[page.name, s] for s in (FREQUENT, RARE)]),
        notes=(
            "a recorded page, from its first change to its last, stands in for the paper's"
            if setup.trace
            else "the page is made up: the paper's is not at hand, and its edits are made to come "
            f"in sessions of {SESSION:g}; --trace DIR/SITE takes a recorded page",
            "the runs differ in the instants of the crawls, not in those of the changes",
        ),
    )


EXPERIMENTS = (
    Experiment("a22-1", "estimators on a page's recorded history (or a bursty one)", on_a_history),
)


def _exponential(gaps: Floats) -> Check:
    return Value(
        claim="the times between changes are exponential (distance of the distributions)",
        place="A22 4.1, figure 1(a)",
        stated=0.0,
        measured=distance_to_exponential(gaps),
        within=distance(MAX_DISTANCE),
    )


def _checks(where: str, frequent: ErrorsByTime, rare: ErrorsByTime) -> list[Check]:
    names = ("mle", "lln", "sa", "sam")
    often = {name: frequent.rmse(name) for name in names}
    seldom = {name: rare.rmse(name) for name in names}
    return [
        Order(
            claim=f"{where}, crawled half as often as it changes, all outperform Naive (RMSE)",
            place="A22 4.1, figure 1(b)",
            ascending=(often, {"naive": frequent.rmse("naive")}),
        ),
        Value(
            claim=f"{where} they are then comparable (largest RMSE over the least)",
            place="A22 4.1, figure 1(b)",
            stated=1.0,
            measured=max(often.values()) / min(often.values()),
            within=factor(CLOSE),
        ),
        Order(
            claim=f"{where}, crawled a tenth as often, SAM and MLE beat SA and LLN (RMSE)",
            place="A22 4.1, figure 1(c)",
            ascending=apart(seldom, "sam", "mle"),
        ),
    ]


def _table(where: str, measured: ErrorsByTime, share: float) -> ResultTable:
    return ResultTable(
        f"{where}: estimate / change rate after all {measured.after[-1]:,} crawls, "
        f"{share:.2f} crawls a change",
        ("estimator", "median", "95 % of the runs from", "to", "RMSE"),
        [
            (
                name,
                float(np.median(error[-1])),
                *map(float, band(error[-1])),
                measured.rmse(name),
            )
            for name, error in measured.estimate.items()
        ],
    )


def _draw(figure: "Figure", gaps: Floats, measured: list[ErrorsByTime]) -> None:
    figure.set_size_inches(11, 3.6)
    quantiles, *rest = figure.subplots(1, 3)
    expected = -np.log1p(-(np.arange(len(gaps)) + 0.5) / len(gaps))
    quantiles.plot(expected, np.sort(gaps) / gaps.mean(), ".", ms=3, color="black")
    quantiles.plot(expected, expected, color="#d95f02", lw=1)
    quantiles.set(title="time between changes", xlabel="exponential", ylabel="this page")
    for axes, error, share in zip(rest, measured, (FREQUENT, RARE), strict=True):
        for name, estimate in error.estimate.items():
            axes.plot(error.after, estimate[:, 0], color=INK[name], label=name)
        axes.axhline(1.0, color="black", lw=1, ls="--")
        axes.set(
            title=f"{share:.2f} crawls a change, one run",
            xlabel="crawls",
            ylim=(0, 2),
            xscale="log",
        )
    rest[0].set(ylabel="estimate / change rate")
    rest[0].legend(frameon=False, fontsize=8)
