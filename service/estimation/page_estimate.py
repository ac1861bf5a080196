"""The estimate of one page, as an epoch would use it now."""

from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from service.core.estimators.base import Estimator, from_columns
from service.core.estimators.gamma import CompleteObservations, GammaState
from service.core.ping_feeds import PingFeeds
from service.estimation.ages import at_ages
from service.estimation.estimates import EvidenceState, estimate_rates, history_of
from service.model.arrays import (
    days,
    instant,
    nothing,
)
from service.model.columns import EpochColumns
from service.model.domain import Observability, Page
from service.storage import Transaction


class PageEstimate(NamedTuple):
    """The estimate of one page."""

    change_rate: float
    """1/day."""
    interval: tuple[float, float] | None
    """Interval of the change rate at 0.9, credible for a posterior, confidence for a likelihood;
    None: no interval."""
    estimator: str
    url_group_change_rate: float | None
    """Mean change rate of the page's URL group, 1/day; None: the estimator does not use it."""
    feed_is_silent: bool = False
    """True if the pings of the page's host have stopped, so that they no longer count."""


def of_page(
    tx: Transaction,
    page: Page,
    estimator: Estimator[Any],
    now: np.datetime64,
    feeds: PingFeeds | None = None,
) -> PageEstimate:
    """Return the estimate of one page that an epoch would use now.

    `feeds` has the pings of hosts; None: as of the epoch in force, which the store has.
    """
    row, history = _row(page), None
    if feeds is None:
        feeds = tx.ping_feeds(tx.number_in_force()) if page.n_pings else PingFeeds.none()
    if estimator.needs_history:
        history = history_of(tx, row.page_id)
    from_log = None if history is None else estimator.change_rate(history)
    rate = float(estimate_rates(row, estimator, now, from_log, feeds).change_rate[0])
    if page.observability is Observability.complete:
        days_counted = float(np.maximum(days(now - row.pings_since), 0.0)[0])
        complete = GammaState(float(page.n_pings), days_counted)
        interval = _interval(CompleteObservations(), complete)
        return PageEstimate(rate, interval, CompleteObservations.name, None)
    means = estimator.url_group_rate
    group_rate = None if means is None else float(means[page.url_group % means.size])
    if page.observability is Observability.auto and page.n_pings:
        is_silent = feeds.silent(row.host_id, row.last_ping_at, now)
        return PageEstimate(rate, None, estimator.name, group_rate, bool(is_silent[0]))
    own = at_ages(estimator.of_url_groups(row.url_group), row, now)
    state = from_columns(own, row.estimate) if history is None else history
    return PageEstimate(rate, _interval(own, state), estimator.name, group_rate)


ESTIMATED_FROM = (
    "page_id",
    "host_id",
    "observability",
    "n_pings",
    "recent_pings",
    "url_group",
    *EvidenceState._fields,
)
"""Columns of a page, without instants, from which its estimate follows."""


def _row(page: Page) -> EpochColumns:
    """Return a page as an epoch reads it; columns that no estimate needs are empty."""
    row = {f.name: nothing(f.type, 1) for f in fields(EpochColumns)}
    for name in ESTIMATED_FROM:
        row[name] = np.array([getattr(page, name)], row[name].dtype)
    row["pings_since"][0] = instant(page.pings_since)
    for name in ("last_ping_at", "last_observed_at", "born_at"):
        if (at := getattr(page, name)) is not None:
            row[name][0] = instant(at)
    return EpochColumns(**row)


def _interval(estimator: Estimator[Any], state: Any) -> tuple[float, float] | None:
    for kind in ("credible_interval", "confidence_interval"):
        if interval := getattr(estimator, kind, None):
            low, high = (float(np.ravel(end)[0]) for end in interval(state, 0.9))
            return (low, high) if np.isfinite(high) else None
    return None
