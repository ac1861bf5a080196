"""K19, experiment 3: change rates are learned while they determine the crawl rates.

20 episodes of 21 days, each on 100,000 pages. LLC, LLCA and BLLC(0.4) are K19's, with its
estimator and crawls at random times. Recrawl is the service's default: the optimum as in LLC, but
from Gamma posteriors, and crawls on time. For all policies, an allocation's cost is K19's closed
form with crawls at random times. The excess is over LC with known change rates.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recrawl_lab.experiments.base import Experiment, Result, ResultTable, Setup
from recrawl_lab.experiments.checks import Check, Order, apart
from recrawl_lab.experiments.k19_corpus import STAND_IN, Corpus, Cost, cost, made_up, read_pages
from recrawl_lab.experiments.k19_learning import Policy, Posterior, learned
from service.core.allocation.alternatives import allocate_approximate, allocate_binary_floor
from service.core.allocation.harmonic import allocate_harmonic
from service.model.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGES, EPISODES, DAYS = 100_000, 20, 21
LEAST_EPISODES = 2
SHOWN = (1, 2, 3, 5, 10, 15, 21)
SETTLED = 0.02
"""Maximum distance from its last cost of a policy that has converged, share of that cost."""
TARGETS = {3: 0.093, 15: 0.029, 60: 0.0089}
"""Excess harmonic cost of the Gamma estimator by day, in an independent simulation.

The simulation has periodic crawls of 4,000 pages without complete observations. For comparison
Recrawl plays one longer episode, in which no page has complete observations.
"""
NORMAL_95 = 1.96
OVERSPENT = (
    "crawls / bandwidth above 1: more pings arrive than were estimated, so that the excess of a "
    "policy that crawls on pings is a little too small"
)

POLICIES = (
    Policy("LLC", allocate_harmonic),
    Policy("LLCA", allocate_approximate),
    Policy("BLLC(0.4)", allocate_binary_floor, knows_complete=False),
    Policy("Recrawl", allocate_harmonic, learner=Posterior, on_time=True),
)


class CostCurve(NamedTuple):
    """(E, D) costs after each day of each episode, over those of LC with known rates."""

    harmonic: Floats
    binary: Floats
    used: Floats
    """(E, D) crawls a day on the clock and expected ones on pings, over the bandwidth."""

    def settled(self) -> int:
        """Return the day after which the mean harmonic cost stays near its last value."""
        mean = self.harmonic.mean(axis=0)
        far = np.flatnonzero(np.abs(mean - mean[-1]) > SETTLED * mean[-1])
        return int(far[-1]) + 2 if far.size else 1


def learning(setup: Setup) -> Result:
    """Run experiment 3."""
    rng = setup.rng()
    every = None if setup.data is None else read_pages(setup.data, setup.progress)
    n_pages, n_episodes = setup.runs(PAGES), max(LEAST_EPISODES, round(EPISODES * setup.scale))
    episodes: dict[str, list[CostCurve]] = {policy.name: [] for policy in POLICIES}
    read = 0.0 if every is None else 0.5
    for episode in range(n_episodes):
        if every is None:
            pages = made_up(rng, n_pages)
        else:
            pages = every.pick(rng.integers(len(every.importance), size=n_pages))
        least = cost(pages, allocate_harmonic(*pages, pages.bandwidth))
        for done, policy in enumerate(POLICIES, start=1):
            episodes[policy.name].append(_episode(policy, pages, least, rng, DAYS))
            share = (episode + done / len(POLICIES)) / (n_episodes + 1)
            setup.progress(read + (1.0 - read) * share)
    by_clock = pages._replace(complete=np.zeros_like(pages.complete))
    least = cost(by_clock, allocate_harmonic(*by_clock, by_clock.bandwidth))
    longer = _episode(POLICIES[-1], by_clock, least, rng, max(TARGETS))
    setup.progress(1.0)
    curves = {
        name: CostCurve(*(np.stack(column) for column in zip(*each, strict=True)))
        for name, each in episodes.items()
    }
    return Result(
        title=f"Learning while scheduling, {n_episodes} episodes of {DAYS} days, {n_pages:,} pages",
        tables=[_table(curves, which) for which in ("harmonic", "binary")],
        checks=_checks(curves, longer),
        draw=lambda figure: _draw(figure, curves),
        notes=(*(() if setup.data else (STAND_IN,)), OVERSPENT),
    )


EXPERIMENTS = (Experiment("k19-3", "learning change rates while scheduling by them", learning),)


def _episode(
    policy: Policy, pages: Corpus, least: Cost, rng: np.random.Generator, n_days: int
) -> CostCurve:
    rows = []
    for allocation, n_crawls in learned(policy, pages, n_days, rng):
        now = cost(pages, allocation)
        on_pings = float(allocation.crawl_probability @ (pages.change_rate * pages.complete))
        used = (n_crawls + on_pings) / pages.bandwidth
        rows.append((now.harmonic / least.harmonic, now.binary / least.binary, used))
    return CostCurve(*np.array(rows).T)


def _checks(curves: dict[str, CostCurve], longer: CostCurve) -> list[Check]:
    names = ("LLC", "LLCA", "BLLC(0.4)")
    settled = {name: float(curves[name].settled()) for name in names}
    harmonic, binary = (
        {name: float(getattr(curves[name], which)[:, -1].mean()) - 1.0 for name in names}
        for which in CostCurve._fields[:2]
    )
    place = "K19 7 (3), 9.6, figure 3"
    return [
        Order(
            claim="LLCA converges faster than LLC (days to within 2 % of the last cost)",
            place=place,
            ascending=({"LLCA": settled["LLCA"]}, {"LLC": settled["LLC"]}),
        ),
        Order(
            claim="BLLC(0.4) converges slowest (days)",
            place=place,
            ascending=apart(settled, "LLC", "LLCA"),
        ),
        Order(
            claim="in the end LLC costs least, LLCA more, BLLC(0.4) most (excess harmonic cost)",
            place=place,
            ascending=tuple({name: harmonic[name]} for name in names),
        ),
        Order(
            claim="LLCA is better than BLLC(0.4) in binary cost too (excess)",
            place=place,
            ascending=({"LLCA": binary["LLCA"]}, {"BLLC(0.4)": binary["BLLC(0.4)"]}),
        ),
        *_checks_of_recrawl(longer),
    ]


def _checks_of_recrawl(longer: CostCurve) -> list[Check]:
    """Compare the service's default with the simulation of its estimator."""
    excess = longer.harmonic - 1.0
    return [
        Order(
            claim=f"Recrawl's excess harmonic cost after {day} days is below the simulated one",
            place="independent simulation of the same estimator",
            ascending=({"Recrawl": float(excess[day - 1])}, {"simulated": simulated}),
        )
        for day, simulated in TARGETS.items()
    ]


def _table(curves: dict[str, CostCurve], which: str) -> ResultTable:
    rows: list[tuple[str | float, ...]] = []
    for name, curve in curves.items():
        excess = getattr(curve, which) - 1.0
        half = NORMAL_95 * excess[:, -1].std(ddof=1) / np.sqrt(len(excess))
        mean = excess.mean(axis=0)
        rows.append(
            (name, *(float(mean[d - 1]) for d in SHOWN), float(half), float(curve.used.mean()))
        )
    return ResultTable(
        f"excess {which} cost over known change rates after … days",
        ("policy", *map(str, SHOWN), "95 % ±", "crawls / bandwidth"),
        rows,
    )


def _draw(figure: "Figure", curves: dict[str, CostCurve]) -> None:
    figure.set_size_inches(10, 4)
    days = np.arange(1, DAYS + 1)
    for axes, which in zip(figure.subplots(1, 2), ("harmonic", "binary"), strict=True):
        for name, curve in curves.items():
            values = getattr(curve, which)
            mean = values.mean(axis=0)
            half = NORMAL_95 * values.std(axis=0, ddof=1) / np.sqrt(len(values))
            (line,) = axes.plot(days, mean, label=name)
            axes.fill_between(
                days, mean - half, mean + half, color=line.get_color(), alpha=0.3, lw=0
            )
        axes.axhline(1.0, color="black", lw=1, ls="--")
        axes.set(title=f"{which} cost / that of LC with known rates", xlabel="days")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(curves), frameon=False)
