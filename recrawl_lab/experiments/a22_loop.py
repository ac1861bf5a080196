"""A22, figure 6 (section 5): crawl rates from estimates, which come from crawls at those rates.

The experiment has 100 pages; ten of them change often and matter more. Every page starts at the
same crawl rate. In each round each page is crawled 50 times on a Poisson clock at its rate, and
the estimators process the crawls. Their estimates determine the next crawl rates by the optimum of
freshness (Azar et al. 2018, algorithm 2), which is the service's binary objective.

The extracted text of the paper lacks the numbers of this setup. Our numbers: the ten pages account
for 80 % of 100 changes a day and for half of the importance, and the bandwidth is 100 crawls a
day. A page with a crawl rate of 0 is not crawled in that round, so its estimate does not change.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recrawl_lab.experiments.base import Experiment, Result, ResultTable, Setup
from recrawl_lab.experiments.checks import Check, Order, apart
from recrawl_lab.experiments.runs import INK, start_at
from service.core.allocation.alternatives import allocate_binary
from service.core.costs import costs
from service.core.estimators.base import Estimator
from service.core.estimators.gamma import Gamma
from service.core.estimators.lln import LLN
from service.core.estimators.naive import Naive
from service.core.estimators.stochastic import SA, SAM
from service.model.arrays import Bools, Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUNS, ROUNDS, ITERATIONS = 100, 20, 50
N_PAGES, N_FREQUENT = 100, 10
BANDWIDTH = 100.0
SHOWN = (1, 2, 5, 10, 20)
INITIALLY = 2
"""Number of rounds that stand for the paper's "at least initially"."""

FREQUENT: Bools = np.arange(N_PAGES) < N_FREQUENT
CHANGE_RATE = np.where(FREQUENT, 80.0 / N_FREQUENT, 20.0 / (N_PAGES - N_FREQUENT))
IMPORTANCE = np.where(FREQUENT, 0.5 / N_FREQUENT, 0.5 / (N_PAGES - N_FREQUENT))
NO_PINGS: Bools = np.zeros(N_PAGES, np.bool_)


class Loop(NamedTuple):
    """(ROUNDS,) measures of the crawl rates after each round, averaged over the runs."""

    frequent: Floats
    """Mean crawl rate of a frequently changing page."""
    other: Floats
    off: Floats
    """Sum of the differences from the optimal crawl rates, over the bandwidth."""
    excess: Floats
    """Share of time out of date, over that of the optimum, less 1."""
    starved: Floats
    """Share of the pages without crawls."""


def optimum() -> Floats:
    """Return the optimal crawl rates for the true change rates, 1/day."""
    return allocate_binary(IMPORTANCE, CHANGE_RATE, NO_PINGS, BANDWIDTH).crawl_rate


def cost(crawl_rate: Floats) -> float:
    """Return the importance-weighted share of time out of date."""
    stale = costs(IMPORTANCE, CHANGE_RATE, crawl_rate, np.zeros(N_PAGES), NO_PINGS).binary
    return float(stale.sum())


def close_the_loop(estimator: Estimator[Any], rng: np.random.Generator, n_runs: int) -> Loop:
    """Play all rounds of R runs; every estimator determines its own crawls."""
    best, least = optimum(), cost(optimum())
    truth = np.tile(CHANGE_RATE, n_runs)
    state = estimator.init(len(truth))
    crawl_rate = np.full(len(truth), BANDWIDTH / N_PAGES)
    rounds: list[tuple[float, ...]] = []
    for _ in range(ROUNDS):
        page = np.flatnonzero(crawl_rate)
        learnt = estimator.State(*(column[page] for column in state))
        for _ in range(ITERATIONS):
            interval = rng.exponential(1.0 / crawl_rate[page])
            changed = rng.random(len(page)) < -np.expm1(-truth[page] * interval)
            learnt = estimator.update(learnt, interval, changed, crawl_rate[page])
        for column, new in zip(state, learnt, strict=True):
            column[page] = new
        by_run = estimator.change_rate(state).reshape(n_runs, N_PAGES)
        rates = np.array(
            [allocate_binary(IMPORTANCE, row, NO_PINGS, BANDWIDTH).crawl_rate for row in by_run]
        )
        crawl_rate = rates.ravel()
        rounds.append(
            (
                float(rates[:, FREQUENT].mean()),
                float(rates[:, ~FREQUENT].mean()),
                float(np.abs(rates - best).sum(axis=1).mean()) / BANDWIDTH,
                float(np.mean([cost(row) for row in rates])) / least - 1.0,
                float((rates == 0).mean()),
            )
        )
    return Loop(*np.array(rounds).T)


def closed_loop(setup: Setup) -> Result:
    """Run figure 6."""
    start = start_at(BANDWIDTH / N_PAGES)
    chosen: tuple[Estimator[Any], ...] = (
        Naive(start),
        LLN(prior=start),
        SA(prior=start),
        SAM(prior=start),
        Gamma(start),
    )
    loops: dict[str, Loop] = {}
    for estimator in chosen:
        loops[estimator.name] = close_the_loop(estimator, setup.rng(), setup.runs(RUNS))
        setup.progress(len(loops) / len(chosen))
    best = optimum()
    measures = (
        ("mean crawl rate of a frequently changing page after … rounds", "frequent", best[0]),
        ("mean crawl rate of another page after … rounds", "other", best[-1]),
        ("crawl rates off the optimum, share of the bandwidth, after … rounds", "off", 0.0),
        ("excess share of time out of date after … rounds", "excess", 0.0),
        ("share of the pages starved after … rounds", "starved", float((best == 0).mean())),
    )
    return Result(
        title=f"Crawl rates from estimates, {N_PAGES} pages, {setup.runs(RUNS)} runs, "
        f"{ITERATIONS} crawls of each page a round",
        tables=[_table(title, loops, which, float(at_best)) for title, which, at_best in measures],
        checks=_checks(loops),
        draw=lambda figure: _draw(figure, loops),
        notes=(
            (
                "the numbers of the paper's setup are lost in its extracted text: 10 of 100 pages "
                "with 80 % of 100 changes a day and half of the importance, 100 crawls are ours"
            ),
        ),
    )


EXPERIMENTS = (Experiment("a22-6", "closed loop of estimates and crawl rates", closed_loop),)


def _checks(loops: dict[str, Loop]) -> list[Check]:
    names = ("sa", "sam", "lln")
    last = {name: float(loops[name].off[-1] / loops[name].off[0]) for name in names}
    return [
        *(
            _sa_and_sam_lead(
                claim, {name: float(getattr(loops[name], which)[k]) for name in names}, k
            )
            for claim, which in (
                ("crawl rates from SA and SAM are nearer to the optimum than from LLN", "off"),
                ("pages are out of date for less time with SA and SAM than with LLN", "excess"),
            )
            for k in range(INITIALLY)
        ),
        Order(
            claim="the crawl rates approach the optimal ones (distance, last over first round)",
            place="A22 5 (journal), figure 6",
            ascending=(last, {"half": 0.5}),
        ),
    ]


def _sa_and_sam_lead(claim: str, measure: dict[str, float], k: int) -> Check:
    return Order(
        claim=f"{claim}, round {k + 1}",
        place="A22 5 (journal), figure 6",
        ascending=apart(measure, "sa", "sam"),
    )


def _table(title: str, loops: dict[str, Loop], which: str, at_best: float) -> ResultTable:
    """Return a table of one measure after some of the rounds, with its value at the optimum."""
    rows: list[tuple[str | float, ...]] = [
        (name, *(float(getattr(loop, which)[k - 1]) for k in SHOWN)) for name, loop in loops.items()
    ]
    rows.append(("optimum", *(at_best for _ in SHOWN)))
    return ResultTable(title, ("estimator", *map(str, SHOWN)), rows)


def _draw(figure: "Figure", loops: dict[str, Loop]) -> None:
    figure.set_size_inches(11, 3.6)
    frequent, other, excess = figure.subplots(1, 3)
    best, after = optimum(), np.arange(1, ROUNDS + 1)
    for name, loop in loops.items():
        frequent.plot(after, loop.frequent, color=INK[name], label=name)
        other.plot(after, loop.other, color=INK[name])
        excess.semilogy(after, loop.excess, color=INK[name])
    frequent.axhline(best[0], color="black", lw=1, ls="--")
    other.axhline(best[-1], color="black", lw=1, ls="--")
    frequent.set(title="pages that change often", xlabel="rounds", ylabel="crawls a day")
    other.set(title="other pages", xlabel="rounds")
    excess.set(title="excess share of time out of date", xlabel="rounds")
    frequent.legend(frameon=False, fontsize=8)
