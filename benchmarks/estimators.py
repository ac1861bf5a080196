"""Benchmark the estimators: their accuracy beside the published table, and their speed.

    python -m benchmarks.estimators [--runs 2000] [--pages 1000000] [--json FILE]

Accuracy is the root mean square error relative to the true rate, over seeded runs of one page.
The table has it after 100 and 1,000 crawls, next to the published value and its Monte-Carlo error.
Every estimator starts at the crawl rate: Gamma's prior is Gamma(0.5) with that mean, SA and SAM
begin there. SA and SAM use A22's exponents: (0.75, 0.6), and (0.8, 0.5) for 500 changes a day.

Learning and scheduling together are measured by the excess harmonic cost over known rates. Each
day is crawled by the optimum for the estimates so far, on the golden set's distribution (bandwidth
0.2 a page). An estimate of 0 counts as the default prior's mean.

Speed is the median of seconds per observation of one `update`, in batches, and of a prior fit.
"""

import argparse
import json
import statistics
import timeit
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from recrawl_lab.experiments.runs import gather_history
from recrawl_lab.worlds.phases import phase
from service.core.allocation.harmonic import allocate_harmonic
from service.core.costs import costs
from service.core.estimators.base import Estimator
from service.core.estimators.gamma import CompleteObservations, Gamma
from service.core.estimators.lln import LLN
from service.core.estimators.lognormal import LogNormal
from service.core.estimators.mle import MLE, BinnedMLE
from service.core.estimators.mm import MM
from service.core.estimators.naive import Naive
from service.core.estimators.stochastic import SA, SAM
from service.core.pooling import fit_url_groups
from service.core.prior import DEFAULT_PRIOR, Prior, fit_gamma_prior

SEED = 20220901
CRAWLS = (100, 1000)
PAGES_A_URL_GROUP = 30
TARGETS = {"update gamma": 60.0, "update sa": 15.0, "prior fit": 0.3}
LEARNING_DAYS = (3, 15, 60)
LEARNERS = ((Gamma(), "periodic"), (LogNormal(), "periodic"), (LLN(), "poisson"), (SA(), "poisson"))


class Setting(NamedTuple):
    """One page, crawled in one way."""

    change_rate: float
    crawl_rate: float
    regular: bool
    exponents: tuple[float, float]

    def __str__(self) -> str:
        timing = " regular" if self.regular else ""
        return f"D={self.change_rate:g} p={self.crawl_rate:g}{timing}"


SETTINGS = (
    Setting(5.0, 3.0, False, (0.75, 0.6)),
    Setting(500.0, 50.0, False, (0.8, 0.5)),
    Setting(5.0, 3.0, True, (0.75, 0.6)),
    Setting(15.0, 3.0, True, (0.75, 0.6)),
)

PUBLISHED = {  # docs/theory.md#which-estimator-when: RMSE after 100, 1,000 crawls
    "naive": ("0.62 0.63", "0.91 0.91", "0.51 0.51", "0.80 0.80"),
    "lln": ("0.207 0.067", "0.38 0.12", "1.74 1.60", "14.5 31"),
    "sa": ("0.201 0.075", "0.43 0.23", "1.34 1.54", "0.97 2.7"),
    "sam": ("0.243 0.115", "0.26 0.14", "1.57 1.60", "1.8 5.8"),
    "mle": ("0.154 0.049", "0.22 0.07", "0.127 0.040", "0.15 0.08"),
    "gamma": ("0.160 0.049", "0.22 0.07", "0.131 0.040", "0.16 0.09"),
}


class Error(NamedTuple):
    """A root mean square relative error and its standard error."""

    rmse: float
    standard_error: float


def estimators(setting: Setting) -> tuple[Estimator[Any], ...]:
    prior = Prior(0.5, 0.5 / setting.crawl_rate)
    eta, beta = setting.exponents
    return (
        Naive(prior),
        LLN(prior=prior),
        SA(eta, prior),
        SAM(eta, beta, prior=prior),
        MM(prior=prior),
        MLE(prior=prior),
        BinnedMLE(shortest=1e-3 / setting.crawl_rate, prior=prior),
        Gamma(prior),
        LogNormal(prior),
    )


def crawls(setting: Setting, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the intervals and changes of all runs, shape (crawls, runs)."""
    rng = np.random.default_rng(SEED)
    shape = (max(CRAWLS), runs)
    mean = 1.0 / setting.crawl_rate
    interval = np.full(shape, mean) if setting.regular else rng.exponential(mean, shape)
    return interval, rng.random(shape) < -np.expm1(-setting.change_rate * interval)


def estimates(
    estimator: Estimator[Any], interval: np.ndarray, changed: np.ndarray, crawl_rate: float
) -> Iterator[np.ndarray]:
    """Yield the estimates of every run after each number of crawls in `CRAWLS`."""
    n = interval.shape[1]
    if estimator.needs_history:
        for k in CRAWLS:
            page = np.tile(np.arange(n), k)
            history = gather_history(page, interval[:k].ravel(), changed[:k].ravel(), n)
            yield estimator.change_rate(history)
        return
    state = estimator.init(n)
    for k, (days, change) in enumerate(zip(interval, changed, strict=True), start=1):
        state = estimator.update(state, days, change, crawl_rate)
        if k in CRAWLS:
            yield estimator.change_rate(state)


def estimates_fitted(
    gamma: Gamma, interval: np.ndarray, changed: np.ndarray
) -> Iterator[np.ndarray]:
    """Yield the estimates of Gamma with its prior fitted to all runs after every crawl.

    In production the prior is fitted to a corpus, but pages of a corpus differ. The estimates
    therefore show how a fit behaves, not how much it improves.
    """
    state, start = gamma.init(interval.shape[1]), gamma
    for k, (days, change) in enumerate(zip(interval, changed, strict=True), start=1):
        state = gamma.update(state, days, change)
        gamma = replace(start, prior=fit_gamma_prior(*start.evidence(state)))
        if k in CRAWLS:
            yield gamma.change_rate(state)


def error(estimate: np.ndarray, change_rate: float) -> Error:
    square = (estimate / change_rate - 1.0) ** 2
    rmse = float(np.sqrt(square.mean()))
    return Error(rmse, float(square.std() / (2.0 * rmse * np.sqrt(square.size))))


def accuracy(runs: int) -> dict[str, dict[str, list[Error]]]:
    """Return the errors after each number of crawls, by estimator and setting."""
    table: dict[str, dict[str, list[Error]]] = {}
    for setting in SETTINGS:
        interval, changed = crawls(setting, runs)
        for estimator in estimators(setting):
            estimated = estimates(estimator, interval, changed, setting.crawl_rate)
            errors = [error(estimate, setting.change_rate) for estimate in estimated]
            table.setdefault(estimator.name, {})[str(setting)] = errors
        alike = estimates_fitted(Gamma(Prior(0.5, 0.5 / setting.crawl_rate)), interval, changed)
        errors = [error(estimate, setting.change_rate) for estimate in alike]
        table.setdefault("gamma, fitted", {})[str(setting)] = errors
    return table


def exact(setting: Setting, runs: int) -> dict[str, list[float]]:
    """Return the RMSE of mean and mode of the exact posterior on Gamma's prior.

    For regular crawls the number of changes is a sufficient statistic, and a grid of rates
    integrates the posterior. The difference between mean and mode is due to the choice of estimate,
    the difference between the mean and Gamma to the approximation.
    """
    interval, changed = crawls(setting, runs)
    tau, rate = interval[0, 0], setting.crawl_rate * np.exp(np.linspace(-5.0, 5.0, 20_001))
    errors: dict[str, list[float]] = {"mean": [], "mode": []}
    for k in CRAWLS:
        changes, run = np.unique(changed[:k].sum(axis=0), return_inverse=True)
        log = changes[:, np.newaxis] * np.log(-np.expm1(-rate * tau))
        log -= rate * tau * (k - changes[:, np.newaxis])
        log -= 0.5 * rate / setting.crawl_rate + 0.5 * np.log(rate)
        weight = rate * np.exp(log - log.max(axis=1, keepdims=True))  # the grid is even in ln rate
        mean, mode = weight @ rate / weight.sum(axis=1), rate[log.argmax(axis=1)]
        errors["mean"].append(error(mean[run], setting.change_rate).rmse)
        errors["mode"].append(error(mode[run], setting.change_rate).rmse)
    return errors


def agrees(measured: Error, published: str) -> bool:
    """Return whether errors agree within four joint standard errors and the figure's rounding."""
    _, _, digits = published.partition(".")
    rounding = 0.5 * 10.0 ** -len(digits)
    return abs(measured.rmse - float(published)) <= 4 * 2**0.5 * measured.standard_error + rounding


def learning(estimator: Estimator[Any], n: int, timing: str) -> list[float]:
    """Return the excess harmonic cost after each of `LEARNING_DAYS` of scheduling by estimates."""
    rng = np.random.default_rng(SEED)
    importance = np.exp(rng.normal(np.log(10.0), 1.5, n))
    truth = np.exp(rng.normal(np.log(0.3), 1.2, n))
    incomplete, bandwidth = np.zeros(n, bool), 0.2 * n

    def cost(crawl_rate: np.ndarray) -> float:
        return float(costs(importance, truth, crawl_rate, 0 * truth, incomplete).harmonic.sum())

    least = cost(allocate_harmonic(importance, truth, incomplete, bandwidth).crawl_rate)
    unfitted, state = estimator, estimator.init(n)
    crawl_rate, last, interval_factor = np.full(n, bandwidth / n), np.zeros(n), phase(np.arange(n))
    excess = []
    for hour in range(1, 24 * LEARNING_DAYS[-1] + 1):
        now = hour / 24
        page = np.flatnonzero((now - last) * crawl_rate >= interval_factor)
        interval = now - last[page]
        changed = rng.random(page.size) < -np.expm1(-truth[page] * interval)
        previous = estimator.State(*(column[page] for column in state))
        for column, new in zip(
            state, estimator.update(previous, interval, changed, crawl_rate[page]), strict=True
        ):
            column[page] = new
        last[page] = now
        interval_factor[page] = rng.exponential(size=page.size) if timing == "poisson" else 1.0
        if hour % 24:
            continue
        if isinstance(unfitted, Gamma | LogNormal):
            estimator = replace(unfitted, prior=fit_gamma_prior(*unfitted.evidence(state)))
        change_rate = estimator.change_rate(state)
        change_rate = np.where(change_rate > 0, change_rate, DEFAULT_PRIOR.mean)
        crawl_rate = allocate_harmonic(importance, change_rate, incomplete, bandwidth).crawl_rate
        if now in LEARNING_DAYS:
            excess.append(cost(crawl_rate) / least - 1.0)
    return excess


def seconds(call: Any, repeats: int) -> float:
    call()
    return statistics.median(timeit.repeat(call, number=1, repeat=repeats))


def update_times(batch: int, repeats: int) -> dict[str, float]:
    """Return nanoseconds per observation of each estimator whose memory is constant."""
    rng = np.random.default_rng(SEED)
    interval, changed = rng.exponential(3.0, batch), rng.random(batch) < 0.4
    crawl_rate = np.full(batch, 0.3)
    times = {}
    for estimator in (
        *estimators(SETTINGS[0]),
        CompleteObservations(),
        Gamma(half_life_days=365.0),
    ):
        if estimator.needs_history:
            continue
        state = estimator.init(batch)
        for _ in range(3):
            state = estimator.update(state, interval, changed, crawl_rate)
        per_call = seconds(
            lambda e=estimator, s=state: e.update(s, interval, changed, crawl_rate), repeats
        )
        fading = getattr(estimator, "half_life_days", None) is not None
        times[estimator.name + (" with drift" if fading else "")] = per_call / batch * 1e9
    return times


def url_groups_fit_time(pages: int, n_url_groups: int, repeats: int) -> float:
    """Return the seconds of `fit_url_groups` with groups that differ as much as pages within."""
    rng = np.random.default_rng(SEED)
    url_group = rng.integers(0, n_url_groups, pages)
    days = rng.exponential(200.0, pages)
    mean = rng.gamma(1.0, 0.01, n_url_groups)[url_group]
    changes = rng.poisson(rng.gamma(1.0, mean) * days).astype(np.float64)
    corpus = fit_gamma_prior(changes, days)
    return seconds(lambda: fit_url_groups(changes, days, url_group, corpus, n_url_groups), repeats)


def prior_fit_time(pages: int, repeats: int) -> float:
    rng = np.random.default_rng(SEED)
    days = rng.exponential(60.0, pages)
    changes = rng.poisson(rng.gamma(0.5, 1 / 15.0, pages) * days).astype(float)
    return seconds(lambda: fit_gamma_prior(changes, days), repeats)


def timings(batch: int = 10_000, pages: int = 1_000_000, repeats: int = 51) -> list[dict[str, Any]]:
    """Return the rows of the second table of `benchmarks.core`: name, figure, unit, target."""
    rows = [
        (f"update {name}", ns, f"ns, batch of {batch:,}")
        for name, ns in update_times(batch, repeats).items()
    ]
    rows.append(("prior fit", prior_fit_time(pages, 5), f"s, {pages:,} pages"))
    n_url_groups = pages // PAGES_A_URL_GROUP
    fit_unit = f"s, {pages:,} pages in {n_url_groups:,} url_groups"
    rows.append(("url_groups fit", url_groups_fit_time(pages, n_url_groups, 5), fit_unit))
    return [
        {"what": what, "figure": figure, "unit": unit, "target": TARGETS.get(what)}
        for what, figure, unit in rows
    ]


def show_timings(console: Console, rows: list[dict[str, Any]]) -> None:
    view = Table("", "median", "target", "unit", title="Estimators")
    for row in rows:
        target = "" if row["target"] is None else f"{row['target']:g}"
        view.add_row(row["what"], f"{row['figure']:.3g}", target, row["unit"])
    console.print(view)


def show_accuracy(console: Console, table: dict[str, dict[str, list[Error]]]) -> bool:
    """Print measured over published figures; return whether all agree."""
    view = Table("", *map(str, SETTINGS), title=f"RMSE / change rate after {CRAWLS} crawls")
    good = True
    for name, row in table.items():
        cells = []
        for index, setting in enumerate(SETTINGS):
            errors = row[str(setting)]
            text = " ".join(f"{entry.rmse:.3g}" for entry in errors)
            if name in PUBLISHED:
                figures = PUBLISHED[name][index].split()
                match = all(map(agrees, errors, figures))
                good &= match
                text += f"  ({' '.join(figures)}{'' if match else ' !'})"
            cells.append(text)
        view.add_row(name, *cells)
    console.print(view)
    console.print("In brackets: the published figure; ! beyond four standard errors.")
    for index, k in enumerate(CRAWLS):
        ratios = (
            f"{table['gamma'][s][index].rmse / table['mle'][s][index].rmse:.3f} ({s})"
            for s in map(str, SETTINGS)
        )
        console.print(f"Gamma / MLE after {k}: {', '.join(ratios)}")
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=51)
    parser.add_argument("--json", type=Path, default=Path("bench-out/estimators.json"))
    options = parser.parse_args()
    console = Console()

    table = accuracy(options.runs)
    good = show_accuracy(console, table)

    posterior = {
        str(setting): exact(setting, options.runs) for setting in SETTINGS if setting.regular
    }
    for name, row in posterior.items():
        text = "; ".join(
            f"{of} {' '.join(f'{rmse:.3g}' for rmse in figures)}" for of, figures in row.items()
        )
        console.print(f"Exact posterior on Gamma's prior, {name}: {text}")

    learned = {
        f"{estimator.name}, {timing}": learning(estimator, 4000, timing)
        for estimator, timing in LEARNERS
    }
    for name, excess in learned.items():
        text = " ".join(f"{share:.2%}" for share in excess)
        console.print(f"Excess cost after {LEARNING_DAYS} days of learning, {name}: {text}")

    times = timings(options.batch, options.pages, options.repeats)
    show_timings(console, times)

    figures = {
        "runs": options.runs,
        "rmse": {
            name: {setting: [e._asdict() for e in errors] for setting, errors in row.items()}
            for name, row in table.items()
        },
        "published_agrees": good,
        "exact_posterior": posterior,
        "excess_cost": learned,
        "timings": times,
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
