"""GF08, figure 3: a corpus of pages with 25 observed changes each, as a prior for new pages."""

from typing import TYPE_CHECKING

import numpy as np

from recrawl_lab.experiments.base import Experiment, Result, ResultTable, Setup
from recrawl_lab.experiments.checks import Check, Order, apart
from recrawl_lab.experiments.gf08_pages import (
    CHANGES_SEEN,
    DAY,
    STAND_IN,
    WATCH_INTERVAL,
    corpus,
    watched,
)
from service.core.prior import Prior, fit_gamma_prior
from service.model.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CORPUS = 10_000
"""Number of pages."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def gamma_prior(sample: Floats) -> Prior:
    """Return the service's Gamma prior, 1/hour, of pages with 25 observed changes each."""
    changes = np.full(len(sample), float(CHANGES_SEEN))
    return fit_gamma_prior(changes, changes / sample, Prior(0.5, 0.5 / float(sample.mean())))


def sampled_corpus(setup: Setup) -> Result:
    """Run figure 3: the distribution of change rates estimated from 25 changes."""
    rng = setup.rng()
    truth = corpus(setup, rng, setup.runs(CORPUS))
    sample = watched(rng, truth).change_rate
    naive = -np.expm1(-truth * WATCH_INTERVAL) / WATCH_INTERVAL
    setup.progress(1.0)
    top = truth >= np.quantile(truth, 0.95)
    of_naive, of_mle = (float(np.median((x / truth)[top])) for x in (naive, sample))
    return Result(
        title=f"Change rates of {len(truth):,} pages, crawled once a day until "
        f"{CHANGES_SEEN} changes were seen",
        tables=[
            ResultTable(
                "quantiles of the change rate, 1/day",
                ("", *(f"{q:.0%}" for q in QUANTILES)),
                [
                    (name, *(float(x) for x in DAY * np.quantile(rates, QUANTILES)))
                    for name, rates in (("true", truth), ("sampled", sample), ("naive", naive))
                ],
            )
        ],
        checks=_checks(of_naive, of_mle),
        draw=lambda figure: _draw_corpus(figure, truth, sample),
        notes=(
            STAND_IN,
            (
                f"{CHANGES_SEEN} changes leave each rate {np.std(np.log(sample / truth)):.0%} off "
                "(one standard deviation)"
            ),
        ),
    )


def _checks(of_naive: float, of_mle: float) -> list[Check]:
    bias = {"naive": abs(of_naive - 1.0), "likeliest": abs(of_mle - 1.0)}
    return [
        Order(
            claim="a naive estimate is persistently biased (bias of the fastest twentieth)",
            place="GF08 3.2",
            ascending=({"a twentieth": 0.05}, {"naive": bias["naive"]}),
        ),
        Order(
            claim="the likeliest rate has a significantly smaller bias (half of it)",
            place="GF08 3.3",
            ascending=apart(bias, "likeliest"),
            margin=1.0,
        ),
    ]


def _draw_corpus(figure: "Figure", truth: Floats, sample: Floats) -> None:
    figure.set_size_inches(7, 4)
    axes = figure.subplots()
    bins = np.geomspace(np.quantile(truth, 0.002), np.quantile(truth, 0.998), 50) * DAY
    axes.hist(sample * DAY, bins.tolist(), color="#1f4e9c", alpha=0.5, label="sampled")
    axes.hist(truth * DAY, bins.tolist(), histtype="step", color="black", label="true")
    axes.set(xscale="log", xlabel="changes a day", ylabel="pages")
    axes.legend(frameon=False, fontsize=8)


FIGURE_3 = Experiment("gf08-3", "the distribution of change rates in a corpus", sampled_corpus)
