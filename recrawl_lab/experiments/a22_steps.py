"""A22, figure 5: effects of the step sizes of LLN, SA and SAM.

The page changes 500 times a day and is crawled ten times a day on a Poisson clock. The paper's
text has some choices of step sizes. Three for LLN and three for SA appear only in its figure;
choices from its theorems replace them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from typing_extensions import override

from recrawl_lab.experiments.base import Experiment, Result, ResultTable, Setup
from recrawl_lab.experiments.checks import Check, Order, Value, apart, share
from recrawl_lab.experiments.runs import (
    band,
    checkpoints,
    estimates,
    poisson_runs,
    relative_error,
    start_at,
)
from service.core.estimators.base import Estimator
from service.core.estimators.lln import LLN, LLNState
from service.core.estimators.stochastic import SA, SAM
from service.model.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHANGE_RATE, CRAWL_RATE = 500.0, 10.0
RUNS, CRAWLS = 2_000, 2_000
SHOWN = (30, 100, 300, 1_000, 2_000)
SIMILAR = 0.1
"""Maximum relative difference of errors that are more or less the same."""
START = start_at(CRAWL_RATE)


@dataclass(frozen=True, slots=True)
class SteepLLN(LLN):
    """LLN with alpha_k = k^power on the same sums; the service does not offer it."""

    power: float = 0.75

    @override
    def change_rate(self, state: LLNState) -> Floats:
        return np.asarray(state.rates_changed / (state.unchanged + state.crawls**self.power))


class StepCurve(NamedTuple):
    """(C, R) estimates of one choice, and their (C,) relative errors."""

    panel: str
    label: str
    estimate: Floats
    rmse: Floats

    def at(self, crawls: int) -> float:
        """Return the relative error after a number of crawls among `SHOWN`."""
        return float(self.rmse[np.searchsorted(AFTER, crawls)])

    @property
    def spread(self) -> float:
        """Return the width of the 95 % band after all crawls, over the change rate."""
        low, high = band(self.estimate[-1])
        return float(high - low) / CHANGE_RATE


AFTER = checkpoints(CRAWLS, also=SHOWN)
PANELS = ("LLN", "SA", "SAM, eta = 0.8", "SAM, beta = 0.4")
ESTIMATORS: dict[tuple[str, str], Estimator[Any]] = {
    ("LLN", "alpha = 1"): LLN(START),
    ("LLN", "alpha = sqrt k"): SteepLLN(START, power=0.5),
    ("LLN", "alpha = k^0.75"): SteepLLN(START),
    **{("SA", f"eta = {eta}"): SA(eta, START) for eta in (0.5, 0.75, 1.0)},
    **{("SAM, eta = 0.8", f"beta = {b}"): SAM(0.8, b, prior=START) for b in (0.4, 0.5, 0.6)},
    **{("SAM, beta = 0.4", f"eta = {e}"): SAM(e, 0.4, prior=START) for e in (0.5, 0.6, 0.7, 0.8)},
}
"""Estimators by panel and label."""


def step_sizes(setup: Setup) -> Result:
    """Run figure 5."""
    runs = poisson_runs(setup.rng(), CHANGE_RATE, CRAWL_RATE, (CRAWLS, setup.runs(RUNS)))
    curves: dict[tuple[str, str], StepCurve] = {}
    for key, estimator in ESTIMATORS.items():
        estimate = estimates(estimator, runs, AFTER)
        curves[key] = StepCurve(*key, estimate, relative_error(estimate, CHANGE_RATE).rmse)
        setup.progress(len(curves) / len(ESTIMATORS))
    return Result(
        title=f"Step sizes, change rate {CHANGE_RATE:g}, crawl rate {CRAWL_RATE:g}, "
        f"{runs.interval.shape[1]:,} runs",
        tables=[
            ResultTable(
                "root mean square error / change rate after … crawls",
                ("panel", "choice", *map(str, SHOWN), "95 % band / change rate"),
                [
                    (curve.panel, curve.label, *map(curve.at, SHOWN), curve.spread)
                    for curve in curves.values()
                ],
            )
        ],
        checks=_checks(curves),
        draw=lambda figure: _draw(figure, list(curves.values())),
        notes=(
            (
                "the paper names the choices of LLN and SA in its figure only; beside alpha = "
                "k^0.75 and eta = 0.5 those of its theorems stand in"
            ),
        ),
    )


EXPERIMENTS = (Experiment("a22-5", "step sizes of LLN, SA and SAM", step_sizes),)


def _checks(curves: dict[tuple[str, str], StepCurve]) -> list[Check]:
    panel = {name: [c for c in curves.values() if c.panel == name] for name in PANELS}
    lln, sa = ({c.label: c.at(CRAWLS) for c in panel[name]} for name in ("LLN", "SA"))
    return [
        Order(
            claim="LLN is worst with alpha = k^0.75 (RMSE / change rate)",
            place="A22 4.3, figure 5(a)",
            ascending=apart(lln, "alpha = k^0.75")[::-1],
        ),
        Order(
            claim="SA is best with eta = 0.5 (RMSE / change rate)",
            place="A22 4.3, figure 5(b)",
            ascending=apart(sa, "eta = 0.5"),
        ),
        *_checks_of_beta(panel["SAM, eta = 0.8"]),
        *_checks_of_eta(panel["SAM, beta = 0.4"]),
    ]


def _checks_of_beta(curves: list[StepCurve]) -> list[Check]:
    place = "A22 4.3, figure 5(c)"
    last = {curve.label: curve.at(CRAWLS) for curve in curves}
    return [
        Order(
            claim="SAM is slower the larger beta is (RMSE after 30 crawls)",
            place=place,
            ascending=tuple({curve.label: curve.at(30)} for curve in curves),
        ),
        Order(
            claim="SAM fluctuates less the larger beta is (width of the 95 % band)",
            place=place,
            ascending=tuple({curve.label: curve.spread} for curve in reversed(curves)),
        ),
        Order(
            claim="SAM is best with beta = 0.6 (RMSE after 2,000 crawls)",
            place=place,
            ascending=apart(last, "beta = 0.6"),
        ),
    ]


def _checks_of_eta(curves: list[StepCurve]) -> list[Check]:
    ends = [curve.at(CRAWLS) for curve in curves]
    return [
        Value(
            claim="SAM performs more or less the same for all eta (largest RMSE over the least)",
            place="A22 4.3, figure 5(d), preprint",
            stated=1.0,
            measured=max(ends) / min(ends),
            within=share(SIMILAR),
        ),
        Order(
            claim="SAM is faster the larger eta is (RMSE after 30 crawls)",
            place="A22 4.3, figure 5(d), journal",
            ascending=tuple({curve.label: curve.at(30)} for curve in reversed(curves)),
        ),
        Order(
            claim="SAM fluctuates more the larger eta is (width of the 95 % band)",
            place="A22 4.3, figure 5(d), journal",
            ascending=tuple({curve.label: curve.spread} for curve in curves),
        ),
    ]


def _draw(figure: "Figure", curves: list[StepCurve]) -> None:
    figure.set_size_inches(10, 7)
    for axes, panel in zip(figure.subplots(2, 2).ravel(), PANELS, strict=True):
        for curve in (c for c in curves if c.panel == panel):
            (line,) = axes.plot(AFTER, np.median(curve.estimate, axis=1), label=curve.label)
            low, high = band(curve.estimate)
            axes.fill_between(AFTER, low, high, color=line.get_color(), alpha=0.15, lw=0)
        axes.axhline(CHANGE_RATE, color="black", lw=1, ls="--")
        axes.set(title=panel, xlabel="crawls", ylabel="estimate", ylim=(0, 2 * CHANGE_RATE))
        axes.legend(frameon=False, fontsize=8)
