"""Fit of profiles to evidence, and the probability that a host has change hours at all."""

import numpy as np

from service.core.change_hours.evidence import HourEvidence
from service.core.change_hours.posterior import PLACE, PRIOR, Form, ProfilePosterior, has_dates
from service.core.change_hours.profile import Profiles
from service.core.checks import Bools, Floats

ODDS = 3.0
"""Log Bayes factor at which change hours are as likely as none: one host in 21 has them."""
LEAST_WEIGHT = 0.1
"""Weight below which change hours do not count: twice the weight before any evidence."""
LEAST_FACTOR = ODDS + float(np.log(LEAST_WEIGHT / (1.0 - LEAST_WEIGHT)))
"""Log Bayes factor of `LEAST_WEIGHT`."""
BLOCK = 1024
"""Maximum number of hosts whose matrices are in memory at a time."""


def fit(evidence: HourEvidence, last: Profiles | None = None) -> Profiles:
    """Return the profiles that the evidence supports, with the probability of change hours.

    The fit is theta = (A + P)^-1 (y + P e_0), with A the information and y the score. P is the
    diagonal matrix of `PRIOR`, and e_0 the flat profile. Changes of reported instants add
    the quadratic form of their likelihood at the fit. The weight is 1/(1 + e^(ODDS - l)), with l
    the `log_bayes_factor`.

    Hosts whose weight cannot reach `LEAST_WEIGHT` (`may_have_clock`) are not fitted: their profile
    is flat. A weight below `LEAST_WEIGHT` is 0. With the `last` profiles of the hosts, a fit to
    dates takes fewer rounds.

    References
    ----------
    Derived (docs/theory.md, "Sites with change hours").

    Examples
    --------
    A dozen changes came between six and seven, on a dozen days:

    >>> evidence = HourEvidence.none(1)
    >>> evidence.dated[0, 6], evidence.exposure[0] = 12.0, 0.5
    >>> profiles = fit(evidence)
    >>> f"{profiles.weight[0]:.3f}"
    '1.000'
    """
    profiles = Profiles.flat(len(evidence.changes))
    near = (last or profiles).coefficients
    rows = np.flatnonzero(may_have_clock(evidence))
    for start in range(0, len(rows), BLOCK):
        some = rows[start : start + BLOCK]
        theta, factor = fitted(evidence.take(some), near[some])
        weight = 1.0 / (1.0 + np.exp(np.minimum(ODDS - factor, 700.0)))
        profiles.coefficients[some] = theta
        profiles.weight[some] = np.where(weight < LEAST_WEIGHT, 0.0, weight)
    return profiles


def log_bayes_factor(evidence: HourEvidence) -> Floats:
    """Return (H,) log Bayes factors of change hours against none, by Laplace's method.

    With F the logarithm of the posterior, Q minus its second derivative, and index 0 for the
    intercept, which alone is fitted without change hours:

        l = max F(theta) - max F(theta_0) - 1/2 ln(det Q/det P) + 1/2 ln(Q_00/P_00)

    Without dates this is exact, and max F(theta) = 1/2 z' Q^-1 z with Q = A + P, z = y + P e_0.
    """
    factors = np.zeros(len(evidence.changes))
    near = Profiles.flat(len(factors)).coefficients
    for start in range(0, len(factors), BLOCK):
        some = slice(start, start + BLOCK)
        _, factors[some] = fitted(evidence.take(some), near[some])
    return factors


def may_have_clock(evidence: HourEvidence) -> Bools:
    """Return (H,) False where the weight is certainly below `LEAST_WEIGHT`; takes no solution.

    Let r be the score of the harmonics and S their precision, both after the intercept is fitted,
    and B = S - 1. Then l = 1/2 r' S^-1 r - 1/2 ln det S, and because B has no negative eigenvalue

        r' S^-1 r <= |r|²,   det S >= 1 + tr B.

    Hosts with changes of reported instants are not tested.
    """
    diagonal = evidence.information[:, PLACE.diagonal()]
    first = evidence.information[:, PLACE[0]]
    slope = first[:, 1:] / (PRIOR[0] + first[:, :1])
    score = evidence.score[:, 1:] - slope * (PRIOR[0] + evidence.score[:, :1])
    trace = np.maximum((diagonal[:, 1:] - slope * first[:, 1:]).sum(axis=1), 0.0)
    bound = 0.5 * ((score**2).sum(axis=1) - np.log1p(trace))
    return np.asarray((bound >= LEAST_FACTOR) | has_dates(evidence))


def fitted(evidence: HourEvidence, near: Floats) -> tuple[Floats, Floats]:
    """Return (H, TERMS) coefficients and (H,) log Bayes factors; `near` starts a fit to dates."""
    dated = has_dates(evidence)
    if not dated.any():
        return _by_crawls(evidence)
    theta, factor = np.empty_like(evidence.score), np.empty_like(evidence.changes)
    theta[~dated], factor[~dated] = _by_crawls(evidence.take(~dated))
    theta[dated], factor[dated] = _by_dates(evidence.take(dated), near[dated])
    return theta, factor


def _by_crawls(evidence: HourEvidence) -> tuple[Floats, Floats]:
    form = Form.of(evidence.information, evidence.score)
    theta, alone = form.maximum(), form.precision[:, 0, 0]
    gain = 0.5 * (np.einsum("ij,ij->i", form.target, theta) - form.target[:, 0] ** 2 / alone)
    return theta, gain - _volume(form.precision, alone)


def _by_dates(evidence: HourEvidence, near: Floats) -> tuple[Floats, Floats]:
    posterior = ProfilePosterior.of(evidence)
    theta, level = posterior.maximum(near), posterior.level()
    flat = np.zeros_like(theta)
    flat[:, 0] = level
    gain = posterior.log(theta) - posterior.log(flat)
    alone = posterior.crawls.precision[:, 0, 0] + evidence.dated.sum(axis=1) / level**2
    return theta, gain - _volume(posterior.precision(theta), alone)


def _volume(precision: Floats, alone: Floats) -> Floats:
    """Return (H,) losses by the precision of the harmonics; `alone`: that of the intercept."""
    log_determinant = np.linalg.slogdet(precision)[1] - np.log(PRIOR).sum()
    return np.asarray(0.5 * (log_determinant - np.log(alone / PRIOR[0])))
