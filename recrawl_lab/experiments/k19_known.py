"""K19, experiments 1 and 2: costs of policies with known change rates.

All costs are closed forms (K19's propositions 1 and 4, equations 12 and 13). Policies that ignore
complete observations crawl those pages on the clock like all others.
"""

from typing import TYPE_CHECKING

import numpy as np

from recrawl_lab.experiments.base import Experiment, Result, ResultTable, Setup
from recrawl_lab.experiments.checks import Check, Order, Value, apart, share
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
TWICE, NEARLY_FIVE = 2.0, 5.0
"""Factors by which complete observations reduce the cost, in K19's text and in its supplement.

The supplement does not name the cost.
"""
KINDS = ("harmonic", "binary")

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
        checks=_checks_1(costs, pages, solutions["LC"][1]),
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


def _checks_1(costs: dict[str, Cost], pages: Corpus, lc: Allocation) -> list[Check]:
    harmonic, binary = _by_cost(costs)
    return [
        *_checks_of_harmonic_cost(harmonic),
        *_checks_of_binary_cost(binary),
        _check_of_bandwidth(pages, lc),
        *_checks_of_heuristics(harmonic, binary),
    ]


def _checks_of_harmonic_cost(harmonic: dict[str, float]) -> list[Check]:
    return [
        Order(
            claim="LC significantly outperforms BLC and BLC(0.4) in harmonic cost",
            place="K19 9.4, figure 1",
            ascending=apart({name: harmonic[name] for name in ("LC", "BLC", "BLC(0.4)")}, "LC"),
            margin=PAR,
        ),
        Value(
            claim="LCA is at par with BLC(0.4) in harmonic cost (ratio)",
            place="K19 9.4, figure 1",
            stated=1.0,
            measured=harmonic["LCA"] / harmonic["BLC(0.4)"],
            within=share(PAR),
        ),
        Value(
            claim="BLC starves pages, so its harmonic cost is infinite",
            place="K19 7, 9.3, figure 1",
            stated=np.inf,
            measured=harmonic["BLC"],
            within=share(0.0),
        ),
    ]


def _checks_of_binary_cost(binary: dict[str, float]) -> list[Check]:
    return [
        Order(
            claim="LC outperforms BLC even in binary cost",
            place="K19 7 (2), 9.4, figure 1",
            ascending=({"LC": binary["LC"]}, {"BLC": binary["BLC"]}),
        ),
        Value(
            claim="LC is near-optimal in binary cost (over the cost of BLC)",
            place="K19 7 (1), figure 1",
            stated=1.0,
            measured=binary["LC"] / binary["BLC"],
            within=share(PAR),
        ),
        Value(
            claim="the approximation of LCA weakly affects its binary cost (over the cost of LC)",
            place="K19 7 (3), figure 1",
            stated=1.0,
            measured=binary["LCA"] / binary["LC"],
            within=share(PAR),
        ),
    ]


def _check_of_bandwidth(pages: Corpus, lc: Allocation) -> Check:
    on_pings = lc.crawl_probability @ (pages.change_rate * pages.complete)
    shares = {
        "of the pages": float(pages.complete.mean()),
        "of the bandwidth": float(on_pings) / pages.bandwidth,
    }
    return Order(
        claim="complete pages have a disproportionate share of the bandwidth of LC",
        place="K19 7 (2)",
        ascending=apart(shares, "of the pages"),
        margin=LARGE,
    )


def _by_cost(costs: dict[str, Cost]) -> tuple[dict[str, float], dict[str, float]]:
    return (
        {name: both.harmonic for name, both in costs.items()},
        {name: both.binary for name, both in costs.items()},
    )


def _checks_of_heuristics(harmonic: dict[str, float], binary: dict[str, float]) -> list[Check]:
    finite = {name: value for name, value in harmonic.items() if np.isfinite(value)}
    best, rules = apart(finite, "LC", "LCA", "BLC(0.4)")
    return [
        Order(
            claim="UC and CC are outperformed by a large margin in binary cost",
            place="K19 9.4, figure 1",
            ascending=apart(binary, "UC", "CC")[::-1],
            margin=LARGE,
        ),
        Order(
            claim="UC and CC are outperformed by a large margin in harmonic cost",
            place="K19 9.4, figure 1",
            ascending=(best, rules),
            margin=LARGE,
        ),
        Order(
            claim="CC is the weakest of all in binary cost",
            place="K19 9.3",
            ascending=apart(binary, "CC")[::-1],
        ),
        Order(
            claim="UC outperforms CC in harmonic cost",
            place="K19 9.3",
            ascending=apart(rules, "UC"),
        ),
    ]


def _checks_2(costs: dict[str, Cost]) -> list[Check]:
    both = harmonic, binary = _by_cost(costs)
    gain = {name: cost["LC-IO"] / cost["LC-CO"] for name, cost in zip(KINDS, both, strict=True)}
    without = {name: value for name, value in harmonic.items() if name != "LC-CO"}
    return [
        *(
            Value(
                claim=f"complete observations divide the {kind} cost of LC {words}",
                place=place,
                stated=stated,
                measured=gain[kind],
                within=share(PAR),
            )
            for words, kind, place, stated in (
                ("by 2", "harmonic", "K19 7 (2), figure 2", TWICE),
                ("nearly by 5", "harmonic", "K19 9.5, figure 2", NEARLY_FIVE),
                ("nearly by 5", "binary", "K19 9.5, figure 2", NEARLY_FIVE),
            )
        ),
        Order(
            claim="without them LC still noticeably outperforms BLC and BLC(0.4) in harmonic cost",
            place="K19 9.5, figure 2",
            ascending=apart(without, "LC-IO"),
            margin=PAR,
        ),
        *(
            Value(
                claim=f"without them LC is at par with {name} in binary cost (ratio)",
                place="K19 7 (2), figure 2",
                stated=1.0,
                measured=binary["LC-IO"] / binary[name],
                within=share(PAR),
            )
            for name in ("BLC", "BLC(0.4)")
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
