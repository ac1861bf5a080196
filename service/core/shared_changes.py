r"""The share of changes that the pages of a URL group have in common, learnt from crawls.

Each crawl is scored by how probable its result was for shares from 0 to .6, given what the page's
siblings showed in the same interval (`core.siblings`). The score fades, and the distribution of
shares over URL groups is fitted to the corpus: half of it lies at 0 before any evidence, because a
wrong share costs more than a missing one. Derived in docs/theory.md, "Siblings". Pure.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.checks import Floats, InvalidInput
from service.core.common_values import Contribution, Joint, count, total
from service.core.siblings import LastIntervals

SHARES = np.linspace(0.0, 0.6, 7)
"""(K,) shares that are compared."""
_SOME = np.exp(-0.5 * ((SHARES - 0.4) / 0.12) ** 2) * (SHARES > 0)
PRIOR = 0.5 * (SHARES == 0) + 0.5 * _SOME / _SOME.sum()
"""(K,) distribution of the shares of URL groups before any evidence."""
PRIOR_GROUPS = 4.0
"""Weight of `PRIOR` against the URL groups of the corpus, in groups."""
N_ROUNDS = 10
"""Rounds of expectation maximisation, which gain little after three."""
HALF_LIFE_DAYS = 365.0
"""Time in which a score loses half of its weight."""
CALIBRATION_HALF_LIFE_DAYS = 60.0
"""Time in which the counts behind the calibration lose half of their weight."""
CALIBRATION_CHANGES = 10.0
"""Weight of the calibration 1, in changes."""


Ints = NDArray[np.int64]


class ShareEvidence(NamedTuple):
    """Evidence of the shares of URL groups, or buckets of URL groups, from crawls."""

    n_groups: int
    """Number of buckets, S."""
    group: Ints
    """(G,) buckets with evidence, ascending: few of them."""
    score: Floats
    """(G, K) log-likelihood of each share, less that of the share 0."""
    n_expected: Floats
    """(K,) recent changes expected under each share."""
    n_changed: float
    """Recent changes."""

    @classmethod
    def none(cls, n_groups: int) -> "ShareEvidence":
        """Return the evidence before any crawl.

        >>> from service.core.common_values import alone
        >>> alone(shares(ShareEvidence.none(2))).round(2).tolist()
        [0.2, 0.2]
        """
        nothing = np.zeros((0, SHARES.size))
        return cls(n_groups, np.zeros(0, np.int64), nothing, np.zeros(SHARES.size), 0.0)

    @classmethod
    def unpacked(cls, packed: NDArray[np.floating]) -> "ShareEvidence":
        """Return evidence from the numbers of `packed`; raise `InvalidInput` for other lengths."""
        k = SHARES.size
        if packed.size < k + 2 or (packed.size - k - 2) % k:
            raise InvalidInput("packed", f"has {packed.size} numbers, which is no evidence")
        numbers = packed.astype(np.float64)
        rows = numbers[k + 2 :].reshape(-1, k)
        group, score = rows[:, 0].astype(np.int64), np.pad(rows[:, 1:], ((0, 0), (1, 0)))
        return cls(int(numbers[0]), group, score, numbers[2 : k + 2], float(numbers[1]))

    def packed(self) -> NDArray[np.float32]:
        """Return all numbers, 4 K bytes for each group with evidence; float4 holds any bucket."""
        rows = np.column_stack((self.group, self.score[:, 1:]))
        columns = [self.n_groups, self.n_changed], self.n_expected, rows.reshape(-1)
        return np.concatenate(columns).astype(np.float32)

    def resized(self, n_groups: int) -> "ShareEvidence":
        """Return the evidence in another number of buckets; both numbers are powers of 2.

        Buckets that are split share their score equally.
        """
        if n_groups == self.n_groups:
            return self
        times = max(n_groups // self.n_groups, 1)
        group = self.group % n_groups
        group = (group + self.n_groups * np.arange(times)[:, np.newaxis]).reshape(-1)
        score = np.tile(self.score / times, (times, 1))
        group, place = np.unique(group, return_inverse=True)
        return self._replace(
            n_groups=n_groups, group=group, score=_summed(place, score, group.size)
        )

    @property
    def calibration(self) -> Floats:
        """(K,) ratios of recent changes to those expected under each share."""
        changed = self.n_changed + CALIBRATION_CHANGES
        return np.asarray(changed / (self.n_expected + CALIBRATION_CHANGES))


def in_common(evidence: ShareEvidence | None, n_groups: int) -> Joint[ShareEvidence]:
    """Return the evidence in `n_groups` buckets, with the recent changes that all parts know.

    A new part has no evidence (None).
    """
    recent = None if evidence is None else (evidence.n_expected, evidence.n_changed)
    recent = yield Contribution(recent, _first, exact=True)
    evidence = (evidence or ShareEvidence.none(n_groups)).resized(n_groups)
    if recent is None:
        return evidence
    n_expected, n_changed = recent
    return evidence._replace(n_expected=n_expected, n_changed=n_changed)


def _first(values: Sequence[Any]) -> Any:
    """Return the first value that is not None, if any."""
    return next((value for value in values if value is not None), None)


def learn(
    evidence: ShareEvidence,
    url_group: NDArray[np.integer],
    last: LastIntervals,
    days: float,
) -> Joint[ShareEvidence]:
    r"""Return the evidence after some days with crawls; recent changes are those of all parts.

    A page of change rate Delta, an interval L and the ratio r of its siblings changes with
    probability :math:`1 - e^{-c \Delta L (1 - s + s r)}` under the share s. The calibration c of
    each share makes it expect as many changes as there were: rates that are all too high, or too
    low, are no sign of a share.

    Parameters
    ----------
    url_group : (N,) int
    last
        Last intervals of pages that were crawled in these days.
    """
    useful = ~np.isnan(last.ratio)
    factor = 1.0 + SHARES * (np.where(useful, last.ratio, 1.0) - 1.0)[:, np.newaxis]
    hazard = last.expected[:, np.newaxis] * factor
    score = -evidence.calibration * hazard
    changed = np.flatnonzero(last.changed > 0)
    chance = -np.expm1(score[changed])
    score[changed] = np.log(np.maximum(chance, np.finfo(np.float64).tiny))
    score -= score[:, :1].copy()
    kept, counted = np.exp2(-days / np.array([HALF_LIFE_DAYS, CALIBRATION_HALF_LIFE_DAYS]))
    bucket = np.concatenate((evidence.group, url_group[last.row[useful]] % evidence.n_groups))
    group, place = np.unique(bucket, return_inverse=True)
    scores = np.concatenate((evidence.score * kept, score[useful]))
    summed = _summed(place, scores, group.size)
    shows = summed[:, -1] != 0
    recent = np.expm1(-hazard).sum(axis=0), float(last.changed.sum())
    expected, changed_in_all = yield from total(recent)
    return ShareEvidence(
        evidence.n_groups,
        group[shows],
        summed[shows],
        evidence.n_expected * counted - expected,
        evidence.n_changed * counted + changed_in_all,
    )


def shares(evidence: ShareEvidence) -> Joint[Floats]:
    """Return (S,) posterior means of the shares; the prior is fitted to the groups of all parts.

    Only groups with evidence count.
    """
    score = evidence.score
    likelihood = np.exp(score - score.max(axis=1, keepdims=True))
    n_known, prior = (yield from count(len(score))), PRIOR
    for _ in range(N_ROUNDS):
        weight = 1.0 / (likelihood @ prior)
        n_groups = prior * (yield from total(weight @ likelihood))
        prior = (n_groups + PRIOR_GROUPS * PRIOR) / (n_known + PRIOR_GROUPS)
    share = np.full(evidence.n_groups, prior @ SHARES)
    share[evidence.group] = (likelihood @ (prior * SHARES)) / (likelihood @ prior)
    return share


def _summed(place: NDArray[np.intp], score: Floats, n_groups: int) -> Floats:
    """Return (n_groups, K) sums of the scores of each place."""
    sums = [np.bincount(place, column, n_groups) for column in score.T]
    return np.column_stack(sums)
