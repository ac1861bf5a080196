"""Replay the kept log into fresh estimates, as after a change of estimator."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from service.arrays import DAY, Floats, Instants, Ints
from service.columns import LogColumns, PageStates
from service.domain import Kind
from service.estimates import Crawled, learn_crawls
from service.ingest import Rules
from service.storage import Store

UNFINISHED = "unknown (a rebuild did not finish)"
"""Whose states are stored while a rebuild runs."""


def rebuild(store: Store, rules: Rules, *, block: int = 5_000) -> Iterator[int]:
    """Replay the kept log into fresh estimates, block by block; yields the pages done.

    Nothing else may write meanwhile: stop the service first. While estimates of two kinds lie
    side by side the store belongs to no estimator, so that after a crash only another rebuild
    can put it to use. The log has the crawl rate in force only where the estimator of that time
    used it; elsewhere one crawl in the page's mean interval stands for it. It has no dates of
    sites (`last_modified`).
    """
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
            tx.save_states(_replayed(states, tx.log_of(page_id), rules))
        last = int(page_id[-1])
        yield len(page_id)


def _replayed(states: PageStates, log: LogColumns, rules: Rules) -> PageStates:
    zero = np.zeros(len(states))
    states = replace(
        states, estimate=np.zeros_like(states.estimate), real_pings=zero.copy(),
        false_pings=zero.copy(), trust=zero.copy(),
    )  # fmt: skip
    since = states.pings_since[np.searchsorted(states.page_id, log.page_id)]
    so_far, within = _pings_before(log, since)
    crawls = ~np.isnan(log.interval)
    log, so_far, within = log.take(crawls), so_far[crawls], within[crawls]
    page = np.searchsorted(states.page_id, log.page_id)
    crawled = Crawled(
        page=page, observed_at=log.observed_at, interval=log.interval, changed=log.changed == 1,
        n_pings=within, so_far=so_far, crawl_rate=_crawl_rate(log, page),
        age=np.full(len(page), np.nan),
    )  # fmt: skip
    return replace(states, **learn_crawls(rules.estimator, states, crawled)._asdict())


def _crawl_rate(log: LogColumns, row: Ints) -> Floats:
    """Give the crawl rate of each crawl, where none was logged that of the page's mean interval."""
    with np.errstate(divide="ignore", invalid="ignore"):  # of rows without a crawl
        usual = np.bincount(row) / np.bincount(row, log.interval)
    return np.where(np.isnan(log.crawl_rate), usual[row], log.crawl_rate)


def _pings_before(log: LogColumns, since: Instants) -> tuple[Ints, Ints]:
    """Count the pings before each entry of a log ordered by page and time.

    Gives those since counting began, and those in the entry's interval.
    """
    if not len(log):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    us = log.observed_at.view(np.int64) - log.observed_at.view(np.int64).min()
    page = np.unique(log.page_id, return_inverse=True)[1].astype(np.int64) * (us.max() + 1)
    interval = np.rint(np.nan_to_num(log.interval) * DAY.astype(np.int64)).astype(np.int64)
    opened = np.searchsorted(page + us, page + np.maximum(us - interval, 0), side="right")
    first = np.searchsorted(page + us, page)
    is_ping = log.kind == Kind.ping
    known = np.concatenate([[0], np.cumsum(is_ping)])
    counted = np.concatenate([[0], np.cumsum(is_ping & (log.observed_at >= since))])
    within = known[:-1] - np.minimum(known[opened], known[:-1])
    return counted[:-1] - counted[first], within
