"""GF08, figures 5 and 6: the corpus as a prior, exactly and in two numbers.

The paper fits the two imaginary intervals by annealing the squared distance of distributions. The
service uses the likeliest intervals (`fit_imaginary_intervals`). The figures show both fits and
the Gamma prior of the service's default estimator.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.optimize import minimize

from recrawl_lab.experiments.base import Experiment, Result, ResultTable, Setup
from recrawl_lab.experiments.checks import Check, Order, Value
from recrawl_lab.experiments.checks import distance as tolerance
from recrawl_lab.experiments.gf08_corpus import CORPUS, gamma_prior
from recrawl_lab.experiments.gf08_pages import (
    DAY,
    STAND_IN,
    corpus,
    watched,
)
from recrawl_lab.experiments.imaginary import (
    ImaginaryIntervals,
    ImaginaryMLE,
    fit_imaginary_intervals,
)
from recrawl_lab.experiments.runs import gather_history
from service.core.estimators.gamma import Gamma, GammaState
from service.core.prior import Prior
from service.model.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# -- figure 5

UNCHANGED = (1, 2, 5, 10)
"""Numbers of crawls, a day apart, without a change."""
CLOSE = 0.1
"""Maximum relative difference of two expectations that are equal in the paper's sense."""


class QuietPage(NamedTuple):
    """A page without a change in `hours`, with several estimates of its change period, hours."""

    hours: float
    likelihood: Floats
    posterior: Floats
    """Smoothed posterior."""
    most_probable: float
    mean: float
    exact: float
    two_numbers: float
    imaginary: float

    @property
    def row(self) -> tuple[float, ...]:
        """Return the numbers for the table."""
        return (
            self.hours,
            self.most_probable,
            self.mean,
            self.exact,
            self.two_numbers,
            self.imaginary,
        )


def quiet_pages(setup: Setup) -> Result:
    """Run figure 5: the likelihood of crawls without a change, with and without a prior."""
    rng = setup.rng()
    sample = watched(rng, corpus(setup, rng, setup.runs(CORPUS))).change_rate
    setup.progress(0.5)
    longest = float(np.quantile(1.0 / sample, 0.999))
    period = np.arange(1.0, longest)
    counts, _ = np.histogram(1.0 / sample, np.append(period, longest) - 0.5)
    prior, intervals = gamma_prior(sample), fit_imaginary_intervals(sample)
    pages = [quiet_page(n, sample, period, counts, prior, intervals) for n in UNCHANGED]
    setup.progress(1.0)
    return Result(
        title="A page that has not changed yet, crawled once a day",
        tables=[
            ResultTable(
                "hours between changes, by the exact posterior and by what stands in for it",
                (
                    "hours without a change",
                    "most probable",
                    "mean",
                    "1 / mean rate",
                    "1 / mean rate, Gamma prior",
                    "likeliest, imaginary intervals",
                ),
                [page.row for page in pages],
            )
        ],
        checks=_checks_of_quiet_pages(pages),
        draw=lambda figure: _draw_posterior(
            figure, period, [(page.likelihood, page.posterior) for page in pages]
        ),
        notes=(STAND_IN,),
    )


def quiet_page(
    n_crawls: int,
    sample: Floats,
    period: Floats,
    counts: NDArray[np.int64],
    prior: Prior,
    intervals: ImaginaryIntervals,
) -> QuietPage:
    """Return the expectations of a page after `n_crawls` crawls, a day apart, without a change."""
    hours = n_crawls * DAY
    likelihood = np.exp(-hours / period)
    weight = counts * likelihood
    posterior = weight / weight.sum()
    smooth = np.convolve(posterior, np.ones(25) / 25.0, "same")
    exact = float(sample @ np.exp(-sample * hours) / np.exp(-sample * hours).sum())
    two_numbers = float(Gamma(prior).change_rate(GammaState(0.0, hours)))
    history = gather_history(
        np.zeros(n_crawls, np.int64), np.full(n_crawls, DAY), np.zeros(n_crawls, np.bool_), 1
    )
    imaginary = float(ImaginaryMLE(imaginary=intervals).change_rate(history)[0])
    most_probable, mean = float(period[smooth.argmax()]), float(np.sum(period * posterior))
    rates = 1.0 / exact, 1.0 / two_numbers, 1.0 / imaginary
    return QuietPage(hours, likelihood, smooth, most_probable, mean, *rates)


def _checks_of_quiet_pages(pages: list[QuietPage]) -> list[Check]:
    rise = min(float((np.diff(page.likelihood) / page.likelihood[:-1]).min()) for page in pages)
    worst = max(abs(page.exact / page.two_numbers - 1.0) for page in pages)
    tops = {f"{page.hours:g} hours": page.most_probable for page in pages}
    return [
        Order(
            claim="without a prior the likelihood rises for ever (least relative rise an hour)",
            place="GF08 4.3, figure 5 left",
            ascending=({"0": 0.0}, {"rise": rise}),
        ),
        Order(
            claim="with the prior there is a maximum (hours between changes)",
            place="GF08 4.3, figure 5 right",
            ascending=({"shortest": 1.0}, tops, {"longest": len(pages[0].posterior)}),
        ),
        Order(
            claim="the expectation needs the whole posterior (error of a Gamma's two numbers)",
            place="GF08 4.3",
            ascending=({"tolerable": CLOSE}, {"Gamma": worst}),
        ),
    ]


def _draw_posterior(figure: "Figure", period: Floats, curves: list[tuple[Floats, Floats]]) -> None:
    figure.set_size_inches(9, 3.8)
    panels = figure.subplots(1, 2)
    for n_crawls, pair in zip(UNCHANGED, curves, strict=True):
        for axes, curve in zip(panels, pair, strict=True):
            axes.semilogx(period, curve, label=f"{n_crawls} crawls")
    for axes, title in zip(panels, ("likelihood of no change", "posterior"), strict=True):
        axes.set(title=title, xlabel="hours between changes")
    panels[0].legend(frameon=False, fontsize=8)


# -- figure 6

FITS = 0.05
"""Maximum root mean square distance of distribution functions that match."""


def cumulative(intervals: ImaginaryIntervals, change_rate: Floats) -> Floats:
    """Return the distribution function of rates under two imaginary intervals and a flat prior."""
    quiet, both = intervals.unchanged, intervals.unchanged + intervals.changed
    total = 1.0 / quiet - 1.0 / both
    rising = -np.expm1(-quiet * change_rate) / quiet + np.expm1(-both * change_rate) / both
    return np.asarray(rising / total)


def distance(model: Callable[[Floats], Floats], sample: Floats) -> float:
    """Return the root mean square distance of a distribution function from that of a sample."""
    rank = (np.arange(len(sample)) + 0.5) / len(sample)
    return float(np.sqrt(np.mean((model(np.sort(sample)) - rank) ** 2)))


def nearest_intervals(sample: Floats) -> ImaginaryIntervals:
    """Return the imaginary intervals of least squared distance, the paper's fit."""

    def squared(log_lengths: Floats) -> float:
        intervals = ImaginaryIntervals(*np.exp(log_lengths).tolist())
        return distance(lambda rates: cumulative(intervals, rates), sample) ** 2

    start = fit_imaginary_intervals(sample)
    minimum = minimize(
        squared,
        np.log([start.changed, start.unchanged]),
        method="Nelder-Mead",
    )
    return ImaginaryIntervals(*np.exp(minimum.x).tolist())


def two_intervals(setup: Setup) -> Result:
    """Run figure 6: the fit of two imaginary intervals to the corpus."""
    rng = setup.rng()
    sample = watched(rng, corpus(setup, rng, setup.runs(CORPUS))).change_rate
    setup.progress(0.3)
    likeliest, nearest = fit_imaginary_intervals(sample), nearest_intervals(sample)
    prior = gamma_prior(sample)
    setup.progress(1.0)
    models: dict[str, Callable[[Floats], Floats]] = {
        "imaginary intervals, likeliest": lambda rates: cumulative(likeliest, rates),
        "imaginary intervals, least squares": lambda rates: cumulative(nearest, rates),
        "Gamma": lambda rates: np.asarray(
            scipy.stats.gamma.cdf(rates, prior.a, scale=1.0 / prior.b)
        ),
    }
    off = {name: distance(model, sample) for name, model in models.items()}
    ours, paper, of_gamma = off.values()
    return Result(
        title=f"Two imaginary intervals for a corpus of {len(sample):,} pages",
        tables=[_table_of_fits(likeliest, nearest, prior, off)],
        checks=[
            Value(
                claim="two imaginary intervals match the corpus (distance of the distributions)",
                place="GF08 4.4, figure 6",
                stated=0.0,
                measured=paper,
                within=tolerance(FITS),
            ),
        ],
        draw=lambda figure: _draw_fits(figure, sample, models),
        notes=(
            STAND_IN,
            (
                f"the likeliest intervals, fitted without annealing, are {ours:.3f} "
                f"from the corpus, a Gamma {of_gamma:.3f}"
            ),
        ),
    )


def _table_of_fits(
    likeliest: ImaginaryIntervals, nearest: ImaginaryIntervals, prior: Prior, off: dict[str, float]
) -> ResultTable:
    rows = {
        "imaginary intervals, likeliest": _fit_of(likeliest),
        "imaginary intervals, least squares": _fit_of(nearest),
        "Gamma": (prior.a, prior.b, 1.0 / prior.mean),
    }
    return ResultTable(
        "fits (imaginary: hours changed, hours unchanged; Gamma: changes, hours)",
        ("prior", "first number", "second number", "distance", "first estimate, hours"),
        [
            (name, float(one), float(two), off[name], float(hours))
            for name, (one, two, hours) in rows.items()
        ],
    )


def _fit_of(intervals: ImaginaryIntervals) -> tuple[float, float, float]:
    return intervals.changed, intervals.unchanged, 1.0 / intervals.change_rate


def _draw_fits(
    figure: "Figure", sample: Floats, models: dict[str, Callable[[Floats], Floats]]
) -> None:
    figure.set_size_inches(7, 4)
    axes = figure.subplots()
    edges = np.geomspace(np.quantile(sample, 0.002), np.quantile(sample, 0.998), 60)
    middle = np.sqrt(edges[1:] * edges[:-1]) * DAY
    counts, _ = np.histogram(sample, edges)
    axes.semilogx(middle, counts / len(sample), color="black", label="corpus")
    for (name, model), style in zip(models.items(), ("-", "--", ":"), strict=True):
        axes.semilogx(middle, np.diff(model(edges)), style, label=name)
    axes.set(xlabel="changes a day", ylabel="share of the pages in a bin")
    axes.legend(frameon=False, fontsize=8)


FIGURE_5 = Experiment(
    "gf08-5", "likelihood and posterior where no crawl found a change", quiet_pages
)
FIGURE_6 = Experiment("gf08-6", "two imaginary intervals fitted to the corpus", two_intervals)
