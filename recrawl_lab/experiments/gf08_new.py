"""GF08, figure 7: pages without crawls, with the corpus as prior and without a prior.

With a prior, the first crawl comes after the prior's expected time between changes. Each later
crawl comes after the current estimate. Without a prior, the first interval is drawn evenly from 0
to a maximum. The paper's prior is two imaginary intervals; the service's default is Gamma.
"""

from typing import TYPE_CHECKING

import numpy as np

from recrawl_lab.experiments.base import Experiment, Result, ResultTable, Setup
from recrawl_lab.experiments.checks import Check, Order, Value, apart, share
from recrawl_lab.experiments.gf08_corpus import CORPUS, gamma_prior
from recrawl_lab.experiments.gf08_pages import (
    DAY,
    STAND_IN,
    Estimated,
    absolute_deviation,
    corpus,
    follow,
    watched,
)
from recrawl_lab.experiments.imaginary import (
    ImaginaryIntervals,
    ImaginaryMLE,
    fit_imaginary_intervals,
)
from recrawl_lab.experiments.plain import NEITHER, Estimate, plain_likelihood
from recrawl_lab.experiments.runs import gather_history
from service.core.estimators.gamma import Gamma
from service.core.prior import Prior
from service.model.arrays import Bools, Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGES = 1_000
CRAWLS = 10
EARLY = 5
"""Maximum number of crawls of a new page."""
LONGEST = (1.0, 5.0, 11.0, 25.0)
"""Maximum first intervals without a prior, days."""
LEAD, NEAR = 100.0, 0.1
"""Lead of the paper's prior at the first interval, hours; tolerance, a share."""


def with_intervals(imaginary: ImaginaryIntervals) -> Estimated:
    """Return an estimator of likeliest rates with two imaginary crawls (the paper's prior)."""
    mle = ImaginaryMLE(imaginary=imaginary)

    def estimated(interval: Floats, changed: Bools) -> Estimate:
        n_crawls, n_pages = interval.shape
        page = np.tile(np.arange(n_pages), n_crawls)
        history = gather_history(page, interval.ravel(), changed.ravel(), n_pages)
        return Estimate(mle.change_rate(history), np.full(n_pages, float(NEITHER)))

    return estimated


def with_gamma(prior: Prior) -> Estimated:
    """Return an estimator of posterior means with the service's default."""
    gamma = Gamma(prior)

    def estimated(interval: Floats, changed: Bools) -> Estimate:
        state = gamma.init(interval.shape[1])
        for hours, was_changed in zip(interval, changed, strict=True):
            state = gamma.update(state, hours, was_changed)
        return Estimate(gamma.change_rate(state), np.full(interval.shape[1], float(NEITHER)))

    return estimated


def new_pages(setup: Setup) -> Result:
    """Run figure 7."""
    rng = setup.rng()
    n_corpus, n_pages = setup.runs(CORPUS), setup.runs(PAGES)
    first_corpus = watched(rng, corpus(setup, rng, n_corpus)).change_rate
    another = watched(rng, corpus(setup, rng, n_corpus)).change_rate
    change_rate = rng.choice(another, n_pages)
    ways = _ways(rng, first_corpus, n_pages)
    deviation: dict[str, Floats] = {}
    for name, (first, estimated) in ways.items():
        played = follow(rng, change_rate, first, CRAWLS, estimated=estimated)
        steps = np.vstack((first, played.period))
        deviation[name] = np.array([absolute_deviation(row, change_rate) for row in steps])
        setup.progress(len(deviation) / len(ways))
    return Result(
        title=f"{n_pages:,} new pages, their change rates drawn as the corpus's",
        tables=[
            ResultTable(
                "median absolute deviation, hours, after … crawls (0: the first interval itself)",
                ("", *map(str, range(CRAWLS + 1))),
                [(name, *map(float, row)) for name, row in deviation.items()],
            )
        ],
        checks=_checks(deviation),
        draw=lambda figure: _draw(figure, deviation),
        notes=(
            STAND_IN,
            (
                "the service's Gamma prior, whose first interval is 1 / its mean rate, deviates by "
                f"{deviation['gamma'][0]:.0f} hours at first and "
                f"{deviation['gamma'][1 : EARLY + 1].mean():.0f} over {EARLY} crawls"
            ),
        ),
    )


def _ways(
    rng: np.random.Generator, corpus: Floats, n_pages: int
) -> dict[str, tuple[Floats, Estimated]]:
    """Return the first intervals and the estimator, by the name of the way to begin."""
    imaginary, prior = fit_imaginary_intervals(corpus), gamma_prior(corpus)
    return {
        "imaginary intervals": (
            np.full(n_pages, 1.0 / imaginary.change_rate),
            with_intervals(imaginary),
        ),
        "gamma": (np.full(n_pages, 1.0 / prior.mean), with_gamma(prior)),
        **{
            f"no prior, up to {days:g} days": (
                DAY * days * (1.0 - rng.random(n_pages)),
                plain_likelihood,
            )
            for days in LONGEST
        },
    }


FIGURE_7 = Experiment(
    "gf08-7", "deviation of new pages' estimates, with and without a prior", new_pages
)


def _checks(deviation: dict[str, Floats]) -> list[Check]:
    """Compare the paper's prior with first intervals of up to a day or longer, without a prior."""
    first = {name: float(row[0]) for name, row in deviation.items() if name != "gamma"}
    early = {
        name: float(row[1 : EARLY + 1].mean()) for name, row in deviation.items() if name != "gamma"
    }
    prior = "imaginary intervals"
    nearest = min(value for name, value in first.items() if name != prior)
    return [
        Value(
            claim="at the first interval the prior's deviation is smaller than without a prior, by",
            place="GF08 5, figure 7",
            stated=LEAD,
            measured=nearest - first[prior],
            within=share(NEAR),
            unit="hours",
        ),
        Order(
            claim=f"the prior improves the estimates of new pages (deviation over {EARLY} crawls)",
            place="GF08 abstract, figure 7",
            ascending=apart(early, prior),
        ),
    ]


def _draw(figure: "Figure", deviation: dict[str, Floats]) -> None:
    figure.set_size_inches(8, 4)
    axes = figure.subplots()
    for name, row in deviation.items():
        axes.plot(np.arange(CRAWLS + 1), row, "--" if "no prior" in name else "-", label=name)
    axes.set(xlabel="crawls", ylabel="median absolute deviation, hours", ylim=(0, None))
    axes.legend(frameon=False, fontsize=8)
