"""Freshness of copies: the probability that a page has changed since its copy was fetched. Pure.

F is the time at which a copy was fetched, L that of the page's last crawl. The copy is fresh with
the probability of no change in (F, L] times that of no change in (L, now].

**After the last crawl** the predictive distribution is that of the estimator (`core.forecast`): the
mean over the posterior of the change rate. A little of the corpus' prior is mixed in, because a
page may no longer change as it has. The crawls of siblings, and those of all pages, stretch the
time as far as the epoch in force has seen them. Pings count too: a page whose pings are used is
fresh if each ping since the crawl was false, and no change came without a ping.

**Before the last crawl** crawls show what happened. Without a change after F the copy is what the
last crawl saw. If one crawl found a change, and its interval holds F, the change rate decides how
probably the change came before F. After a change later than that, the copy is stale. Time before
the registration, or before the log begins, is unwatched.
"""

from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.core.estimators.base import Estimator
from service.core.forecast import unchanged_before
from service.core.ping_feeds import PingFeeds
from service.estimation.estimates import history_of
from service.estimation.predictions import Forecast, shown_ratio, time_at_risk
from service.estimation.shard_rates import EpochFacts
from service.model.arrays import NO_TIME, SHARD_BITS, Floats, Instants, Ints, days, nothing
from service.model.domain import Observability
from service.model.freshness import FreshnessColumns, LoggedChanges
from service.model.urls import url_groups
from service.storage import Transaction

EXACT = 1e-6
"""Relative error of a stored interval."""


class Freshness(NamedTuple):
    """(N,) verdicts about copies; NaN where there is no copy."""

    stale: Floats
    """Probability that the page has changed since its copy was fetched."""
    expected_changes: Floats
    """Expected number of changes since then."""


def read_freshness(
    tx: Transaction,
    pages: FreshnessColumns,
    fetched_at: Instants,
    estimator: Estimator[Any],
    now: np.datetime64,
    log_since: np.datetime64 = NO_TIME,
    feeds: PingFeeds | None = None,
) -> Freshness:
    """Return the verdicts about copies of pages; NaT in `fetched_at` means the last crawl.

    `log_since` is the time from which the log is kept; NaT: from the registration. `feeds` has the
    pings of hosts; None: as of the epoch in force, which the store has.
    """
    at = np.where(np.isnat(fetched_at), pages.last_observed_at, fetched_at)
    forecast = _forecast(tx, pages, estimator, now, feeds)
    epoch = EpochFacts.of(tx.epoch_in_force())
    return _verdicts(pages, at, _changes(tx, pages, at), forecast, epoch, now, log_since)


def stale_between_crawls(
    tx: Transaction,
    pages: FreshnessColumns,
    estimator: Estimator[Any],
    now: np.datetime64,
    instants: Instants,
    feeds: PingFeeds | None = None,
) -> Floats:
    """Return P(the copy of the last crawl is stale) of one page at some instants.

    The forecast is that of `now`: no crawl and no ping comes until these instants.
    """
    forecast = _forecast(tx, pages, estimator, now, feeds)
    epoch, at = EpochFacts.of(tx.epoch_in_force()), pages.last_observed_at
    none = _changes(tx, pages, at)
    each = (_verdicts(pages, at, none, forecast, epoch, then, NO_TIME) for then in instants)
    return np.array([verdict.stale[0] for verdict in each])


def _verdicts(
    pages: FreshnessColumns,
    at: Instants,
    changes: LoggedChanges,
    forecast: Forecast,
    epoch: EpochFacts,
    now: np.datetime64,
    log_since: np.datetime64,
) -> Freshness:
    start: Instants = np.fmax(at, pages.last_observed_at)
    risk = _days_at_risk(pages, start, epoch, now)
    n_pings = np.where(pages.last_ping_at > start, pages.pings_since_crawl, 0).astype(np.float64)
    unwatched = _unwatched_days(pages, at, log_since)
    since_first = days(changes.first_at - at)
    first = unchanged_before(
        forecast.unchanged(since_first), forecast.unchanged(changes.first_interval)
    )
    first = np.where(since_first > changes.first_interval, 0.0, first)
    watched = np.select([changes.n == 0, changes.n == 1], [1.0, first], 0.0)
    quiet = forecast.unchanged_since_crawl(risk, epoch.recalibration)
    quiet = quiet * forecast.unchanged(unwatched)
    fresh = watched * quiet * forecast.all_false(n_pings)
    announced = np.where(forecast.estimates.recall > 0, forecast.estimates.precision, 0.0) * n_pings
    counted = np.where(changes.n > 0, changes.n - first, 0.0)
    silent = forecast.expected_since_crawl(risk) + forecast.unannounced * unwatched
    expected = silent + announced + counted
    no_copy = np.isnat(at)
    return Freshness(np.where(no_copy, np.nan, 1.0 - fresh), np.where(no_copy, np.nan, expected))


def _days_at_risk(
    pages: FreshnessColumns, start: Instants, epoch: EpochFacts, now: np.datetime64
) -> Floats:
    """Return the days since the copy or the last crawl, stretched by other pages' crawls."""
    since = np.nan_to_num(np.maximum(days(now - start), 0.0))
    ratio = shown_ratio(pages, epoch)
    return time_at_risk(ratio, since, days(epoch.started_at - start), epoch)


def _unwatched_days(pages: FreshnessColumns, at: Instants, log_since: np.datetime64) -> Floats:
    """Return the days after (N,) instants in which no crawl, or no log of crawls, shows a change.

    The first crawl of a page shows no change. Before the first interval that is evidence, nothing
    was watched. Only a page with changes needs the log.
    """
    first = pages.last_observed_at - _span(np.abs(pages.last_interval))
    begin: Instants = np.where(pages.n_observations > 1, pages.pings_since, first)
    begin = np.where(pages.n_changes > 0, np.fmax(begin, log_since), begin)
    until = np.fmin(begin, first)  # the last interval is known without the log
    until = np.where(np.isnat(first), NO_TIME, until)
    return np.nan_to_num(np.maximum(days(until - at), 0.0))


def _changes(tx: Transaction, pages: FreshnessColumns, at: Instants) -> LoggedChanges:
    """Return the changes after (N,) instants that crawls found, from the log only where needed."""
    length = np.abs(pages.last_interval)
    earlier = at < pages.last_observed_at
    # a store may keep the interval in seven digits
    last_only = earlier & (days(pages.last_observed_at - at) <= length * (1.0 + EXACT))
    last_changed = last_only & (pages.last_interval > 0)
    n = last_changed.astype(np.int64)
    first_at = np.where(last_changed, pages.last_observed_at, NO_TIME)
    first_interval = np.where(last_changed, length, np.nan)
    row = np.flatnonzero(earlier & ~last_only & (pages.n_changes > 0))
    if len(row):
        logged = tx.logged_changes(pages.page_id[row], at[row])
        n[row], first_at[row] = logged.n, logged.first_at
        first_interval[row] = logged.first_interval
    return LoggedChanges(first_at=first_at, first_interval=first_interval, n=n)


def _forecast(
    tx: Transaction,
    pages: FreshnessColumns,
    estimator: Estimator[Any],
    now: np.datetime64,
    feeds: PingFeeds | None,
) -> Forecast:
    if feeds is None:
        feeds = tx.ping_feeds(tx.number_in_force()) if pages.n_pings.any() else PingFeeds.none()
    return Forecast.of(pages, estimator, now, feeds, _from_log(tx, pages, estimator))


def _from_log(tx: Transaction, pages: FreshnessColumns, estimator: Estimator[Any]) -> Floats | None:
    """Return the rates of an estimator that reads the log, 0 without a log; None for others."""
    if not estimator.needs_history:
        return None
    rates = np.zeros(len(pages))
    registered = pages.page_id > 0
    ids, row = np.unique(pages.page_id[registered], return_inverse=True)
    rates[registered] = estimator.change_rate(history_of(tx, ids))[row]
    return rates


def unregistered(urls: NDArray[np.object_], width: int, shard: Ints) -> FreshnessColumns:
    """Return pages that are not registered: without evidence, so that their group's prior holds.

    The (N,) logical shards are those that the pages would have.
    """
    n = len(urls)
    columns: dict[str, NDArray[Any]] = {
        f.name: nothing(f.type, n) for f in fields(FreshnessColumns)
    }
    columns |= {
        "page_id": -(shard << SHARD_BITS),
        "observability": np.full(n, Observability.auto, np.int16),
        "url_group": url_groups(urls.tolist()),
        "estimate": np.zeros((n, width)),
        "interval_factor": np.ones(n),
        "due_rate": np.full(n, np.nan),
        "urgency": np.full(n, np.nan),
        "observed_ratio": np.zeros(n),
    }
    return FreshnessColumns(**columns)


def _span(length: Floats) -> NDArray[np.timedelta64]:
    return (length * 86_400e6).astype(np.int64).astype("m8[us]")
