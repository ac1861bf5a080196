r"""Quiet last intervals of pages, and the wide revisions that they prove. Pure.

A *quiet* interval ends at a crawl of a page that hardly ever changes. A revision shows where many
of them end with a change, and all of those contain one instant. `core.wide_revisions` has what
follows from it. Derived in docs/theory.md, "Wide revisions".

Ages are in days before now, so the start of an interval has a larger age than its end.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.checks import Bools, Floats

Ints = NDArray[np.int64]

QUIET = 0.6
"""Expected changes beyond which an interval shows nothing."""
LEAST_EXPECTED = 0.003
"""Minimum of expected changes, because rates of pages that never changed are uncertain."""
CLASSES = np.array([0.01, 0.04, 0.15])
"""Bounds of classes of expected changes, whose calibration differs."""
UNSURPRISED = np.ones(CLASSES.size + 1)
"""Factors of classes in which pages change no more than expected."""
CALIBRATION_CHANGES = 5.0
"""Weight of the calibration 1, in changes."""
SHARES = np.array([0.2, 0.55, 0.95])
"""(H,) shares of changed pages that are compared."""
PROOF = 10.0
"""Minimum log-likelihood ratio of a revision against none."""
ROUNDING = 1e-6
"""Difference below which two sums of the same numbers may be alike."""
LEAST_CHANGED = 5
"""Minimum of quiet intervals with a change."""
AGE_BITS, TICKS = 36, 86_400 * 16
"""Bits of an age in a number that sorts by site and age, and its units in a day."""


class QuietIntervals(NamedTuple):
    """(I,) last intervals of pages."""

    site: Ints
    """Number of the host, from 0."""
    url_group: NDArray[np.integer]
    start: Floats
    end: Floats
    changed: Bools
    expected: Floats
    """Changes that were expected in the interval before its crawl."""

    def where(self, mask: Bools | NDArray[np.intp]) -> "QuietIntervals":
        """Return the intervals in a mask, or of some rows."""
        columns: list[Any] = [column[mask] for column in self]
        return QuietIntervals(*columns)

    def after(self, age: Floats) -> "QuietIntervals":
        """Return the intervals that began after an instant of their site; `age` has (S,) days."""
        after = self.start < age[self.site]
        return self if after.all() else self.where(after)

    @property
    def chance(self) -> Floats:
        """Probability of a change without a revision."""
        return np.asarray(-np.expm1(-np.maximum(self.expected, LEAST_EXPECTED)))


def rate_before(
    a: Floats | float, b: Floats | float, changes: Floats, days: Floats, interval: Floats
) -> Floats:
    r"""Return (N,) change rates as they were estimated before each page's last crawl.

    The posterior Gamma(a + changes, b + days) includes the last interval L. An unchanged interval
    has added L days, and a changed one about a change in L/2 days. Without it, the mean is

    .. math:: \frac{a + \max(c - y, 0)}{b + \max(d - L (1 - y/2), 0)}

    with y = 1 after a change, else 0. `interval` is negative without a change.

    >>> rate_before(0.5, 15.0, np.array([0.0, 1.2]), np.array([20.0, 25.0]), np.array([-5.0, 10.0]))
    array([0.01666667, 0.02      ])
    """
    changed, length = 1.0 * (interval > 0), np.abs(interval)
    changes = np.maximum(changes - changed, 0.0)
    days = np.maximum(days - length * (1 - changed / 2), 0.0)
    return np.asarray((a + changes) / (b + days))


def calibrated(
    quiet: QuietIntervals,
    row: NDArray[np.intp] | slice = slice(None),
    of_all: Floats | None = None,
) -> Floats:
    r"""Return chances of own changes, raised where pages have changed more than expected.

    Rates that are too low make every change a surprise. Intervals are in classes by the changes
    that were expected. With O changed and E expected in a class, of all sites and then of one, its
    expected changes count :math:`(O + \kappa)/(E + \kappa)` times, at least once.

    `row` has all intervals of some sites, whose chances are returned. `of_all` has the factors of
    classes by all sites (`surprise`); None: by these sites.
    """
    kind, of_all = _kind(quiet), surprise(quiet) if of_all is None else of_all
    kind, changed = kind[row], quiet.changed[row]
    expected = np.maximum(quiet.expected[row], LEAST_EXPECTED) * of_all[kind]
    kind = quiet.site[row] * (CLASSES.size + 1) + kind
    return np.asarray(-np.expm1(-expected * _surprise(kind, changed, expected)[kind]))


def surprise(quiet: QuietIntervals) -> Floats:
    """Return the factors of the classes by all of these intervals, at least 1."""
    expected = np.maximum(quiet.expected, LEAST_EXPECTED)
    return _surprise(_kind(quiet), quiet.changed, expected, CLASSES.size + 1)


def _kind(quiet: QuietIntervals) -> NDArray[np.integer]:
    """Return the class of each interval."""
    kind = np.zeros(quiet.site.size, np.int8)
    for bound in CLASSES:
        kind += quiet.expected > bound
    return kind


def _surprise(
    kind: NDArray[np.integer], changed: Bools, expected: Floats, least: int = 0
) -> Floats:
    """Return the ratio of observed to expected changes of each class, at least 1.

    There are at least `least` classes.
    """
    n_expected = np.bincount(kind, -np.expm1(-expected), least) + CALIBRATION_CHANGES
    n_changed = np.bincount(kind[changed], minlength=n_expected.size) + CALIBRATION_CHANGES
    return np.asarray(np.maximum(n_changed / n_expected, 1.0))


class IntervalEnds(NamedTuple):
    """(2 I,) ends of intervals, site by site from the oldest to the youngest."""

    row: NDArray[np.intp]
    """The interval."""
    sign: Floats
    """1 where it begins, -1 where it ends."""
    age: Floats
    followed: Bools
    """True if time lies between this end and the next one."""

    @classmethod
    def of(cls, quiet: QuietIntervals) -> "IntervalEnds":
        """Return the ends of intervals; O(I log I)."""
        age, site = np.concatenate((quiet.start, quiet.end)), np.tile(quiet.site, 2)
        key = (site.astype(np.int64) << AGE_BITS) - np.rint(age * TICKS).astype(np.int64)
        order = key.argsort()
        key, sign = key[order], np.where(order < quiet.site.size, 1.0, -1.0)
        followed = np.append(key[1:] != key[:-1], True)
        return cls(order % quiet.site.size, sign, age[order], followed)


def suspects(changed: QuietIntervals, n_sites: int) -> Bools:
    """Return (S,) which sites have a revision if no unchanged interval speaks against it.

    Changes are few, so that this spares most sites the look at all of their intervals.
    """
    # calibration raises chances, and the largest share explains changes best
    odds = np.log1p(SHARES[-1] * (1.0 / changed.chance - 1.0))
    n_changed = np.bincount(changed.site, minlength=n_sites)
    may = n_changed >= LEAST_CHANGED
    may &= np.bincount(changed.site, odds, may.size) > PROOF - ROUNDING
    some = may[changed.site]
    if not some.any():
        return may
    changed, odds = changed.where(some), odds[some]
    ends = IntervalEnds.of(changed)
    proven = np.cumsum(ends.sign * odds[ends.row]) > PROOF - ROUNDING
    proven &= np.cumsum(ends.sign) >= LEAST_CHANGED
    may[:] = False
    may[changed.site[ends.row[proven]]] = True
    return may


def find(quiet: QuietIntervals, of_all: Floats | None = None) -> tuple[Ints, Floats]:
    r"""Return the sites and ages of revisions that quiet intervals prove, one for each site.

    A revision of the share h at an instant changes the probability of the intervals that contain
    the instant. With the chance p of an own change (`calibrated`), the log-likelihood ratio against
    none is

    .. math:: \sum_{changed} \ln\Big(1 + h \frac{1 - p}{p}\Big) + \sum_{unchanged} \ln(1 - h)

    It is constant between two ends of intervals. The sums of all of these stretches are cumulated
    from the oldest end to the youngest. The age is that of the younger end of the best stretch,
    which is the first crawl that saw the revision. O(I log I) for the intervals of sites whose
    changes alone would prove one.

    `of_all` is that of `calibrated`. Larger factors prove fewer revisions.

    Examples
    --------
    >>> end = np.arange(40.0)  # a crawl a day, and a revision 5.5 days ago
    >>> none = np.zeros(40, int)
    >>> find(QuietIntervals(none, none, end + 20, end, end < 6, np.full(40, 0.05)))
    (array([0]), array([5.]))
    """
    nothing = np.zeros(0, np.int64), np.zeros(0)
    if not quiet.site.size:
        return nothing
    may = suspects(quiet.where(quiet.changed), int(quiet.site.max()) + 1)
    some = np.flatnonzero(may[quiet.site])
    if not some.size:
        return nothing
    chance, quiet = calibrated(quiet, some, of_all), quiet.where(some)
    ends = IntervalEnds.of(quiet)
    row, sign = ends.row, ends.sign
    ratio = np.zeros(row.size)
    for share in SHARES:
        odds = np.log1p(share * (1.0 / chance - 1.0))
        weight = np.where(quiet.changed, odds, np.log1p(-share))
        np.maximum(ratio, np.cumsum(sign * weight[row]), out=ratio)
    ratio[np.cumsum(sign * quiet.changed[row]) < LEAST_CHANGED] = 0.0
    ratio[~ends.followed] = 0.0
    site = quiet.site[row]
    first = np.flatnonzero(np.diff(site, prepend=-1))
    proven = np.flatnonzero(np.maximum.reduceat(ratio, first) > PROOF)
    last = np.append(first[1:], site.size)
    best = [first[i] + int(ratio[first[i] : last[i]].argmax()) for i in proven.tolist()]
    at = np.array(best, np.int64)
    return site[at], ends.age[at + 1]
