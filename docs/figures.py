# ruff: noqa: INP001 - a script beside the pages it illustrates
"""Draw the figures of docs/theory.md: `python docs/figures.py` (needs matplotlib)."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from recrawl_lab.experiments.runs import gather_history
from service.core.allocation.harmonic import allocate_harmonic
from service.core.costs import costs
from service.core.estimators.gamma import Gamma
from service.core.estimators.lln import LLN
from service.core.estimators.mle import MLE
from service.core.estimators.naive import Naive
from service.core.estimators.stochastic import SA
from service.core.prior import Prior

FIGURES = Path(__file__).parent / "figures"
INK = {"naive": "#999999", "lln": "#d95f02", "sa": "#7570b3", "mle": "#1b9e77", "gamma": "#1f4e9c"}


def crawls(
    rng: np.random.Generator,
    change_rate: float,
    crawl_rate: float,
    shape: tuple[int, ...],
    *,
    regular: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Intervals and changes of crawls at a rate, on time or on a Poisson clock."""
    mean = 1.0 / crawl_rate
    interval = np.full(shape, mean) if regular else rng.exponential(mean, shape)
    return interval, rng.random(shape) < -np.expm1(-change_rate * interval)


def one_page() -> Figure:
    """Draw the belief about one page after each of its first 60 crawls."""
    change_rate, n = 0.2, 60
    interval, changed = crawls(np.random.default_rng(8), change_rate, 0.25, (n,), regular=True)
    gamma = Gamma(Prior(0.5, 15.0))
    state, day = gamma.init(), 0.0
    rows = []
    for days, seen in zip(interval, changed, strict=True):
        state = gamma.update(state, days, seen)
        day += days
        rows.append((day, gamma.change_rate(state), *gamma.credible_interval(state)))
    at, mean, low, high = np.array(rows, float).T

    figure = Figure((6.4, 3.2), layout="constrained")
    axes = figure.add_subplot()
    axes.fill_between(at, low, high, color=INK["gamma"], alpha=0.18, lw=0, label="90 % interval")
    axes.plot(at, mean, color=INK["gamma"], label="Gamma, posterior mean")
    axes.axhline(change_rate, color="black", lw=1, ls="--", label="true change rate")
    axes.plot(at[changed], np.zeros(changed.sum()), "|", color="black", label="change found")
    axes.set(xlabel="days", ylabel="changes a day", xlim=(0, at[-1]), ylim=(-0.01, 0.5))
    axes.legend(frameon=False, fontsize=8, ncols=2)
    return figure


def accuracy() -> Figure:
    """Draw the error of estimators over the number of crawls, on a Poisson clock and on time."""
    change_rate, crawl_rate, runs = 5.0, 3.0, 1000
    checkpoints = np.unique(np.geomspace(3, 1000, 14).astype(int))
    figure = Figure((6.8, 3.2), layout="constrained")
    left = figure.add_subplot(1, 2, 1)
    right = figure.add_subplot(1, 2, 2, sharey=left)
    for axes, regular in ((left, False), (right, True)):
        rng = np.random.default_rng(3)
        shape = (int(checkpoints[-1]), runs)
        interval, changed = crawls(rng, change_rate, crawl_rate, shape, regular=regular)
        prior = Prior(0.5, 0.5 / crawl_rate)
        errors: dict[str, list[float]] = {}
        for estimator in (Naive(prior), LLN(prior=prior), SA(prior=prior), Gamma(prior)):
            state = estimator.init(runs)
            for k in range(checkpoints[-1]):
                state = estimator.update(state, interval[k], changed[k], crawl_rate)
                if k + 1 in checkpoints:
                    relative = estimator.change_rate(state) / change_rate - 1.0
                    errors.setdefault(estimator.name, []).append(np.sqrt(np.mean(relative**2)))
        for k in checkpoints:
            page = np.tile(np.arange(runs), k)
            history = gather_history(page, interval[:k].ravel(), changed[:k].ravel(), runs)
            relative = MLE().change_rate(history) / change_rate - 1.0
            errors.setdefault("mle", []).append(np.sqrt(np.mean(relative**2)))
        for name, row in errors.items():
            style = "--" if name == "mle" else "-"
            axes.loglog(checkpoints, row, style, color=INK[name], label=name)
        axes.set(title="crawled on time" if regular else "crawled on a Poisson clock")
        axes.set(xlabel="crawls")
    left.set(ylabel="RMSE / change rate")
    left.legend(frameon=False, fontsize=8)
    return figure


def optimum() -> Figure:
    """Draw what pages get in the optimum, and what crawling on time saves."""
    figure = Figure((6.8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    change_rate = np.geomspace(1e-3, 1e2, 61)
    weights = (1.0, 10.0, 100.0)
    importance = np.repeat(weights, change_rate.size)
    pages = importance, np.tile(change_rate, len(weights))
    allocation = allocate_harmonic(*pages, np.zeros(importance.size, bool), 0.2 * importance.size)
    rates = allocation.crawl_rate.reshape(len(weights), -1)
    for weight, rate, shade in zip(weights, rates, ("0.65", "0.4", "0.0"), strict=True):
        left.loglog(change_rate, rate, color=shade, label=f"importance {weight:g}")
    left.set(xlabel="changes a day", ylabel="crawls a day in the optimum")
    left.legend(frameon=False, fontsize=8)

    ratio = np.geomspace(0.05, 20, 61)
    for timing, style in (("poisson", "--"), ("periodic", "-")):
        cost = costs(
            np.ones(61), ratio, np.ones(61), np.zeros(61), np.zeros(61, bool), timing=timing
        ).harmonic
        label = "on a Poisson clock" if timing == "poisson" else "on time"
        right.semilogx(ratio, cost, style, color=INK["gamma"], label=label)
    right.set(xlabel="changes per crawl", ylabel="harmonic cost / importance")
    right.legend(frameon=False, fontsize=8)
    return figure


def main() -> None:
    """Write every figure, the same bytes each time."""
    FIGURES.mkdir(exist_ok=True)
    mpl.rcParams.update({"svg.hashsalt": "recrawl", "svg.fonttype": "none"})
    mpl.rcParams.update({"font.size": 9, "axes.titlesize": 9})
    mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    for draw in (one_page, accuracy, optimum):
        path = FIGURES / f"{draw.__name__}.svg"
        draw().savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
