"""Several servers and a worker on one Postgres: totals are exact, nobody waits for ever."""

import threading
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from support.live_server import PATIENCE_S, until
from support.processes import serving, started

pytestmark = pytest.mark.slow

N_PAGES = 120
N_ROUNDS = 12
BASE = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)
URLS = [f"https://h{i % 5}.example/{i}" for i in range(N_PAGES)]
ANNOUNCED = [f"https://announced.example/{i}" for i in range(N_PAGES)]


class Caller(threading.Thread):
    """Sends its batches one after the other and adds up the answers."""

    def __init__(self, url: str, path: str, batches: list[list[dict]]) -> None:
        super().__init__()
        self.url, self.path, self.batches = url, path, batches
        self.counts = {"accepted": 0, "duplicate": 0, "late": 0, "created": 0}
        self.problems: list[str] = []

    def run(self) -> None:
        with httpx.Client(base_url=self.url, timeout=PATIENCE_S) as client:
            for batch in self.batches:
                response = client.post(self.path, json=batch)
                if response.status_code != 200 or response.json()["rejected"]:
                    self.problems.append(response.text)
                    continue
                for name in self.counts:
                    self.counts[name] += response.json().get(name, 0)


def crawls(caller: int) -> list[list[dict]]:
    """Crawls of all pages, forwards or backwards, at instants that no other caller reports."""
    urls = URLS if caller % 2 else URLS[::-1]
    return [
        [
            {
                "url": url,
                "observed_at": (BASE + timedelta(seconds=10 * k + caller)).isoformat(),
                "changed": True,
            }
            for url in urls
        ]
        for k in range(N_ROUNDS)
    ]


def pings() -> list[list[dict]]:
    return [
        [
            {"url": url, "changed_at": (BASE + timedelta(seconds=k)).isoformat()}
            for url in ANNOUNCED[::-1]
        ]
        for k in range(N_ROUNDS)
    ]


def changes() -> list[list[dict]]:
    """Pages that become complete again and again, in an order of their own."""
    words = ("complete", "incomplete")
    return [
        [{"url": url, "observability": words[k % 2], "importance": k + 1} for url in ANNOUNCED]
        for k in range(N_ROUNDS)
    ]


def test_concurrent_batches_over_the_same_pages_add_up(postgres_url, tmp_path):
    settings = {"database_url": postgres_url, "epoch_interval_s": 1}
    with (
        serving(tmp_path, wait=False, **settings) as one,
        serving(tmp_path, wait=False, **settings) as two,
        started(tmp_path, "worker", **settings) as worker,
    ):
        for server in (one, two):
            until(server.ready, "the server is ready")
        urls = [str(server.client.base_url) for server in (one, two)]
        observers = [Caller(urls[i % 2], "/observations", crawls(i)) for i in range(4)]
        others = [
            Caller(urls[i], path, batches)
            for i, (path, batches) in enumerate((("/pings", pings()), ("/pages", changes())))
        ]
        callers = [*observers, *others]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(PATIENCE_S)
            assert not caller.is_alive(), "a call never ended"
            assert caller.problems == []

        totals = {
            name: sum(caller.counts[name] for caller in observers) for name in observers[0].counts
        }
        n_sent = 4 * N_ROUNDS * N_PAGES
        assert totals["accepted"] + totals["late"] == n_sent
        assert totals["duplicate"] == 0
        pages = [one.client.get("/pages", params={"url": url}).json() for url in URLS]
        assert len({page["page_id"] for page in pages}) == N_PAGES
        n_intervals = sum(page["estimate"]["n_observations"] for page in pages)
        assert n_intervals == totals["accepted"] - N_PAGES
        newest = (BASE + timedelta(seconds=10 * (N_ROUNDS - 1) + 3)).isoformat()
        assert {page["last_crawl_at"] for page in pages} == {newest.replace("+00:00", "Z")}
        assert [caller.counts["accepted"] for caller in others] == [N_ROUNDS * N_PAGES] * 2

        asked = two.client.post("/epochs").json()["epoch"]
        until(
            lambda: one.client.get(f"/epochs/{asked}").json()["status"] == "published",
            "the worker has published",
        )
        items = two.client.get("/schedule", params={"limit": 10_000}).json()["items"]
        assert sorted(row["url"] for row in items) == sorted(URLS + ANNOUNCED)
        assert not worker.ended()
        listed = one.client.get("/epochs").json()["items"]
        assert "failed" not in {epoch["status"] for epoch in listed}


def test_two_workers_take_turns(postgres_url, tmp_path):
    settings = {"database_url": postgres_url, "epoch_interval_s": 1}
    with (
        serving(tmp_path, wait=False, **settings) as server,
        started(tmp_path, "worker", **settings) as first,
        started(tmp_path, "worker", **settings) as second,
    ):
        until(server.ready, "the server is ready")
        server.post("/pages", [{"url": url} for url in URLS])

        def published() -> int:
            items = server.client.get("/epochs").json()["items"]
            assert {e["status"] for e in items} <= {"requested", "running", "published"}
            return sum(epoch["status"] == "published" for epoch in items)

        until(lambda: published() >= 2, "two epochs")
        first.kill()
        before = published()
        until(lambda: published() > before, "the other worker takes over", patience_s=30)
        until(lambda: published() >= before + 2, "the other worker goes on")
        assert not second.ended()
