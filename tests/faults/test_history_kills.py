"""The history of killed servers: at most the last second is missing, and nothing counts twice."""

import signal
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from support.live_server import PATIENCE_S, until
from support.processes import Serving, serving

from service.history.counting import EVERY_S

pytestmark = pytest.mark.slow

N_PAGES = 20
BASE = datetime.now(UTC).replace(microsecond=0) - timedelta(days=30)
WRITTEN_WITHIN_S = 1.0
"""Time for the transaction that writes the sums of a second, on a busy machine."""
LOADED_S = 2.5 * (EVERY_S + WRITTEN_WITHIN_S)
"""Time of the load before a kill, so that most of the counts must be there."""


class Crawler(threading.Thread):
    """Reports crawls of pages of its own host until nobody answers, or until stopped."""

    def __init__(self, server: Serving, name: str) -> None:
        super().__init__()
        self.url, self.host = server.client.base_url, f"{name}.example"
        self.acknowledged: list[float] = []
        """Instant of the answer to each batch."""
        self.stopping = threading.Event()
        self.problem: str | None = None

    def batch(self, k: int) -> list[dict]:
        at = (BASE + timedelta(minutes=k)).isoformat()
        return [
            {"url": f"https://{self.host}/{i}", "observed_at": at, "changed": bool(k % 3)}
            for i in range(N_PAGES)
        ]

    def run(self) -> None:
        with httpx.Client(base_url=self.url, timeout=PATIENCE_S) as client:
            while not self.stopping.is_set():
                batch = self.batch(len(self.acknowledged))
                try:
                    answer = client.post("/observations", json=batch)
                except httpx.TransportError:
                    return
                if answer.status_code != 200 or answer.json()["accepted"] != N_PAGES:
                    self.problem = answer.text
                    return
                self.acknowledged.append(time.monotonic())

    def acknowledged_before(self, at: float) -> int:
        """Return the number of crawls that were acknowledged before an instant."""
        return N_PAGES * sum(each < at for each in self.acknowledged)

    def stop(self) -> None:
        self.stopping.set()
        self.join()
        assert self.problem is None


def counted(client: httpx.Client, host: str | None = None) -> int:
    """Return the crawls that the history has."""
    wanted = {"step_s": 600} | ({"host": host} if host else {})
    rows = client.get("/history", params=wanted).json()["items"]
    return sum(row["n_reported"] for row in rows)


def recorded(client: httpx.Client) -> int:
    """Return the crawls that the pages have; the first of a page is not one of its intervals."""
    pages = client.get("/pages", params={"limit": 1_000}).json()["items"]
    return sum(page["n_observations"] + 1 for page in pages)


def load(server: Serving, name: str) -> list[Crawler]:
    """Return crawlers that have reported for some seconds, and go on."""
    crawlers = [Crawler(server, f"{name}-{c}") for c in range(2)]
    began = time.monotonic()
    for crawler in crawlers:
        crawler.start()
    until(lambda: time.monotonic() - began > LOADED_S, "the load has lasted")
    return crawlers


def test_a_kill_loses_at_most_the_last_second_and_nothing_counts_twice(database_url, tmp_path):
    kept = 0
    for kill in range(3):
        with serving(tmp_path, database_url=database_url) as server:
            crawlers = load(server, f"k{kill}")
            killed_at = time.monotonic()
            server.kill()
            for crawler in crawlers:
                crawler.join()
                assert crawler.problem is None
        since = killed_at - EVERY_S - WRITTEN_WITHIN_S
        own = sum(crawler.acknowledged_before(since) for crawler in crawlers)
        assert own > 0
        kept += own
        with serving(tmp_path, database_url=database_url) as server:
            assert kept <= counted(server.client) <= recorded(server.client)


def test_replicas_add_up_and_the_kill_of_one_loses_nothing_of_the_other(postgres_url, tmp_path):
    settings = {"database_url": postgres_url}
    with ExitStack() as stack:
        one, other = (stack.enter_context(serving(tmp_path, **settings)) for _ in range(2))
        killed, living = load(one, "killed"), load(other, "living")
        killed_at = time.monotonic()
        one.kill()
        for crawler in killed:
            crawler.join()
        for crawler in living:
            crawler.stop()
        assert other.terminate() in {0, -signal.SIGTERM}
    since = killed_at - EVERY_S - WRITTEN_WITHIN_S
    with serving(tmp_path, **settings) as server:
        for crawler in living:
            whole = N_PAGES * len(crawler.acknowledged)
            assert counted(server.client, crawler.host) == whole
        for crawler in killed:
            assert counted(server.client, crawler.host) >= crawler.acknowledged_before(since) > 0
        assert counted(server.client) <= recorded(server.client)
        hosts = [crawler.host for crawler in (*killed, *living)]
        assert counted(server.client) == sum(counted(server.client, host) for host in hosts)
