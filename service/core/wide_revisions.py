r"""Wide revisions: instants at which most pages of a site, or of some directories, changed at once.

Quiet intervals prove such a revision (`core.quiet_intervals`). Pages that were not crawled since
have changed with about the same probability. That probability is for each URL group, because some
revisions spare directories. Derived in docs/theory.md, "Wide revisions". Pure.

Ages are in days before now, so the start of an interval has a larger age than its end.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

from service.core.checks import Bools, Floats, InvalidInput
from service.core.quiet_intervals import Ints, QuietIntervals
from service.core.url_groups import renumber

Instants = NDArray[np.datetime64]

MOST_KNOWN = 4
"""Maximum revisions of a site that are kept."""
LONGEST_DAYS = 256.0
"""Time for which a revision is kept, days."""
N_ROUNDS, N_GROUP_ROUNDS = 12, 3
"""Rounds of expectation maximisation, of the share of a site and of those of its URL groups."""
MOST_GROUPS = 4096
"""Number of URL groups that are enough to find the concentration of their shares."""
CONCENTRATIONS = np.array([0.2, 0.5, 1.0, 3.0, 10.0, 30.0, 100.0])
"""Concentrations of the shares of URL groups that are compared."""
SAMPLED_BELOW, ALIKE, SAMPLE = 0.5, 3.0, 3
"""Share and concentration below which at first only some pages of each URL group count, and the
number of these pages."""
UNIT = 1e6
"""Parts of a share that are stored."""


class WideRevisions(NamedTuple):
    """(R,) wide revisions, by ascending host_id and instant."""

    host_id: Ints
    at: Instants
    """The first crawl that saw the revision."""
    share: Floats
    """Share of the pages of the host that changed."""

    @classmethod
    def none(cls) -> "WideRevisions":
        """Return no revisions."""
        return cls(np.zeros(0, np.int64), np.zeros(0, "M8[us]"), np.zeros(0))

    @classmethod
    def unpacked(cls, packed: Ints) -> "WideRevisions":
        """Return revisions from the numbers of `packed`; raise `InvalidInput` for other lengths."""
        if packed.size % 3:
            raise InvalidInput("packed", f"has {packed.size} numbers, which are no revisions")
        host_id, at, share = packed.reshape(3, -1)
        return cls(host_id, at.view("M8[us]"), share / UNIT)

    @classmethod
    def of_all(cls, parts: "Iterable[WideRevisions | None]") -> "WideRevisions | None":
        """Return the revisions of several parts; None if there are none."""
        whole = cls.none()
        for part in parts:
            whole = whole if part is None else whole.with_new(part)
        return whole if whole.at.size else None

    def packed(self) -> Ints:
        """Return all numbers, 24 bytes for each revision."""
        share = np.rint(self.share * UNIT).astype(np.int64)
        return np.concatenate((self.host_id, self.at.view(np.int64), share))

    def where(self, some: Bools | slice) -> "WideRevisions":
        """Return some of the revisions."""
        return WideRevisions(self.host_id[some], self.at[some], self.share[some])

    def newest(self, now: np.datetime64) -> "WideRevisions":
        """Return the revisions that are kept: the newest of each host, none that is old."""
        last = np.searchsorted(self.host_id, self.host_id, side="right")
        kept = last - np.arange(last.size) <= MOST_KNOWN
        kept &= now - self.at < np.timedelta64(round(LONGEST_DAYS), "D")
        return self.where(kept)

    def with_new(self, new: "WideRevisions") -> "WideRevisions":
        """Return these revisions and those that were found."""
        host_id, at, share = (np.concatenate(pair) for pair in zip(self, new, strict=True))
        order = np.lexsort((at, host_id))
        return WideRevisions(host_id[order], at[order], share[order])

    def ages(self, host_id: Ints, now: np.datetime64) -> Floats:
        """Return (S, K) ages of the revisions of (S,) hosts, days; infinite where there are none.

        `host_id` ascends and has the hosts of all revisions.
        """
        table = np.full((host_id.size, MOST_KNOWN), np.inf)
        rank = np.arange(self.at.size) - np.searchsorted(self.host_id, self.host_id)
        table[np.searchsorted(host_id, self.host_id), rank] = (now - self.at) / DAY
        return table

    def probability(self, host_id: Ints, start: Instants, end: Instants) -> Floats:
        """Return (N,) probabilities that pages of hosts changed by revisions after start until end.

        >>> revisions = WideRevisions(np.array([7]), np.array(["2026-01-02"], "M8[us]"),
        ...     np.array([0.9]))
        >>> days = np.array(["2026-01-01", "2026-01-03"], "M8[us]")
        >>> revisions.probability(np.array([7, 8]), days[[0, 0]], days[[1, 1]])
        array([0.9, 0. ])
        """
        unchanged = np.ones(host_id.size)
        first, last = (np.searchsorted(self.host_id, host_id, side) for side in ("left", "right"))
        for k in range(MOST_KNOWN):
            row = np.minimum(first + k, self.at.size - 1)
            within = (first + k < last) & (start < self.at[row]) & (self.at[row] <= end)
            unchanged *= np.where(within, 1.0 - self.share[row], 1.0)
        return 1.0 - unchanged


DAY = np.timedelta64(1, "D")


class Uncrawled(NamedTuple):
    """(P,) pages, with ages of their last crawls."""

    site: Ints
    url_group: NDArray[np.integer]
    age: Floats
    """Age of the last crawl; NaN: never crawled."""


class Stale(NamedTuple):
    """Pages after wide revisions, and the shares of these."""

    probability: Floats
    """(P,) probability that the page has changed by revisions since its last crawl."""
    share: Floats
    """(S,) share of the pages of each site that changed; NaN where no crawls have shown it."""


def stale(pages: Uncrawled, quiet: QuietIntervals, ages: Floats) -> Stale:
    r"""Return the probabilities that pages have changed by revisions since their last crawls.

    Crawls have shown the share h for pages that were last crawled in the same gap between
    revisions: quiet intervals that began in this gap and ended after it. A change in one of them is
    that of the revision with the probability

    .. math:: r = \frac{h}{h + (1 - h) p}, \quad h = \frac{1/2 + \sum r}{2 + n},

    which expectation maximisation solves. The shares of URL groups are Beta-distributed about h
    with the concentration kappa that makes their counts the likeliest. With
    :math:`k = \sum r` in n intervals, a group has the share (kappa h + k)/(kappa + n).

    If groups differ and h is low, at first only `SAMPLE` pages of each group count. Otherwise
    crawls of all pages would use up the budget before they show which groups were spared.

    Parameters
    ----------
    ages : (S, K)
        Ages of the revisions of each site, in any order; infinite: none.
    """
    n_since = _count_since(ages, pages.site, pages.age)
    share_of_site = np.full(len(ages), np.nan)
    probability = np.zeros(pages.site.size)
    began, ended = (_count_since(ages, quiet.site, age) for age in (quiet.start, quiet.end))
    saw = quiet.where(began > ended)
    gap = (quiet.site * (MOST_KNOWN + 1) + began)[began > ended]
    if not gap.size:
        return Stale(probability, share_of_site)
    n_gaps = len(ages) * (MOST_KNOWN + 1)
    shown = _marked(gap, n_gaps)
    gaps, number = np.flatnonzero(shown), np.cumsum(shown) - 1
    of_interval = number[gap]
    share = _shares(of_interval, saw, gaps.size)
    newest = gaps % (MOST_KNOWN + 1) == 1
    share_of_site[gaps[newest] // (MOST_KNOWN + 1)] = share[newest]
    own = pages.site * (MOST_KNOWN + 1) + n_since
    mine = np.flatnonzero((n_since > 0) & shown[own])
    if mine.size:
        asked = _marked(own[mine], n_gaps)[gap]
        observed = saw.where(asked)._replace(site=of_interval[asked])
        uncrawled = Uncrawled(number[own[mine]], pages.url_group[mine], pages.age[mine])
        probability[mine] = _by_group(uncrawled, observed, share)
    return Stale(probability, share_of_site)


def _marked(numbers: Ints, n: int) -> Bools:
    """Return (n,) which numbers there are."""
    marked = np.zeros(n, np.bool_)
    marked[numbers] = True
    return marked


def _count_since(ages: Floats, site: Ints, age: Floats) -> Ints:
    """Return the number of revisions of each row's site that are younger than its age."""
    n = np.zeros(site.size, np.int64)
    for column in ages.T[np.isfinite(ages).any(axis=0)]:
        n += column[site] < age
    return n


def _shares(of: Ints, saw: QuietIntervals, n: int) -> Floats:
    """Return the share of each of n gaps by expectation maximisation."""
    in_all, share = np.bincount(of, minlength=n), np.full(n, 0.5)
    of, chance = of[saw.changed], saw.chance[saw.changed]
    for _ in range(N_ROUNDS):
        by_revision = _by_revision(share[of], chance)
        share = (np.bincount(of, by_revision, n) + 0.5) / (in_all + 2.0)
    return np.asarray(share)


def _by_revision(share: Floats, chance: Floats) -> Floats:
    """Return the probabilities that changes are those of revisions."""
    return np.asarray(share / (share + (1.0 - share) * chance))


def _by_group(pages: Uncrawled, saw: QuietIntervals, share: Floats) -> Floats:
    """Return the probability of each page; sites of pages and intervals are gaps here."""
    width = int(max(pages.url_group.max(), saw.url_group.max(initial=0))) + 1
    keys = np.concatenate((saw.site * width + saw.url_group, pages.site * width + pages.url_group))
    used, at = renumber(keys, width * share.size)
    gap, n_saw = (used // width).astype(np.int64, copy=False), saw.site.size
    n = np.bincount(at[:n_saw], minlength=used.size).astype(np.float64)
    own, chance = at[:n_saw][saw.changed], saw.chance[saw.changed]
    of_group, concentration = share[gap], np.ones(share.size)
    for _ in range(N_GROUP_ROUNDS):
        by_revision = np.bincount(own, _by_revision(of_group[own], chance), used.size)
        hits = by_revision.astype(np.float64)
        concentration = _concentrations(gap, hits, n, share)
        weight = concentration[gap]
        of_group = (weight * share[gap] + hits) / (weight + n)
    group = at[n_saw:]
    probability = of_group[group]
    sampled = (share < SAMPLED_BELOW) & (concentration < ALIKE)
    if sampled.any():
        oldest = np.lexsort((-pages.age, group))
        rank = np.arange(group.size) - np.searchsorted(group[oldest], group[oldest])
        waits = sampled[pages.site[oldest]] & (rank >= np.maximum(SAMPLE - n[group[oldest]], 0))
        waits &= n[group[oldest]] < SAMPLE
        probability[oldest[waits]] = 0.0
    return np.asarray(probability)


def _concentrations(gap: Ints, hits: Floats, n: Floats, share: Floats) -> Floats:
    """Return the concentration of each gap that makes the counts of its groups the likeliest."""
    some = np.flatnonzero(n > 1)
    some = some[:: max(some.size // MOST_GROUPS, 1)]
    h = share[gap[some], np.newaxis]
    a, b = CONCENTRATIONS * h, CONCENTRATIONS * (1.0 - h)
    changed, unchanged = hits[some, np.newaxis], (n - hits)[some, np.newaxis]
    score = betaln(a + changed, b + unchanged) - betaln(a, b)
    of_gap = np.column_stack([np.bincount(gap[some], each, share.size) for each in score.T])
    weight = np.exp(of_gap - of_gap.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    mean = np.exp(weight @ np.log(CONCENTRATIONS))
    counted = np.bincount(gap[some], minlength=share.size) > 0
    return np.asarray(np.where(counted, mean, 1.0))


def hazard(probability: Floats) -> Floats:
    """Return the expected changes, -ln(1 - P), that make a change as probable.

    >>> hazard(np.array([0.0, 0.95])).round(3).tolist()
    [0.0, 2.996]
    """
    return np.asarray(-np.log1p(-probability))


def own_share(expected: Floats, probability: Floats) -> Floats:
    r"""Return the part of a change that teaches a page's own rate.

    An own change has the chance p in the interval, and a revision's change the probability P. A
    change is then an own one with the probability :math:`p/(p + P - p P)`.

    >>> own_share(np.array([0.01, 0.01]), np.array([0.0, 0.95])).round(4).tolist()
    [1.0, 0.0105]
    """
    chance = -np.expm1(-expected)
    return np.asarray(chance / np.maximum(chance + probability * (1.0 - chance), 1e-300))
