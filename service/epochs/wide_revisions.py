"""Wide revisions in an epoch: find new ones, and the pages that may be stale by them. Pure.

Only surprising changes since the last epoch can prove a new revision. Therefore an epoch looks at
the hosts with such changes alone.
"""

from typing import Any, NamedTuple

import numpy as np

from service.core.estimators.base import Estimator, PriorEstimator, from_columns
from service.core.quiet_intervals import (
    LEAST_CHANGED,
    QUIET,
    UNSURPRISED,
    QuietIntervals,
    find,
    rate_before,
    surprise,
    suspects,
)
from service.core.wide_revisions import Uncrawled, WideRevisions, hazard, stale
from service.epochs.urgency import LATE
from service.model.arrays import Floats, Instants, Ints, days, distinct, places
from service.model.columns import EpochColumns
from service.model.domain import Observability

BLOCK = 1 << 14
"""Pages whose intervals are computed at a time."""
ENOUGH = 1 << 14
"""Intervals of a host that are enough to find a revision; of more, a sample."""
LEAST_DAYS = 1.0
"""Minimum length that an interval counts as, days.

Live pages of one host often change at one hour of the day. A crawl just after this hour finds a
change, however short the interval was.
"""
SCATTER = 0x9E3779B1
"""Odd number whose multiples scatter ids, so that a sample has pages of all directories."""


class Revised(NamedTuple):
    """Wide revisions as an epoch knows them."""

    revisions: WideRevisions | None = None
    """Revisions that are kept; None: none."""
    hazard: Floats | None = None
    """(N,) changes expected by revisions since each page's last crawl; None: of no page."""


def revised(
    pages: EpochColumns,
    estimator: Estimator[Any],
    revisions: WideRevisions | None,
    last_started_at: np.datetime64,
    now: np.datetime64,
) -> Revised:
    """Return the revisions until now; `revisions` has those of the last epoch, which began then.

    The estimator has the prior in force. Without a prior it finds no revisions.
    """
    if not isinstance(estimator, PriorEstimator) or np.isnat(last_started_at):
        return Revised(revisions)
    quiet = Quiet(pages, estimator, now)
    revisions = (revisions or WideRevisions.none()).newest(now)
    revisions = revisions.with_new(_found(quiet, revisions, last_started_at)).newest(now)
    return _stale(quiet, revisions) if revisions.at.size else Revised()


class Quiet:
    """The quiet last intervals of pages without pings."""

    def __init__(
        self, pages: EpochColumns, estimator: PriorEstimator[Any], now: np.datetime64
    ) -> None:
        self.pages, self.estimator, self.now = pages, estimator, now

    def age(self, at: Instants) -> Floats:
        """Return the ages of instants, days."""
        return days(self.now - at)

    def expected(self, row: Ints) -> Floats:
        """Return the changes expected in the last intervals of pages before these ended.

        The rows ascend. Intervals count as `LEAST_DAYS` or more.
        """
        aging = self.estimator.aging
        aging = None if aging is None else aging.take(row)
        own = self.estimator.of_url_groups(self.pages.url_group[row]).of_ages(aging)
        evidence = own.evidence(from_columns(own, self.pages.estimate[row]))
        interval = self.pages.last_interval[row]
        rate = rate_before(own.prior.a, own.prior.b, *evidence, interval)
        factor = 1.0 if aging is None else aging.recently(len(row))
        return np.asarray(rate * factor * np.maximum(np.abs(interval), LEAST_DAYS))

    def among(self, row: Ints) -> tuple[Ints, Floats]:
        """Return the pages with quiet intervals among some, and the changes expected in these.

        The rows ascend. They are looked at in blocks that fit the cache.
        """
        blocks = [self._among(row[at : at + BLOCK]) for at in range(0, len(row), BLOCK)]
        rows, expected = zip(*blocks, strict=True) if blocks else ([row], [np.zeros(0)])
        return np.concatenate(rows), np.concatenate(expected)

    def _among(self, row: Ints) -> tuple[Ints, Floats]:
        pages = self.pages
        shown = (pages.last_interval[row] != 0) & (pages.importance[row] > 0)
        shown &= (pages.n_pings[row] == 0) & (pages.observability[row] != Observability.complete)
        row = row if shown.all() else row[shown]
        expected = self.expected(row)
        quiet = expected < QUIET
        return row[quiet], expected[quiet]

    def of(self, row: Ints, site: Ints) -> QuietIntervals:
        """Return the quiet intervals of some pages; `site` has the (N,) numbers of hosts."""
        pages, (row, expected) = self.pages, self.among(row)
        interval, age = pages.last_interval[row], self.age(pages.last_observed_at[row])
        return QuietIntervals(
            site=site[row],
            url_group=pages.url_group[row],
            start=age + np.abs(interval),
            end=age,
            changed=interval > 0,
            expected=expected,
        )


def _found(quiet: Quiet, revisions: WideRevisions, last_started_at: np.datetime64) -> WideRevisions:
    """Return new revisions.

    Hosts are looked at by their changes first, because these are few. The unchanged intervals of
    all hosts only raise the chances of changes. So they are read once there is a proof without.
    """
    pages = quiet.pages
    host_id = _surprised(quiet, last_started_at - np.timedelta64(LATE))
    if not host_id.size:
        return WideRevisions.none()
    site = places(pages.host_id, host_id)
    row = _sampled(pages, np.flatnonzero((site >= 0) & (pages.last_interval != 0)), site)
    changed = quiet.of(row[pages.last_interval[row] > 0], site)
    enough = np.bincount(changed.site, minlength=host_id.size) >= LEAST_CHANGED
    # crawls that saw an older revision would prove it once more
    older = revisions.where(np.isin(revisions.host_id, host_id)).ages(host_id, quiet.now)
    newest = np.where(enough, older.min(axis=1), -np.inf)
    may = suspects(changed.after(newest), host_id.size)
    own = quiet.of(row[may[site[row]]], site).after(newest)
    proven, age = find(own, UNSURPRISED)
    if proven.size:
        every = quiet.of(row[enough[site[row]]], site).after(newest)
        proven, age = find(own, surprise(every))
    at = quiet.now - np.rint(age * 86_400e6).astype("m8[us]")
    return WideRevisions(host_id[proven], at, np.zeros(proven.size))


def _surprised(quiet: Quiet, since: np.datetime64) -> Ints:
    """Return the hosts with a surprising change since an instant, and enough changes for a proof.

    Their other pages are not looked at for this.
    """
    pages = quiet.pages
    changed = np.flatnonzero(pages.last_interval > 0)
    new = changed[pages.last_observed_at[changed] >= since]
    host_id = distinct(pages.host_id[quiet.among(new)[0]])
    site = places(pages.host_id[changed], host_id)
    n_changed = np.bincount(site[site >= 0], minlength=host_id.size)
    return host_id[n_changed >= LEAST_CHANGED]


def _sampled(pages: EpochColumns, row: Ints, site: Ints) -> Ints:
    """Return at most about `ENOUGH` pages of each host; `site` has the (N,) numbers of hosts."""
    if row.size <= ENOUGH:
        return row
    one_in = -(-np.bincount(site[row]) // ENOUGH)
    if one_in.max() == 1:
        return row
    number = pages.page_id[row] * SCATTER >> 16 & 0xFFFF
    return np.asarray(row[number % one_in[site[row]] == 0])


def _stale(quiet: Quiet, revisions: WideRevisions) -> Revised:
    """Return the revisions with their shares, and the pages that may have changed by them."""
    pages, host_id = quiet.pages, distinct(revisions.host_id)
    number = places(pages.host_id, host_id)
    row = np.flatnonzero((number >= 0) & (pages.importance > 0))
    site = number[row]
    age, ages = quiet.age(pages.last_observed_at[row]), revisions.ages(host_id, quiet.now)
    waits = age > ages.min(axis=1)[site]
    if not waits.any():
        return Revised(revisions)
    waiting = np.bincount(site[waits], minlength=host_id.size) > 0
    intervals = quiet.of(row[waiting[site]], number)
    some = Uncrawled(site[waits], pages.url_group[row[waits]], age[waits])
    result = stale(some, intervals, ages)
    share = result.share[places(revisions.host_id, host_id)]
    newest = np.append(revisions.host_id[1:] != revisions.host_id[:-1], True)
    revisions = revisions._replace(
        share=np.where(newest & ~np.isnan(share), share, revisions.share)
    )
    if not result.probability.any():
        return Revised(revisions)
    expected = np.zeros(len(pages))
    expected[row[waits]] = hazard(result.probability)
    return Revised(revisions, expected)
