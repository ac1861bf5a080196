"""What is known of the pages' change rates: learnt from crawls, read off for an epoch.

Three kinds of pages, by their observability. Of `incomplete` ones the estimator chosen in the
settings learns from every crawl. Of `complete` ones the pings are counted. Of `auto` ones the
estimator learns the changes that come without a ping, and the crawls after pings teach how
many of those are real (`core.pings`); as long as a page has none, it is an incomplete one.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from service.arrays import INSTANT, NEVER, Bools, Columns, Floats, Instants, Ints, days, instant
from service.columns import EpochColumns, PageStates
from service.core.estimators import (
    Bursty,
    CompleteObservations,
    CompleteState,
    Estimator,
    Gamma,
    History,
    from_columns,
    of_sections,
    section_rate_of,
    to_columns,
)
from service.core.pings import PingEstimate, PingQuality, PingState
from service.core.prior import DEFAULT_PRIOR
from service.core.trust import TrustTest, believed, dead_feeds
from service.domain import Observability, Page
from service.runs import turns
from service.storage import Transaction

HISTORY_BLOCK = 4_000
"""Pages whose log is in memory at a time, for estimators that look at it again."""

RATES_BLOCK = 1 << 16
"""Pages whose rates are computed at a time."""

TRUST = TrustTest()
LEAST_PRECISION = 0.1
"""Pings of which fewer announce a change are noise: a clock of the same rate does better."""
LEAST_RECALL = 0.2
"""Pings that announce a smaller share of the changes, as far as is known, count for nothing."""


class Known(NamedTuple):
    """(N,) what the allocation is told of each page."""

    change_rate: Floats
    """1/day."""
    recall: Floats
    """Share of the changes that a ping announces."""
    precision: Floats
    """Share of the pings that announce a change."""
    ping_rate: Floats
    """1/day; 0 where pings count for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crawled(Columns):
    """(N,) crawls that are evidence, ordered by page and time."""

    page: Ints
    """Which row of the states each is of."""
    observed_at: Instants
    interval: Floats
    """Days since the one before."""
    changed: Bools
    n_pings: Ints
    """Pings within the interval."""
    so_far: Ints
    """Pings of the page up to then."""
    crawl_rate: Floats
    """In force over the interval, where the estimator uses it."""
    age: Floats
    """Days since the page was last modified, as its site says; NaN: it does not."""


class Learnt(NamedTuple):
    """(P,) what crawls leave of each page's evidence."""

    estimate: Floats
    real_pings: Floats
    false_pings: Floats
    trust: Floats


def width(estimator: Estimator[Any]) -> int:
    """Give how many numbers of each page are stored; at least one."""
    if estimator.needs_history:
        return 1
    return int(to_columns(estimator.init(1)).shape[1])


def learn(
    estimator: Estimator[Any], columns: Floats, interval: Floats, changed: Bools, crawl_rate: Floats
) -> Floats:
    """Give (N, W) states after one more interval of each page."""
    if estimator.needs_history or not len(columns):
        return columns
    state = from_columns(estimator, columns)
    return to_columns(estimator.update(state, interval, changed, crawl_rate))


def learn_crawls(estimator: Estimator[Any], states: PageStates, crawled: Crawled) -> Learnt:
    """Learn from crawls, each page's in their order."""
    learnt = Learnt(
        states.estimate.copy(),
        states.real_pings.copy(),
        states.false_pings.copy(),
        states.trust.copy(),
    )
    weighed = np.zeros(len(crawled.page), np.bool_)
    if (steady := _steady(estimator)) is not None:
        auto = states.observability[crawled.page] == Observability.auto
        weighed = auto & (crawled.so_far > 0)
        if weighed.any():
            _weigh(steady, learnt, states.pings_since, crawled.take(weighed))
    if not estimator.needs_history:
        _learn(estimator, learnt.estimate, crawled.where(~weighed))
    return learnt


def _learn(estimator: Estimator[Any], columns: Floats, crawled: Crawled) -> None:
    """Learn of pages without pings, turn by turn."""
    state = from_columns(estimator, columns)
    for turn in turns(crawled.page):
        now = crawled if len(turn) == len(crawled) else crawled.take(turn)
        before = estimator.State(*(number[now.page] for number in state))
        for number, new in zip(state, _after(estimator, before, now), strict=True):
            number[now.page] = new


def _after(estimator: Estimator[Any], before: Any, now: Crawled) -> Any:
    """Learn from one crawl a page, and from the date of the change where the estimator can."""
    if isinstance(estimator, Gamma | Bursty) and not np.isnan(now.age).all():
        return estimator.update_dated(before, now.interval, now.changed, now.age)
    return estimator.update(before, now.interval, now.changed, now.crawl_rate)


def _weigh(estimator: Gamma, learnt: Learnt, since: Instants, crawled: Crawled) -> None:
    """Learn of pages with pings: changes without one, or how many pings are real."""
    quality = PingQuality(estimator)
    watched = np.maximum(days(crawled.observed_at - since[crawled.page]), 0.0)
    for turn in turns(crawled.page):
        now = crawled.take(turn)
        page = now.page
        before = PingState(
            learnt.estimate[page, 0], learnt.estimate[page, 1], learnt.real_pings[page],
            learnt.false_pings[page], now.so_far.astype(np.float64), watched[turn],
        )  # fmt: skip
        rate = quality.estimate(before).change_rate
        after = quality.update(before, now.interval, now.n_pings, now.changed)
        learnt.estimate[page, 0], learnt.estimate[page, 1] = after.changes, after.days
        learnt.real_pings[page] = after.real
        learnt.false_pings[page] = after.false
        quiet = now.n_pings == 0
        audited = TRUST.update(learnt.trust[page], now.interval, now.changed, rate)
        learnt.trust[page] = np.where(quiet, audited, learnt.trust[page])


def _steady(estimator: Estimator[Any]) -> Gamma | None:
    """Give the Gamma that learns what comes without a ping: in the first two numbers, if at all."""
    if isinstance(estimator, Bursty):
        return estimator.steady
    return estimator if isinstance(estimator, Gamma) else None


def _ping_state(pages: EpochColumns, now: np.datetime64, where: Bools) -> PingState:
    watched = np.maximum(days(now - pages.pings_since[where]), 0.0)
    return PingState(
        pages.estimate[where, 0],
        pages.estimate[where, 1],
        pages.real_pings[where],
        pages.false_pings[where],
        pages.n_pings[where].astype(np.float64),
        watched,
    )


def rates_from_log(tx: Transaction, page_id: Ints, estimator: Estimator[Any]) -> Floats:
    """Estimate (N,) change rates from the kept log, a block of pages at a time."""
    rates = np.zeros(len(page_id))
    for start in range(0, len(page_id), HISTORY_BLOCK):
        block = slice(start, start + HISTORY_BLOCK)
        rates[block] = estimator.change_rate(history_of(tx, page_id[block]))
    return rates


def history_of(tx: Transaction, page_id: Ints) -> History:
    """Read the kept crawls of a block of pages that are evidence."""
    crawls = tx.evidence_of(page_id)
    starts = np.append(np.searchsorted(crawls.page_id, page_id), len(crawls))
    changed = (crawls.changed == 1).astype(np.float64)
    return History(starts, crawls.interval, changed, np.broadcast_to(np.nan, len(crawls)))


def known(
    pages: EpochColumns,
    estimator: Estimator[Any],
    now: np.datetime64,
    from_log: Floats | None = None,
) -> Known:
    """Read off what is known of every page; `from_log` where the estimator needs history.

    A rate of zero, which the estimators without a prior give to a page before its first
    change, would starve the page; it counts as that of a page nobody knows.
    """
    n_pages = len(pages)
    rate = _rates(estimator, pages) if from_log is None else from_log
    recall, precision, ping_rate = (np.broadcast_to(share, n_pages) for share in (0.0, 1.0, 0.0))
    complete = pages.observability == Observability.complete
    if complete.any():
        watched = np.maximum(days(now - pages.pings_since[complete]), 0.0)
        counted = CompleteState(pages.n_pings[complete], watched)
        rate[complete] = CompleteObservations().change_rate(counted)
        recall = complete.astype(np.float64)
    pinged = (pages.observability == Observability.auto) & (pages.n_pings > 0)
    if (steady := _steady(estimator)) is not None and pinged.any():
        recall, precision, ping_rate = recall.copy(), precision.copy(), ping_rate.copy()
        state = _ping_state(pages, now, pinged)
        quality = PingQuality(of_sections(steady, pages.section[pinged])).estimate(state)
        heard = believed(
            quality, state, TRUST.trusted(pages.trust[pinged]), dead(pages, pinged, quality, now)
        )
        of_use = (heard.precision >= LEAST_PRECISION) & (heard.recall >= LEAST_RECALL)
        rate[pinged] = heard.change_rate
        ping_rate[pinged] = np.where(of_use, heard.ping_rate, 0.0)
        recall[pinged] = np.where(of_use, heard.recall, 0.0)
        precision[pinged] = np.where(of_use, heard.precision, 1.0)
    rate[~(rate > 0)] = DEFAULT_PRIOR.mean
    return Known(rate, recall, precision, ping_rate)


def _rates(estimator: Estimator[Any], pages: EpochColumns) -> Floats:
    """Read the estimator's states, a block at a time: what it computes between is not small."""
    rates = np.empty(len(pages))
    for start in range(0, len(pages), RATES_BLOCK):
        block = slice(start, start + RATES_BLOCK)
        own = of_sections(estimator, pages.section[block])
        rates[block] = own.change_rate(from_columns(own, pages.estimate[block]))
    return rates


class PageEstimate(NamedTuple):
    """What is known of one page."""

    change_rate: float
    interval: tuple[float, float] | None
    """Holds the change rate with probability 0.9 (a posterior's: credible) or in 90 % of
    repetitions (a likelihood's: confidence); None where that cannot be told."""
    estimator: str
    section_change_rate: float | None
    """What its siblings make one expect of a page, 1/day; None where that has no part in it."""


def of_page(
    tx: Transaction, page: Page, estimator: Estimator[Any], now: np.datetime64
) -> PageEstimate:
    """Estimate one page as an epoch would now."""
    one = EpochColumns(
        page_id=np.array([page.page_id]),
        importance=np.array([page.importance]),
        observability=np.array([page.observability], np.int16),
        min_crawl_rate=np.full(1, np.nan),
        max_crawl_rate=np.full(1, np.nan),
        host_id=np.zeros(1, np.int64),
        n_pings=np.array([page.n_pings]),
        pings_since=np.array([instant(page.pings_since)]),
        last_ping_at=np.array([instant(page.last_ping_at) if page.last_ping_at else NEVER]),
        real_pings=np.array([page.real_pings]),
        false_pings=np.array([page.false_pings]),
        trust=np.array([page.trust]),
        section=np.array([page.section], np.int32),
        last_observed_at=np.full(1, NEVER),
        last_interval=np.zeros(1),
        gap=np.ones(1),
        estimate=np.array([page.estimate]),
    )
    state, from_log = None, None
    if estimator.needs_history:
        state = history_of(tx, one.page_id)
        from_log = estimator.change_rate(state)
    rate = float(known(one, estimator, now, from_log).change_rate[0])
    if page.observability is Observability.complete:
        watched = float(np.maximum(days(now - one.pings_since), 0.0)[0])
        counted = CompleteState(float(page.n_pings), watched)
        interval = _interval(CompleteObservations(), counted)
        return PageEstimate(rate, interval, CompleteObservations.name, None)
    means = section_rate_of(estimator)
    siblings = None if means is None else float(means[page.section % means.size])
    if page.observability is Observability.auto and page.n_pings:
        return PageEstimate(rate, None, estimator.name, siblings)
    own = of_sections(estimator, one.section)
    state = from_columns(own, one.estimate) if state is None else state
    return PageEstimate(rate, _interval(own, state), estimator.name, siblings)


def _interval(estimator: Estimator[Any], state: Any) -> tuple[float, float] | None:
    for kind in ("credible_interval", "confidence_interval"):
        if told := getattr(estimator, kind, None):
            low, high = (float(np.ravel(end)[0]) for end in told(state, 0.9))
            return (low, high) if np.isfinite(high) else None
    return None


def dead(pages: EpochColumns, pinged: Bools, quality: PingEstimate, now: np.datetime64) -> Bools:
    """Tell of pinged pages whether the feed of their host has fallen silent."""
    _, host = np.unique(pages.host_id[pinged], return_inverse=True)
    newest: Instants = np.full(host.max() + 1, np.datetime64(0, "us"), INSTANT)
    np.fmax.at(newest, host, pages.last_ping_at[pinged])
    silent = np.maximum(days(np.asarray(now, INSTANT) - newest), 0.0)
    verdict: Bools = dead_feeds(host, quality.ping_rate, silent)[host]
    return verdict
