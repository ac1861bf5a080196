"""Urgency: how much sooner or later than its crawl rate plans each page is due. Pure.

A page is due sooner after crawls found other pages of its URL group changed, and later after crawls
found them unchanged (`core.siblings`). This counts as far as pages of the group have been seen to
change together (`core.shared_changes`). One factor on all pages, the budget factor, keeps the
crawls of readers without leases at the budget (`core.due_counts`).
"""

from datetime import timedelta
from typing import NamedTuple

import numpy as np

from service.core.budget_factor import HIGHEST, Window
from service.core.common_values import Joint, anywhere, total
from service.core.due_counts import STEPS, counts, moved, needed_rates
from service.core.shared_changes import ShareEvidence, in_common, learn, shares
from service.core.siblings import corpus_ratios, shared, siblings
from service.estimation.estimates import RateEstimates
from service.model.arrays import NO_TIME, Bools, Floats, Ints, UrlGroups, days, instant
from service.model.columns import CapColumns, EpochColumns
from service.model.domain import Epoch, Observability
from service.model.urls import URL_GROUPS, n_buckets

LATE = timedelta(minutes=10)
"""Maximum time from a crawl to its report, and to its count, for an epoch to count the crawl."""

FASTEST = 1000.0
"""Upper bound of the urgency."""

OFTEN_DAYS = 0.12
"""Interval below which a page is crawled too often for its siblings to count, days."""

APART_RATE = 2.0
"""Crawl rate beyond which pages are no siblings of slower ones, 1/day."""

APART_BITS = 0x5BD1E
"""Bits that differ in the URL groups of such pages, so that they have a share of their own."""

LEAST_EXPECTED = 1e-6
"""Minimum of own changes that a page expects, beside those of wide revisions."""

SHOWN = 1e-6
"""Relative difference up to which an urgency shows a ratio: of seven digits."""

FARTHEST_DAYS = 1.0
"""Maximum time ahead for which due crawls are counted, days."""

SHORT_DAYS = 0.25
"""Maximum lack of due crawls that later epochs make up, days of the budget."""

MOST_IN_HOURS = 0.1
"""Maximum share of the crawls on hosts with windows or blackouts for due crawls to be counted."""

MOST_EACH = 1_000
"""Maximum crawls of a page in that time that count."""

BLOCK = 1 << 16
"""Pages whose due crawls are counted at a time."""

TINY = 1e-100
"""Rate below which, or above whose inverse, the urgency is 1."""


class Urgency(NamedTuple):
    """Urgency of every page, which includes the budget factor."""

    of_pages: Floats
    """(N,) at most `FASTEST`: a page is due `interval_factor / (crawl_rate * urgency)` days after
    its last crawl."""
    budget_factor: float
    """Factor on the crawl rates of all pages, which keeps the crawls at the bandwidth."""
    observed_ratios: tuple[float, ...]
    """Ratios of observed to expected changes of all pages, by age; empty: none yet."""
    evidence: ShareEvidence | None = None
    """Evidence of the shares of URL groups from all crawls; None: none yet."""
    observed_ratio: Floats | None = None
    """(N,) ratios of observed to expected changes by siblings, whatever limits the urgency; None:
    1 for all pages."""
    still_due: float | None = None
    """As in `Certificate`."""

    def hidden_ratio(self, of_pages: Floats, shifted: Bools) -> Floats | None:
        """Return the ratios that the urgency in force does not show, 0 for others; None: none.

        `of_pages` has the urgencies in force. Those of `shifted` pages show shifts.
        """
        if self.observed_ratio is None:
            return None
        shown = np.where(of_pages == 1.0, 1.0, of_pages / self.budget_factor)
        ratio = self.observed_ratio
        hidden = shifted | (np.abs(shown - ratio) > SHOWN * ratio)
        return np.where(hidden, ratio, 0.0) if hidden.any() else None


class LastEpoch(NamedTuple):
    """The epoch in force until now, since which crawls are evidence of siblings."""

    started_at: np.datetime64
    """NaT if there is none."""
    evidence: ShareEvidence | None = None
    """Evidence of the shares of URL groups until then; None: none yet."""

    @classmethod
    def of(cls, epoch: Epoch | None, evidence: ShareEvidence | None = None) -> "LastEpoch":
        """Return the values of an epoch."""
        if epoch is None or epoch.certificate is None or epoch.started_at is None:
            return NO_EPOCH
        return cls(instant(epoch.started_at), evidence)


NO_EPOCH = LastEpoch(NO_TIME)


class Readers(NamedTuple):
    """Readers without leases, who crawl all that is due, as an epoch knows them."""

    still_due: float
    """Crawls that earlier epochs, and the time since, have made due, and that are not counted."""
    counted: Window
    """Time in which requests were counted."""
    a_day: float
    """Crawls a day that readers should make."""
    feedback: float = 1.0
    """As in `Certificate`. It is the factor where too many pages are `in_hours`."""
    in_hours: Bools | None = None
    """(N,) pages of hosts with windows or blackouts; None: no page."""


class Clocked(NamedTuple):
    """(N,) pages as an epoch dates their next crawls."""

    pages: EpochColumns
    where: Bools
    """True for pages that have been crawled and have a rate."""
    free: Bools
    """True for pages on which the budget factor is."""
    crawl_rate: Floats
    urgency: Floats
    """Urgency without the budget factor."""
    age: Floats
    """Time since the last crawl, days."""


def urgency(
    pages: EpochColumns,
    estimates: RateEstimates,
    crawl_rate: Floats,
    caps: CapColumns,
    now: np.datetime64,
    last: LastEpoch = NO_EPOCH,
    budget_factor: float = 1.0,
    exposure: Floats | None = None,
    hazard: Floats | None = None,
    n_groups: int | None = None,
    readers: Readers | None = None,
) -> Joint[Urgency]:
    """Return the urgency of pages with (N,) crawl rates on the clock, 1/day.

    The pages, hosts and URL groups are those of one part. The shares count the pages of all parts.

    `exposure` has the operational lengths of last intervals, days; None: the lengths. `hazard` has
    the changes expected by wide revisions since each page's last crawl; None: of no page.
    `n_groups` is the number of buckets of URL groups; None: by the number of pages. With `readers`,
    the factor is the one at which as many crawls are due until the next epoch as are wanted.

    The urgency is 1 for pages whose pings are used, and for pages of hosts with a cap. Siblings do
    not count for pages that are crawled every `OFTEN_DAYS` or sooner. The bounds
    of a page hold for its crawl rate times its urgency.
    """
    # beyond these rates products may overflow
    clocked = ~np.isnat(pages.last_observed_at) & (crawl_rate > TINY) & (crawl_rate < 1 / TINY)
    if not (yield from anywhere(clocked.any())):
        return Urgency(np.ones(len(pages)), budget_factor, (), last.evidence)
    age = np.where(clocked, np.maximum(days(now - pages.last_observed_at), 0.0), np.nan)
    interval = np.where(pages.importance > 0, pages.last_interval, 0.0)
    window = since(last, now)
    n_groups = n_groups or n_buckets(len(pages))
    factor, ratios, evidence = yield from _by_siblings(
        pages,
        (age, interval, exposure),
        (estimates.change_rate, crawl_rate),
        last,
        window,
        n_groups,
    )
    if hazard is not None:
        factor += _by_revisions(hazard, estimates.change_rate, age)
    by_crawls = clocked & (estimates.ping_rate == 0)
    by_crawls &= pages.observability != Observability.complete
    # with hourly epochs, noise of siblings cost hourly feeds a fifth of their crawls
    factor[~by_crawls | (crawl_rate * OFTEN_DAYS > 1.0)] = 1.0
    observed = factor.copy()
    free = by_crawls
    if len(caps):
        free = free & ~np.isin(pages.host_id, caps.host_id)
        factor[~free] = 1.0
    still_due = None
    if readers is not None and window.days > 0:
        due = Clocked(pages, clocked, free, crawl_rate, factor, age)
        ahead = min(window.days, FARTHEST_DAYS)
        budget_factor, still_due = yield from _counted(readers, due, ahead, budget_factor)
    rate = crawl_rate[free]
    factor[free] = bounded(pages, free, rate, factor[free] * budget_factor)
    return Urgency(factor, budget_factor, ratios, evidence, observed, still_due)


def _counted(
    readers: Readers, due: Clocked, ahead: float, last: float
) -> Joint[tuple[float, float]]:
    """Return the budget factor by which as many crawls are due within some days as are wanted.

    `last` is the factor until now. The second number is `Urgency.still_due`.

    Pages that were made due and not crawled yet are due again, whatever holds them up. So they are
    wanted beside the crawls of the time ahead.
    """
    of_steps, n_uncounted, end = np.zeros(STEPS + 1, np.int64), 0, readers.counted.end
    for start in range(0, len(due.age), BLOCK):
        row = start + np.flatnonzero(due.where[start : start + BLOCK])
        of_steps += counts(_needed_factors(due, row, ahead))
        late = (due.age[row] <= end) & (due.pages.n_observations[row] > 1)
        n_uncounted += int(np.count_nonzero(late))
    planned, in_hours = float(due.crawl_rate[due.where].sum()), 0.0
    if readers.in_hours is not None:
        in_hours = float(due.crawl_rate[due.where & readers.in_hours].sum())
    sums = yield from total((of_steps, n_uncounted, planned, in_hours))
    of_steps, n_uncounted, planned, in_hours = sums
    if in_hours > MOST_IN_HOURS * planned:
        return readers.feedback, 0.0
    n_crawls = readers.still_due + readers.a_day * (ahead + end) - n_uncounted
    factor, beyond = moved(of_steps, n_crawls, last)
    # a lack is made up by the next epochs, unless there are too few pages for it
    lack = min(beyond + SHORT_DAYS * readers.a_day, 0.0)
    return factor, float(readers.still_due + max(beyond, lack))


def _needed_factors(due: Clocked, row: Ints, ahead: float) -> Floats:
    """Return the factor that each crawl of pages needs, 0 or infinite where it has no effect."""
    interval = due.pages.interval_factor
    most = np.minimum(HIGHEST * due.urgency[row] * due.crawl_rate[row] * ahead, MOST_EACH)
    n_each = 1 + most.astype(np.int64)
    first = np.cumsum(n_each) - n_each
    nth = 1 + np.arange(n_each.sum()) - np.repeat(first, n_each)
    of = np.repeat(row, n_each)
    crawl_rate = due.crawl_rate[of]
    rate = needed_rates(nth, due.age[of], interval[of], ahead) / crawl_rate
    needed, reached = rate / due.urgency[of], bounded(due.pages, of, crawl_rate, rate)
    fixed = np.where(needed <= 1.0, 0.0, np.inf)
    needed = np.where(reached > rate, 0.0, np.where(reached < rate, np.inf, needed))
    return np.where(due.free[of], needed, fixed)


def _by_revisions(hazard: Floats, change_rate: Floats, age: Floats) -> Floats:
    """Return what wide revisions add to the urgency of pages.

    Beside the changes of its own that a page expects since its last crawl, it expects the `hazard`
    of revisions. The page is due when both are as many as its crawl rate allows.
    """
    own = np.maximum(change_rate * np.nan_to_num(age), LEAST_EXPECTED)
    return np.where(hazard > 0, hazard / own, 0.0)


def bounded(pages: EpochColumns, where: Bools | Ints, crawl_rate: Floats, factor: Floats) -> Floats:
    """Return factors on the crawl rates of some pages, within the bounds of each page's rate."""
    least = np.nan_to_num(pages.min_crawl_rate[where], nan=0.0) / crawl_rate
    most = np.fmin(FASTEST, np.maximum(pages.max_crawl_rate[where] / crawl_rate, least))
    return np.asarray(np.clip(factor, np.minimum(least, most), most))


def since(last: LastEpoch, now: np.datetime64) -> Window:
    """Return the time since the last epoch, less the time in which reports may still come."""
    late, day = LATE / timedelta(days=1), np.timedelta64(1, "D")
    if np.isnat(last.started_at):
        return Window(late, late)
    return Window(max(float((now - last.started_at) / day), 0.0) + late, late)


def often_apart(url_group: UrlGroups, crawl_rate: Floats) -> UrlGroups:
    """Return the (N,) groups of siblings: pages that are crawled often are apart from the rest.

    Pages of a directory that change each day often do so at one hour. Crawls within the day find
    all of them changed just after it. That is no news of the archive beside them.

    >>> often_apart(np.array([5, 5, 5], np.int32), np.array([0.1, 7.0, 1.0])) == 5
    array([ True, False,  True])
    """
    often = np.flatnonzero(crawl_rate > APART_RATE)
    if not len(often):
        return url_group
    group = np.array(url_group)
    group[often] = (group[often] ^ APART_BITS) + 2 * URL_GROUPS  # hot pages have one more
    return group


def _by_siblings(
    pages: EpochColumns,
    crawls: tuple[Floats, Floats, Floats | None],
    rates: tuple[Floats, Floats],
    last: LastEpoch,
    window: Window,
    n_groups: int,
) -> Joint[tuple[Floats, tuple[float, ...], ShareEvidence]]:
    """Return the (N,) effects of siblings, the ratios of all pages by age, and the evidence.

    The evidence has the crawls of the window.
    """
    evidence = yield from in_common(last.evidence, n_groups)
    (age, interval, exposure), (change_rate, crawl_rate) = crawls, rates
    calibration = float(evidence.calibration[0])
    group = often_apart(pages.url_group, crawl_rate)
    shown = siblings(group, age, interval, change_rate, calibration, exposure)
    crawled = (age >= window.end) & (age < window.start)
    ratio, intervals = shown.ratio(), shown.within_last_intervals(crawled)
    changes = shown.by_age()
    del shown, crawled, crawls, exposure  # large, and the other parts come in between
    evidence = yield from learn(evidence, group, intervals, window.days)
    share = yield from shares(evidence)
    observed, expected = yield from total(changes)
    ratios = tuple(corpus_ratios(observed, expected / calibration).tolist())
    return shared(ratio, share[group % n_groups]), ratios, evidence
