"""Pages that another session of Postgres has locked: their items wait, all others are committed."""

from concurrent.futures import Future
from contextlib import closing, contextmanager

import numpy as np
import psycopg
import pytest
from support.faulty_store import PATIENCE_S, rules
from support.store_cases import (
    DAY,
    T0,
    crawl_columns,
    page_of,
    ping_columns,
    register,
)

from service.batching import held
from service.batching.lease_requests import LeaseRequest, lease_all
from service.batching.reports import (
    CrawlReport,
    PingReport,
    Recorder,
    batched,
)
from service.estimation.rules import InForce
from service.ingest.page_names import PageNames
from service.leases.dealt import WorkerRequest
from service.leases.politeness import Politeness
from service.leases.settle import LeaseSettler
from service.model.columns import PageColumns
from service.model.domain import ItemVerdict
from service.model.errors import RowLocked
from service.storage import open_store
from service.storage.pages import postgres_states
from service.storage.queue.columns import ALL_PAGES

ACCEPTED, DUPLICATE, LATE, UNKNOWN, _, _, LOCKED, *_ = (int(v) for v in ItemVerdict)
ROWS = {
    "state": "UPDATE page_states SET n_failures = n_failures WHERE page_id = %s",
    "queued page": "SELECT FROM due_pages WHERE page_id = %s FOR UPDATE",
    "host queue": """SELECT FROM host_queues JOIN due_pages USING (queue_id)
        WHERE page_id = %s FOR UPDATE OF host_queues""",
}


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(postgres_states, "HURRY_S", 0.02)


@pytest.fixture
def recorder(postgres_store):
    settler = LeaseSettler(Politeness(), 30 * DAY, np.random.default_rng(1))
    return Recorder(postgres_store, InForce(rules()), settler, patience_s=PATIENCE_S)


@pytest.fixture
def ids(postgres_store, recorder):
    """Pages of three hosts, queued."""
    made = np.concatenate([register(postgres_store, 2, host=f"{h}.example") for h in "abc"])
    with postgres_store.begin() as tx:
        recorder.settler.queue_pinged(tx, made, tx.now())
    return made


@contextmanager
def locked(url, page_id, row="state"):
    """Hold one row of a page in an operator's open transaction."""
    with closing(psycopg.connect(url)) as operator:
        operator.execute(ROWS[row], [int(page_id)])
        yield operator
        operator.rollback()


def names(page_id):
    return PageNames(page_id, np.full(len(page_id), -1), PageColumns.empty())


def crawls(page_id, at=T0, **outcome):
    page_id = np.atleast_1d(page_id)
    return CrawlReport(crawl_columns(page_id, at, **outcome), names(page_id), False, T0)


def pings(page_id, at=T0):
    page_id = np.atleast_1d(page_id)
    return PingReport(ping_columns(page_id, at), names(page_id), False, T0)


def verdicts(result):
    return (result.result(PATIENCE_S) if isinstance(result, Future) else result).verdict.tolist()


@pytest.mark.parametrize("row", ROWS)
def test_a_locked_page_holds_up_its_own_crawl_only(recorder, ids, postgres_url, row):
    with locked(postgres_url, ids[0], row) as operator:
        # trouble of the host needs its host queue, and the others are of other hosts
        jobs = [crawls(ids[:1], status=503), crawls(ids[2:4]), crawls(ids[[4, 0, 5]], status=503)]
        first, others, mixed = recorder.flush_crawls(jobs)
        assert verdicts(others) == [ACCEPTED, ACCEPTED]
        assert not first.done()
        assert not mixed.done()
        assert page_of(recorder.store, ids[4]).last_crawl_at == T0
        assert page_of(recorder.store, ids[0]).last_crawl_at is None
        operator.rollback()
        assert verdicts(first) + verdicts(mixed) == [ACCEPTED, ACCEPTED, DUPLICATE, ACCEPTED]
    assert page_of(recorder.store, ids[0]).last_crawl_at == T0


def test_pings_of_other_pages_go_on(recorder, ids, postgres_url):
    with locked(postgres_url, ids[0]) as operator:
        first, others = recorder.flush_pings([pings(ids[:1]), pings(ids[1:])])
        assert verdicts(others) == [ACCEPTED] * 5
        operator.rollback()
        assert verdicts(first) == [ACCEPTED]
        assert first.result().page_id.tolist() == ids[:1].tolist()


def test_a_crawl_whose_page_stays_locked_is_refused_and_may_be_sent_again(
    recorder, ids, postgres_url, monkeypatch
):
    recorder.crawls.patience_s = 0.0
    with locked(postgres_url, ids[0]):
        first, second = recorder.flush_crawls([crawls(ids[:1]), crawls(ids[1:2])])
        assert verdicts(second) == [ACCEPTED]
        assert verdicts(first) == [LOCKED]
    assert verdicts(recorder.flush_crawls([crawls(ids[:1])])[0]) == [ACCEPTED]
    assert not recorder.crawls.waiting


def test_the_crawls_of_a_page_keep_their_order(recorder, ids, postgres_url, monkeypatch):
    monkeypatch.setattr(held, "TRY_EVERY_S", 3600.0)
    with locked(postgres_url, ids[0]):
        (first,) = recorder.flush_crawls([crawls(ids[:1])])
    # the page is free now, but an earlier crawl of it still waits
    (second,) = recorder.flush_crawls([crawls(ids[:1], T0 + DAY)])
    assert not second.done()
    recorder.crawls.try_once()
    assert verdicts(first) + verdicts(second) == [ACCEPTED, ACCEPTED]
    assert page_of(recorder.store, ids[0]).last_crawl_at == T0 + DAY


def test_many_locked_pages_are_set_aside_in_one_step(recorder, ids, postgres_url):
    with closing(psycopg.connect(postgres_url)) as frozen:
        lock = "SELECT FROM page_states WHERE page_id = ANY(%s) FOR UPDATE"
        frozen.execute(lock, [ids[:5].tolist()])
        (mixed,) = recorder.flush_crawls([crawls(ids)])
        assert page_of(recorder.store, ids[5]).last_crawl_at == T0
        frozen.rollback()
        assert verdicts(mixed) == [ACCEPTED] * 6


def test_a_locked_table_is_no_locked_page(recorder, ids, postgres_url):
    with closing(psycopg.connect(postgres_url)) as operator:
        operator.execute("LOCK TABLE observations")
        with pytest.raises(RowLocked):
            recorder.flush_crawls([crawls(ids[:1])])
        operator.rollback()


def test_a_batch_is_tried_again_whose_pages_are_free_by_now(postgres_store, ids):
    attempts = []

    def flush(attempt):
        attempt.page_id = ids
        attempts.append(attempt.apart.tolist())
        if len(attempts) == 1:
            raise RowLocked
        return "committed"

    assert held.attempted(postgres_store, ids[:0], flush) == "committed"
    assert attempts == [[], []]


def test_reports_of_a_batcher_are_answered_beside_those_that_wait(recorder, ids, postgres_url):
    batcher = batched("crawls", recorder.flush_crawls, 2)
    batcher.start()
    try:
        with locked(postgres_url, ids[0]) as operator:
            first = batcher.submit(crawls(ids[:1]))
            for i in range(1, 6):
                assert verdicts(batcher.submit(crawls(ids[i : i + 1]))) == [ACCEPTED]
            assert not first.done()
            operator.rollback()
            assert verdicts(first) == [ACCEPTED]
    finally:
        batcher.stop()


def test_leases_of_other_hosts_go_on_beside_a_locked_host_queue(recorder, ids, postgres_url):
    wish = WorkerRequest("w", 6, DAY)
    with locked(postgres_url, ids[0], "host queue"):
        dealt = lease_all(
            recorder.store,
            Politeness(delay_s=0.0, concurrency=0),
            np.random.default_rng(1),
            [LeaseRequest(wish, ALL_PAGES)],
        )
    leased = np.concatenate([each.leased.pages.page_id for each in dealt])
    assert sorted(leased.tolist()) == sorted(ids[2:].tolist())


def test_a_session_that_is_frozen_in_a_transaction_is_ended_by_the_server(postgres_url):
    with closing(open_store(postgres_url, 2, timeout_s=1)) as store, store.begin(write=False) as tx:
        assert tx.scalar("SHOW idle_in_transaction_session_timeout") == "3s"
    with closing(open_store(postgres_url, 2)) as store, store.begin(write=False) as tx:
        assert tx.scalar("SHOW idle_in_transaction_session_timeout") == "0"
