"""Steps for tests of leases."""

from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import numpy as np

from service.batching.lease_requests import LeaseRequest, lease_all
from service.batching.reports import CrawlReport, Recorder
from service.core.estimators.gamma import Gamma
from service.estimation.rules import InForce, Rules
from service.ingest import record
from service.ingest.page_names import PageNames
from service.leases.dealt import WorkerRequest
from service.leases.politeness import Politeness
from service.leases.queue import queue_due
from service.leases.settle import LeaseSettler
from service.model.domain import ItemVerdict, Timing
from service.storage.queue.columns import LeaseFilter, LeaseTokens
from support.store_cases import T0, crawl_columns, instants, page_columns, register

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
TTL = timedelta(minutes=5)
UNTIL = timedelta(days=2)
POLITE = Politeness(delay_s=1.0, concurrency=1)
RUDE = Politeness(delay_s=0, concurrency=0)


class Crawl(NamedTuple):
    """One leased crawl."""

    page_id: int
    url: str
    host: str
    token: int
    overdue: float


def rng():
    return np.random.default_rng(7)


RULES = Rules(Gamma(), Timing.periodic, rng())


def queue(store, page_id, now, ahead=UNTIL):
    with store.begin() as tx:
        queue_due(tx, np.asarray(page_id, np.int64), now + ahead)


def add(store, n=3, now=T0, host="example.org"):
    page_id = register(store, n, now, host)
    queue(store, page_id, now)
    return page_id.tolist()


def take(store, now, count=100, polite=RUDE, hosts=(), ttl=TTL, tokens=RULES.rng, **shard):
    """Lease as a worker does; return the crawls in the order of the answer."""
    request = LeaseRequest(WorkerRequest("w", count, ttl), LeaseFilter(tuple(hosts), **shard))
    store.clock = lambda: now
    dealt = lease_all(store, polite, tokens, [request])
    return [crawl for part in dealt for crawl in rows(part.leased)]


def rows(leased):
    pages, leases = leased.pages, leased.leases
    columns = pages.page_id, pages.url, pages.host, leases.token, leased.overdue
    return [Crawl(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def ids(crawls):
    return [crawl.page_id for crawl in crawls]


def report(store, crawls, at, now=None, status=200, changed=0, retry_after_s=np.nan, polite=RUDE):
    """Report crawls under their leases; return a mask of the tokens in force."""
    page_id = np.array(ids(crawls), np.int64)
    observed_at = instants([at] * len(crawls))
    crawled = crawl_columns(page_id, observed_at, changed, status=status)
    crawled = replace(
        crawled,
        leased_page_id=page_id,
        token=np.array([c.token for c in crawls], np.int64),
        retry_after_s=np.full(len(crawls), retry_after_s),
    )
    settler = LeaseSettler(polite, UNTIL, RULES.rng)
    with store.begin() as tx:
        rates = record.needs_rates(crawled)
        states, leased = settler.lock(tx, np.unique(page_id), crawled, scheduled=rates)
        made = record.record(tx, crawled, RULES, states)
        new = made.verdict == ItemVerdict.accepted
        at_last = now or at
        held = settler.settle_crawls(
            tx, crawled, new, made.states, leased, at_last, made.in_incident
        )
        waiting = leased.waiting()
    queue(store, np.append(page_id[made.sooner & ~held], waiting), at_last)
    return held.tolist()


def release(store, crawls, now, polite=RUDE):
    """Return crawls."""
    page_id = np.array(ids(crawls), np.int64)
    tokens = LeaseTokens(page_id=page_id, token=np.array([c.token for c in crawls], np.int64))
    settler = LeaseSettler(polite, UNTIL, RULES.rng)
    with store.begin() as tx:
        return settler.return_leases(tx, tokens, now).tolist()


def next_ready_at(store, hosts=()):
    with store.begin(write=False) as tx:
        return tx.next_ready_at(LeaseFilter(tuple(hosts)))


def commit_reports(store, crawls, observed_at, now, retry_after_s=np.nan, **results):
    """Report as the service does, in one commit with the evidence; return the verdicts."""
    page_id = np.array(ids(crawls), np.int64)
    at = observed_at if isinstance(observed_at, list) else [observed_at] * len(crawls)
    crawled = crawl_columns(page_id, instants(at), **results)
    token = np.array([crawl.token for crawl in crawls], np.int64)
    pause_s = np.full(len(crawls), retry_after_s)
    crawled = replace(crawled, token=token, leased_page_id=page_id, retry_after_s=pause_s)
    nowhere = PageNames(page_id, np.full(len(crawls), -1), page_columns([]))
    settler = LeaseSettler(RUDE, UNTIL, rng())
    store.clock = lambda: now
    report = CrawlReport(crawled, nowhere, False, now)
    (done,) = Recorder(store, InForce(RULES), settler).flush_crawls([report])
    return done
