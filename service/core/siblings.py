"""Changes that other pages of a URL group have shown since a page's last crawl, and their effect.

One revision often touches many pages of a directory. A page whose siblings, the other pages of its
URL group, have changed is therefore crawled sooner: docs/theory.md, "When rates become crawls".
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.core.checks import Bools, Floats, InvalidInput, check_amount
from service.core.url_groups import renumber

EXPONENT_BIT, BIAS = 52, 1023
"""Place of the exponent in a float64, and the exponent of 1."""
UP_FROM_ROOT_2 = (1 << EXPONENT_BIT) - (int(np.float64(2**0.5).view(np.int64)) & (1 << 52) - 1)
"""Number that takes the bits of a float64 from the root of 2 on to the next exponent."""
OWN_WEIGHT = 15.0
"""Weight of the page's own expected changes against those of siblings' crawls."""

FINEST, AGES = 0.01, 32
"""Smallest age, days, and number of age bins of half a power of 2: 15 minutes to two years."""

Cells = NDArray[np.int64]


class LastIntervals(NamedTuple):
    """(R,) last intervals of pages, and the ratios of what their siblings showed within them."""

    row: NDArray[np.intp]
    """Row of the page."""
    expected: Floats
    """Changes expected in the interval: change rate times length."""
    changed: Floats
    """1 if the page had changed, else 0."""
    ratio: Floats
    """Ratio of observed to expected changes of the siblings; NaN where they showed nothing."""


class Siblings(NamedTuple):
    """The last intervals of (N,) pages as evidence of each other, in cells by age and URL group.

    Build it by `siblings`. Time and memory O(N + 32 S).
    """

    first: Cells
    """(N,) first cell of each page's URL group."""
    age: Floats
    change_rate: Floats
    row: NDArray[np.intp]
    """(I,) pages with a last interval."""
    length: Floats
    """(I,) lengths of these intervals, days."""
    exposure: Floats
    """(I,) operational lengths of these intervals, days at the mean change rate."""
    changed: Floats
    expected: Floats
    """(I,) probability of a change in each interval, calibrated."""
    cell: Cells
    """(I,) cell of each interval's middle."""
    n_changed: Floats
    """Intervals with a change in younger cells of the URL group and half of those in the cell."""
    n_expected: Floats
    """The same of expected changes."""

    def observed_ratio(self, share: Floats | float) -> Floats:
        r"""Return (N,) ratios of observed to expected changes of pages since their last crawls.

        Page j of change rate Delta_j was crawled a_j days ago. The last intervals of its siblings
        count if their middle lies after that crawl: O_j of them changed, E_j were expected to
        change. With kappa = `OWN_WEIGHT` and the share s_j of changes in common

        .. math:: F_j = 1 - s_j + s_j \frac{\kappa \Delta_j a_j + O_j}{\kappa \Delta_j a_j + E_j}

        F = 1 with O = E, without intervals, and with s = 0.

        Parameters
        ----------
        share : (N,) or number, in [0, 1]

        Examples
        --------
        >>> url_group, age, interval = np.zeros(3, int), [5.0, 5.0, 1.0], [-9.0, -9.0, 4.0]
        >>> shown = siblings(url_group, age, interval, change_rate=0.01)
        >>> shown.observed_ratio(0.4).round(3)
        array([1.487, 1.487, 1.   ])
        """
        return shared(self.ratio(), share)

    def ratio(self) -> Floats:
        """Return (N,) ratios as `observed_ratio` for the share 1."""
        at = self.first + age_bin(self.age)
        observed, expected = self.n_changed[at], self.n_expected[at]
        own = _counts(self.cell, at[self.row])
        observed[self.row] -= own * self.changed
        expected[self.row] -= own * self.expected
        return _ratio(self.change_rate * self.age, observed, expected)

    def by_age(self) -> tuple[Floats, Floats]:
        """Return (`AGES`,) observed and expected changes of all pages, later than each age."""
        observed, expected = (
            counts.reshape(-1, AGES).sum(axis=0) for counts in (self.n_changed, self.n_expected)
        )
        return observed, expected

    def within_last_intervals(self, where: Bools) -> LastIntervals:
        """Return the last intervals of the pages in a mask, and their siblings' ratios in them."""
        some = np.flatnonzero(where[self.row])
        row, cell, length = self.row[some], self.cell[some], self.length[some]
        end, start = (self.first[row] + age_bin(self.age[row] + days) for days in (0.0, length))
        own = _counts(cell, start) - _counts(cell, end)
        observed = self.n_changed[start] - self.n_changed[end] - own * self.changed[some]
        expected = self.n_expected[start] - self.n_expected[end] - own * self.expected[some]
        changes = self.change_rate[row] * self.exposure[some]
        ratio = _ratio(changes, observed, expected)
        ratio[observed + expected <= 0] = np.nan
        return LastIntervals(row, changes, self.changed[some], ratio)


def corpus_ratios(observed: Floats, expected: Floats) -> Floats:
    """Return (`AGES`,) ratios of observed to expected changes, mixed with one change at ratio 1.

    Derived in docs/theory.md, "When rates become crawls".

    >>> corpus_ratios(np.array([0.0, 9.0]), np.array([0.0, 4.0])).tolist()
    [1.0, 2.0]
    """
    return np.asarray((observed + 1.0) / (expected + 1.0))


def corpus_ratio(ratios: Floats, age: Floats) -> Floats:
    """Return (N,) ratios of observed to expected changes of all pages since some ages, days.

    >>> corpus_ratio(np.arange(float(AGES)), np.array([0.001, 0.01, 0.02, 1e9]))
    array([ 0.,  0.,  2., 31.])
    """
    return np.asarray(ratios[age_bin(age)])


def shared(ratio: Floats, share: Floats | float) -> Floats:
    """Return ratios of observed to expected changes where pages have a share in common."""
    return np.asarray(1.0 + share * (ratio - 1.0))


def siblings(
    url_group: NDArray[np.integer],
    age: ArrayLike,
    interval: ArrayLike,
    change_rate: ArrayLike,
    calibration: float = 1.0,
    exposure: ArrayLike | None = None,
) -> Siblings:
    """Return the last intervals of pages as evidence of each other.

    Parameters
    ----------
    url_group : (N,) int
        URL group of each page. Not negative.
    age : (N,) days
        Days since each page's last crawl; NaN: never crawled.
    interval : (N,) days
        Interval that the last crawl ended, negative if the page had not changed in it; 0: unknown.
    change_rate : (N,) >= 0, 1/day
    calibration
        Ratio of observed to expected changes over all pages, by which expected changes count.
    exposure : (N,) >= 0, days
        Operational lengths of the last intervals: more than the length in hours in which the pages
        of the host change often. None: the lengths.

    Raise `InvalidInput` for another shape, or an entry that is negative or infinite.

    References
    ----------
    Derived in docs/theory.md. Clusters of pages that change together: Cho, Ntoulas 2002, Effective
    Change Detection Using Sampling; Tan, Mitra 2010, Clustering-based Incremental Web Crawling.
    """
    shape = url_group.shape
    rate = np.broadcast_to(check_amount("change_rate", change_rate, np.shape(change_rate)), shape)
    days, interval = (np.asarray(column, np.float64) for column in (age, interval))
    for name, column in (("age", days), ("interval", interval)):
        if column.shape != shape or np.isinf(column).any():
            raise InvalidInput(name, f"must be finite and of shape {shape}")
    row = np.flatnonzero((interval != 0) & ~np.isnan(days))
    days, length = np.nan_to_num(days), np.abs(interval[row])
    present, place = renumber(url_group, int(url_group.max(initial=-1)) + 1)
    first = place * np.int64(AGES)
    cell = first[row] + age_bin(days[row] + 0.5 * length)
    changed = (interval[row] > 0).astype(np.float64)
    exposed = length if exposure is None else check_amount("exposure", exposure, shape)[row]
    expected = calibration * -np.expm1(-rate[row] * exposed)
    tables = (_cumulated(cell, weight, present.size) for weight in (changed, expected))
    return Siblings(first, days, rate, row, length, exposed, changed, expected, cell, *tables)


def _cumulated(cell: Cells, weight: Floats, n_groups: int) -> Floats:
    """Return the weight in younger cells of the group and half of that in the cell."""
    of_cell = np.bincount(cell, weight, n_groups * AGES)
    so_far = np.cumsum(of_cell.reshape(-1, AGES), axis=1).reshape(-1)
    half = 0.5 * of_cell
    return np.asarray(np.subtract(so_far, half, out=half))


def _counts(cell: Cells, at: Cells) -> Floats:
    """Return the share of each interval that counts in `_cumulated` at some cells."""
    return np.asarray((cell < at) + 0.5 * (cell == at))


def _ratio(changes: Floats, observed: Floats, expected: Floats) -> Floats:
    """Return ratios of observed to expected changes, mixed with 1; differences may be below 0."""
    own = OWN_WEIGHT * changes
    above, below = own + np.maximum(observed, 0.0), own + np.maximum(expected, 0.0)
    return np.divide(above, below, out=np.ones(own.shape), where=own > 0)


def age_bin(age: Floats) -> Cells:
    """Return the bins of (N,) ages, days: from 0 up to `FINEST` to the 31st."""
    times = np.maximum(age, FINEST)
    times /= FINEST
    # the exponents of float64, once as they are and once with mantissas from the root of 2 on
    # rounded up, add up to the half octaves
    bits = times.view(np.int64)
    bins = bits >> EXPONENT_BIT
    bins += (bits + UP_FROM_ROOT_2) >> EXPONENT_BIT
    bins -= 2 * BIAS
    return np.asarray(np.minimum(bins, AGES - 1, out=bins))
