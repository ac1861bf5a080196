"""Registrations, reports and rounds at the same moment: none waits for another in a ring."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from support.crawl_cases import RUDE, RULES, UNTIL, rng, take
from support.new_page_cases import all_different
from support.store_cases import T0, crawl_columns, instants, page_columns

from service.batching.registrations import Registrar, Registration
from service.batching.reports import CrawlReport, Recorder
from service.budget.admission import admit_waiting
from service.estimation.rules import InForce
from service.ingest.page_names import PageNames
from service.leases.queue import fill_queue
from service.leases.settle import LeaseSettler
from service.model.columns import PageColumns

N_HOSTS, N_BATCHES, N_PAGES = 7, 6, 40
STUCK_S = 3_600.0
"""Time after which writers wait for each other, seconds; a busy machine needs minutes."""


def addresses(thread, batch):
    """Return URLs of all hosts; no two threads have one in common."""
    return [
        f"https://h{(thread + i) % N_HOSTS}.example/d{batch % 3}/p{thread}-{batch}-{i}"
        for i in range(N_PAGES)
    ]


@pytest.mark.dear
def test_writers_of_the_same_hosts_end_and_all_good_pages_are_crawled(postgres_store):
    store = postgres_store
    store.holds_new, store.clock = True, lambda: T0
    settler = LeaseSettler(RUDE, UNTIL, rng())
    registrar, recorder = Registrar(store, settler), Recorder(store, InForce(RULES), settler)
    crawled = set()

    def register(thread):
        for batch in range(N_BATCHES):
            job = Registration(page_columns(addresses(thread, batch)), T0)
            registrar.flush([job])
            admit_waiting(store, T0)

    def crawl(thread):
        idle = 0
        while idle < 10:
            leased = take(store, T0, count=30, slices=2, slice=thread)
            idle = 0 if leased else idle + 1
            if not leased:
                continue
            page_id = np.array([each.page_id for each in leased], np.int64)
            urls = [each.url for each in leased]
            columns = crawl_columns(page_id, instants([T0] * len(page_id)), **all_different(urls))
            token = np.array([each.token for each in leased], np.int64)
            columns = replace(columns, leased_page_id=page_id, token=token)
            names = PageNames(page_id, np.full(len(page_id), -1), PageColumns.empty())
            recorder.flush_crawls([CrawlReport(columns, names, False, T0)])
            crawled.update(urls)

    with ThreadPoolExecutor(5) as pool:
        for done in [
            *(pool.submit(register, n) for n in range(3)),
            *(pool.submit(crawl, n) for n in range(2)),
        ]:
            done.result(STUCK_S)
    while len(crawled) < 3 * N_BATCHES * N_PAGES:
        # a round admits what the places of skipped pages leave, and fills the queue after that
        admit_waiting(store, T0)
        fill_queue(store, T0 + UNTIL)
        before = len(crawled)
        crawl(0), crawl(1)
        assert len(crawled) > before
    with store.begin(write=False) as tx:
        levels = tx.shown_levels("", 1000, "", only_stopped=False)
    assert all(level.n_in_flight == 0 for level in levels)
    hosts = [level for level in levels if level.parent == 0]
    assert sum(level.n_first for level in hosts) == sum(level.n_new for level in hosts)
    assert sum(level.n_first for level in hosts) == len(crawled)
