"""The posterior of profiles: its logarithm, its maximum, and its curvature there.

The evidence of crawls is a quadratic form of the coefficients, so its maximum takes one solution.
Changes of reported instants are counts in hourly bins. Their likelihood is no quadratic form, so
its maximum takes some rounds.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.change_hours.evidence import BINS, COLUMNS, ROWS, HourEvidence
from service.core.change_hours.profile import LEAST_INTENSITY, TERMS, integrals
from service.core.checks import Bools, Floats

PRIOR = np.array([25.0, *np.ones(TERMS - 1)])
"""Precisions of the coefficients before any evidence; their mean is the flat profile."""
MAX_ROUNDS = 40
"""Maximum rounds of a fit to changes of reported instants; most fits take 6, hard ones 20."""
MAX_HALVINGS = 30
"""Maximum halvings of one step."""
TOLERANCE = 1e-4
"""Maximum step of a coefficient in the last round."""
BIN_TERMS = BINS * integrals(np.arange(BINS) / BINS, (np.arange(BINS) + 1.0) / BINS)
"""(BINS, TERMS) means of the terms of a profile over each hour."""
_BIN_PAIRS = BIN_TERMS[:, ROWS] * BIN_TERMS[:, COLUMNS]
PLACE = np.empty((TERMS, TERMS), np.intp)
"""Place of each pair of terms in the upper triangle."""
PLACE[ROWS, COLUMNS] = PLACE[COLUMNS, ROWS] = np.arange(len(ROWS))


class Form(NamedTuple):
    """(H,) quadratic forms -1/2 theta' precision theta + target' theta, with the prior."""

    precision: Floats
    """(H, TERMS, TERMS)"""
    target: Floats
    """(H, TERMS)"""

    @classmethod
    def of(cls, information: Floats, score: Floats) -> "Form":
        """Return the forms of (H, PAIRS) information and (H, TERMS) scores."""
        precision = information[:, PLACE]
        precision[:, range(TERMS), range(TERMS)] += PRIOR
        target = score.copy()
        target[:, 0] += PRIOR[0]
        return cls(precision, target)

    def at(self, theta: Floats) -> Floats:
        """Return (H,) values of the forms."""
        slope = self.target - 0.5 * np.einsum("hij,hj->hi", self.precision, theta)
        return np.asarray(np.einsum("hi,hi->h", slope, theta))

    def plus(self, other: "Form") -> "Form":
        """Return the sums of forms."""
        return Form(self.precision + other.precision, self.target + other.target)

    def take(self, rows: NDArray[Any]) -> "Form":
        """Return the hosts that an index selects."""
        return Form(self.precision[rows], self.target[rows])

    def maximum(self) -> Floats:
        """Return (H, TERMS) coefficients of the largest values."""
        return np.asarray(np.linalg.solve(self.precision, self.target[..., None])[..., 0])


class ProfilePosterior(NamedTuple):
    """(H,) posteriors of the coefficients of hosts."""

    crawls: Form
    """Prior and crawls."""
    evidence: HourEvidence
    """Evidence of the hosts; its dates are used."""
    added: Form | None = None
    """Form that the prior has beyond `PRIOR`; `crawls` has it too. None: none."""

    @classmethod
    def of(cls, evidence: HourEvidence, added: Form | None = None) -> "ProfilePosterior":
        """Return the posteriors by the evidence of hosts."""
        form = Form.of(evidence.information, evidence.score)
        return cls(form if added is None else form.plus(added), evidence, added)

    def take(self, rows: NDArray[np.integer]) -> "ProfilePosterior":
        """Return the hosts that an index selects."""
        added = None if self.added is None else self.added.take(rows)
        return ProfilePosterior(self.crawls.take(rows), self.evidence.take(rows), added)

    def log(self, theta: Floats) -> Floats:
        """Return (H,) logarithms of the posteriors, up to constants.

        A bin of n changes, e expected ones and intensity s has n ln s - e s. Below the least
        intensity both terms go on as parabolas. Otherwise a bin without changes would gain by a
        negative intensity.
        """
        values = theta @ BIN_TERMS.T
        least = np.maximum(values, LEAST_INTENSITY)
        off = values / least - 1.0
        logs = np.log(least) + off - 0.5 * off**2
        passed = values + 0.5 * LEAST_INTENSITY * np.minimum(values / LEAST_INTENSITY - 1, 0) ** 2
        dates = self.evidence.dated * logs - self.evidence.exposure * passed
        return np.asarray(dates.sum(axis=1) + self.crawls.at(theta))

    def form(self, theta: Floats) -> Form:
        """Return the quadratic forms that touch the posteriors at `theta`."""
        dated, exposure = self.evidence.dated, self.evidence.exposure
        values = theta @ BIN_TERMS.T
        low, least = values < LEAST_INTENSITY, np.maximum(values, LEAST_INTENSITY)
        curvature = dated / least**2 + low * exposure / LEAST_INTENSITY
        slope = 2.0 * dated / least - ~low * exposure
        form = Form.of(
            self.evidence.information + curvature @ _BIN_PAIRS,
            self.evidence.score + slope @ BIN_TERMS,
        )
        return form if self.added is None else form.plus(self.added)

    def precision(self, theta: Floats) -> Floats:
        """Return (H, TERMS, TERMS) precisions of the coefficients at their maximum.

        An intensity that is held above 0 by the parabola has the density e^(-e s), whose variance
        is 1/e². The parabola would claim more precision than that where e is small.
        """
        dated, exposure = self.evidence.dated, self.evidence.exposure
        values = theta @ BIN_TERMS.T
        held = np.minimum(exposure**2, exposure / LEAST_INTENSITY)
        curvature = dated / np.maximum(values, LEAST_INTENSITY) ** 2
        curvature += (values < LEAST_INTENSITY) * held
        information = self.evidence.information + curvature @ _BIN_PAIRS
        form = Form.of(information, self.evidence.score)
        return form.precision if self.added is None else form.plus(self.added).precision

    def maximum(self, start: Floats) -> Floats:
        """Return (H, TERMS) likeliest coefficients, whatever the coefficients to `start` from.

        A Newton step is halved until it gains. Because the logarithm of the posterior is concave,
        the steps end at its maximum.
        """
        theta = start.copy()
        rows = np.arange(len(theta))
        for _ in range(MAX_ROUNDS):
            step = self.take(rows).step(theta[rows])
            theta[rows] += step
            rows = rows[np.abs(step).max(axis=1) > TOLERANCE]
            if not rows.size:
                break
        return theta

    def step(self, theta: Floats) -> Floats:
        """Return (H, TERMS) Newton steps that gain."""
        step = self.form(theta).maximum() - theta
        before = self.log(theta)
        for _ in range(MAX_HALVINGS):
            worse = self.log(theta + step) < before
            if not worse.any():
                break
            step[worse] *= 0.5
        return step

    def level(self) -> Floats:
        """Return (H,) likeliest intercepts of flat profiles, where there are dates.

        The root of n/theta_0 - e + z_0 - Q_00 theta_0, n and e summed over all bins.
        """
        n, e = self.evidence.dated.sum(axis=1), self.evidence.exposure.sum(axis=1)
        precision, target = self.crawls.precision[:, 0, 0], self.crawls.target[:, 0] - e
        root = (target + np.sqrt(target**2 + 4.0 * precision * n)) / (2.0 * precision)
        return np.asarray(np.maximum(root, LEAST_INTENSITY))


def has_dates(evidence: HourEvidence) -> Bools:
    """Return (H,) True where the evidence has changes of reported instants."""
    return np.asarray((evidence.dated > 0).any(axis=1))
