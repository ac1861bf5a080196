"""Fit of profiles to evidence, and the probability that a host has a clock at all.

The evidence is a quadratic log-likelihood of the coefficients, the prior is a normal distribution
about the flat profile. Therefore coefficients and Bayes factor are in closed form. Changes of
reported instants are counts in bins, whose quadratic form is renewed until it is that at the fit.
"""

from typing import NamedTuple

import numpy as np

from service.core.clocks.evidence import BINS, COLUMNS, ROWS, ClockEvidence, Indices
from service.core.clocks.profile import LEAST_INTENSITY, TERMS, Profiles, integrals
from service.core.conditions import Bools, Floats

PRIOR = np.array([25.0, *np.ones(TERMS - 1)])
"""Precisions of the coefficients before any evidence; their mean is the flat profile."""
ODDS = 3.0
"""Log Bayes factor at which a clock is as likely as none: one host in 21 has a clock a priori."""
LEAST_WEIGHT = 0.1
"""Weight below which a clock does not count: twice the weight before any evidence."""
LEAST_FACTOR = ODDS + float(np.log(LEAST_WEIGHT / (1.0 - LEAST_WEIGHT)))
"""Log Bayes factor of `LEAST_WEIGHT`."""
MAX_ROUNDS = 40
"""Maximum rounds of a fit to changes of reported instants; most fits take 3 to 6."""
TOLERANCE = 1e-6
"""Maximum step of a coefficient in the last round."""
BLOCK = 1024
"""Maximum number of hosts whose matrices are in memory at a time."""

BIN_TERMS = BINS * integrals(np.arange(BINS) / BINS, (np.arange(BINS) + 1.0) / BINS)
"""(BINS, TERMS) means of the terms of a profile over each hour."""
_BIN_PAIRS = BIN_TERMS[:, ROWS] * BIN_TERMS[:, COLUMNS]
_PLACE = np.empty((TERMS, TERMS), np.intp)
_PLACE[ROWS, COLUMNS] = _PLACE[COLUMNS, ROWS] = np.arange(len(ROWS))


class _Posterior(NamedTuple):
    """(H,) quadratic forms: -1/2 theta' precision theta + target' theta."""

    precision: Floats
    """(H, TERMS, TERMS)"""
    target: Floats
    """(H, TERMS)"""

    @classmethod
    def of(cls, information: Floats, score: Floats) -> "_Posterior":
        precision = information[:, _PLACE]
        precision[:, range(TERMS), range(TERMS)] += PRIOR
        target = score.copy()
        target[:, 0] += PRIOR[0]
        return cls(precision, target)

    def mean(self) -> Floats:
        return np.asarray(np.linalg.solve(self.precision, self.target[..., None])[..., 0])


def fit(evidence: ClockEvidence) -> Profiles:
    """Return the profiles that the evidence supports, with the probability of a clock.

    theta = (A + P)^-1 (y + P e_0), with P the diagonal matrix of `PRIOR`. The weight is
    1/(1 + e^(ODDS - l)), with l the `log_bayes_factor`. Hosts whose weight cannot reach
    `LEAST_WEIGHT` (`may_have_clock`) are not fitted: their profile is flat, their weight is 0.
    So is the weight of a fitted host below `LEAST_WEIGHT`.
    """
    profiles = Profiles.flat(len(evidence.changes))
    rows = np.flatnonzero(may_have_clock(evidence))
    for start in range(0, len(rows), BLOCK):
        some = rows[start : start + BLOCK]
        theta, factor = _fit(evidence.take(some))
        weight = 1.0 / (1.0 + np.exp(np.minimum(ODDS - factor, 700.0)))
        profiles.coefficients[some] = theta
        profiles.weight[some] = np.where(weight < LEAST_WEIGHT, 0.0, weight)
    return profiles


def log_bayes_factor(evidence: ClockEvidence) -> Floats:
    """Return (H,) log Bayes factors of a clock against none.

    With z = y + P e_0, Q = A + P, and index 0 for the intercept:

        l = 1/2 (z' Q^-1 z - z_0²/Q_00) - 1/2 ln(det Q/det P) + 1/2 ln(Q_00/P_00)

    Changes of reported instants enter by their quadratic form at the fit.
    """
    blocks = range(0, len(evidence.changes), BLOCK)
    factors = [_fit(evidence.take(slice(start, start + BLOCK)))[1] for start in blocks]
    return np.concatenate([np.zeros(0), *factors])


def may_have_clock(evidence: ClockEvidence) -> Bools:
    """Return (H,) False where the weight is certainly below `LEAST_WEIGHT`; takes no solution.

    Let r be the score of the harmonics and S the precision, both after the intercept is fitted,
    and B = S - 1 >= 0. Then l = 1/2 r' S^-1 r - 1/2 ln det S, where

        r' S^-1 r <= |r|²,   det S >= 1 + tr B.

    Hosts with changes of reported instants are not tested.
    """
    diagonal = evidence.information[:, _PLACE.diagonal()]
    first = evidence.information[:, _PLACE[0]]
    level = PRIOR[0] + first[:, :1]
    slope = first[:, 1:] / level
    score = evidence.score[:, 1:] - slope * (PRIOR[0] + evidence.score[:, :1])
    trace = np.maximum((diagonal[:, 1:] - slope * first[:, 1:]).sum(axis=1), 0.0)
    bound = 0.5 * ((score**2).sum(axis=1) - np.log1p(trace))
    return np.asarray((bound >= LEAST_FACTOR) | (evidence.dated > 0).any(axis=1))


def _fit(evidence: ClockEvidence) -> tuple[Floats, Floats]:
    """Return (H, TERMS) coefficients and (H,) log Bayes factors."""
    posterior = _Posterior.of(evidence.information, evidence.score)
    theta = posterior.mean()
    dated = np.flatnonzero((evidence.dated > 0).any(axis=1) | (evidence.exposure > 0).any(axis=1))
    if dated.size:
        posterior = _with_dates(evidence, dated, posterior, theta)
    return theta, _factor(posterior, theta)


def _with_dates(
    evidence: ClockEvidence, rows: Indices, posterior: _Posterior, theta: Floats
) -> _Posterior:
    """Return the quadratic forms with those of the dates at the fit; move `theta` to the fit."""
    precision, target = posterior.precision.copy(), posterior.target.copy()
    for _ in range(MAX_ROUNDS):
        some = evidence.take(rows)
        values = np.maximum(theta[rows] @ BIN_TERMS.T, LEAST_INTENSITY)
        information = some.information + some.dated / values**2 @ _BIN_PAIRS
        score = some.score + (2.0 * some.dated / values - some.exposure) @ BIN_TERMS
        form = _Posterior.of(information, score)
        precision[rows], target[rows] = form
        after = form.mean()
        moved = np.abs(after - theta[rows]).max(axis=1)
        theta[rows] = after
        rows = rows[moved > TOLERANCE]
        if not rows.size:
            break
    return _Posterior(precision, target)


def _factor(posterior: _Posterior, theta: Floats) -> Floats:
    """Return (H,) log Bayes factors of quadratic forms with these maxima."""
    level = posterior.precision[:, 0, 0]
    gain = np.einsum("ij,ij->i", posterior.target, theta) - posterior.target[:, 0] ** 2 / level
    log_determinant = np.linalg.slogdet(posterior.precision)[1] - np.log(PRIOR).sum()
    return np.asarray(0.5 * (gain - log_determinant + np.log(level / PRIOR[0])))
