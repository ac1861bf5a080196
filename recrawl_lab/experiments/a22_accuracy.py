"""A22, figures 2 to 4: errors of the estimators, for three pairs of change and crawl rate.

One page, 2,000 runs (the paper has 100) of 1,000 crawls on a Poisson clock. Each figure has the
trajectory of one run, the band that contains 95 % of the runs, and the root mean square error.
"""

import numpy as np

from recrawl_lab.experiments.a22_measured import (
    BALANCED,
    CRAWLS,
    MODERATE,
    RARE,
    PageErrors,
    measure,
    result,
)
from recrawl_lab.experiments.base import Check, Experiment, Result, Setup
from recrawl_lab.experiments.runs import band

ONLINE = ("lln", "sa", "sam")
HANDOVER = 400
"""Number of crawls at which LLN overtakes SAM in the paper's figure 4."""
CLOSE = 2.0
"""Maximum ratio of two errors or counts that are close."""
FALLEN = 0.7
"""Relative error that both LLN and SAM reach in figure 3."""


def balanced(setup: Setup) -> Result:
    """Run figure 2: the crawl rate is comparable to the change rate."""
    measured = measure(BALANCED, setup, with_mle=True)
    online = {name: measured.rmse(name, CRAWLS) for name in ONLINE}
    naive, mle = measured.rmse("naive", CRAWLS), measured.rmse("plain mle", CRAWLS)
    worst = max(online, key=online.__getitem__)
    early = {name: measured.rmse(name, 10) for name in (*ONLINE, "plain mle", "mle")}
    return result(
        measured,
        [
            Check(
                "MLE, LLN, SA and SAM all outperform Naive",
                f"RMSE at most {max(*online.values(), mle):.3f} against {naive:.3f}",
                max(*online.values(), mle) < naive,
            ),
            Check(
                "the error of MLE decays fastest",
                f"MLE {mle:.3f}, best of the others {min(online.values()):.3f}",
                mle < min(online.values()),
            ),
            Check(
                f"LLN, SA and SAM end close to MLE, within a factor of {CLOSE:g}",
                f"{worst} {online[worst]:.3f} against {mle:.3f}",
                online[worst] <= CLOSE * mle,
            ),
            Check(
                "MLE is the least accurate in the first few crawls",
                f"RMSE after 10 {early['plain mle']:.3g}, of the others at most "
                f"{max(early[name] for name in ONLINE):.2f}; with the service's two imaginary "
                f"crawls {early['mle']:.2f}",
                early["plain mle"] == max(early.values()),
            ),
        ],
    )


def rare(setup: Setup) -> Result:
    """Run figure 3: the page changes 167 times between two crawls."""
    measured = measure(RARE, setup, with_mle=False)
    width = {name: _width(measured, name, CRAWLS) for name in ONLINE}
    lln, sa, sam = (measured.rmse(name, CRAWLS) for name in ONLINE)
    falls = {name: _first_below(measured, name, FALLEN) for name in ("lln", "sam")}
    return result(
        measured,
        [
            Check(
                "LLN and SAM perform well compared to SA",
                f"RMSE {lln:.2f} and {sam:.2f} against {sa:.2f}",
                max(lln, sam) < sa,
            ),
            Check(
                "the variance of SA is the least",
                _list("band / Δ", width),
                width["sa"] == min(width.values()),
            ),
            Check(
                "the error of SA decreases slowly",
                f"from {measured.rmse('sa', 100):.2f} after 100 crawls to {sa:.2f} after 1,000",
                sa > measured.rmse("sa", 100) / CLOSE,
            ),
            Check(
                "LLN varies more than SAM",
                f"band / Δ {width['lln']:.2f} against {width['sam']:.2f}",
                width["lln"] > width["sam"],
            ),
            Check(
                "the error of LLN decays much faster than that of SAM",
                f"below {FALLEN:g} after {falls['lln']:,} crawls against {falls['sam']:,}",
                CLOSE * falls["lln"] < falls["sam"],
            ),
        ],
    )


def moderate(setup: Setup) -> Result:
    """Run figure 4: the page changes ten times between two crawls."""
    measured = measure(MODERATE, setup, with_mle=False)
    poorer = measure(RARE, Setup(seed=setup.seed, scale=setup.scale), with_mle=False)
    width = {name: _width(measured, name, CRAWLS) for name in ONLINE}
    early = {name: measured.rmse(name, 30) for name in ONLINE}
    behind = measured.error["lln"].rmse >= measured.error["sam"].rmse
    handover = int(measured.after[np.flatnonzero(behind)[-1]]) if behind.any() else 0
    gains = {name: (measured.rmse(name, CRAWLS), poorer.rmse(name, CRAWLS)) for name in ONLINE}
    return result(
        measured,
        [
            Check(
                "all perform better than at crawl rate 3",
                ", ".join(f"{name} {new:.2f} from {old:.2f}" for name, (new, old) in gains.items()),
                all(new < old for new, old in gains.values()),
            ),
            Check(
                "SAM is the most volatile",
                _list("band / Δ", width),
                width["sam"] == max(width.values()),
            ),
            Check(
                "in the initial crawls the error of SAM is the least",
                _list("RMSE after 30", early),
                early["sam"] == min(early.values()),
            ),
            Check(
                f"SAM's lead over LLN ends after {HANDOVER} crawls, within a factor of {CLOSE:g}",
                f"after {handover}",
                HANDOVER / CLOSE <= handover <= HANDOVER * CLOSE,
            ),
        ],
    )


def _width(measured: PageErrors, name: str, crawls: int) -> float:
    low, high = band(measured.estimate[name][measured.row(crawls)])
    return float(high - low) / measured.page.change_rate


def _first_below(measured: PageErrors, name: str, error: float) -> int:
    """Return the number of crawls at which the error first falls below `error`, or of all."""
    below = measured.error[name].rmse < error
    return int(measured.after[below.argmax()] if below.any() else measured.after[-1])


def _list(what: str, values: dict[str, float]) -> str:
    return f"{what}: " + ", ".join(f"{name} {value:.3g}" for name, value in values.items())


EXPERIMENTS = (
    Experiment("a22-2", "estimators, change rate 5, crawl rate 3: run, band, RMSE", balanced),
    Experiment("a22-3", "estimators, change rate 500, crawl rate 3: run, band, RMSE", rare),
    Experiment("a22-4", "estimators, change rate 500, crawl rate 50: run, band, RMSE", moderate),
)
