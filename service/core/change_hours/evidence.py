"""Evidence of change hours: what crawls show about the hours at which the pages of a host change.

A crawl shows whether a page changed within an interval. Its evidence is the Fisher information of
the profile's coefficients, and information times coefficients; sums of both replace the history. A
date shows the instant of a change, and counts in hourly bins.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.core.change_hours.profile import LEAST_INTENSITY, TERMS, Profiles, integrals
from service.core.checks import Bools, Floats, InvalidInput, check_amount, check_array
from service.core.estimators.gamma import gamma_unchanged

HALF_LIFE_DAYS = 180.0
"""Time in which evidence loses half of its weight, days."""
BULK = 10.0
"""Maximum unexpected changes a day and host that count in full; one revision changes many pages."""
DOUBT = 4.0
"""Doubt above which change hours are forgotten: crawls are 55 times as likely without."""
BINS = 24
"""Number of bins of a day for changes of reported instants."""
ROWS, COLUMNS = np.triu_indices(TERMS)
"""Places of the upper triangle of a symmetric matrix, row by row."""
PAIRS = len(ROWS)
EXPECTED = 1e-12, 700.0
"""Bounds of -ln P(unchanged), beyond which its odds leave float64."""
SURE = 0.03
"""Probability of no change within a day or more, below which a crawl shows no hours."""
BLOCK = 1 << 13
"""Maximum number of intervals whose terms are in memory at a time."""

Indices = NDArray[np.integer]


class HourEvidence(NamedTuple):
    """(H,) evidence of the change hours of hosts; all zeros mean no evidence."""

    score: Floats
    """(H, TERMS) information times the coefficients that the crawls support."""
    information: Floats
    """(H, PAIRS) Fisher information of the coefficients, upper triangle."""
    dated: Floats
    """(H, BINS) changes of reported instants."""
    exposure: Floats
    """(H, BINS) changes expected under a flat profile, while changes have reported instants."""
    changes: Floats
    """(H,) unexpected changes of the last day, by which bulk revisions are recognised."""
    doubt: Floats
    """(H,) logarithm of the likelihood of recent crawls without change hours, over that with the
    fitted profile; at least 0."""
    counted: Floats
    """(H,) sum over days of unexpected changes, at most `BULK` a day."""
    squared: Floats
    """(H,) sum over days of their squares."""
    watched: Floats
    """(H,) days in these sums."""

    @classmethod
    def none(cls, n: int) -> "HourEvidence":
        """Return the evidence of n hosts before any crawl."""
        return cls(*(np.zeros((n, *shape)) for shape in _SHAPES))

    def take(self, where: NDArray[Any] | slice) -> "HourEvidence":
        """Return the hosts that an index selects."""
        return HourEvidence(*(column[where] for column in self))


_SHAPES: tuple[tuple[int, ...], ...] = ((TERMS,), (PAIRS,), (BINS,), (BINS,), *[()] * 5)
_WIDTHS = [shape[0] if shape else 1 for shape in _SHAPES]
WIDTH = sum(_WIDTHS)
"""Numbers that the evidence of one host takes: 223."""


class Intervals(NamedTuple):
    """(N,) intervals between crawls, in the order of their hosts."""

    host: Indices
    """Row of the host, ascending."""
    start: Floats
    """Instant of the earlier crawl, days."""
    end: Floats
    """Instant of the later crawl, days."""
    a: Floats
    """Shape of the posterior of the page's change rate before the interval."""
    b: Floats
    """Rate of that posterior, days."""

    def take(self, where: slice) -> "Intervals":
        """Return a stretch of the intervals."""
        return Intervals(
            self.host[where], self.start[where], self.end[where], self.a[where], self.b[where]
        )


def shows_hours(intervals: Intervals) -> Bools:
    """Return (N,) which intervals show something of the hours, whatever their crawls find.

    An interval of a day or more lies in whole days by half at least. A whole day has the same
    integral under all profiles. If no change has a probability p below `SURE`, it is therefore at
    most sqrt(p) under any profile. The crawl then shows an error of the change rate rather than an
    hour. Pages that change every day have mostly such crawls, which would outweigh the few others.

    Examples
    --------
    A page with three changes a day was crawled after 23 hours, after a day, and after two:

    >>> start, end = np.zeros(3), np.array([23 / 24, 1.0, 2.0])
    >>> shows_hours(Intervals(np.zeros(3, int), start, end, np.full(3, 90.0), np.full(3, 30.0)))
    array([ True,  True, False])
    """
    length = intervals.end - intervals.start
    unchanged = gamma_unchanged(intervals.a, intervals.b, length)
    return np.asarray((length < 1.0) | (unchanged >= SURE))


def faded(evidence: HourEvidence, days: ArrayLike) -> HourEvidence:
    """Return the evidence after a time without crawls, in days: a number or (H,).

    Evidence loses half of its weight in `HALF_LIFE_DAYS`. The count of recent changes declines to 0
    within one day. Thus it is the number a day, whatever the time between calls. It joins the sums
    over days, with a weight of at most one day, once the host has any evidence.
    """
    hosts = evidence.changes.shape
    time = np.broadcast_to(check_amount("days", days, np.shape(days)), hosts)
    weight, day = np.exp2(-time / HALF_LIFE_DAYS), np.minimum(time, 1.0)
    score, information, dated, exposure = (column * weight[:, None] for column in evidence[:4])
    recent, doubt = evidence.changes * (1.0 - day), evidence.doubt
    last, day = np.clip(evidence.changes, 0.0, BULK), day * _has_learnt(evidence)
    sums = zip(evidence[6:], (last, last**2, 1.0), strict=True)
    counts = (total * weight + day * more for total, more in sums)
    return HourEvidence(score, information, dated, exposure, recent, doubt, *counts)


def _has_learnt(evidence: HourEvidence) -> Bools:
    """Return (H,) whether a host has evidence of any crawl."""
    return np.asarray((evidence.information[:, 0] > 0) | evidence.exposure.any(axis=1))


def forgotten(evidence: HourEvidence) -> HourEvidence:
    """Return the evidence without that of hosts whose doubt exceeds `DOUBT`.

    The change hours of such a host have ended, or have moved. This is Page's cumulative
    sum test: change hours that hold are forgotten once in e^DOUBT independent trials.

    References
    ----------
    Page, Continuous inspection schemes, Biometrika 41, 1954.
    """
    kept = evidence.doubt <= DOUBT
    return HourEvidence(*((column.T * kept).T for column in evidence))


def cluster(evidence: HourEvidence) -> Floats:
    """Return (H,) numbers of changes that come together, at least 1.

    The number is the variance of the unexpected changes of a day over their mean. Independent
    changes have 1. A host that has n changes on few days, and none on others, has nearly n: such a
    revision is one event, and shows the hour of one. Change hours have about as many changes each
    day.

    References
    ----------
    Fano 1947; quasi-likelihood with a dispersion: Wedderburn 1974.

    Examples
    --------
    Eight changes on one of ten days, and eight on each of ten:

    >>> evidence = HourEvidence.none(2)._replace(
    ...     counted=np.array([8.0, 80.0]), squared=np.array([64.0, 640.0]), watched=np.full(2, 10.0)
    ... )
    >>> cluster(evidence).round(1)
    array([7.3, 1. ])
    """
    last = np.clip(evidence.changes, 0.0, BULK)
    counted, squared = evidence.counted + last, evidence.squared + last**2
    mean = counted / (evidence.watched + 1.0)
    ratio = np.divide(squared, counted, out=np.ones(len(last)), where=counted > 0)
    return np.maximum(ratio - mean, 1.0)


def learn(
    evidence: HourEvidence, profiles: Profiles, intervals: Intervals, changed: ArrayLike
) -> HourEvidence:
    """Return the evidence with the (N,) results of crawls added.

    v has the integrals of the profile's terms, and L = v theta is the operational length. With
    D = a/(b + L) and m = -ln P(unchanged) = a ln(1 + L/b), a crawl adds

        f = 1/(e^m - 1);  A += f D² v v';  y += D v (f D L + (f if changed else -1)).

    The terms are score and Fisher information of the marginal likelihood (b/(b + L))^a at the
    `profiles` of the last fit. An interval of whole days shows nothing about the hour.

    If a host had more than `BULK` unexpected changes within a day, all its crawls weigh less by
    that factor. A change counts with the probability that there would be none. So pages that always
    change do not hide the crawls that show their hour.

    Changes that come together weigh less too, as far as the host is known for it (`cluster`).

    Raise `InvalidInput` for hosts that are not ascending or out of range, for intervals without
    length, or for posteriors that are not positive.

    References
    ----------
    Derived (docs/theory.md, "Sites with change hours"). Fisher scoring: Rao 1948.
    """
    n_hosts = len(evidence.changes)
    intervals = _checked(intervals, n_hosts)
    news = np.asarray(changed, np.bool_)
    if news.shape != intervals.end.shape:
        raise InvalidInput("changed", f"has shape {news.shape}, expected {intervals.end.shape}")
    unexpected = gamma_unchanged(intervals.a, intervals.b, intervals.end - intervals.start) * news
    changes, share = _tempered(evidence, intervals.host, unexpected)
    score, information = evidence.score.copy(), evidence.information.copy()
    doubt = evidence.doubt.copy()
    for where, hosts, first in _blocks(intervals.host):
        terms, weighted, doubts = _scored(profiles, intervals.take(where), news[where], share)
        doubt[hosts] += np.add.reduceat(doubts, first)
        for some, rows in _alike(first, len(terms)):
            sums = weighted[rows].transpose(0, 2, 1) @ terms[rows]
            score[hosts[some]] += sums[:, TERMS]
            information[hosts[some]] += sums[:, ROWS, COLUMNS]
    doubt = np.maximum(doubt, 0.0)
    return evidence._replace(score=score, information=information, changes=changes, doubt=doubt)


def _scored(
    profiles: Profiles, block: Intervals, changed: Bools, share: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return (N, TERMS) terms v, (N, TERMS + 1) factors on them, and (N,) doubts.

    The transposed factors times the terms, summed over a host, are its information and score.
    """
    terms, operational, rate = exposed(profiles, block)
    expected = np.clip(block.a * np.log1p(operational / block.b), *EXPECTED)
    odds = 1.0 / np.expm1(expected)  # of no change
    weight = share[block.host]
    residual = odds * rate * operational + np.where(changed, odds, -1.0)
    factors = np.empty((len(terms), TERMS + 1))
    np.multiply(terms, (weight * odds * rate**2)[:, None], out=factors[:, :TERMS])
    factors[:, TERMS] = weight * rate * residual
    flat = np.clip(block.a * np.log1p((block.end - block.start) / block.b), *EXPECTED)
    doubt = np.where(changed, _log_changed(flat) - _log_changed(expected), expected - flat)
    return terms, factors, weight * doubt


def _log_changed(expected: Floats) -> Floats:
    """Return ln(1 - e^-x)."""
    return np.asarray(np.log(-np.expm1(-expected)))


def learn_dates(
    evidence: HourEvidence, profiles: Profiles, intervals: Intervals, changed_at: ArrayLike
) -> HourEvidence:
    """Return the evidence with (N,) changes of reported instants added.

    An interval is here a time in which the page is known not to have changed otherwise. It begins
    or ends with the change, at `changed_at`, or has none (NaN). A crawl at b that reports a
    modification at u has the interval (u, b]. A crawl that reports none has the interval since the
    last crawl. A page whose pings announce every change has the interval between two pings.

    The bin of the change counts 1. Each bin also counts D times the days of the interval within the
    bin. D = (a + n)/(b + L) is the mean of the change rate under the posterior after the interval;
    n is 1 for a change and 0 for none.

    Raise `InvalidInput` as `learn`, and for a change outside of its interval.
    """
    n_hosts = len(evidence.changes)
    intervals = _checked(intervals, n_hosts, empty=True)
    at = np.asarray(changed_at, np.float64)
    if at.shape != intervals.end.shape:
        raise InvalidInput("changed_at", f"has shape {at.shape}, expected {intervals.end.shape}")
    dated = ~np.isnan(at)
    _refuse(
        "changed_at", "must lie within the interval", (at < intervals.start) | (at > intervals.end)
    )
    changes, share = _tempered(evidence, intervals.host, dated)
    place = intervals.host[dated] * BINS + (at[dated] % 1.0 * BINS).astype(np.intp)
    counts = np.bincount(place, share[intervals.host[dated]], n_hosts * BINS)
    exposure = evidence.exposure.copy()
    for where, hosts, first in _blocks(intervals.host):
        block = intervals.take(where)
        _, operational, _ = exposed(profiles, block)
        rate = (block.a + dated[where]) / (block.b + operational)
        days = days_in_bins(block.start, block.end) * (share[block.host] * rate)[:, None]
        exposure[hosts] += np.add.reduceat(days, first)
    return evidence._replace(
        dated=evidence.dated + counts.reshape(-1, BINS), exposure=exposure, changes=changes
    )


def days_in_bins(start: Floats, end: Floats) -> Floats:
    """Return (N, BINS) days of intervals within each hour of the day.

    Examples
    --------
    >>> days_in_bins(np.array([0.5]), np.array([2.75]))[0, [0, 12, 23]] * 24
    array([2., 3., 2.])
    """
    edges = np.arange(BINS) / BINS
    whole = (np.floor(end) - np.floor(start)) / BINS
    early, late = (np.clip(at[:, None] % 1.0 - edges, 0.0, 1.0 / BINS) for at in (start, end))
    return np.asarray(whole[:, None] + late - early)


def packed(evidence: HourEvidence) -> NDArray[np.float32]:
    """Return the evidence as one (H, WIDTH) array, for storage."""
    n = len(evidence.changes)
    columns = zip(evidence, _WIDTHS, strict=True)
    return np.hstack([column.reshape(n, width).astype(np.float32) for column, width in columns])


def unpacked(rows: ArrayLike) -> HourEvidence:
    """Return the evidence of (H, WIDTH) rows; raise `InvalidInput` for another shape."""
    numbers = np.asarray(rows, np.float64)
    expected = (len(numbers), WIDTH) if numbers.ndim else (0, WIDTH)
    check_array("rows", numbers, expected, test=np.isfinite, must="finite")
    columns = np.split(numbers, np.cumsum(_WIDTHS)[:-1], axis=1)
    shaped = zip(columns, _SHAPES, strict=True)
    return HourEvidence(*(column.reshape(-1, *shape) for column, shape in shaped))


def _tempered(
    evidence: HourEvidence, host: Indices, unexpected: ArrayLike
) -> tuple[Floats, Floats]:
    """Return (H,) unexpected changes of the last day with new ones, and the weights of crawls."""
    changes = evidence.changes + np.bincount(host, unexpected, len(evidence.changes))
    share = BULK / np.maximum(changes, BULK)
    return changes, share / cluster(evidence._replace(changes=changes))


def exposed(profiles: Profiles, block: Intervals) -> tuple[Floats, Floats, Floats]:
    """Return (N, TERMS) integrals of the terms, operational lengths, and predictive rates."""
    length = block.end - block.start
    terms = integrals(block.start, block.end)
    operational = np.einsum("ij,ij->i", terms, profiles.coefficients[block.host])
    operational = np.maximum(operational, LEAST_INTENSITY * length)
    return terms, operational, block.a / (block.b + operational)


def _blocks(host: Indices) -> Iterator[tuple[slice, Indices, Indices]]:
    for start in range(0, len(host), BLOCK):
        where = slice(start, start + BLOCK)
        first = np.flatnonzero(np.diff(host[where], prepend=-1))
        yield where, host[where][first], first


def _alike(first: Indices, n: int) -> Iterator[tuple[Indices, Indices]]:
    """Yield hosts with as many intervals each, and the rows of these; products take them at once.

    `first` has the first row of each host, and `n` is the number of rows.
    """
    counts = np.diff(first, append=n)
    for count in np.unique(counts).tolist():
        some = np.flatnonzero(counts == count)
        yield some, first[some, None] + np.arange(count)


def _checked(intervals: Intervals, n_hosts: int, *, empty: bool = False) -> Intervals:
    """Return intervals as arrays; with `empty`, an interval may end where it starts."""
    host = np.asarray(intervals.host)
    start, end, a, b = (
        check_array(name, column, host.shape, test=np.isfinite, must="finite")
        for name, column in zip(intervals._fields[1:], intervals[1:], strict=True)
    )
    _refuse("host", f"must lie in [0, {n_hosts})", (host < 0) | (host >= n_hosts))
    _refuse("host", "must ascend", np.diff(host, prepend=host[:1]) < 0)
    _refuse("end", "must lie after the start", end < start if empty else end <= start)
    _refuse("a", "must be positive", a <= 0)
    _refuse("b", "must be positive", b <= 0)
    return Intervals(host, start, end, a, b)


def _refuse(name: str, problem: str, wrong: Bools) -> None:
    if wrong.any():
        raise InvalidInput(name, problem, np.flatnonzero(wrong))
