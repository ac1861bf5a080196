"""A loan: urgent pages go beyond the budget of a day, and later days pay it back."""

from collections import Counter
from datetime import timedelta

import numpy as np
import pytest
from support.budget_cases import RUDE, Fleet, service, urls
from support.crawl_cases import RUDE as RUDE_HOSTS
from support.crawl_cases import queue, report, rng, rows
from support.store_cases import T0, publish, register, schedule_columns

from service.batching.lease_requests import LeaseRequest, lease_all
from service.budget.allotments import Terms
from service.budget.keeper import Keeper
from service.leases.dealt import WorkerRequest
from service.storage.queue.columns import ALL_PAGES

pytestmark = pytest.mark.usefixtures("no_timers")

BUDGET = 10.0
MIDNIGHT = T0.replace(hour=0)
TTL = timedelta(hours=1)


def take(store, keeper, now, count=1000):
    store.clock = lambda: now
    job = LeaseRequest(WorkerRequest("w", count, TTL), ALL_PAGES)
    parts = lease_all(store, RUDE_HOSTS, rng(), [job], keeper=keeper)
    return [crawl for part in parts for crawl in rows(part.leased)]


def crawled(store, n_urgent, n_others):
    """Register pages that were crawled a day ago and are due; some are urgent."""
    then = MIDNIGHT - timedelta(days=1)
    ids = register(store, n_urgent + n_others, then)
    queue(store, ids, then)
    report(store, take(store, None, then), then, now=then)
    urgency = np.where(np.arange(len(ids)) < n_urgent, 1.5, 1.1)
    publish(store, schedule_columns(np.sort(ids), crawl_rate=2.0, urgency=urgency))
    queue(store, ids, MIDNIGHT)
    return np.sort(ids)[:n_urgent].tolist()


def keeper_of(store, loan_days):
    return Keeper(store, Terms(BUDGET, loan_days), seconds=lambda: 0.0)


def debt(store):
    with store.begin(write=False) as tx:
        return tx.pace().debt


@pytest.mark.parametrize(("loan_days", "n"), [(0, 10), (1, 20), (3, 25)])
def test_urgent_pages_alone_go_beyond_the_budget(sql_store, loan_days, n):
    urgent = crawled(sql_store, 25, 30)
    taken = [crawl.page_id for crawl in take(sql_store, keeper_of(sql_store, loan_days), MIDNIGHT)]
    assert len(taken) == n
    assert set(taken) <= set(urgent)
    assert debt(sql_store) == n - BUDGET


def test_pages_that_are_not_urgent_have_no_loan(sql_store):
    crawled(sql_store, 0, 40)
    assert len(take(sql_store, keeper_of(sql_store, 3), MIDNIGHT)) == BUDGET
    assert debt(sql_store) == 0


def test_any_days_have_at_most_their_budget_and_the_loan(sql_store):
    ids = crawled(sql_store, 200, 0)
    keeper, days = keeper_of(sql_store, 2), Counter()
    for hour in range(0, 10 * 24, 8):
        now = MIDNIGHT + timedelta(hours=hour)
        crawls = take(sql_store, keeper, now)
        days[hour // 24] += len(crawls)
        report(sql_store, crawls, now)
        queue(sql_store, ids, now)
    spent = [days[day] for day in range(10)]
    assert spent[0] == 3 * BUDGET
    for first in range(10):
        for last in range(first, 10):
            assert sum(spent[first : last + 1]) <= BUDGET * (last - first + 1 + 2)
    assert sum(spent) >= BUDGET * 10


def test_a_worker_with_an_idempotency_key_has_the_loan_too(database_url):
    with service(database_url, bandwidth=BUDGET, budget_loan=3, **RUDE) as live:
        live.register(*urls(30))
        fleet = Fleet(live)
        at = live.clock().isoformat()
        ids = [page["page_id"] for page in live.get("/pages", limit=100).json()["items"]]
        live.post("/observations", [{"page_id": i, "observed_at": at, "digest": "1"} for i in ids])
        live.clock.advance(days=2)
        urgency = np.where(np.arange(30) < 25, 1.5, 1.1)
        publish(live.service.store, schedule_columns(np.sort(ids), urgency=urgency))
        queue(live.service.store, ids, live.clock())
        key = {"Idempotency-Key": "a"}
        answer = live.client.post("/leases", json={"count": 100}, headers=key)
        first = len(answer.json()["items"])
        answer = live.client.post("/leases", json={"count": 100}, headers={"Idempotency-Key": "b"})
        assert (first, len(answer.json()["items"])) == (BUDGET, 15)
        assert fleet.ask() == 0
        assert fleet.answer.json()["retry_after_s"] == 60.0
