"""Effects of pings on their pages: a crawl now or not, next state, log. Pure.

Arrays are (N,) for pings, ordered by page and time, and (P,) for their pages.
"""

from dataclasses import replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from service.core.pings import recent_pings
from service.estimation.rules import Rules
from service.ingest.crawls import add_counts
from service.ingest.credit import SpentCredit, spend
from service.ingest.requests import MICROSECOND, renewed
from service.model.arrays import (
    NO_TIME,
    UNSPECIFIED,
    Bools,
    Floats,
    Groups,
    Instants,
    days,
    instant,
)
from service.model.columns import LogColumns, PageStates, PingColumns
from service.model.domain import Kind, Observability, PingReason
from service.model.outcomes import lacks_content
from service.storage.pages.links import GONE_CHECKS

RETRY_RETIRED = np.timedelta64(1 << (GONE_CHECKS - 2), "D")
"""Minimum time between two crawls that untrusted pings request, of a retired page or of one without
content."""


def notice(
    states: PageStates,
    groups: Groups,
    pings: PingColumns,
    rules: Rules,
    now: datetime | None = None,
) -> tuple[PageStates, LogColumns, Bools, NDArray[np.object_]]:
    """Return the states of (P,) pages after (N,) pings, the log, and the decisions with reasons.

    A ping of a change before the start of counting does not count, because the number of other
    pings in that time is unknown. A pinged page is one that was asked for. `now` is the instant of
    the requests for crawls; None: each has the instant of its ping.
    """
    page, at, by = groups.page, pings.changed_at, pings.changed_by
    crawl, reason, spent = _decide(states, groups, pings, rules, now)
    requests = renewed(states, *_requests(states, groups, np.where(crawl, by, NO_TIME), now))
    unseen = ~(by <= states.last_observed_at[page])
    counts = at >= states.pings_since[page]
    after = replace(
        states,
        n_pings=add_counts(states.n_pings, groups.count(counts)),
        recent_pings=_add_recent(states, groups, at, counts),
        pings_since_crawl=add_counts(states.pings_since_crawl, groups.count(unseen)),
        last_ping_at=at[groups.end],
        ping_credit=spent.credit,
        interval_factor=spent.interval_factor,
        retry_rate=spent.retry_rate,
        hops=np.zeros_like(states.hops),
        **requests._asdict(),
    )
    return after, _log_pings(pings, states.crawl_rate[page]), crawl, reason


def _add_recent(states: PageStates, groups: Groups, at: Instants, counts: Bools) -> Floats:
    """Return the (P,) recent pings after (N,) further ones, at the instant of the last one."""
    newest = at[groups.end]
    so_far = recent_pings(states.recent_pings, np.nan_to_num(days(newest - states.last_ping_at)))
    new = recent_pings(counts.astype(np.float64), days(newest[groups.page] - at))
    return np.asarray(so_far + np.add.reduceat(new, groups.start))


def _requests(
    states: PageStates, groups: Groups, wanted: Instants, now: datetime | None
) -> tuple[Instants, Instants]:
    """Return the instants of the first and of the newest request of (P,) pages; NaT: none.

    `wanted` are the times of the (N,) pings that cause a crawl. A publisher's clock may be slow or
    fast, so the service's clock decides whether a request came during a crawl. A request is newer
    than the last crawl, even if a fast clock dated that one.
    """
    first = np.fmin.reduceat(wanted, groups.start)
    if now is None:
        return first, np.fmax.reduceat(wanted, groups.start)
    arrived = np.fmax(instant(now), states.last_crawl_at + MICROSECOND)
    first = np.where(np.isnat(first), NO_TIME, arrived)
    return first, first


def may_be_back(states: PageStates, groups: Groups, at: Instants) -> Bools:
    """Return which pings cause a check whether a page that is gone or lacks content is back.

    Sites that do not announce every change may list pages that they have deleted. Therefore pings
    of such a site do not cause more frequent checks of a retired page, or of one without content,
    than `RETRY_RETIRED`.
    """
    lacking = lacks_content(states.gone, states.n_failures)
    if not (states.gone.any() or lacking.any()):
        return np.zeros(len(at), np.bool_)
    away = states.gone | lacking
    trusted = away & (states.observability == Observability.complete)
    retired = lacking | (states.gone & (states.n_failures > GONE_CHECKS))
    overdue = at >= (states.last_crawl_at + RETRY_RETIRED)[groups.page]
    back: Bools = trusted[groups.page] | (retired[groups.page] & overdue)
    return back


def _decide(
    states: PageStates, groups: Groups, pings: PingColumns, rules: Rules, now: datetime | None
) -> tuple[Bools, NDArray[np.object_], SpentCredit]:
    """Return which pings cause a crawl now, the reasons, and what the pings paid for."""
    page, by = groups.page, pings.changed_by
    complete = states.observability == Observability.complete
    auto = states.observability == Observability.auto
    trusted = (complete | (auto & (states.crawl_probability > 0)))[page]
    held = (states.held > 0)[page]
    first = np.isnat(states.last_crawl_at)[page] & ~held
    stale = by <= states.last_crawl_at[page]
    back = ~stale & may_be_back(states, groups, by)
    unscheduled = np.isnan(states.crawl_probability)
    spent = spend(states, groups, pings, trusted & ~stale & ~first & ~back & ~held, rules, now)
    choices = (
        (held, PingReason.held),
        (first, PingReason.never_crawled),
        (back, PingReason.may_be_back),
        (~trusted, PingReason.not_trusted),
        (stale, PingReason.crawled_since),
        (unscheduled[page], PingReason.unscheduled),
        (spent.at_once, PingReason.credit),
        (spent.later, PingReason.later),
    )
    choice = np.select([mask for mask, _ in choices], range(len(choices)), len(choices))
    reason = np.array([*(name for _, name in choices), PingReason.saving], object)[choice]
    return ~held & (first | back | (trusted & ~stale & spent.at_once)), reason, spent


def _log_pings(pings: PingColumns, crawl_rate: Floats) -> LogColumns:
    """Return the log's entries of pings, which are no evidence without a crawl."""
    unspecified = np.full(len(pings), UNSPECIFIED, np.int16)
    return LogColumns(
        page_id=pings.page_id,
        observed_at=pings.changed_at,
        kind=np.full(len(pings), Kind.ping, np.int16),
        changed=unspecified,
        interval=np.full(len(pings), np.nan),
        crawl_rate=crawl_rate,
        status=unspecified,
    )
