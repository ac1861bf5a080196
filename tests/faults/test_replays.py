"""At least once, from everywhere, in any order: states are what the log says, row by row."""

import random
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import httpx
import numpy as np
import pytest
from support.live_server import PATIENCE_S, until
from support.processes import serving
from support.store_cases import T0, crawl_columns, page_columns, states_of

from recrawl_lab.memory.store import MemoryStore
from service.estimation.estimates import width
from service.estimation.rules import Rules
from service.ingest.record import record
from service.model.arrays import UNSPECIFIED
from service.runtime.settings import read_settings
from service.storage import open_store

pytestmark = pytest.mark.slow

N_PAGES = 40
N_TIMES = 30
N_CLIENTS = 3
BASE = datetime.now(UTC).replace(microsecond=0) - timedelta(days=40)
URLS = [f"https://h{i % 3}.example/{i}" for i in range(N_PAGES)]


def reports(client: int) -> list[list[dict]]:
    """Batches and single posts of all pages at times between those of others, some of them twice.

    Clients of the same number on the two replicas report the same.
    """
    rng = random.Random(client)
    batches = []
    for k in range(client, N_TIMES, N_CLIENTS):
        items = [
            {
                "url": url,
                "observed_at": (BASE + timedelta(hours=20 * k + i % 5)).isoformat(),
                "changed": (i * k) % 3 == 0,
            }
            for i, url in enumerate(URLS)
        ]
        rng.shuffle(items)
        batches += [items[:30], *([item] for item in items[30:])]
        batches += rng.sample(batches, 3)
    return batches


class Client(threading.Thread):
    """Posts batch after batch; none may be refused."""

    def __init__(self, server: httpx.URL, batches: list[list[dict]]) -> None:
        super().__init__()
        self.server, self.batches = server, batches
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []

    def run(self) -> None:
        with httpx.Client(base_url=self.server, timeout=PATIENCE_S) as client:
            for batch in self.batches:
                response = client.post("/observations", json=batch)
                answer = response.json()
                if response.status_code != 200 or answer["rejected"]:
                    self.problems.append(response.text)
                    continue
                for name in ("accepted", "duplicate", "late"):
                    self.counts[name] += answer[name]


def replayed(log, rules: Rules):
    """Record a log's crawls one after the other, each in a transaction of its own, in memory."""
    store = MemoryStore(width(rules.estimator))
    with store.begin() as tx:
        tx.register(page_columns(URLS), T0)
    pages = np.unique(log.page_id)
    page_id = 1 + np.searchsorted(pages, log.page_id)
    changed = np.where(log.changed == UNSPECIFIED, 0, log.changed)
    for i in np.argsort(log.observed_at, kind="stable"):
        with store.begin() as tx:
            one = crawl_columns(page_id[[i]], log.observed_at[i], changed=changed[i])
            record(tx, one, rules)
    return states_of(store, np.arange(1, N_PAGES + 1))


def test_two_replicas_and_many_replays_leave_what_the_log_says(database_url, tmp_path):
    # on SQLite epochs run by themselves and would change Gamma's prior half-way
    estimator = "gamma" if database_url.startswith("postgres") else "binned_mle"
    settings = {"database_url": database_url, "estimator": estimator}
    with (
        serving(tmp_path, wait=False, **settings) as one,
        serving(tmp_path, wait=False, **settings) as two,
    ):
        for server in (one, two):
            until(server.ready, "the server is ready")
        clients = [
            Client(server.client.base_url, reports(k))
            for k in range(N_CLIENTS)
            for server in (one, two)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join(PATIENCE_S)
            assert not client.is_alive(), "a call never ended"
            assert client.problems == []
    counts = sum((client.counts for client in clients), Counter())
    assert counts.total() == sum(len(b) for client in clients for b in client.batches)
    assert counts["duplicate"] > 0

    plan = read_settings(**settings).plan()
    store = open_store(database_url, width(plan.estimator))
    with store.begin() as tx:
        ids = tx.next_page_ids(0, N_PAGES + 1)
        states, log = tx.lock_states(ids), tx.log_of(ids)
    store.close()
    assert len(ids) == N_PAGES
    assert counts["accepted"] == len(log) == states.n_observations.sum() + N_PAGES
    expected = replayed(log, Rules(plan.estimator, plan.timing, np.random.default_rng(1)))
    for name in ("last_crawl_at", "last_observed_at", "n_observations", "n_changes"):
        assert (getattr(states, name) == getattr(expected, name)).all(), name
    np.testing.assert_allclose(states.estimate, expected.estimate, rtol=1e-9, atol=0)
    assert np.ptp(states.estimate) > 0
