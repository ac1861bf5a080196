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
from recrawl_lab.experiments.base import Experiment, Result, Setup
from recrawl_lab.experiments.checks import Order, Value, apart, factor, share
from recrawl_lab.experiments.runs import band

ONLINE = ("lln", "sa", "sam")
HANDOVER, AROUND = 400.0, 0.25
"""Number of crawls at which LLN overtakes SAM in the paper's figure 4; tolerance, a share."""
CLOSE = 2.0
"""Maximum ratio of two errors or counts that are close."""
FALLEN = 0.7
"""Relative error that both LLN and SAM reach in figure 3."""
BOTH = "A22 4.2.1, figure 2(c)"


def balanced(setup: Setup) -> Result:
    """Run figure 2: the crawl rate is comparable to the change rate."""
    measured = measure(BALANCED, setup, with_mle=True)
    online = {name: measured.rmse(name, CRAWLS) for name in ONLINE}
    naive, mle = measured.rmse("naive", CRAWLS), measured.rmse("plain mle", CRAWLS)
    early = {name: measured.rmse(name, 10) for name in ONLINE}
    return result(
        measured,
        [
            Order(
                claim="MLE, LLN, SA and SAM all outperform Naive (RMSE / change rate)",
                place=BOTH,
                ascending=({"MLE": mle, **online}, {"naive": naive}),
            ),
            Order(
                claim="the error of MLE decays fastest (RMSE after 1,000 crawls)",
                place=BOTH,
                ascending=({"MLE": mle}, online),
            ),
            Value(
                claim="LLN, SA and SAM are comparable to MLE (largest RMSE over that of MLE)",
                place="A22 4.2.1, figure 2",
                stated=1.0,
                measured=max(online.values()) / mle,
                within=factor(CLOSE),
            ),
            Order(
                claim="MLE is the least accurate in the first few crawls (RMSE after 10)",
                place=BOTH,
                ascending=(early, {"MLE": measured.rmse("plain mle", 10)}),
            ),
        ],
    )


def rare(setup: Setup) -> Result:
    """Run figure 3: the page changes 167 times between two crawls."""
    measured = measure(RARE, setup, with_mle=False)
    width = {name: _width(measured, name, CRAWLS) for name in ONLINE}
    rmse = {name: measured.rmse(name, CRAWLS) for name in ONLINE}
    falls = {name: _first_below(measured, name, FALLEN) for name in ("lln", "sam")}
    return result(
        measured,
        [
            Order(
                claim="LLN and SAM perform well compared to SA (RMSE / change rate)",
                place="A22 4.2.2, figure 3(a)",
                ascending=apart(rmse, "lln", "sam"),
            ),
            Order(
                claim="the variance of SA is the least (width of the 95 % band / change rate)",
                place="A22 4.2.2, figure 3(b)",
                ascending=apart(width, "sa"),
            ),
            Order(
                claim="the error of SA decreases slowly (less than half from 100 to 1,000 crawls)",
                place="A22 4.2.2, figure 3(c)",
                ascending=({"half of the first": measured.rmse("sa", 100) / 2}, {"sa": rmse["sa"]}),
            ),
            Order(
                claim="LLN varies more than SAM (width of the 95 % band / change rate)",
                place="A22 4.2.2, figure 3(b)",
                ascending=({"sam": width["sam"]}, {"lln": width["lln"]}),
            ),
            Order(
                claim=f"the error of LLN decays much faster than that of SAM (crawls to {FALLEN})",
                place="A22 4.2.2, figure 3(c)",
                ascending=({"lln": falls["lln"]}, {"sam": falls["sam"]}),
                margin=CLOSE - 1,
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
    gains = {name: measured.rmse(name, CRAWLS) / poorer.rmse(name, CRAWLS) for name in ONLINE}
    return result(
        measured,
        [
            Order(
                claim="all perform better than at crawl rate 3 (RMSE over the RMSE there)",
                place="A22 4.2.2, figure 4",
                ascending=(gains, {"no change": 1.0}),
            ),
            Order(
                claim="SAM is the most volatile (width of the 95 % band / change rate)",
                place="A22 4.2.2, figure 4(b)",
                ascending=apart(width, "lln", "sa"),
            ),
            Order(
                claim="in the initial crawls the error of SAM is the least (RMSE after 30)",
                place="A22 4.2.2, figure 4(c)",
                ascending=apart(early, "sam"),
            ),
            Value(
                claim="SAM's lead over LLN disappears",
                place="A22 4.2.2, figure 4(c)",
                stated=HANDOVER,
                measured=handover,
                within=share(AROUND),
                unit="crawls",
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


EXPERIMENTS = (
    Experiment("a22-2", "estimators, change rate 5, crawl rate 3: run, band, RMSE", balanced),
    Experiment("a22-3", "estimators, change rate 500, crawl rate 3: run, band, RMSE", rare),
    Experiment("a22-4", "estimators, change rate 500, crawl rate 50: run, band, RMSE", moderate),
)
