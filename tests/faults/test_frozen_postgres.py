"""A Postgres that accepts but does not answer: every process of its cluster is stopped."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import pytest
from support.live_server import until
from support.own_postgres import OwnPostgres, own_postgres
from support.processes import ENDS_WITHIN_S, Running, Serving, serving, started
from support.traffic import polite

from service.storage import migrations, open_store

pytestmark = pytest.mark.slow

TIMEOUT_S = 3
"""Setting of these servers: how long the database may take, seconds."""
ANSWERS_WITHIN_S = 20.0
"""Limit for an answer of the API, seconds: the setting, a queue for a thread, a busy machine."""
LOOKS_WITHIN_S = 8.0
"""Limit for /readyz and /metrics, seconds: 2 s and a busy machine."""

PAGE = {"url": "https://h.example/1"}
CRAWL = {**PAGE, "observed_at": "2026-01-01T00:00:00Z", "digest": "1"}
REQUESTS = [
    ("POST", "/observations", [CRAWL]),
    ("POST", "/pings", [{**PAGE, "changed_at": "2026-01-01T00:00:00Z"}]),
    ("POST", "/pages", [PAGE]),
    ("POST", "/leases", {"count": 1}),
    ("GET", "/pages/1", None),
    ("GET", "/schedule", None),
    ("GET", "/epochs", None),
] * 4
"""More requests than threads, of every kind."""


@dataclass
class System:
    postgres: OwnPostgres
    server: Serving
    worker: Running


@pytest.fixture(scope="module")
def postgres() -> Iterator[OwnPostgres]:
    with own_postgres() as cluster:
        store = open_store(cluster.url.render_as_string(), 2)
        migrations.upgrade(store.engine)
        store.close()
        yield cluster


@pytest.fixture
def system(postgres, tmp_path) -> Iterator[System]:
    """A server whose pool is warm, and a worker."""
    settings = {
        "database_url": postgres.url.render_as_string(),
        "epoch_interval_s": 1,
        "database_timeout_s": TIMEOUT_S,
    }
    with (
        serving(tmp_path, wait=False, **settings) as server,
        started(tmp_path, "worker", **settings) as worker,
    ):
        until(server.ready, "the server is ready")
        server.post("/pages", [PAGE])
        before = epoch_in_force(server)
        assert {answer.status_code for answer in ask_all(server)} == {200}
        until(lambda: epoch_in_force(server) > before, "the worker is at work")
        assert {answer.status_code for answer in ask_all(server)} == {200}
        yield System(postgres, server, worker)


def ask_all(server: Serving) -> list[httpx.Response]:
    """Send every request at the same moment."""
    with ThreadPoolExecutor(len(REQUESTS)) as pool:
        asked = [
            pool.submit(server.client.request, method, path, json=body)
            for method, path, body in REQUESTS
        ]
        return [each.result() for each in asked]


def epoch_in_force(server: Serving) -> int:
    return server.client.get("/schedule").json()["epoch"] or 0


def seconds_of(response: httpx.Response) -> float:
    return response.elapsed.total_seconds()


def test_every_endpoint_answers_in_time_and_all_goes_on_when_postgres_does(system):
    server = system.server
    with system.postgres.frozen(), ThreadPoolExecutor(1) as pool:
        answers = pool.submit(ask_all, server)
        while not answers.done():
            ready, metrics = (server.client.get(path) for path in ("/readyz", "/metrics"))
            assert polite(ready, 503)
            assert (metrics.status_code, "recrawl_up 0.0" in metrics.text) == (200, True)
            assert max(map(seconds_of, (ready, metrics))) < LOOKS_WITHIN_S
        for answer in answers.result():
            assert polite(answer, 503), answer.request.url
            assert seconds_of(answer) < ANSWERS_WITHIN_S
        for answer in ask_all(server):  # the outage is known by now
            assert polite(answer, 503)
            assert seconds_of(answer) < LOOKS_WITHIN_S
    until(server.ready, "the server is ready again")
    until(lambda: {answer.status_code for answer in ask_all(server)} == {200}, "all are answered")
    before = epoch_in_force(server)
    until(lambda: epoch_in_force(server) > before, "an epoch after it")
    assert "recrawl_up 1.0" in server.client.get("/metrics").text
    assert not system.worker.ended()
    for process in (server, system.worker):
        assert "Traceback" not in process.log.read_text()


def test_server_and_worker_end_in_time_whatever_waits(system):
    with system.postgres.frozen(), ThreadPoolExecutor(1) as pool:
        answers = pool.submit(ask_all, system.server)
        until(lambda: "recrawl_up 0.0" in system.server.client.get("/metrics").text, "it is seen")
        began = time.monotonic()
        system.worker.popen.terminate()
        assert system.server.terminate() in (0, -15)
        assert system.worker.popen.wait(ENDS_WITHIN_S) == 0
        assert time.monotonic() - began < ENDS_WITHIN_S
        assert all(polite(answer, 503) for answer in answers.result())
    for process in (system.server, system.worker):
        assert "Traceback" not in process.log.read_text()
