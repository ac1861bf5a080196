"""P(changed) of pages, which freshness, the live calibration and replays share. Pure."""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from service.core.estimators.base import Estimator, PriorEstimator, from_columns
from service.core.forecast import days_at_risk, probability_unchanged, with_corpus
from service.core.ping_feeds import PingFeeds
from service.core.recalibration import Recalibration
from service.core.siblings import corpus_ratio
from service.estimation.ages import at_ages
from service.estimation.estimates import RateEstimates, estimate_rates
from service.estimation.shard_rates import EpochFacts
from service.model.arrays import Bools, Floats, Instants, Ints, days, nothing
from service.model.columns import EpochColumns
from service.model.domain import Observability
from service.model.freshness import FreshnessColumns


class UncrawledPage(NamedTuple):
    """A page without crawls or siblings, by the prior of the corpus."""

    estimator: Estimator[Any]
    state: Any

    @classmethod
    def of(cls, estimator: Estimator[Any]) -> "UncrawledPage | None":
        """Return a page by the estimator's prior; None without one."""
        if not isinstance(estimator, PriorEstimator):
            return None
        return cls(estimator, estimator.init(1))

    @property
    def change_rate(self) -> Floats:
        """Mean change rate of the corpus, 1/day."""
        return self.estimator.change_rate(self.state)

    def mixed(self, own: Floats, span: Floats) -> Floats:
        """Return P(no change in some days) of pages, mixed with that of any page."""
        return with_corpus(own, probability_unchanged(self.estimator, self.state, span))


@dataclass(frozen=True, slots=True)
class Forecast:
    """P(no change) of pages in any time, by their estimates."""

    estimator: Estimator[Any]
    state: Any
    """State of the estimator; None for an estimator that reads the log."""
    estimates: RateEstimates
    pinged: Bools
    """True where pings decide."""
    corpus: UncrawledPage | None
    """Any page of the corpus; None for an estimator without a prior."""

    @classmethod
    def of(
        cls,
        pages: FreshnessColumns,
        estimator: Estimator[Any],
        now: np.datetime64,
        feeds: PingFeeds,
        from_log: Floats | None = None,
    ) -> "Forecast":
        """Return the forecast of pages; `from_log` has rates if the estimator needs history.

        `feeds` has the pings of the pages' hosts.
        """
        own = at_ages(estimator.of_url_groups(pages.url_group), pages, now, since_crawl=True)
        state = from_columns(own, pages.estimate) if from_log is None else None
        estimates = estimate_rates(_as_epoch(pages), estimator, now, from_log, feeds)
        return cls(own, state, estimates, pinged(pages, estimator), UncrawledPage.of(estimator))

    def unchanged(self, span: Floats) -> Floats:
        """Return P(no unannounced change in some days), 1 for a span that is none."""
        span = np.nan_to_num(np.maximum(span, 0.0))
        if not span.any():  # copies of the last crawl have no time before it
            return np.ones(len(span))
        plug_in = np.exp(-self.unannounced * span)
        if self.state is None:
            return plug_in
        own = probability_unchanged(self.estimator, self.state, span)
        return np.where(self.pinged, plug_in, own)

    def unchanged_since_crawl(self, span: Floats, recalibration: Recalibration) -> Floats:
        """Return P(no unannounced change since the last crawl), some days ago."""
        unchanged = self.unchanged(span)
        if self.corpus is None:
            return unchanged
        changed = recalibration.forecast(1.0 - self.corpus.mixed(unchanged, span))
        return np.where(self.pinged, unchanged, 1.0 - changed)

    def expected_since_crawl(self, span: Floats) -> Floats:
        """Return the expected number of unannounced changes since the last crawl."""
        rate = self.unannounced
        if self.corpus is not None:
            rate = np.where(self.pinged, rate, with_corpus(rate, self.corpus.change_rate))
        return np.asarray(rate * span)

    @property
    def unannounced(self) -> Floats:
        """Rates of changes without a ping, 1/day."""
        return np.asarray((1.0 - self.estimates.recall) * self.estimates.change_rate)

    def all_false(self, n_pings: Floats) -> Floats:
        """Return P(none of the pings announced a change), 1 where pings are ignored."""
        used = self.estimates.recall > 0
        precision = np.where(used, self.estimates.precision, 0.0)
        return np.asarray((1.0 - precision) ** np.where(used, n_pings, 0.0))


def pinged(pages: FreshnessColumns, estimator: Estimator[Any]) -> Bools:
    """Return the pages whose pings count beside their crawls, or announce every change."""
    complete: Bools = pages.observability == Observability.complete
    if estimator.steady is None:
        return complete
    some: Bools = (pages.observability == Observability.auto) & (pages.n_pings > 0)
    return np.asarray(complete | some)


def shown_ratio(pages: FreshnessColumns, epoch: EpochFacts) -> Floats:
    """Return (N,) ratios of observed to expected changes by the siblings of pages.

    The urgency of a page shows its ratio. If a bound, a cap or a shift set the urgency, the
    schedule has the ratio.
    """
    moved = (pages.urgency > 0) & (pages.urgency != 1.0)
    shown = np.where(moved, pages.urgency / epoch.budget_factor, 1.0)
    return np.where(pages.observed_ratio > 0, pages.observed_ratio, shown)


def time_at_risk(ratio: Floats, span: Floats, to_epoch: Floats, epoch: EpochFacts) -> Floats:
    """Return some days since crawls, or copies, as they count for a change.

    The time before the epoch counts by the ratios of observed to expected changes: the (N,) ratios
    of siblings, and those of all pages.
    """
    before = np.nan_to_num(np.fmin(to_epoch, span))
    if epoch.observed_ratios is not None:
        ratio = ratio * corpus_ratio(epoch.observed_ratios, before)
    return np.maximum(days_at_risk(span, before, ratio), 0.0)


def predicted_changes(
    states: FreshnessColumns,
    estimator: Estimator[Any],
    epoch: EpochFacts,
    at: Instants,
    span: Floats,
    n_pings: Ints,
    feeds: PingFeeds,
) -> Floats:
    """Return P(changed) of (N,) crawls before their results, by the states of their pages.

    Parameters
    ----------
    at, span
        Time of each crawl, and days since the last answer.
    n_pings
        Pings in between.
    feeds
        Pings of the pages' hosts.
    """
    ratio = shown_ratio(states, epoch)
    risk = time_at_risk(ratio, span, days(epoch.started_at - at) + span, epoch)
    own = at_ages(estimator.of_url_groups(states.url_group), states, at, since_crawl=True)
    unchanged = probability_unchanged(own, from_columns(own, states.estimate), risk)
    if (corpus := UncrawledPage.of(estimator)) is not None:
        unchanged = corpus.mixed(unchanged, risk)
    unchanged = 1.0 - epoch.recalibration.forecast(1.0 - unchanged)
    with_pings = np.flatnonzero(pinged(states, estimator))
    if len(with_pings):
        forecast = Forecast.of(states.take(with_pings), estimator, at[with_pings].max(), feeds)
        quiet = forecast.unchanged(risk[with_pings])
        unchanged[with_pings] = quiet * forecast.all_false(n_pings[with_pings].astype(np.float64))
    return np.asarray(1.0 - unchanged)


def _as_epoch(pages: FreshnessColumns) -> EpochColumns:
    """Return pages as an epoch reads them; columns that no estimate needs are empty."""
    own = pages.arrays()
    n = len(pages)
    return EpochColumns(
        **{f.name: own.get(f.name, nothing(f.type, n)) for f in fields(EpochColumns)}
    )
