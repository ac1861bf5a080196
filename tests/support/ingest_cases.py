"""Helpers for tests of ingest: one crawl or ping, and a store's state of a page."""

from datetime import timedelta

import numpy as np

from service.core.estimators.gamma import Gamma
from service.estimation.rules import Rules
from service.ingest.record import ping, record
from service.model.domain import ItemVerdict, Timing
from support.store_cases import crawl_columns, page_of, ping_columns

HOUR = timedelta(hours=1)
ACCEPTED, DUPLICATE, LATE, UNKNOWN, *_ = (int(v) for v in ItemVerdict)


def rules(estimator=None, timing=Timing.periodic, seed=1):
    return Rules(estimator or Gamma(), timing, np.random.default_rng(seed))


def crawl(store, page_id, at, by=None, **fields):
    """Record one crawl; return its verdict."""
    with store.begin() as tx:
        return int(record(tx, crawl_columns([page_id], at, **fields), by or rules()).verdict[0])


def announce(store, page_id, at, by=None):
    """Record one ping; return whether and why to crawl now."""
    with store.begin() as tx:
        answer = ping(tx, ping_columns([page_id], at), by or rules())
        return bool(answer.crawl[0]), answer.reason[0]


def log(store, page_id):
    with store.begin(write=False) as tx:
        return tx.page_log(page_id, 100)


def estimate(store, page_id):
    return page_of(store, page_id).estimate


def counts(store, page_id):
    page = page_of(store, page_id)
    return page.n_observations, page.n_changes
