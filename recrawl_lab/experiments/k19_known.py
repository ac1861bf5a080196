"""K19, experiments 1 and 2: costs of policies with known change rates.

All costs are closed forms (K19's propositions 1 and 4, equations 12 and 13). Policies that ignore
complete observations crawl those pages on the clock like all others.
"""

from typing import TYPE_CHECKING

import numpy as np

from recrawl_lab.experiments.base import Check, Experiment, Result, ResultTable, Setup, within
from recrawl_lab.experiments.k19_corpus import STAND_IN, Corpus, Cost, cost, made_up, read_pages
from service.core.allocation import ALLOCATORS
from service.core.allocation.alternatives import allocate_binary, allocate_binary_floor
from service.core.allocation.harmonic import allocate_harmonic
from service.core.allocation.problem import Allocation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGES = 100_000
CORPUS = 1_000_000
"""Number of synthetic pages in experiment 2; 4 % have complete observations."""
PAR = 0.1
"""Maximum relative difference of costs that are on a par; beyond, one is better."""
LARGE = 0.2
"""Minimum relative difference that is a large margin."""
FACTOR = 2.0
"""Reduction factor of harmonic cost by complete observations in K19."""

POLICIES = {
    "LC": "harmonic",
    "LCA": "approximate",
    "BLC": "binary",
    "BLC(0.4)": "binary_floor",
    "UC": "uniform",
    "CC": "change_rate",
}
"""Objectives of the service by K19's names."""


def known_rates(setup: Setup) -> Result:
    """Run experiment 1: all pages."""
    pages = _pages(setup, PAGES)
    solutions: dict[str, tuple[Cost, Allocation]] = {}
    for name, objective in POLICIES.items():
        allocation = ALLOCATORS[objective](*pages, pages.bandwidth)
        solutions[name] = cost(pages, allocation), allocation
        setup.progress(0.5 + 0.5 * len(solutions) / len(POLICIES))
    costs = {name: pair[0] for name, pair in solutions.items()}
    return Result(
        title=f"Known change rates, {len(pages.importance):,} pages, "
        f"{pages.complete.mean():.1%} with complete observations",
        tables=[_table(pages, solutions)],
        checks=_checks_1(costs),
        draw=lambda figure: _draw(figure, costs),
        notes=() if setup.data else (STAND_IN,),
    )


def complete_only(setup: Setup) -> Result:
    """Run experiment 2: only pages with complete observations."""
    every = _pages(setup, CORPUS)
    pages = every.pick(every.complete)
    nothing_announced = np.zeros(len(pages.importance), np.bool_)
    allocations = {
        "LC-CO": allocate_harmonic(*pages, pages.bandwidth),
        "LC-IO": allocate_harmonic(*pages[:2], nothing_announced, pages.bandwidth),
        "BLC": allocate_binary(*pages, pages.bandwidth),
        "BLC(0.4)": allocate_binary_floor(*pages, pages.bandwidth),
    }
    solutions = {name: (cost(pages, each), each) for name, each in allocations.items()}
    costs = {name: pair[0] for name, pair in solutions.items()}
    setup.progress(1.0)
    return Result(
        title=f"Known change rates, {len(pages.importance):,} pages, all with complete "
        "observations",
        tables=[_table(pages, solutions)],
        checks=_checks_2(costs),
        draw=lambda figure: _draw(figure, costs),
        notes=() if setup.data else (STAND_IN,),
    )


EXPERIMENTS = (
    Experiment("k19-1", "policies with known change rates", known_rates),
    Experiment("k19-2", "the same on pages with complete observations only", complete_only),
)


def _pages(setup: Setup, n_made_up: int) -> Corpus:
    if setup.data is not None:
        return read_pages(setup.data, setup.progress)
    return made_up(setup.rng(), setup.runs(n_made_up))


def _checks_1(costs: dict[str, Cost]) -> list[Check]:
    lc, lca, blc, floored, *_ = costs.values()
    return [
        Check(
            f"LC is better than BLC and BLC(0.4) in harmonic cost, by over {PAR:.0%}",
            f"{lc.harmonic:.2f} against {_finite(blc.harmonic)} and {floored.harmonic:.2f}",
            lc.harmonic * (1 + PAR) <= min(blc.harmonic, floored.harmonic),
        ),
        Check(
            f"LCA is on a par with BLC(0.4) in harmonic cost, within {PAR:.0%}",
            f"{lca.harmonic:.2f} against {floored.harmonic:.2f}",
            within(PAR, lca.harmonic, floored.harmonic),
        ),
        Check(
            "LC beats BLC even in binary cost",
            f"{lc.binary:.2f} against {blc.binary:.2f}",
            lc.binary < blc.binary,
        ),
        Check(
            "BLC starves pages, at infinite harmonic cost",
            _finite(blc.harmonic),
            not np.isfinite(blc.harmonic),
        ),
        *_checks_of_heuristics(costs),
    ]


def _checks_of_heuristics(costs: dict[str, Cost]) -> list[Check]:
    lc, lca, blc, floored, uniform, by_change = costs.values()
    best = (lc, lca, blc, floored)
    heuristic = (uniform, by_change)
    return [
        Check(
            "UC and CC are outperformed by a large margin in binary cost",
            f"{uniform.binary:.2f} and {by_change.binary:.2f} against at most "
            f"{max(c.binary for c in best):.2f}",
            min(c.binary for c in heuristic) >= (1 + LARGE) * max(c.binary for c in best),
        ),
        Check(
            "and by those with finite ones in harmonic cost",
            f"{uniform.harmonic:.2f} and {by_change.harmonic:.2f} against at most "
            f"{max(c.harmonic for c in (lc, lca, floored)):.2f}",
            min(c.harmonic for c in heuristic)
            >= (1 + LARGE) * max(c.harmonic for c in (lc, lca, floored)),
        ),
        Check(
            "CC is the weakest of all",
            f"harmonic {by_change.harmonic:.2f}, binary {by_change.binary:.2f}",
            by_change.binary == max(c.binary for c in costs.values())
            and by_change.harmonic >= uniform.harmonic,
        ),
    ]


def _checks_2(costs: dict[str, Cost]) -> list[Check]:
    announced, clock, blc, floored = costs.values()
    gain = clock.harmonic / announced.harmonic
    return [
        Check(
            f"handling complete observations divides the harmonic cost by {FACTOR:g} or more",
            f"by {gain:.2f}, {clock.harmonic:.2f} to {announced.harmonic:.2f}",
            gain >= FACTOR,
        ),
        Check(
            f"without it LC is still better in harmonic cost, by over {PAR:.0%}",
            f"{clock.harmonic:.2f} against {_finite(blc.harmonic)} and {floored.harmonic:.2f}",
            clock.harmonic * (1 + PAR) <= min(blc.harmonic, floored.harmonic),
        ),
        Check(
            f"and on a par with them in binary cost, within {PAR:.0%}",
            f"{clock.binary:.2f} against {blc.binary:.2f} and {floored.binary:.2f}",
            all(within(PAR, clock.binary, other.binary) for other in (blc, floored)),
        ),
    ]


def _table(pages: Corpus, solutions: dict[str, tuple[Cost, Allocation]]) -> ResultTable:
    rows: list[tuple[str | float, ...]] = []
    for name, (costs, allocation) in solutions.items():
        starved = (allocation.crawl_rate == 0) & (allocation.crawl_probability == 0)
        on_pings = float(allocation.crawl_probability @ (pages.change_rate * pages.complete))
        on_clock = float(allocation.crawl_rate[pages.complete].sum())
        rows.append(
            (
                name,
                costs.harmonic if np.isfinite(costs.harmonic) else _finite(costs.harmonic),
                costs.binary,
                float(starved.mean()),
                (on_pings + on_clock) / pages.bandwidth,
            )
        )
    return ResultTable(
        "cost a page",
        ("policy", "harmonic", "binary", "share starved", "bandwidth on complete pages"),
        rows,
    )


def _finite(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else "infinite"


def _draw(figure: "Figure", costs: dict[str, Cost]) -> None:
    figure.set_size_inches(9, 3.6)
    for axes, which in zip(figure.subplots(1, 2), ("harmonic", "binary"), strict=True):
        values = [getattr(each, which) for each in costs.values()]
        most = max(value for value in values if np.isfinite(value))
        for place, value in enumerate(values):
            if np.isfinite(value):
                axes.bar(place, value, color="#1f4e9c")
            else:
                axes.text(place, 0.02 * most, "infinite", rotation=90, ha="center")
        axes.set_xticks(range(len(costs)), list(costs))
        axes.set(title=f"{which} cost a page")
