"""Clients of the moving shard: reports in batches, leases with their reports, and single reports.

Each client is a thread with a connection of its own. It sends an item again until the item is
acknowledged, and records the acknowledged items.
"""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import numpy as np

from benchmarks.moves.corpus import CHANGED
from service.model.arrays import Ints

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AWAY = "shard_unavailable"
TTL_S = 600


class Client(ABC, threading.Thread):
    """A client that works at a fixed pace until it is ended."""

    def __init__(self, base: str, ids: Ints, every_s: float, seed: int) -> None:
        super().__init__(daemon=True)
        self.http = httpx.Client(base_url=base, timeout=60)
        self.ids, self.every_s = ids, every_s
        self.draw = random.Random(seed)
        self.ends = threading.Event()
        self.acknowledged: list[tuple[int, int]] = []
        """Pages and instants (µs since 1970) of acknowledged crawls."""
        self.n_late = 0
        """Crawls of batches with a crawl that another client's newer one has overtaken; the answer
        does not name that crawl."""
        self.answers: list[tuple[float, float, int]] = []
        """Time of each answer, its latency, s, and the number of its accepted items."""
        self.faults: list[str] = []

    def run(self) -> None:
        at = time.monotonic()
        while not self.ends.is_set():
            try:
                self.turn()
            except Exception as error:  # noqa: BLE001 - reported as a violation
                self.faults.append(f"{type(error).__name__}: {error}")
                return
            at = max(at + self.every_s, time.monotonic())
            self.ends.wait(at - time.monotonic())

    @abstractmethod
    def turn(self) -> None:
        """Send the requests of one turn."""

    def finish(self) -> None:
        """End after the running turn."""
        self.ends.set()
        self.join()

    def post(self, path: str, body: object) -> dict[str, Any] | None:
        """Return the answer of a request; None for a 503."""
        answer = self.http.post(path, json=body)
        if answer.status_code == 503:
            return answer.json() if "rejected" in answer.json() else None
        content: dict[str, Any] = answer.raise_for_status().json()
        return content

    def report(self, names: Sequence[dict[str, Any]], pages: Sequence[int]) -> None:
        """Report a crawl of each page, again and again until all are acknowledged."""
        at = (datetime.now(UTC) - EPOCH) // timedelta(microseconds=1)
        items = [
            {
                **name,
                "observed_at": (EPOCH + timedelta(microseconds=at)).isoformat(),
                "status": 200,
                "changed": self.draw.random() < CHANGED,
            }
            for name in names
        ]
        waiting = list(range(len(items)))
        while waiting:
            began = time.monotonic()
            answer = self.post("/observations", [items[i] for i in waiting])
            now = time.monotonic()
            if answer is None:
                self.answers.append((now, now - began, 0))
                time.sleep(self.every_s)
                continue
            again = {fault["index"] for fault in answer["rejected"] if fault["code"] == AWAY}
            if answer["n_rejected"] > len(again) or answer["duplicate"]:
                self.faults.append(f"{answer}"[:300])
            done = [i for n, i in enumerate(waiting) if n not in again]
            self.answers.append((now, now - began, len(done)))
            if answer["late"]:
                self.n_late += len(done)
            else:
                self.acknowledged += [(pages[i], at) for i in done]
            waiting = [i for n, i in enumerate(waiting) if n in again]
            if waiting:
                time.sleep(self.every_s)


class Reporter(Client):
    """Reports of random pages in batches."""

    BATCH = 100

    def turn(self) -> None:
        chosen = self.ids[self.draw.sample(range(len(self.ids)), self.BATCH)].tolist()
        self.report([{"page_id": page} for page in chosen], chosen)


class Single(Client):
    """Reports of one page each, whose pauses show for how long writes are refused."""

    def turn(self) -> None:
        page = int(self.ids[self.draw.randrange(len(self.ids))])
        self.report([{"page_id": page}], [page])


class Crawler(Client):
    """Leases, each of which is reported before the next request."""

    BATCH = 50
    n_leased = 0

    def __init__(self, base: str, ids: Ints, every_s: float, seed: int) -> None:
        super().__init__(base, ids, every_s, seed)
        self.tokens: set[str] = set()

    def turn(self) -> None:
        body = {"worker": "benchmark", "count": self.BATCH, "ttl_s": TTL_S}
        answer = self.post("/leases", body)
        if answer is None or not answer["items"]:
            return
        leases = [item["lease"] for item in answer["items"]]
        pages = [item["page_id"] for item in answer["items"]]
        if len(set(pages)) < len(pages) or self.tokens.intersection(leases):
            self.faults.append(f"a page was leased twice: {pages}"[:300])
        self.tokens.update(leases)
        self.n_leased += len(pages)
        self.report([{"lease": lease} for lease in leases], pages)


def longest_pause(client: Client, began: float, ended: float) -> float:
    """Return the longest time without an accepted item from `began` to `ended`, s."""
    at = [time for time, _, n in client.answers if n and began <= time <= ended]
    return float(np.diff([began, *at, ended]).max())


def slowest(client: Client, began: float, ended: float) -> float:
    """Return the longest latency of an answer from `began` to `ended`, s."""
    return max((wait for at, wait, _ in client.answers if began <= at <= ended), default=0.0)
