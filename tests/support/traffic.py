"""Crawlers that report at least once: a batch is sent again until it is accepted."""

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import httpx

from support.live_server import PATIENCE_S, until

BASE = datetime.now(UTC).replace(microsecond=0) - timedelta(days=30)
PAUSE_S = 0.02
"""Wait between two attempts, seconds; a Retry-After would slow the tests."""


class Reporter(threading.Thread):
    """A thread that reports crawls of its own pages in batches, a minute apart in its time."""

    def __init__(self, url: str, name: str, n_pages: int = 20) -> None:
        super().__init__(name=name)
        self.url = url
        self.pages = [f"https://{name}.example/{i}" for i in range(n_pages)]
        self.n_accepted = 0
        self.counts: Counter[str] = Counter()
        self.refusals: list[httpx.Response] = []
        self.hung_up: list[httpx.TransportError] = []
        self.problem: str | None = None
        self.stopping = threading.Event()

    def batch(self, k: int) -> list[dict]:
        at = (BASE + timedelta(minutes=k)).isoformat()
        return [{"url": url, "observed_at": at, "changed": k % 3 == 0} for url in self.pages]

    def run(self) -> None:
        with httpx.Client(base_url=self.url, timeout=PATIENCE_S) as client:
            while not self.stopping.is_set() and self.problem is None:
                self.send(client, self.batch(self.n_accepted + 1))

    def send(self, client: httpx.Client, batch: list[dict]) -> None:
        """Send a batch once."""
        try:
            response = client.post("/observations", json=batch)
        except httpx.TransportError as error:
            self.hung_up.append(error)
            self.stopping.wait(PAUSE_S)
            return
        if response.status_code != 200:
            self.refusals.append(response)
            self.stopping.wait(PAUSE_S)
            return
        answer = response.json()
        self.counts.update({name: answer[name] for name in ("accepted", "duplicate", "late")})
        if answer["accepted"] + answer["duplicate"] != len(batch):
            self.problem = response.text
        self.n_accepted += 1

    def stop(self) -> None:
        """End the thread after the current attempt."""
        self.stopping.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), "a call never ended"
        assert self.problem is None, self.problem

    def check(self, client: httpx.Client) -> None:
        """Check that accepted crawls are there, and at most the last unanswered batch as well."""
        counts = set()
        for url in self.pages:
            page = until(lambda url=url: read_page(client, url), "the page is read").json()
            counts.add(page["estimate"]["n_observations"] + 1)
        assert len(counts) == 1, "a batch was kept in part"
        assert counts <= {self.n_accepted, self.n_accepted + 1}


def read_page(client: httpx.Client, url: str) -> httpx.Response | None:
    """Return the answer, or None while the database is out."""
    answer = client.get("/pages", params={"url": url})
    return None if answer.status_code == 503 and polite(answer, 503) else answer


def polite(refusal: httpx.Response, *statuses: int) -> bool:
    """Return whether an answer is a problem with a time for the next attempt, and no more."""
    problem = refusal.json()
    return (
        refusal.status_code in statuses
        and refusal.headers["Content-Type"] == "application/problem+json"
        and int(refusal.headers["Retry-After"]) > 0
        and problem["status"] == refusal.status_code
        and "Traceback" not in refusal.text
    )
