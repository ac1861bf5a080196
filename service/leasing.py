"""The line of workers that ask for crawls: those who wait together are served together.

One thread leases for all requests of this process, so that they never wait for each other's
locks, share the cost of a commit, and are dealt what is due in turns. A request is answered
after the commit: what a worker holds, the database holds.

Who asks for few crawls is waited with for a moment, a part of what the last round took, until as
many have come as then: who was answered is about to ask again.
"""

import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import NamedTuple

import numpy as np

from service import crawls
from service.crawls import Ask, Leased
from service.errors import Overloaded
from service.lanes import Politeness
from service.storage.queue import QueueStore, Reach

MOST_WAITING = 10_000
MOST_AT_ONCE = 10_000
"""Crawls that are leased in one transaction."""

CROWD = 64
"""So many crawls asked for are worth a commit now."""
PATIENCE = 0.5
"""The part of the last round's time that fewer are waited with."""

ROUNDS = 64
"""Transactions that one request is worth; what comes after is the next request's."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One worker's request, its answer to come."""

    ask: Ask
    of: Reach
    done: "Future[Served]" = field(default_factory=Future)


class Served(NamedTuple):
    """What a request is answered with."""

    leased: list[Leased]
    next_ready_at: datetime | None
    """Where nothing was leased: nothing is due before. None: nothing is queued."""


class Leasing:
    """The line and the thread that serves it."""

    def __init__(self, store: QueueStore, polite: Politeness, rng: np.random.Generator) -> None:
        self.store = store
        self.polite = polite
        self.rng = rng
        self._waiting: deque[Request] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._last = 0, 0.0
        """Requests of the last round, and its seconds."""
        self._thread = threading.Thread(target=self._serve, name="leasing", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self) -> list[threading.Thread]:
        """Refuse who comes now; return the thread, which ends when the line is served."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        return [self._thread]

    def stop(self) -> None:
        """Serve who waits, refuse who comes now, and end the thread."""
        for thread in self.finish():
            thread.join()

    def submit(self, request: Request) -> "Future[Served]":
        """Stand in the line; raises `Overloaded` when it is full."""
        with self._changed:
            if self._stopping or len(self._waiting) >= MOST_WAITING:
                raise Overloaded
            self._waiting.append(request)
            self._changed.notify()
        return request.done

    def _serve(self) -> None:
        while requests := self._take():
            started = time.perf_counter()
            try:
                given = lease_all(self.store, requests, self.polite, self.rng)
            except Exception as error:  # noqa: BLE001 - whatever it is, who asked is told
                for request in requests:
                    request.done.set_exception(error)
            else:
                self._last = len(requests), time.perf_counter() - started
                for request, served in zip(requests, given, strict=True):
                    request.done.set_result(served)

    def _take(self) -> list[Request]:
        """Wait for a round; nothing once stopped, when nobody waits any more."""
        with self._changed:
            while not (taken := self._next()) and not self._stopping:
                self._changed.wait()
            return taken

    def _next(self) -> list[Request]:
        """Take the oldest request, and those with it that ask for the same; drop who left."""
        if self._waiting:
            _, seconds = self._last
            self._changed.wait_for(self._worthwhile, PATIENCE * seconds)
        taken: list[Request] = []
        others: list[Request] = []
        wanted = 0
        while self._waiting:
            request = self._waiting.popleft()
            fits = not taken or (
                request.of == taken[0].of and wanted + request.ask.count <= MOST_AT_ONCE
            )
            if not fits:
                others.append(request)
            elif request.done.set_running_or_notify_cancel():
                taken.append(request)
                wanted += request.ask.count
        self._waiting.extend(others)
        return taken

    def _worthwhile(self) -> bool:
        """Tell whether to lease for those who wait without waiting for more."""
        n_before, _ = self._last
        wanted = sum(request.ask.count for request in islice(self._waiting, CROWD))
        return self._stopping or len(self._waiting) >= n_before or wanted >= CROWD


def lease_all(
    store: QueueStore, requests: list[Request], polite: Politeness, rng: np.random.Generator
) -> list[Served]:
    """Lease round by round until all have what they asked for or nothing more is due."""
    given: list[list[Leased]] = [[] for _ in requests]
    left = [request.ask.count for request in requests]
    of = requests[0].of
    for _ in range(ROUNDS):
        open_ = [i for i, n in enumerate(left) if n]
        if not open_:
            break
        asks = [replace(requests[i].ask, count=left[i]) for i in open_]
        with store.begin() as tx:
            parts, more = crawls.lease(tx, asks, of, polite, rng)
        for i, part in zip(open_, parts, strict=True):
            left[i] -= len(part.overdue)
            if len(part.overdue):
                given[i].append(part)
        if not more:
            break
    next_ready_at = None
    if not all(given):
        with store.begin(write=False) as tx:
            next_ready_at = tx.next_ready_at(of)
    return [Served(leased, next_ready_at) for leased in given]
