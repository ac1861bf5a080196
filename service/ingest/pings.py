"""From pings to the states of their pages, and to the decision whether to crawl now. Pure."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from service.core import timing
from service.ingest.crawls import add_counts, may_be_back
from service.ingest.rules import Rules
from service.model.arrays import NO_TIME, UNSPECIFIED, Bools, Floats, Groups, Ints, rounds
from service.model.columns import LogColumns, PageStates, PingColumns
from service.model.domain import Kind, Observability, PingReason, Timing


def notice(
    states: PageStates, groups: Groups, pings: PingColumns, rules: Rules
) -> tuple[PageStates, LogColumns, Bools, NDArray[np.object_]]:
    """Return the states of (P,) pages after (N,) pings, the log, and whether and why to crawl.

    Changes from before the start of counting are not counted. Their number is unknown, and the
    oldest news of a new page would make the page look fast.
    """
    page, at, by = groups.page, pings.changed_at, pings.changed_by
    crawl, reason, credit = _decide(states, groups, pings, rules)
    earliest = np.fmin.reduceat(np.where(crawl, by, NO_TIME), groups.start)
    unseen = ~(by <= states.last_observed_at[page])
    counts = at >= states.pings_since[page]
    after = replace(
        states,
        n_pings=add_counts(states.n_pings, groups.count(counts)),
        pings_since_crawl=add_counts(states.pings_since_crawl, groups.count(unseen)),
        last_ping_at=at[groups.end],
        ping_credit=credit,
        requested_at=np.where(np.isnat(states.requested_at), earliest, states.requested_at),
    )
    return after, _log(pings, states.crawl_rate[page]), crawl, reason


def _decide(
    states: PageStates, groups: Groups, pings: PingColumns, rules: Rules
) -> tuple[Bools, NDArray[np.object_], Floats]:
    """Return which pings are worth a crawl, why, and the (P,) credit that remains.

    A crawl within the day that a ping names may have come too early to see the change. Such a ping
    is not stale.
    """
    page, by = groups.page, pings.changed_by
    complete = states.observability == Observability.complete
    auto = states.observability == Observability.auto
    trusted = (complete | (auto & (states.crawl_probability > 0)))[page]
    first = np.isnat(states.last_crawl_at)[page]
    stale = by <= states.last_crawl_at[page]
    back = ~stale & may_be_back(states, groups, by)
    unscheduled = np.isnan(states.crawl_probability)
    probability = np.where(unscheduled, 1.0, states.crawl_probability)
    spend, credit = _spend(states, page, probability, trusted & ~stale & ~first & ~back, rules)
    choices = (
        (first, PingReason.never_crawled),
        (back, PingReason.may_be_back),
        (~trusted, PingReason.not_trusted),
        (stale, PingReason.crawled_since),
        (unscheduled[page], PingReason.unscheduled),
        (spend, PingReason.credit),
    )
    choice = np.select([mask for mask, _ in choices], range(len(choices)), len(choices))
    reason = np.array([*(name for _, name in choices), PingReason.saving], object)[choice]
    return first | back | (trusted & ~stale & spend), reason, credit


def _spend(
    states: PageStates, page: Ints, probability: Floats, counts: Bools, rules: Rules
) -> tuple[Bools, Floats]:
    """Return which pings are worth a crawl, and the (P,) credit after the pings that count."""
    if rules.timing is Timing.poisson:
        uniform = rules.rng.random(len(page))
        return timing.poisson_ping(probability[page], uniform), states.ping_credit
    spend, credit = np.zeros(len(page), np.bool_), states.ping_credit.copy()
    eligible = np.flatnonzero(counts)
    for entries in rounds(page[eligible]):
        row = page[eligible[entries]]
        spend[eligible[entries]], credit[row] = timing.ping_credit(credit[row], probability[row])
    return spend, credit


def _log(pings: PingColumns, crawl_rate: Floats) -> LogColumns:
    """Return the log's entries of pings, which are no evidence by themselves."""
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
