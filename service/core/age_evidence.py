r"""The age profile learnt from crawls, and the evidence that ages matter at all. Pure.

Each crawl shows whether a page changed between two ages. With the long-run rate :math:`\Delta`
that was believed before the crawl, and :math:`o_k` days in bin k, the page was expected to change
:math:`m = \Delta \sum_k g_k o_k` times. By expectation and maximisation,

.. math::
    n_k \mathrel{+}= \frac{\Delta g_k o_k}{1 - e^{-m}} \text{ if it changed}, \quad
    e_k \mathrel{+}= \Delta o_k, \quad
    r_k = \frac{n_k + c\, r_{k+1}}{e_k + c}, \quad r_{13} = 1, \quad g_k = r_k / r_{12}.

A bin with little evidence has the factor of the next older bin.

**Gate.** The profile g is used as :math:`g^w`, where w is the probability that ages matter. Its
log odds, the proof, are the sum of the log-likelihoods of crawls of young pages with g, less those
without. Until the proof is enough, there is no profile. Derived in docs/theory.md, "Ages".
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.ages import ENDS, N_BINS, STARTS, AgeProfile
from service.core.checks import Bools, Floats, InvalidInput
from service.core.common_values import Joint, total

PSEUDO_CHANGES = 5.0
"""Weight c of the next older bin's factor, changes."""
HALF_LIFE_DAYS = 365.0
"""Time in which the counts of the profile lose half of their weight."""
YOUNG = 32.0
"""Maximum age at the start of an interval that counts for the proof, days."""
PRIOR_ODDS = 20.0
"""Log odds that ages do not matter, before any crawl.

They are high because changes come in bursts, and each counts as if it came alone.
"""
PROOF_HALF_LIFE_DAYS = 180.0
MOST_PROOF_A_DAY = 2.0
"""Maximum change of the proof a day, because one revision of many pages is one event."""
WHOLE_DAY = 1.0 - 1e-6
"""Time after which the crawls of a day count for the proof, days.

Shorter times have more crawls without a change than with one, and a bound on each would hide that
the latter prove more.
"""
LEAST_PROOF = -20.0
CALIBRATION_CHANGES = 5.0
"""Weight of the ratio 1 of observed to expected changes of all crawls, changes."""
LEAST_WEIGHT = 0.1
"""Weight below which there is no profile."""
N_NUMBERS = 2 * N_BINS + 5
"""Number of numbers of `AgeEvidence`."""
SMALL = 1e-12
"""Minimum expected changes of an interval."""


class AgedCrawls(NamedTuple):
    """(N,) crawls that ended an interval between two ages of their page."""

    start: Floats
    """Age at the start of the interval, days."""
    end: Floats
    change_rate: Floats
    """Long-run rate that was believed before the crawl, 1/day."""
    changed: Bools

    def where(self, mask: Bools) -> "AgedCrawls":
        """Return the crawls of a mask."""
        return AgedCrawls(
            self.start[mask], self.end[mask], self.change_rate[mask], self.changed[mask]
        )


class AgeEvidence(NamedTuple):
    """Evidence of the profile of a corpus, in 29 numbers."""

    changes: Floats
    """(12,) changes in each bin of ages."""
    expected: Floats
    """(12,) changes expected in it at the long-run rates."""
    proof: float
    """Log-likelihood ratio of the profile to none, faded."""
    day_gained: float
    """Log-likelihood ratio of the crawls of the running day, which is no proof yet."""
    day: float
    """Length of the running day so far, days."""
    n_changed: float
    """Intervals with a change."""
    n_expected: float
    """Changes expected in all intervals at the long-run rates."""

    @classmethod
    def none(cls) -> "AgeEvidence":
        """Return the evidence before any crawl.

        >>> profile(AgeEvidence.none()) is None
        True
        """
        return cls(np.zeros(N_BINS), np.zeros(N_BINS), 0.0, 0.0, 0.0, 0.0, 0.0)

    @classmethod
    def unpacked(cls, numbers: NDArray[np.float64]) -> "AgeEvidence":
        """Return evidence from the numbers of `packed`; raise `InvalidInput` for other lengths."""
        if len(numbers) != N_NUMBERS:
            raise InvalidInput("numbers", f"are {len(numbers)}, expected {N_NUMBERS}")
        return cls(numbers[:N_BINS], numbers[N_BINS : 2 * N_BINS], *numbers[2 * N_BINS :].tolist())

    def packed(self) -> Floats:
        """Return all numbers."""
        return np.concatenate([self.changes, self.expected, self[2:]])

    @property
    def calibration(self) -> float:
        """Ratio of observed to expected changes of all crawls."""
        changed = self.n_changed + CALIBRATION_CHANGES
        return changed / (self.n_expected + CALIBRATION_CHANGES)


def fitted_factors(evidence: AgeEvidence) -> Floats:
    """Return the factors of the bins that the crawls show, whatever their proof."""
    ratio, older = np.ones(N_BINS), 1.0
    for k in reversed(range(N_BINS)):
        changes = evidence.changes[k] + PSEUDO_CHANGES * older
        ratio[k] = older = changes / (evidence.expected[k] + PSEUDO_CHANGES)
    return np.asarray(ratio / ratio[-1])


def weight(evidence: AgeEvidence) -> float:
    """Return the weight of the profile: the probability that ages matter, or 0 below a tenth.

    >>> [round(weight(AgeEvidence.none()._replace(proof=proof)), 2) for proof in (0, 18, 20, 26)]
    [0.0, 0.12, 0.5, 1.0]
    """
    share = 1.0 / (1.0 + np.exp(PRIOR_ODDS - evidence.proof))
    return float(share) if share >= LEAST_WEIGHT else 0.0


def profile(evidence: AgeEvidence) -> AgeProfile | None:
    """Return the profile in force; None: ages do not matter."""
    share = weight(evidence)
    return AgeProfile(fitted_factors(evidence) ** share) if share else None


def learn(evidence: AgeEvidence, crawls: AgedCrawls, days: float) -> Joint[AgeEvidence]:
    """Return the evidence after the crawls of some days; that of all parts is the same."""
    factors = fitted_factors(evidence)
    young = crawls.start < YOUNG
    gained = _gained(factors, evidence.calibration, crawls.where(young))
    counted = *_counted(factors, crawls), float(crawls.changed.sum()), _flat_changes(crawls), gained
    changes, expected, n_changed, n_expected, gained = yield from total(counted)
    kept = np.exp2(-days / HALF_LIFE_DAYS)
    after = AgeEvidence(
        evidence.changes * kept + changes,
        evidence.expected * kept + expected,
        evidence.proof,
        evidence.day_gained + gained,
        evidence.day + days,
        float(evidence.n_changed * kept + n_changed),
        float(evidence.n_expected * kept + n_expected),
    )
    return _day_ended(after) if after.day >= WHOLE_DAY else after


def _day_ended(evidence: AgeEvidence) -> AgeEvidence:
    """Return the evidence after the running day has become part of the proof."""
    most = MOST_PROOF_A_DAY * evidence.day
    kept = evidence.proof * np.exp2(-evidence.day / PROOF_HALF_LIFE_DAYS)
    proof = kept + min(max(evidence.day_gained, -most), most)
    return evidence._replace(proof=float(max(proof, LEAST_PROOF)), day_gained=0.0, day=0.0)


def _days_in_bins(crawls: AgedCrawls) -> Floats:
    """Return (N, 12) days of each interval in each bin."""
    start, end = crawls.start[:, np.newaxis], crawls.end[:, np.newaxis]
    return np.asarray(np.maximum(np.minimum(end, ENDS) - np.maximum(start, STARTS), 0.0))


def _counted(factors: Floats, crawls: AgedCrawls) -> tuple[Floats, Floats]:
    """Return the changes and the expected changes of each bin that crawls add.

    Most intervals lie in the last bin, where one sum serves all of them.
    """
    changes, expected = np.zeros((2, N_BINS))
    old = crawls.start >= STARTS[-1]
    aged = crawls.where(~old)
    days = aged.change_rate[:, np.newaxis] * _days_in_bins(aged)
    in_bins = days * factors
    in_all = np.maximum(in_bins.sum(axis=1), SMALL)
    some = aged.changed
    changes += (in_bins[some] / -np.expm1(-in_all[some])[:, np.newaxis]).sum(axis=0)
    expected += days.sum(axis=0)
    flat = crawls.change_rate[old] * (crawls.end[old] - crawls.start[old])
    shown = np.maximum(flat[crawls.changed[old]], SMALL)
    changes[-1] += float((shown / -np.expm1(-shown)).sum())
    expected[-1] += float(flat.sum())
    return changes, expected


def _flat_changes(crawls: AgedCrawls) -> float:
    """Return the number of intervals that would show a change if ages did not matter."""
    return float(-np.expm1(-crawls.change_rate * (crawls.end - crawls.start)).sum())


def _gained(factors: Floats, calibration: float, crawls: AgedCrawls) -> float:
    """Return the log-likelihood of crawls with the profile, less that without."""
    days = _days_in_bins(crawls)
    aged = crawls.change_rate * (days @ factors)
    flat = calibration * crawls.change_rate * (crawls.end - crawls.start)
    with_ages, without = (
        np.where(crawls.changed, np.log(-np.expm1(-m)), -m)
        for m in (np.maximum(aged, SMALL), np.maximum(flat, SMALL))
    )
    return float((with_ages - without).sum())
