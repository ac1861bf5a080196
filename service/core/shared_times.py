r"""Times at which the pages of a group changed together, read off stretches between crawls.

A revision of many pages changes them at one instant, but each page's crawls show only a stretch
that has it. The stretches of all pages together narrow it down. Page i of a group changes at the
rate :math:`D_i s(t)`. The factor s is constant within a bin of time and has a gamma prior of the
shape `SHAPE`; EM finds it from all stretches, with a change or without. Hosts come first, and then
groups within their host. With :math:`S(t) = \int s` a page changes at a steady rate in S.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.core.checks import Bools, Floats

Ints = NDArray[np.int64]

SHAPE = 0.03
"""Shape of the prior of s in a bin: small, so that most bins are quiet and a few are not. Chosen
among .01, .03 and .1 on three recorded sites (decision 62)."""
ROUNDS = 15
"""Rounds of EM."""
LEAST_CHANGES = 3
"""Least number of changes of a group, or a host, that has times of its own."""
MOST_ROWS = 2_000
"""Maximum number of hosts, and of groups, with times of their own."""
MOST_BINS, MOST_CELLS = 2_048, 1_000_000
"""Maximum number of bins, and of the bins of all rows together."""


@dataclass(frozen=True, slots=True)
class SharedTimes:
    """The times S(t) of rows of pages; instants are days since any start."""

    row: Ints
    """(N,) row of each page."""
    start: float
    width: float
    """Width of a bin, days."""
    end_of: Floats
    """(R * B + 1,) S at the ends of all bins, row by row, rising from row to row; from 0."""
    n_bins: int

    def of(self, page: Ints, at: Floats) -> Floats:
        """Return S at (K,) instants of pages; instants beyond the bins count as their bounds."""
        place = np.clip((at - self.start) / self.width, 0.0, float(self.n_bins))
        whole = np.minimum(place.astype(np.int64), self.n_bins - 1)
        cell = self.row[page] * self.n_bins + whole
        low = self.end_of[cell]
        return np.asarray(low + (place - whole) * (self.end_of[cell + 1] - low))

    def back(self, page: Ints, value: Floats) -> Floats:
        """Return the instants of (K,) values of S."""
        first = self.row[page] * self.n_bins
        cell = np.searchsorted(self.end_of, value, side="right") - 1
        cell = np.clip(cell, first, first + self.n_bins - 1)
        low, high = self.end_of[cell], self.end_of[cell + 1]
        part = np.clip((value - low) / (high - low), 0.0, 1.0)
        return np.asarray(self.start + (cell - first + part) * self.width)


def shared_times(
    page: Ints,
    begin: Floats,
    end: Floats,
    changed: Bools,
    rate: Floats,
    host: Ints,
    group: Ints,
    bounds: tuple[float, float],
) -> SharedTimes:
    """Return the times of pages from (K,) stretches that crawls ended.

    Parameters
    ----------
    page
        (K,) row of the page of each stretch.
    rate, host, group
        (N,) change rate of each page, 1/day, and numbers of its host and its group.
    bounds
        First and last instant of the bins, days.
    """
    n_changes = np.bincount(page[changed], minlength=len(rate))
    own_host = _numbered(host, n_changes)
    n_hosts = int(own_host.max(initial=-1)) + 2
    of_host = np.where(own_host < 0, n_hosts - 1, own_host)  # the last row is of all others
    of_group = _numbered(group, n_changes)
    n_groups = int(of_group.max(initial=-1)) + 1
    n_bins = min(MOST_CELLS // (n_hosts + n_groups), MOST_BINS)
    start, width = bounds[0], (bounds[1] - bounds[0]) / n_bins
    low, high = (np.clip((at - start) / width, 0.0, float(n_bins)) for at in (begin, end))
    shown = low < high
    page, low, high, changed = page[shown], low[shown], high[shown], changed[shown]
    expected = rate[page] * width
    total = float(expected @ (high - low))
    base = np.full((n_hosts, n_bins), changed.sum() / total if changed.any() else 1.0)
    factor = hosts = _learnt(of_host[page], low, high, changed, expected, base)
    if n_groups:
        its_host = np.zeros(n_groups, np.int64)
        its_host[of_group[of_group >= 0]] = of_host[of_group >= 0]
        some = of_group[page] >= 0
        of_own = of_group[page][some], low[some], high[some], changed[some]
        groups = _learnt(*of_own, expected[some], hosts[its_host])
        factor = np.concatenate([groups, hosts])
    row = np.where(of_group >= 0, of_group, n_groups + of_host)
    end_of = np.concatenate([[0.0], np.cumsum(factor.ravel() * width)])
    return SharedTimes(row, start, width, end_of, n_bins)


def _numbered(member: Ints, n_changes: Ints) -> Ints:
    """Return (N,) numbers of the hosts, or groups, of pages; -1 for those with few changes."""
    _, place = np.unique(member, return_inverse=True)
    count = np.bincount(place, n_changes)
    own = np.flatnonzero(count >= LEAST_CHANGES)
    own = own[np.argsort(-count[own], kind="stable")][:MOST_ROWS]
    number = np.full(len(count), -1)
    number[own] = np.arange(len(own))
    return number[place]


def _learnt(
    row: Ints, low: Floats, high: Floats, changed: Bools, expected: Floats, base: Floats
) -> Floats:
    """Return (R, B) factors s from stretches of rows, from `low` to `high` in bins."""
    shape, factor = base.shape, base
    exposure = base * _covered(row, low, high, expected, shape)
    row, low, high = row[changed], low[changed], high[changed]
    for _ in range(ROUNDS):
        ends = np.zeros((shape[0], shape[1] + 1))
        np.cumsum(factor, axis=1, out=ends[:, 1:])
        mass = _at(ends, row, high) - _at(ends, row, low)
        n_changes = factor * _covered(row, low, high, 1.0 / mass, shape)
        factor = base * (n_changes + SHAPE) / (exposure + SHAPE)
    return factor


def _at(ends: Floats, row: Ints, place: Floats) -> Floats:
    whole = np.minimum(place.astype(np.int64), ends.shape[1] - 2)
    low = ends[row, whole]
    return np.asarray(low + (place - whole) * (ends[row, whole + 1] - low))


def _covered(
    row: Ints, low: Floats, high: Floats, height: Floats, shape: tuple[int, int]
) -> Floats:
    """Return (R, B) integrals over bins of rectangles from `low` to `high`, exactly."""
    n_rows, n_bins = shape
    area, rise = np.zeros(n_rows * n_bins), np.zeros(n_rows * n_bins)
    for place, jump in ((low, height), (high, -height)):
        whole = np.minimum(place.astype(np.int64), n_bins - 1)
        cell = row * n_bins + whole
        area += np.bincount(cell, jump * (whole + 1 - place), len(area))
        rise += np.bincount(cell, jump, len(rise))
    before = np.cumsum(rise.reshape(shape), axis=1)
    covered = area.reshape(shape)
    covered[:, 1:] += before[:, :-1]
    return np.maximum(covered, 0.0)
