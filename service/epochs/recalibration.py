"""Recalibration in an epoch: what it had forecast of the crawls since the last one.

The forecasts are those of the epoch in force, as the crawls met them (`core.recalibration`). They
follow from each page's state before its last crawl, and from the urgencies of that epoch.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from service.core.common_values import Joint
from service.core.estimators.base import Estimator, from_columns, to_columns
from service.core.estimators.bursty import Bursty
from service.core.estimators.gamma import Gamma
from service.core.ping_feeds import PingFeeds
from service.core.recalibration import Recalibration, learn
from service.epochs.urgency import LastEpoch, since
from service.estimation.predictions import predicted_changes
from service.estimation.shard_rates import EpochFacts
from service.model.arrays import Bools, Floats, Instants, days
from service.model.columns import EpochColumns
from service.model.domain import Epoch, Observability
from service.storage import Transaction

MOST_COMPARED = 2_000
"""Maximum crawls of a logical shard that an epoch compares with their forecasts."""


class Outcomes(NamedTuple):
    """(K,) crawls, with their forecasts before recalibration."""

    probability: Floats
    changed: Bools


NO_OUTCOMES = Outcomes(np.zeros(0), np.zeros(0, np.bool_))


def read_outcomes(
    tx: Transaction,
    pages: EpochColumns,
    estimator: Estimator[Any],
    last: Epoch | None,
    now: np.datetime64,
) -> Outcomes:
    """Return a sample of the crawls since the last epoch; `estimator` is the one in force.

    A page whose pings count is crawled by its pings, so its crawls show nothing here.
    """
    facts = EpochFacts.of(last)
    if not isinstance(estimator, Gamma | Bursty) or not facts.number:
        return NO_OUTCOMES
    window, ago = since(LastEpoch.of(last), now), days(now - pages.last_observed_at)
    counts = (pages.last_interval != 0) & (pages.importance > 0) & (pages.n_pings == 0)
    counts &= pages.observability != Observability.complete
    row = np.flatnonzero(counts & (ago >= window.end) & (ago < window.start))
    row = row[:: max(1, -(-len(row) // MOST_COMPARED))]
    if not len(row):
        return NO_OUTCOMES
    states = tx.freshness_columns(pages.page_id[row])
    length, changed = np.abs(states.last_interval), states.last_interval > 0
    own: Any = estimator.of_url_groups(states.url_group)
    before = own.before(from_columns(own, states.estimate), length, changed)
    at = states.last_observed_at
    began: Instants = at - np.rint(length * 86_400e6).astype("m8[us]")
    states = replace(states, estimate=to_columns(before), last_observed_at=began)
    plain = facts._replace(recalibration=Recalibration.none())
    no_pings = np.zeros(len(states), np.int64), PingFeeds.none()
    probability = predicted_changes(states, estimator, plain, at, length, *no_pings)
    return Outcomes(probability, changed)


def recalibrated(
    outcomes: Outcomes, last: Epoch | None, now: np.datetime64
) -> Joint[Recalibration]:
    """Return the recalibration after the crawls since the last epoch, of all parts."""
    before = EpochFacts.of(last).recalibration
    window = since(LastEpoch.of(last), now)
    return learn(before, outcomes.probability, outcomes.changed, window.days)
