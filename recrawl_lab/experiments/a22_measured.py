"""Common parts of figures 2 to 4 of A22: estimators on the same runs, table and figure."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recrawl_lab.experiments.base import Result, ResultTable, Setup
from recrawl_lab.experiments.checks import Check, Value, distance
from recrawl_lab.experiments.plain import plain_likelihood
from recrawl_lab.experiments.runs import (
    INK,
    Error,
    band,
    checkpoints,
    estimates,
    poisson_runs,
    relative_error,
    start_at,
)
from service.core.estimators.base import Estimator
from service.core.estimators.gamma import Gamma
from service.core.estimators.lln import LLN
from service.core.estimators.mle import MLE
from service.core.estimators.naive import Naive
from service.core.estimators.stochastic import SA, SAM
from service.model.arrays import Floats, Ints

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUNS, CRAWLS = 2_000, 1_000
SHOWN = (10, 30, 100, 300, 1_000)


class RecordedPage(NamedTuple):
    """One setting of the paper: rates, and the exponents of SA and SAM."""

    change_rate: float
    crawl_rate: float
    eta: float
    beta: float

    def __str__(self) -> str:
        return f"change rate {self.change_rate:g}, crawl rate {self.crawl_rate:g}"


BALANCED = RecordedPage(5.0, 3.0, 0.75, 0.6)
RARE = RecordedPage(500.0, 3.0, 0.8, 0.5)
MODERATE = RecordedPage(500.0, 50.0, 0.8, 0.5)

REFERENCE = {
    BALANCED: {
        "naive": (0.62, 0.63),
        "lln": (0.207, 0.067),
        "sa": (0.201, 0.075),
        "sam": (0.243, 0.115),
    },
    MODERATE: {
        "naive": (0.91, 0.91),
        "lln": (0.38, 0.12),
        "sa": (0.43, 0.23),
        "sam": (0.26, 0.14),
    },
}
"""RMSE over the change rate after 100 and 1,000 crawls, from an independent simulation.

The simulation has the paper's settings and 2,000 runs; values are rounded. The paper has curves
but no table.
"""


class PageErrors(NamedTuple):
    """Results of the runs of one setting, by estimator."""

    page: RecordedPage
    after: Ints
    """(C,) numbers of crawls."""
    estimate: dict[str, Floats]
    """(C, R) estimated change rate, 1/day."""
    error: dict[str, Error]

    def rmse(self, name: str, crawls: int) -> float:
        """Return the relative error after a number of crawls."""
        return float(self.error[name].rmse[self.row(crawls)])

    def row(self, crawls: int) -> int:
        """Return the index of the first checkpoint of at least `crawls` crawls."""
        return min(int(np.searchsorted(self.after, crawls)), len(self.after) - 1)


def measure(page: RecordedPage, setup: Setup, *, with_mle: bool) -> PageErrors:
    """Return the errors of every estimator on the same runs; the paper omits MLE for large Δ.

    The paper's MLE is the plain one, without the service's imaginary crawls.
    """
    start = start_at(page.crawl_rate)
    chosen: list[Estimator[Any]] = [
        Naive(start),
        LLN(prior=start),
        SA(page.eta, start),
        SAM(page.eta, page.beta, prior=start),
        Gamma(start),
    ]
    if with_mle:
        chosen.append(MLE(prior=start))
    runs = poisson_runs(setup.rng(), page.change_rate, page.crawl_rate, (CRAWLS, setup.runs(RUNS)))
    after = checkpoints(CRAWLS, also=SHOWN)
    estimate: dict[str, Floats] = {}
    for done, estimator in enumerate(chosen, start=1):
        estimate[estimator.name] = estimates(estimator, runs, after)
        setup.progress(done / len(chosen))
    if with_mle:
        likelihoods = [plain_likelihood(runs.interval[:k], runs.changed[:k]) for k in after]
        estimate["plain mle"] = np.array([value.change_rate for value in likelihoods])
    error = {name: relative_error(value, page.change_rate) for name, value in estimate.items()}
    return PageErrors(page, after, estimate, error)


def as_simulated(measured: PageErrors) -> list[Check]:
    """Return checks against `REFERENCE`, within four standard errors of both and the rounding."""
    return [
        Value(
            claim=f"RMSE of {name} after {crawls:,} crawls, over the change rate",
            place="independent simulation, 2,000 runs",
            stated=expected,
            measured=measured.rmse(name, crawls),
            within=distance(_allowed(measured, name, crawls)),
        )
        for name, row in REFERENCE.get(measured.page, {}).items()
        for crawls, expected in zip((100, 1_000), row, strict=True)
    ]


def _allowed(measured: PageErrors, name: str, crawls: int) -> float:
    own = float(measured.error[name].standard_error[measured.row(crawls)])
    both = own * float(np.hypot(1.0, np.sqrt(measured.estimate[name].shape[1] / RUNS)))
    return 4.0 * both + 0.005


def result(measured: PageErrors, checks: list[Check]) -> Result:
    """Return the result with errors, bands, the figure and the claims."""
    rmse = ResultTable(
        "root mean square error / change rate after … crawls",
        ("estimator", *map(str, SHOWN), "standard error"),
        [
            (
                name,
                *(measured.rmse(name, crawls) for crawls in SHOWN),
                float(error.standard_error[-1]),
            )
            for name, error in measured.error.items()
        ],
    )
    bands = {name: band(values) for name, values in measured.estimate.items()}
    held = ResultTable(
        "95 % of the runs estimate between …",
        ("estimator", *(f"{end} {crawls}" for crawls in SHOWN[2:] for end in ("from", "to"))),
        [
            (name, *(float(end[measured.row(k)]) for k in SHOWN[2:] for end in ends))
            for name, ends in bands.items()
        ],
    )
    n_runs = next(iter(measured.estimate.values())).shape[1]
    return Result(
        title=f"Estimators, {measured.page}, {n_runs:,} runs",
        tables=[rmse, held],
        checks=checks + as_simulated(measured),
        draw=lambda figure: draw(figure, measured),
        notes=(
            (
                "gamma is the service's default, mle has its two imaginary crawls; SA and SAM "
                "begin at the crawl rate, since the paper does not say where"
            ),
        ),
    )


def draw(figure: "Figure", measured: PageErrors) -> None:
    """Draw the three panels of the paper."""
    figure.set_size_inches(11, 3.6)
    single, spread, error = figure.subplots(1, 3)
    for name, values in measured.estimate.items():
        single.plot(measured.after, values[:, 0], color=INK[name], label=name)
        low, high = band(values)
        spread.fill_between(measured.after, low, high, color=INK[name], alpha=0.25, lw=0)
        spread.plot(measured.after, np.median(values, axis=1), color=INK[name])
        error.loglog(measured.after, measured.error[name].rmse, color=INK[name])
    for axes in (single, spread):
        axes.axhline(measured.page.change_rate, color="black", lw=1, ls="--")
        axes.set(xlabel="crawls", ylim=(0, 2.5 * measured.page.change_rate), xscale="log")
    single.set(title="one run", ylabel="estimate")
    single.legend(frameon=False, fontsize=8)
    spread.set(title="95 % of the runs, median")
    error.set(title="RMSE / change rate", xlabel="crawls")
