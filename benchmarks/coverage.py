"""Measure how often the interval of a page holds its true change rate, and the price of `bursty`.

    python -m benchmarks.coverage [--corpora 10] [--pages 3000] [--json FILE]

Pages change by Poisson processes of known rates. Directories have mean rates about that of the
corpus, and pages have rates about that of their directory; both are Gamma or log-normal, of the
same variance. The shape of the Gamma is 1/variance of the ratio to the mean: the lower, the more
they differ. All pages are crawled on time. After each crawl the prior is fitted as an epoch does,
with evidence that fades by the default half-life.

The interval is that of GET /pages/{id}: the central 90 % of the posterior on the prior of the
page's URL group. Coverage is the share of pages whose true rate lies within it, after a few
numbers of crawls. Its standard error is that of the mean over corpora, because pages of one corpus
share their priors. The column "known" has `gamma` with the true means of the directories and the
true shape of the pages in place of the fitted ones: the rest is due to fitting them.

The price of `bursty` on such pages, which never change their habits, is its excess log loss over
`gamma` when it forecasts the outcome of each crawl. Both estimators see the same crawls.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from recrawl_lab.policies.lineup import HALF_LIFE_DAYS
from service.core.estimators import make_estimator
from service.core.estimators.base import Estimator
from service.core.forecast import probability_unchanged
from service.core.pooling import UrlGroupPrior
from service.core.prior import Prior
from service.model.arrays import Bools, Floats, Ints

SEED = 20240229
ESTIMATORS = ("gamma", "bursty", "lognormal")
KNOWN = "known"
"""Name of `gamma` on the true prior."""
DISTRIBUTIONS = ("gamma", "lognormal")
DIRECTORIES = (3, 20, 200, None)
"""Pages in each directory; None: pages without directories, on the prior of the corpus."""
CRAWLS = (5, 20, 80)
"""Numbers of crawls of each page after which coverage is measured."""
INTERVAL = 10.0
"""Time between two crawls of a page, days."""
MEAN_RATE = 0.05
"""Mean change rate of all pages, 1/day: a change in every other interval."""
MASS = 0.9
"""Probability of the interval that the service shows."""


class Shapes(NamedTuple):
    """Shapes of the distributions of rates: the variance of a ratio to the mean is 1/shape."""

    pages: float
    """Shape of the pages' rates about the mean of their directory, or of the corpus."""
    directories: float
    """Shape of the directories' means about the mean of the corpus."""


SHAPES = (Shapes(1.0, 1.0), Shapes(0.5, 0.5), Shapes(3.0, 0.7))
"""The first is shown by the table, the others check that little depends on it."""


SHARES = {
    "coverage": "Share of pages whose rate lies in the interval",
    "quiet": "The same among pages that no crawl has found changed",
    "below": "Share of pages whose rate lies below the interval",
}
"""Title of each table by the field of `Outcome`."""


class Setting(NamedTuple):
    """One kind of corpus."""

    shapes: Shapes
    distribution: str
    per_directory: int | None
    """Pages in each directory; None: no directories."""


class Corpus(NamedTuple):
    """Pages with known change rates."""

    change_rate: Floats
    """(N,) true rates, 1/day."""
    url_group: Ints | None
    """(N,) directories; None: no directories."""
    directory_rate: Floats
    """(S,) true mean rates of directories, 1/day; without directories that of the corpus."""
    page_shape: float
    """Shape of the pages' rates about these means."""


class Outcome(NamedTuple):
    """Results of one estimator in one corpus."""

    coverage: dict[int, float]
    """Share of pages whose rate the interval holds, by number of crawls."""
    below: dict[int, float]
    """Share of pages whose rate is below the interval."""
    quiet: dict[int, float]
    """Coverage among the pages that no crawl has found changed; NaN without such a page."""
    log_loss: float
    """Mean log loss of the forecasts of all crawls."""


def draw(setting: Setting, n_pages: int, rng: np.random.Generator) -> Corpus:
    """Return a corpus of `n_pages` pages whose directories differ in size by at most one page."""
    shapes, of = setting.shapes, setting.distribution
    if setting.per_directory is None:
        rate = MEAN_RATE * factors(of, shapes.pages, n_pages, rng)
        return Corpus(rate, None, np.array([MEAN_RATE]), shapes.pages)
    n_directories = max(1, n_pages // setting.per_directory)
    url_group = np.arange(n_pages) % n_directories
    mean = MEAN_RATE * factors(of, shapes.directories, n_directories, rng)
    rate = mean[url_group] * factors(of, shapes.pages, n_pages, rng)
    return Corpus(rate, url_group, mean, shapes.pages)


def factors(distribution: str, shape: float, n: int, rng: np.random.Generator) -> Floats:
    """Return (n,) random factors of mean 1 and variance 1/shape."""
    if distribution == "gamma":
        return rng.gamma(shape, 1.0 / shape, n)
    variance = np.log1p(1.0 / shape)
    return np.asarray(np.exp(rng.normal(-variance / 2, np.sqrt(variance), n)))


def crawl(corpus: Corpus, rng: np.random.Generator, n_crawls: int = max(CRAWLS)) -> Bools:
    """Return (n_crawls, N) whether each crawl finds a page changed."""
    chance = -np.expm1(-corpus.change_rate * INTERVAL)
    return np.asarray(rng.random((n_crawls, chance.size)) < chance)


def learn(
    estimator: Estimator[Any],
    corpus: Corpus,
    changed: Bools,
    at: tuple[int, ...] = CRAWLS,
    *,
    true_prior: bool = False,
) -> Outcome:
    """Return the coverage after `at` crawls, and the log loss of all forecasts.

    Parameters
    ----------
    true_prior
        Take the intervals on the true prior of the pages; crawls are learnt and forecast as ever.
    """
    n_crawls, n_pages = changed.shape
    days, state = np.full(n_pages, INTERVAL), estimator.init(n_pages)
    fitted, coverage, below, quiet, loss = estimator, {}, {}, {}, 0.0
    for k, outcome in enumerate(changed, start=1):
        forecast = 1.0 - probability_unchanged(of_pages(fitted, corpus.url_group), state, days)
        loss += log_loss(forecast, outcome) / n_crawls
        state = fitted.update(state, INTERVAL, outcome)
        fitted = estimator.fit(state, corpus.url_group, corpus.directory_rate.size, fitted)
        if k in at:
            shown = on_true_prior(fitted, corpus) if true_prior else fitted
            low, high = intervals(shown, corpus.url_group, state)
            held = (low <= corpus.change_rate) & (corpus.change_rate <= high)
            unchanged = ~changed[:k].any(axis=0)
            coverage[k] = float(held.mean())
            below[k] = float(np.mean(corpus.change_rate < low))
            quiet[k] = float(held[unchanged].mean()) if unchanged.any() else np.nan
    return Outcome(coverage, below, quiet, loss)


def of_pages(fitted: Estimator[Any], url_group: NDArray[np.integer] | None) -> Estimator[Any]:
    """Return the estimator with the priors of the URL groups of pages."""
    return fitted if url_group is None else fitted.of_url_groups(url_group)


def on_true_prior(fitted: Any, corpus: Corpus) -> Any:
    """Return the estimator with the true means of directories and the true shape of pages."""
    shape, rate = corpus.page_shape, corpus.directory_rate
    if not isinstance(fitted.prior, UrlGroupPrior):
        return replace(fitted, prior=Prior(shape, shape / float(rate[0])))
    rates = rate.astype(fitted.prior.url_group_rate.dtype)
    return replace(fitted, prior=replace(fitted.prior, within_shape=shape, url_group_rate=rates))


def intervals(
    fitted: Estimator[Any], url_group: NDArray[np.integer] | None, state: Any
) -> tuple[Floats, Floats]:
    """Return the (N,) ends of the intervals that the service shows, 1/day."""
    own: Any = of_pages(fitted, url_group)
    low, high = own.credible_interval(state, MASS)
    return low, high


def log_loss(forecast: Floats, outcome: Bools) -> float:
    """Return the mean log loss of forecast probabilities, nats."""
    chance = np.where(outcome, forecast, 1.0 - forecast)
    return float(-np.log(np.maximum(chance, np.finfo(float).tiny)).mean())


def outcomes(
    setting: Setting, n_pages: int, rng: np.random.Generator, at: tuple[int, ...] = CRAWLS
) -> dict[str, Outcome]:
    """Return the outcome of each estimator in one corpus, from the same crawls."""
    corpus = draw(setting, n_pages, rng)
    changed = crawl(corpus, rng, max(at))
    estimators = {name: make_estimator(name, half_life_days=HALF_LIFE_DAYS) for name in ESTIMATORS}
    learnt = {name: learn(each, corpus, changed, at) for name, each in estimators.items()}
    return learnt | {KNOWN: learn(estimators["gamma"], corpus, changed, at, true_prior=True)}


# -- the table


def row(setting: Setting, corpora: list[dict[str, Outcome]]) -> dict[str, Any]:
    """Return the figures of a setting, as means over corpora with their standard errors."""
    figures = {
        name: {
            k: {
                share: mean([getattr(corpus[name], share)[k] for corpus in corpora])
                for share in SHARES
            }
            for k in CRAWLS
        }
        for name in corpora[0]
    }
    excess = [corpus["bursty"].log_loss / corpus["gamma"].log_loss - 1.0 for corpus in corpora]
    return {
        **setting.shapes._asdict(),
        "distribution": setting.distribution,
        "per_directory": setting.per_directory,
        "intervals": figures,
        "excess_log_loss_of_bursty": mean(excess),
    }


def mean(values: list[float]) -> dict[str, float | None]:
    """Return mean and standard error of the values that are not NaN; null for what is unknown."""
    figures = [value for value in values if not np.isnan(value)]
    error = np.std(figures, ddof=1) / np.sqrt(len(figures)) if len(figures) > 1 else None
    return {
        "mean": float(np.mean(figures)) if figures else None,
        "error": None if error is None else float(error),
    }


def settings() -> Iterator[Setting]:
    yield from (Setting(*each) for each in product(SHAPES, DISTRIBUTIONS, DIRECTORIES))


def show(rows: list[dict[str, Any]], console: Console) -> None:
    for share in SHARES:
        console.print(table(rows, share))
    errors = [
        figures["coverage"]["error"] or np.inf
        for each in rows
        for by_crawls in each["intervals"].values()
        for figures in by_crawls.values()
    ]
    console.print(f"Standard errors of coverage: at most {max(errors):.3f}")
    view = Table("rates", "shapes", "pages a directory", title="Log loss of bursty over gamma's")
    view.add_column("excess")
    for each in rows:
        price = each["excess_log_loss_of_bursty"]
        view.add_row(*labels(each), f"{price['mean']:+.2%} ± {price['error'] or np.inf:.2%}")
    console.print(view)


def table(rows: list[dict[str, Any]], share: str) -> Table:
    """Return the table of a share, with the figures after each number of crawls in one cell."""
    title = f"{SHARES[share]}, after {', '.join(map(str, CRAWLS))} crawls"
    view = Table("rates", "shapes", "pages a directory", *rows[0]["intervals"], title=title)
    for each in rows:
        cells = (
            " ".join(text(figures[share]["mean"]) for figures in by_crawls.values())
            for by_crawls in each["intervals"].values()
        )
        view.add_row(*labels(each), *cells)
    return view


def labels(figures: dict[str, Any]) -> tuple[str, str, str]:
    """Return the words for a setting."""
    shapes = f"{figures['pages']:g}, {figures['directories']:g}"
    return figures["distribution"], shapes, str(figures["per_directory"] or "no directories")


def text(share: float | None) -> str:
    return "none" if share is None else f"{share:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", type=int, default=10)
    parser.add_argument("--pages", type=int, default=3000)
    parser.add_argument("--json", type=Path, default=Path("bench-out/coverage.json"))
    options = parser.parse_args()
    rng = np.random.default_rng(SEED)
    rows = [
        row(setting, [outcomes(setting, options.pages, rng) for _ in range(options.corpora)])
        for setting in settings()
    ]
    show(rows, Console(width=160))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"seed": SEED, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
