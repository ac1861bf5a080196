"""Latencies of host queues in the transactions of reports, on each database."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from support.crawl_cases import RULES, SECOND, UNTIL, add, ids, take
from support.store_cases import T0, crawl_columns, instants, page_columns

from service.batching.reports import CrawlReport, Recorder
from service.estimation.rules import InForce
from service.ingest.page_names import PageNames
from service.leases.host_settings import change_group, change_host
from service.leases.latencies import _from_the_end
from service.leases.politeness import Politeness
from service.leases.settle import LeaseSettler

OFF = Politeness(delay_s=0, concurrency=0)
ON = Politeness(delay_s=0, concurrency=4, latency_factor=5.0, max_delay_s=30.0)


def commit(store, page_id, token, at, seconds, polite=ON, status=200):
    """Report crawls in one commit, as the service does."""
    page_id, n = np.asarray(page_id, np.int64), len(page_id)
    crawled = crawl_columns(page_id, instants(at), 0, status=status)
    token = np.asarray(token, np.int64)
    leased = np.where(token != 0, page_id, 0)
    seconds = np.broadcast_to(np.asarray(seconds, np.float64), n).copy()
    crawled = replace(crawled, token=token, leased_page_id=leased, seconds=seconds)
    nowhere = PageNames(page_id, np.full(n, -1), page_columns([]))
    store.clock = lambda: max(at)
    settler = LeaseSettler(polite, UNTIL, RULES.rng)
    (done,) = Recorder(store, InForce(RULES), settler).flush_crawls(
        [CrawlReport(crawled, nowhere, False, max(at))]
    )
    return done


def unleased(store, page_id, at, seconds, **options):
    return commit(store, page_id, np.zeros(len(page_id)), at, seconds, **options)


def queue_of(store, host="example.org"):
    with store.begin(write=False) as tx:
        return tx.host(host).host_queue


def series(store, page_id, n, seconds, start, **options):
    """Report crawls of one page, one a minute, each in a commit; return the time after them."""
    for i in range(n):
        unleased(store, [page_id], [start + i * timedelta(minutes=1)], [seconds], **options)
    return start + n * timedelta(minutes=1)


def test_reports_without_a_lease_teach_the_latency_of_their_host(queue_store):
    (page, *_) = add(queue_store, 1)
    at = series(queue_store, page, 3, 0.2, T0 + SECOND)
    usual = queue_of(queue_store)
    assert usual.latency_s == usual.usual_latency_s == pytest.approx(0.2)
    assert usual.n_latencies == 3
    series(queue_store, page, 10, 2.0, at)
    assert queue_of(queue_store).latency_s > 1.0


def test_no_latency_is_kept_where_none_is_asked_for(queue_store):
    (page, *_) = add(queue_store, 1)
    series(queue_store, page, 3, 0.2, T0 + SECOND, polite=OFF)
    assert queue_of(queue_store).latency_s is None
    assert queue_of(queue_store).n_latencies == 0


def test_a_host_may_have_its_own_factor_and_a_group_one_for_its_members(queue_store):
    (page,) = add(queue_store, 1)
    (other,) = add(queue_store, 1, host="other.example")
    with queue_store.begin() as tx:
        change_host(tx, "example.org", {"latency_factor": 3.0, "max_delay_s": 9.0}, T0, OFF)
        change_group(tx, "shared", {"latency_factor": 2.0}, ["other.example"], T0, OFF)
    for start in (T0 + SECOND,):
        series(queue_store, page, 2, 0.2, start, polite=OFF)
        series(queue_store, other, 2, 0.4, start, polite=OFF)
    assert queue_of(queue_store).latency_s == pytest.approx(0.2)
    assert (queue_of(queue_store).latency_factor, queue_of(queue_store).max_delay_s) == (3.0, 9.0)
    with queue_store.begin(write=False) as tx:
        group = tx.group("shared").host_queue
    assert (group.latency_factor, group.n_latencies) == (2.0, 2)
    assert group.latency_s == pytest.approx(0.4)


def test_a_factor_of_zero_exempts_a_host(queue_store):
    (page,) = add(queue_store, 1)
    with queue_store.begin() as tx:
        change_host(tx, "example.org", {"latency_factor": 0.0}, T0, ON)
    series(queue_store, page, 2, 0.2, T0 + SECOND)
    assert queue_of(queue_store).latency_s is None


def test_duplicates_and_late_reports_teach_nothing(queue_store):
    (page,) = add(queue_store, 1)
    at = series(queue_store, page, 2, 0.2, T0 + SECOND)
    before = queue_of(queue_store)
    unleased(queue_store, [page], [at - timedelta(minutes=1)], [50.0])
    unleased(queue_store, [page], [at - timedelta(minutes=5)], [50.0])
    assert queue_of(queue_store) == before


def test_a_whole_batch_counts_in_the_order_of_its_crawls(queue_store):
    pages = add(queue_store, 40)
    at = [T0 + (i + 1) * SECOND for i in range(40)]
    seconds = np.where(np.arange(40) < 20, 2.0, 0.2)
    order = np.random.default_rng(1).permutation(40)
    unleased(queue_store, np.array(pages)[order], [at[i] for i in order], seconds[order])
    # the last twenty took 0.2 s
    assert queue_of(queue_store).latency_s == pytest.approx(0.2, rel=0.05)


def test_a_slow_host_first_loses_its_concurrency_and_then_waits(queue_store):
    pages = add(queue_store, 60)
    at = T0 + SECOND
    for page in pages[:20]:
        unleased(queue_store, [page], [at], [0.2])
        at += SECOND
    assert len(take(queue_store, at, 10, polite=ON)) == 4
    at += timedelta(minutes=10)  # these leases end
    n_at_once = []
    for page in pages[30:36]:
        unleased(queue_store, [page], [at], [2.0])
        at += timedelta(minutes=10)
        n_at_once.append(len(take(queue_store, at, 10, polite=ON)))
        at += timedelta(minutes=10)
    assert n_at_once[0] == 4
    assert n_at_once[-1] == 1


def test_the_delay_counts_from_the_report_that_shows_the_latency(queue_store):
    pages = add(queue_store, 60)
    polite = replace(ON, delay_s=1.0, concurrency=1)
    at = series(queue_store, pages[0], 30, 0.2, T0 + SECOND, polite=polite)
    taken = []
    for _ in range(12):
        (crawl,) = take(queue_store, at, 1, polite=polite)
        taken.append(at)
        commit(queue_store, ids([crawl]), [crawl.token], [at], [2.0], polite=polite)
        while not take_is_open(queue_store, at, polite):
            at += SECOND
    assert (taken[1] - taken[0]).total_seconds() == 1
    assert (taken[-1] - taken[-2]).total_seconds() >= 5


def take_is_open(store, at, polite):
    with store.begin(write=False) as tx:
        host_queue = tx.host("example.org").host_queue
    return host_queue.ready_at is None or host_queue.ready_at <= at


def test_silent_reports_teach_nothing(queue_store):
    (page,) = add(queue_store, 1)
    for seconds in (np.nan, 0.0, -5.0):
        unleased(queue_store, [page], [T0 + SECOND], [seconds])
    assert queue_of(queue_store).latency_s is None


def test_places_count_from_the_end():
    assert _from_the_end(np.array([1, 1, 1, 4, 4])).tolist() == [2, 1, 0, 1, 0]
