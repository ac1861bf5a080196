"""GF08, figures 2 and 4: effects of the interval before a new page's first crawl.

The next crawl comes after 80 % of the estimated time between changes. The estimate is the likeliest
one, without a prior. A substitute replaces it while no crawl, or every crawl, found a change.
"""

from typing import TYPE_CHECKING

import numpy as np

from recrawl_lab.experiments.base import Experiment, Result, ResultTable, Setup
from recrawl_lab.experiments.checks import Check, Order, Value, share
from recrawl_lab.experiments.gf08_corpus import CORPUS
from recrawl_lab.experiments.gf08_pages import (
    DAY,
    STAND_IN,
    Paths,
    absolute_deviation,
    corpus,
    follow,
    watched,
)
from recrawl_lab.experiments.plain import ALWAYS, NEITHER, NO_TIME
from service.model.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARE = 0.8
"""Share of the estimated time between changes after which the next crawl comes."""

# -- figure 2

PERIOD = DAY
"""Time between changes of the page, hours."""
STARTS, LONGEST = 50, 700.0
REPEATS = 40
"""Number of paths from each first interval; the paper has one."""
EPOCHS = 50
SHOWN = (1, 2, 5, 10, 15, 20, 50)
EARLY = (10, 15)
"""Numbers of epochs that are mostly edge cases in the paper."""
ACCURATE = 0.25
"""Maximum error of an accurate estimate, share of the true period."""


def paths(setup: Setup) -> Result:
    """Run figure 2."""
    first = np.linspace(LONGEST / STARTS, LONGEST, STARTS)
    starts = np.tile(first, setup.runs(REPEATS))
    played = follow(setup.rng(), np.full(len(starts), 1.0 / PERIOD), starts, EPOCHS, share=SHARE)
    setup.progress(1.0)
    off = np.abs(played.period - PERIOD)
    rows = [
        (
            float(k),
            float(np.median(off[k - 1])),
            *(float((played.edge[k - 1] == edge).mean()) for edge in (NO_TIME, ALWAYS)),
        )
        for k in SHOWN
    ]
    return Result(
        title=f"Paths of the likeliest rate of a page that changes once a day, {len(starts):,} "
        f"paths from first intervals up to {LONGEST:g} hours",
        tables=[
            ResultTable(
                "after so many crawls",
                ("crawls", "median error, hours", "no change so far", "changed each time"),
                list(rows),
            )
        ],
        checks=_path_checks(played, starts, off),
        draw=lambda figure: _draw_paths(figure, played),
    )


def _path_checks(played: Paths, starts: Floats, off: Floats) -> list[Check]:
    at_edge = {f"first {n}": float((played.edge[:n] != NEITHER).mean()) for n in EARLY}
    accurate = off <= ACCURATE * PERIOD
    needed = np.where(accurate.any(axis=0), accurate.argmax(axis=0) + 1, EPOCHS)
    near, far = (float(needed[which].mean()) for which in _thirds(starts))
    return [
        Order(
            claim="most of the first 10-15 epochs are in one of the edge cases (share)",
            place="GF08 4.1, figure 2",
            ascending=({"half": 0.5}, at_edge),
        ),
        Order(
            claim="the number of crawls to accuracy depends heavily on the first interval",
            place="GF08 4.1, figure 2",
            ascending=({"shortest third": near}, {"longest third": far}),
            margin=0.5,
        ),
    ]


def _thirds(starts: Floats) -> tuple[np.ndarray, np.ndarray]:
    return starts <= LONGEST / 3, starts > 2 * LONGEST / 3


def _draw_paths(figure: "Figure", played: Paths) -> None:
    figure.set_size_inches(8, 4)
    axes = figure.subplots()
    after = np.arange(1, EPOCHS + 1)
    axes.semilogy(after, played.period[:, :STARTS], color="0.8", lw=0.6)
    for edge, colour, label in (
        (NO_TIME, "#1f4e9c", "no change so far"),
        (ALWAYS, "#d62728", "changed each time"),
    ):
        epoch, path = np.nonzero(played.edge[:, :STARTS] == edge)
        axes.plot(epoch + 1, played.period[epoch, path], ".", color=colour, ms=4, label=label)
    axes.axhline(PERIOD, color="black", lw=1, ls="--")
    axes.set(xlabel="crawls", ylabel="estimated hours between changes")
    axes.legend(frameon=False, fontsize=8)


# -- figure 4

PAGES = 1_000
CRAWLS = 5
INITIAL = DAY * np.array([0.25, 0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 22, 25])
BEST = 11.0 * DAY
"""Best first interval for the paper's corpus, hours."""
NEAR = 0.25
"""Maximum distance of an interval near the paper's best one, share of the best one."""


def initial_interval(setup: Setup) -> Result:
    """Run figure 4."""
    rng = setup.rng()
    sample = watched(rng, corpus(setup, rng, setup.runs(CORPUS))).change_rate
    change_rate = rng.choice(sample, setup.runs(PAGES))
    deviation = np.empty((len(INITIAL), CRAWLS))
    pooled = np.empty(len(INITIAL))
    for row, hours in enumerate(INITIAL):
        first = np.full(len(change_rate), hours)
        played = follow(rng, change_rate, first, CRAWLS, share=SHARE)
        deviation[row] = [absolute_deviation(period, change_rate) for period in played.period]
        pooled[row] = absolute_deviation(played.period, change_rate)
        setup.progress((row + 1) / len(INITIAL))
    best = float(INITIAL[pooled.argmin()])
    median = float(np.median(1.0 / change_rate))
    return Result(
        title=f"First intervals from {INITIAL[0]:g} hours to {INITIAL[-1] / DAY:g} days, "
        f"{len(change_rate):,} pages",
        tables=[
            ResultTable(
                f"median absolute deviation, hours, over the first {CRAWLS} crawls",
                ("first interval, days", "all", *(f"crawl {k + 1}" for k in range(CRAWLS))),
                [
                    (float(hours / DAY), float(over_all), *map(float, each))
                    for hours, over_all, each in zip(INITIAL, pooled, deviation, strict=True)
                ],
            )
        ],
        checks=_checks(pooled, best),
        draw=lambda figure: _draw_deviation(figure, pooled, deviation),
        notes=(
            STAND_IN,
            (
                f"the best of those tried is {best / median:.2f} of the median page's period, "
                f"{median / DAY:.1f} days"
            ),
        ),
    )


def _checks(pooled: Floats, best: float) -> list[Check]:
    place, least = "GF08 4.2, figure 4", float(pooled.min())
    return [
        Order(
            claim="first intervals make a clear difference (deviation, hours)",
            place=place,
            ascending=({"least": least}, {"largest": float(pooled.max())}),
            margin=0.5,
        ),
        Value(
            claim="one first interval is the best",
            place=place,
            stated=BEST / DAY,
            measured=best / DAY,
            within=share(NEAR),
            unit="days",
        ),
        Order(
            claim="very short and very long ones are worse (deviation, hours)",
            place=place,
            ascending=(
                {"best": least},
                {"6 hours": float(pooled[0]), "25 days": float(pooled[-1])},
            ),
        ),
    ]


def _draw_deviation(figure: "Figure", pooled: Floats, deviation: Floats) -> None:
    figure.set_size_inches(7, 4)
    axes = figure.subplots()
    for k in range(CRAWLS):
        axes.plot(
            INITIAL / DAY,
            deviation[:, k],
            lw=0.8,
            color=str(0.8 - 0.12 * k),
            label=f"after crawl {k + 1}",
        )
    axes.plot(INITIAL / DAY, pooled, color="#1f4e9c", lw=2, label="over all")
    axes.axvline(BEST / DAY, color="black", lw=1, ls="--", label="best in the paper")
    axes.set(
        xlabel="first interval, days", ylabel="median absolute deviation, hours", ylim=(0, None)
    )
    axes.legend(frameon=False, fontsize=8)


FIGURE_2 = Experiment("gf08-2", "paths of estimates from different first intervals", paths)
FIGURE_4 = Experiment("gf08-4", "which first interval is best for new pages", initial_interval)
