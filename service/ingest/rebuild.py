"""Rebuild the estimates from the log, such as after a change of estimator."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from service.core.pings import recent_pings
from service.core.weights import whole
from service.estimation.estimates import OrderedCrawls, learn_crawls
from service.estimation.rules import Rules
from service.model.arrays import (
    DAY,
    NO_TIME,
    Bools,
    Floats,
    Instants,
    Ints,
    Labels,
    days,
    is_among,
    rounds,
)
from service.model.columns import LogColumns, PageStates
from service.model.domain import Kind
from service.storage import Store
from service.storage.log.contract import PAGES_TOGETHER

BLOCK = 5_000
"""Pages of one transaction; with an archive `PAGES_TOGETHER`."""
ROUNDING_US = 1_000
"""Minimum overlap of two intervals that counts, microseconds."""
UNFINISHED = "unknown (a rebuild did not finish)"
"""Estimator's name in the store while a rebuild runs."""


def rebuild(store: Store, rules: Rules, *, block: int | None = None) -> Iterator[int]:
    """Rebuild the estimates from the log, block by block; yield the number of pages of each.

    No other process may write meanwhile. Until the end the store belongs to no estimator. After a
    crash, therefore, only another rebuild makes the store usable. The log has no `last_modified`.
    """
    block = block or (BLOCK if store.archive is None else PAGES_TOGETHER)
    with store.begin() as tx:
        tx.set_estimator(UNFINISHED)
    last = 0
    while True:
        with store.begin() as tx:
            page_id = tx.next_page_ids(last, block)
            if not len(page_id):
                tx.set_estimator(rules.estimator.name)
                return
            tx.clear_estimates(page_id)
            states = tx.lock_states(page_id)
            tx.save_states(replayed(states, tx.log_of(page_id), rules))
        last = int(page_id[-1])
        yield len(page_id)


def replayed(states: PageStates, log: LogColumns, rules: Rules) -> PageStates:
    """Return states with the estimates that a log, by page and time, teaches."""
    zero = np.zeros(len(states))
    blank = np.zeros_like(states.estimate)
    states = replace(states, estimate=blank, real_pings=zero, false_pings=zero, trust=zero)
    since = states.pings_since[np.searchsorted(states.page_id, log.page_id)]
    total_pings, n_pings = _pings_before(log, since)
    recent = _recent_before(log, since)
    crawls = ~np.isnan(log.interval) & ~_disproved(log)
    log, recent = log.take(crawls), recent[crawls]
    total_pings, n_pings = total_pings[crawls], n_pings[crawls]
    page = np.searchsorted(states.page_id, log.page_id)
    evidence = OrderedCrawls(
        page=page,
        observed_at=log.observed_at,
        interval=log.interval,
        changed=_labels(log),
        n_pings=n_pings,
        total_pings=total_pings,
        recent_pings=recent,
        crawl_rate=_crawl_rate(log, page),
        age=np.full(len(page), np.nan),
    )
    return replace(states, **learn_crawls(rules.estimator, states, evidence)._asdict())


def _labels(log: LogColumns) -> Labels:
    """Return the parts of a change that entries are evidence of."""
    changed: Bools = log.changed == 1
    return changed if log.weight is None else changed * whole(log.weight)


def _disproved(log: LogColumns) -> Bools:
    """Return which entries lie within the interval of a later entry of their page.

    Such an entry was a wrong 304 (`ingest.false_304`): intervals of right answers do not overlap.
    """
    disproved = np.zeros(len(log), np.bool_)
    rows = np.flatnonzero(~np.isnan(log.interval))
    if not len(rows):
        return disproved
    at, interval = log.observed_at[rows].view(np.int64), log.interval[rows]
    start = at - np.rint(interval * DAY.astype(np.int64)).astype(np.int64)
    # starts of later pages are later, so that one scan from the end serves all pages
    page = np.unique(log.page_id[rows], return_inverse=True)[1].astype(np.int64)
    offset = page * (at.max() - start.min() + 1)
    later = np.minimum.accumulate((start + offset)[::-1])[::-1]
    disproved[rows[:-1]] = later[1:] + ROUNDING_US < (at + offset)[:-1]
    return disproved


def _crawl_rate(log: LogColumns, row: Ints) -> Floats:
    """Return the logged crawl rates; without one, the inverse of the page's mean interval."""
    with np.errstate(divide="ignore", invalid="ignore"):  # of rows without a crawl
        usual = np.bincount(row) / np.bincount(row, log.interval)
    return np.where(np.isnan(log.crawl_rate), usual[row], log.crawl_rate)


def _recent_before(log: LogColumns, since: Instants) -> Floats:
    """Return the pings before each entry of a log as they weigh in the ping rate at its time."""
    before = np.zeros(len(log))
    counts = (log.kind == Kind.ping) & (log.observed_at >= since)
    pinged = np.flatnonzero(is_among(log.page_id, np.unique(log.page_id[counts])))
    ids, page = np.unique(log.page_id[pinged], return_inverse=True)
    so_far, last = np.zeros(len(ids)), np.full(len(ids), NO_TIME)
    for entries in rounds(page):
        row, own = pinged[entries], page[entries]
        at = log.observed_at[row]
        so_far[own] = recent_pings(so_far[own], np.nan_to_num(days(at - last[own])))
        before[row] = so_far[own]
        so_far[own] += counts[row]
        last[own] = at
    return before


def _pings_before(log: LogColumns, since: Instants) -> tuple[Ints, Ints]:
    """Return numbers of pings before each entry of a log ordered by page and time.

    The first array counts pings since counting began, the second pings in the entry's interval.
    """
    if not len(log):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    us = log.observed_at.view(np.int64)
    # intervals are days as floats; the nearest microsecond is the instant of the earlier crawl
    interval = np.rint(np.nan_to_num(log.interval) * DAY.astype(np.int64)).astype(np.int64)
    # ranks are small, so that page and instant fit into one integer
    ranks = np.unique(np.concatenate([us, us - interval]), return_inverse=True)[1]
    own, before = ranks.astype(np.int64).reshape(2, -1)
    page = np.unique(log.page_id, return_inverse=True)[1].astype(np.int64) * len(ranks)
    start = np.searchsorted(page + own, page + before, side="right")
    first = np.searchsorted(page + own, page)
    is_ping = log.kind == Kind.ping
    every = np.concatenate([[0], np.cumsum(is_ping)])
    recent = np.concatenate([[0], np.cumsum(is_ping & (log.observed_at >= since))])
    within = every[:-1] - np.minimum(every[start], every[:-1])
    return recent[:-1] - recent[first], within
