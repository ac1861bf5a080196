"""Killed at any instant: what was acknowledged is there, and one whole schedule is served."""

import json
import threading
import time
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from support.live_server import PATIENCE_S, until
from support.processes import Serving, serving, started

pytestmark = pytest.mark.slow

N_CLIENTS = 3
N_PAGES = 20
BASE = datetime.now(UTC).replace(microsecond=0) - timedelta(days=30)


class Crawler(threading.Thread):
    """Reports crawls of its own pages, one batch a minute of its time, until nobody answers."""

    def __init__(self, server: Serving, name: str, first: int) -> None:
        super().__init__()
        self.url = server.client.base_url
        self.name = name
        self.n_sent = self.n_acknowledged = first
        self.problem: str | None = None

    def batch(self, k: int) -> list[dict]:
        at = (BASE + timedelta(minutes=k)).isoformat()
        return [
            {"url": f"https://{self.name}.example/{i}", "observed_at": at, "changed": True}
            for i in range(N_PAGES)
        ]

    def run(self) -> None:
        with httpx.Client(base_url=self.url, timeout=PATIENCE_S) as client:
            while True:
                self.n_sent = self.n_acknowledged + 1
                try:
                    response = client.post("/observations", json=self.batch(self.n_sent))
                except httpx.TransportError:
                    return
                if response.status_code != 200 or response.json()["accepted"] != N_PAGES:
                    self.problem = response.text
                    return
                self.n_acknowledged = self.n_sent


def recorded(server: Serving, crawler: Crawler) -> int:
    """Give how many of a crawler's batches are there: all that were acknowledged, each whole."""
    estimates = [
        server.client.get("/pages", params={"url": item["url"]}).json()["estimate"]
        for item in crawler.batch(1)
    ]
    found = {estimate["n_observations"] + 1 for estimate in estimates}
    assert len(found) == 1, "a batch was kept in part"
    n_recorded = found.pop()
    assert n_recorded in (crawler.n_acknowledged, crawler.n_sent)
    sent = [item for k in range(1, n_recorded + 1) for item in crawler.batch(k)]
    for start in range(0, len(sent), 10_000):
        again = server.post("/observations", sent[start : start + 10_000])
        assert (again["accepted"], again["rejected"]) == (0, [])
    return n_recorded


def test_every_acknowledged_observation_survives(database_url, tmp_path):
    n_recorded = [0] * N_CLIENTS
    crawlers: list[Crawler] = []
    for kill in (True, True, False):
        with serving(tmp_path, database_url=database_url) as server:
            n_recorded = [recorded(server, c) for c in crawlers] or n_recorded
            if not kill:
                break
            crawlers = [Crawler(server, f"c{c}", n) for c, n in enumerate(n_recorded)]
            enough = 5 + max(n_recorded)
            for crawler in crawlers:
                crawler.start()
            until(
                lambda: all(c.n_acknowledged > enough or c.problem for c in crawlers),  # noqa: B023
                "every crawler has reported",
            )
            server.kill()
            for crawler in crawlers:
                crawler.join()
                assert crawler.problem is None
    assert min(n_recorded) > 10


N_SCHEDULED = 20_000


def whole_schedule(client: httpx.Client) -> int:
    """Read the schedule; it must be all of one epoch. Gives the epoch."""
    with client.stream("GET", "/schedule", headers={"Accept": "application/x-ndjson"}) as response:
        assert response.status_code == 200
        rows = [json.loads(line) for line in response.iter_lines()]
    epoch = int(response.headers["ETag"].split("-")[1].rstrip('"'))
    answer = client.get(f"/epochs/{epoch}")
    assert answer.status_code == 200, answer.text
    certificate = answer.json()
    assert len(rows) == certificate["n_pages"] == N_SCHEDULED
    assert [row["page_id"] for row in rows] == sorted({row["page_id"] for row in rows})
    spent = sum(row["crawl_rate"] for row in rows)
    assert spent == pytest.approx(certificate["bandwidth_used"], rel=5e-7)
    return epoch


def register(server: Serving) -> None:
    for start in range(0, N_SCHEDULED, 10_000):
        pages = [
            {"url": f"https://h{i % 100}.example/{i}", "importance": 1 + i % 7}
            for i in range(start, start + 10_000)
        ]
        assert server.post("/pages", pages)["created"] == 10_000


def newest(client: httpx.Client) -> dict:
    (epoch,) = client.get("/epochs", params={"limit": 1}).json()["items"]
    return epoch


def epoch_published(client: httpx.Client, at_least: int) -> bool:
    latest = client.get("/epochs/latest")
    return latest.status_code == 200 and latest.json()["epoch"] >= at_least


def running_epoch(client: httpx.Client) -> int:
    """Ask for an epoch and give its number once it runs; 0 if it was over before it was seen."""
    asked = client.post("/epochs").json()["epoch"]
    until(lambda: client.get(f"/epochs/{asked}").json()["status"] != "requested", "the epoch runs")
    return asked if newest(client)["status"] == "running" else 0


def test_a_server_killed_while_it_publishes_serves_one_whole_schedule(sqlite_url, tmp_path):
    settings = {"database_url": sqlite_url, "epoch_interval_s": 3600}
    with serving(tmp_path, **settings) as server:
        register(server)
        asked = server.client.post("/epochs").json()["epoch"]
        until(lambda: epoch_published(server.client, asked), "an epoch over all pages")
    in_force, hits = 0, []
    for delay_s in (0.0, 0.06):
        with serving(tmp_path, **settings) as server:
            found = whole_schedule(server.client)
            assert found >= in_force
            in_force = found
            running = running_epoch(server.client)
            time.sleep(delay_s)  # somewhere in load, solve, publish
            server.kill()
            hits.append(running)
    with serving(tmp_path, **settings) as server:
        assert whole_schedule(server.client) >= in_force
        server.client.post("/epochs")
        until(lambda: newest(server.client)["status"] == "published", "an epoch after the kills")
        assert whole_schedule(server.client) == newest(server.client)["epoch"]
        ends = [server.client.get(f"/epochs/{epoch}").json() for epoch in hits if epoch]
        died = [epoch for epoch in ends if epoch["status"] == "failed"]
        assert died, "no kill fell into an epoch"
        assert {epoch["reason"] for epoch in died} == {"its process ended before it published"}


def test_a_worker_killed_while_it_publishes_is_not_noticed_by_readers(postgres_url, tmp_path):
    settings = {"database_url": postgres_url, "epoch_interval_s": 3600}
    with serving(tmp_path, **settings) as server:
        register(server)
        with started(tmp_path, "worker", **settings):
            until(lambda: epoch_published(server.client, 1), "the first epoch")
        in_force, hits = whole_schedule(server.client), []
        for delay_s in (0.0, 0.04, 0.08):
            with started(tmp_path, "worker", **settings) as worker:
                running = running_epoch(server.client)
                time.sleep(delay_s)  # somewhere in load, solve, publish
                worker.kill()
            hits.append(running)
            found = whole_schedule(server.client)
            assert found >= in_force
            in_force = found
        with started(tmp_path, "worker", **settings):
            server.client.post("/epochs")
            until(lambda: newest(server.client)["status"] == "published", "an epoch after them")
        assert whole_schedule(server.client) == newest(server.client)["epoch"]
        ends = [server.client.get(f"/epochs/{epoch}").json() for epoch in hits if epoch]
        died = [epoch for epoch in ends if epoch["status"] == "failed"]
        assert died, "no kill fell into an epoch"
        assert {epoch["reason"] for epoch in died} == {"its process ended before it published"}
