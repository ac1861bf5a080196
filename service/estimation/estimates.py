"""Estimates of the pages' change rates, learnt from crawls and pings, and read by epochs.

The estimator learns from every crawl of an `incomplete` page, and of an `auto` page without pings.
The change rate of a `complete` page is its rate of pings. `core.pings` estimates the quality of an
`auto` page's pings. **Evidence without its prior.** States have the evidence alone; reading an
estimate adds the prior.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from service.core.doubt import DOUBTFUL
from service.core.estimators.base import Estimator, PriorEstimator, from_columns, to_columns
from service.core.estimators.bursty import Bursty
from service.core.estimators.gamma import CompleteObservations, Gamma, GammaState
from service.core.estimators.history import History
from service.core.ping_feeds import PingFeeds
from service.core.pings import (
    PING_DAYS,
    PingEstimate,
    PingQuality,
    PingState,
    accepted,
    audited,
    recent_rate,
    trusted,
)
from service.core.prior import DEFAULT_PRIOR
from service.core.weights import whole
from service.core.wide_revisions import own_share
from service.estimation.ages import at_ages
from service.model.arrays import (
    Bools,
    Columns,
    Floats,
    Instants,
    Ints,
    Labels,
    Numbers,
    days,
    rounds,
)
from service.model.columns import EpochColumns, PageStates
from service.model.domain import Observability
from service.storage import Transaction
from service.storage.log.contract import PAGES_TOGETHER

HISTORY_BLOCK = 4_000
"""Maximum pages whose log is in memory at a time, for estimators that read the log; with an archive
`PAGES_TOGETHER`."""

RATES_BLOCK = 1 << 16
"""Maximum pages whose rates are computed at a time."""

LEAST_PRECISION = 0.1
"""Minimum precision of pings that are used."""
LEAST_RECALL = 0.2
"""Minimum recall of pings that are used."""


class RateEstimates(NamedTuple):
    """(N,) estimates of pages for the allocation."""

    change_rate: Floats
    """Changes, 1/day."""
    recall: Floats
    """Share of the changes that a ping announces."""
    precision: Floats
    """Share of the pings that announce a change."""
    ping_rate: Floats
    """Pings, 1/day; 0 where pings are ignored."""


class RatePosterior(NamedTuple):
    """(N,) Gamma posteriors of change rates; an infinite shape where pings decide."""

    a: Floats
    b: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedCrawls(Columns):
    """(N,) crawls that are evidence, ordered by page and time."""

    page: Ints
    """Row of the page's state."""
    observed_at: Instants
    interval: Floats
    """Days since the previous crawl."""
    changed: Labels
    n_pings: Ints
    """Pings within the interval."""
    total_pings: Ints
    """Pings of the page until the crawl."""
    recent_pings: Floats
    """Recent pings of the page at the crawl."""
    crawl_rate: Floats
    """Crawl rate in force over the interval, 1/day, where the estimator uses it."""
    age: Floats
    """Days since the page was last modified, as its site reports; NaN: no report."""
    revised: Numbers = None
    """Probability that a wide revision fell on the page in the interval; None: 0."""


class EvidenceState(NamedTuple):
    """(P,) the stored evidence of each page."""

    estimate: Floats
    real_pings: Floats
    false_pings: Floats
    trust: Floats


def width(estimator: Estimator[Any]) -> int:
    """Return the number of columns of a stored state, at least one."""
    if estimator.needs_history:
        return 1
    return int(to_columns(estimator.init(1)).shape[1])


def learn_crawls(
    estimator: Estimator[Any], states: PageStates, evidence: OrderedCrawls
) -> EvidenceState:
    """Return the evidence after crawls; the crawls of each page are learnt in their order."""
    learnt = EvidenceState(*(getattr(states, name).copy() for name in EvidenceState._fields))
    pinged, steady = np.zeros(len(evidence.page), np.bool_), estimator.steady
    if steady is not None:
        pinged = evidence.total_pings > 0
        if pinged.any():
            pinged &= states.observability[evidence.page] == Observability.auto
    if not estimator.needs_history:  # first, because no ping comes before these crawls of a page
        _learn(estimator, learnt.estimate, evidence.where(~pinged))
    if isinstance(steady, Gamma) and pinged.any():
        _learn_pinged(steady, learnt, states.pings_since, evidence.take(pinged))
    return learnt


def _learn(estimator: Estimator[Any], states: Floats, evidence: OrderedCrawls) -> None:
    """Learn from crawls of pages without pings, one crawl of each page at a time."""
    state = from_columns(estimator, states)
    for entries in rounds(evidence.page):
        crawls = evidence if len(entries) == len(evidence) else evidence.take(entries)
        before = estimator.State(*(number[crawls.page] for number in state))
        changed = own_changes(estimator, before, crawls)
        columns = crawls.interval, changed, crawls.crawl_rate, crawls.age
        for number, new in zip(state, estimator.update(before, *columns), strict=True):
            number[crawls.page] = new


def own_changes(estimator: Estimator[Any], before: Any, crawls: OrderedCrawls) -> Labels:
    """Return changes as far as they are the pages' own, and not those of a wide revision."""
    if crawls.revised is None or not isinstance(estimator, PriorEstimator):
        return crawls.changed
    expected = estimator.change_rate(before) * crawls.interval
    return crawls.changed * own_share(expected, crawls.revised)


def _learn_pinged(
    estimator: Gamma, learnt: EvidenceState, since: Instants, evidence: OrderedCrawls
) -> None:
    """Learn unannounced rates and precisions from crawls of pages with pings."""
    quality = PingQuality(estimator)
    days_counted = np.maximum(days(evidence.observed_at - since[evidence.page]), 0.0)
    for entries in rounds(evidence.page):
        crawls = evidence.take(entries)
        page = crawls.page
        own = EvidenceState(*(column[page] for column in learnt))
        before = _ping_state(own, crawls.total_pings, days_counted[entries])
        rate = recent_rate(crawls.recent_pings, 0.0, days_counted[entries])
        change_rate = quality.estimate(before)._replace(ping_rate=rate).change_rate
        after = quality.update(before, crawls.interval, crawls.n_pings, crawls.changed)
        learnt.estimate[page, 0], learnt.estimate[page, 1] = after.changes, after.days
        learnt.real_pings[page] = after.real
        learnt.false_pings[page] = after.false
        audit = audited(learnt.trust[page], crawls.interval, crawls.changed, change_rate)
        # after a ping the crawl shows nothing about changes without one
        learnt.trust[page] = np.where(crawls.n_pings == 0, audit, learnt.trust[page])


def rates_from_log(tx: Transaction, page_id: Ints, estimator: Estimator[Any]) -> Floats:
    """Return (N,) change rates estimated from the log, a block of pages at a time."""
    rates = np.zeros(len(page_id))
    together = HISTORY_BLOCK if tx.archive is None else PAGES_TOGETHER
    for start in range(0, len(page_id), together):
        block = slice(start, start + together)
        rates[block] = estimator.change_rate(history_of(tx, page_id[block]))
    return rates


def history_of(tx: Transaction, page_id: Ints) -> History:
    """Return the logged evidence of a block of pages."""
    crawls = tx.evidence_of(page_id)
    starts = np.append(np.searchsorted(crawls.page_id, page_id), len(crawls))
    changed = (crawls.changed == 1).astype(np.float64)
    if crawls.weight is not None:
        changed *= whole(crawls.weight)
    return History(starts, crawls.interval, changed)


def estimate_rates(
    pages: EpochColumns,
    estimator: Estimator[Any],
    now: np.datetime64,
    from_log: Floats | None = None,
    feeds: PingFeeds | None = None,
) -> RateEstimates:
    """Return the estimates of every page; `from_log` has the rates if the estimator needs history.

    The estimator may have the ages of these pages (`estimation.ages`). `feeds` has the pings of
    whole hosts; None: these are all pages of their hosts.

    Estimators without a prior return zero before a page's first change, and such a page would never
    be crawled again. Therefore the mean of the default prior replaces a rate of zero.
    """
    n_pages = len(pages)
    if from_log is None:
        aged = at_ages(estimator, pages, now) if estimator.aging is None else estimator
        rate = _rates(aged, pages)
    else:
        rate = from_log
    recall, precision, ping_rate = (np.broadcast_to(share, n_pages) for share in (0.0, 1.0, 0.0))
    complete = pages.observability == Observability.complete
    if complete.any():
        days_counted = np.maximum(days(now - pages.pings_since[complete]), 0.0)
        state = GammaState(pages.n_pings[complete], days_counted)
        rate[complete] = CompleteObservations().change_rate(state)
        recall = complete.astype(np.float64)
    pinged = with_pings(pages)
    if isinstance(steady := estimator.of_ages(None).steady, Gamma) and pinged.any():
        feeds = ping_feeds(pages, now) if feeds is None else feeds
        recall, precision, ping_rate = recall.copy(), precision.copy(), ping_rate.copy()
        rate[pinged], recall[pinged], precision[pinged], ping_rate[pinged] = _pinged_rates(
            steady, pages, pinged, feeds, now
        )
    rate[~(rate > 0)] = DEFAULT_PRIOR.mean
    return RateEstimates(rate, recall, precision, ping_rate)


def _pinged_rates(
    steady: Gamma, pages: EpochColumns, pinged: Bools, feeds: PingFeeds, now: np.datetime64
) -> RateEstimates:
    """Return the estimates of the pinged pages; pings of low quality are ignored.

    The ping rate is that of the last days. All pings count for their quality. Otherwise a page that
    seldom pings would lose the trust in its pings between two of them.
    """
    own = EvidenceState(*(getattr(pages, name)[pinged] for name in EvidenceState._fields))
    watched = np.maximum(days(now - pages.pings_since[pinged]), 0.0)
    state = _ping_state(own, pages.n_pings[pinged], watched)
    quality = PingQuality(steady.of_url_groups(pages.url_group[pinged])).estimate(state)
    is_silent = feeds.silent(pages.host_id[pinged], pages.last_ping_at[pinged], now)
    pings = accepted(quality, state, trusted(own.trust), is_silent)
    # with less precision a clock of the same rate does better
    useful = (pings.precision >= LEAST_PRECISION) & (pings.recall >= LEAST_RECALL)
    since = np.nan_to_num(days(now - pages.last_ping_at[pinged]))
    rate = recent_rate(pages.recent_pings[pinged], since, watched)
    pings = pings._replace(ping_rate=np.where(is_silent, 0.0, rate))
    return RateEstimates(
        pings.change_rate,
        np.where(useful, pings.recall, 0.0),
        np.where(useful, pings.precision, 1.0),
        np.where(useful, pings.ping_rate, 0.0),
    )


def pings_now(states: PageStates, row: Ints, estimator: Gamma, at: Instants) -> PingEstimate:
    """Return the quality of the pings of (K,) `auto` pages at (K,) instants, as learnt so far.

    The pages, by their rows, have pings that count, so no feed is silent.
    """
    own = EvidenceState(*(getattr(states, name)[row] for name in EvidenceState._fields))
    watched = np.maximum(days(at - states.pings_since[row]), 0.0)
    state = _ping_state(own, states.n_pings[row], watched)
    quality = PingQuality(estimator).estimate(state)
    pings = accepted(quality, state, trusted(own.trust), np.zeros(len(row), np.bool_))
    since = np.nan_to_num(days(at - states.last_ping_at[row]))
    return pings._replace(ping_rate=recent_rate(states.recent_pings[row], since, watched))


def _ping_state(own: EvidenceState, n_pings: Ints, watched: Floats) -> PingState:
    changes, exposure = own.estimate[:, 0], own.estimate[:, 1]
    counts = n_pings.astype(np.float64)
    return PingState(changes, exposure, own.real_pings, own.false_pings, counts, watched)


def with_pings(pages: EpochColumns) -> Bools:
    """Return the pages whose pings may count beside their crawls."""
    return np.asarray((pages.observability == Observability.auto) & (pages.n_pings > 0))


def ping_feeds(pages: EpochColumns, now: np.datetime64) -> PingFeeds:
    """Return the feeds of pings of hosts; these are all pages of the hosts."""
    pinged = with_pings(pages)
    if not pinged.any():
        return PingFeeds.none()
    watched = np.maximum(days(now - pages.pings_since[pinged]), 0.0)
    rate = pages.n_pings[pinged] / (watched + PING_DAYS)
    return PingFeeds.of(pages.host_id[pinged], rate, pages.last_ping_at[pinged])


def doubted(
    pages: EpochColumns, estimator: Estimator[Any], estimates: RateEstimates, now: np.datetime64
) -> RatePosterior | None:
    """Return the posteriors of pages whose rates are in doubt; None: means serve as well."""
    if not isinstance(estimator, Gamma | Bursty):
        return None
    if estimator.corpus().get("within_shape", DOUBTFUL) >= DOUBTFUL:
        return None
    aged = at_ages(estimator, pages, now) if estimator.aging is None else estimator
    posterior = RatePosterior(np.empty(len(pages)), np.empty(len(pages)))
    for block, own in _in_blocks(aged, pages):
        a, b = own.posterior(from_columns(own, pages.estimate[block]))
        posterior.a[block], posterior.b[block] = a, b
    by_pings = (estimates.ping_rate > 0) | (pages.observability == Observability.complete)
    posterior.a[by_pings] = np.inf
    return posterior


def _rates(estimator: Estimator[Any], pages: EpochColumns) -> Floats:
    rates = np.empty(len(pages))
    for block, own in _in_blocks(estimator, pages):
        rates[block] = own.change_rate(from_columns(own, pages.estimate[block]))
    return rates


def _in_blocks(estimator: Estimator[Any], pages: EpochColumns) -> Iterator[tuple[slice, Any]]:
    """Yield the estimator of each block of pages, because temporary arrays are large."""
    for start in range(0, len(pages), RATES_BLOCK):
        block = slice(start, start + RATES_BLOCK)
        own = estimator.of_url_groups(pages.url_group[block])
        if estimator.aging is not None:
            own = own.of_ages(estimator.aging.within(block))
        yield block, own
