"""Renew subscriptions at their hubs, before the leases end.

A subscription with a public address of the service is asked for by the worker: the first time a
minute after its registration, unless its hub has verified it by then, and again after two thirds
of each lease. The hub answers by calling back, which sets the next request
(`service.api.routes.websub_callbacks`). Without a call, the worker asks again after waits that
grow. Any number of workers may run, because `ask_at` is changed before a request and names its
owner.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import Literal
from urllib.parse import urlsplit

import httpx
import numpy as np
import structlog

from service.connectors.websub import HubTopic, printable, subscribe
from service.model.errors import OUTAGES, NotSubscribed, SubscriptionNotFound
from service.model.subscriptions import Subscription, next_request
from service.storage import Store

EVERY_S = 5.0
"""Time between two looks for subscriptions that are due, seconds."""
CLAIM = timedelta(minutes=5)
"""Time that a worker has for one request, with all its redirects."""
MOST_DUE, OF_HUB = 100, 20
"""Maximum number of subscriptions of one look, in total and of one hub."""
AT_ONCE = 8
"""Maximum number of hubs that are asked at a time."""
JOIN_S = 0.05
"""Time between two looks whether the process ends, seconds."""
FORGET_AFTER = 6
"""Requests to end a subscription after which it is deleted without the hub's confirmation."""
WAITS = "the hub took the request, and has not called back yet"

log = structlog.get_logger()


class Renewer:
    """The requests of one process to hubs."""

    def __init__(
        self, store: Store, client: Callable[[], httpx.Client], rng: np.random.Generator
    ) -> None:
        self.store = store
        self.client = client
        self.stopped = threading.Event()
        self._rng = rng
        self._drawing = threading.Lock()

    def run_every(self) -> None:
        """Renew until stopped; log errors and continue."""
        while not self.stopped.wait(EVERY_S):
            try:
                self.run_once()
            except OUTAGES as error:
                log.warning("no subscription was renewed; trying again", reason=str(error))
            except Exception:
                log.exception("no subscription was renewed; trying again")

    def stop(self) -> None:
        """End `run_every`; the process need not wait for requests that run."""
        self.stopped.set()

    def run_once(self) -> int:
        """Ask the hubs of all subscriptions that are due now; return the number of requests."""
        with self.store.begin(write=False) as tx:
            due = tx.due_subscriptions(tx.now(), OF_HUB, MOST_DUE)
        by_hub = attrgetter("hub")
        groups = deque(list(group) for _, group in groupby(sorted(due, key=by_hub), by_hub))
        counts = list[int]()
        n_threads = min(AT_ONCE, len(groups))
        threads = [
            threading.Thread(target=self._ask_hubs, args=(groups, counts), daemon=True)
            for _ in range(n_threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and not self.stopped.is_set():
                thread.join(JOIN_S)
        return sum(counts)

    def _ask_hubs(self, groups: deque[list[Subscription]], counts: list[int]) -> None:
        """Ask one hub after another until none is left."""
        while not self.stopped.is_set():
            try:
                group = groups.popleft()
            except IndexError:
                return
            try:
                counts.append(self._ask_hub(group))
            except OUTAGES as error:
                log.warning("a hub was not asked; trying again", reason=str(error))
            except Exception:
                log.exception("a hub was not asked; trying again")

    def _ask_hub(self, due: list[Subscription]) -> int:
        """Ask one hub until it fails; the rest of its subscriptions wait for the next look."""
        n_asked = 0
        with self.client() as client:
            for subscription in due:
                if self.stopped.is_set():
                    break
                claimed = self._claimed(subscription)
                if claimed is None:
                    continue
                n_asked += 1
                if not self._ask(client, claimed):
                    break
        return n_asked

    def _claimed(self, seen: Subscription) -> Subscription | None:
        """Return a subscription that only this process asks for; None if another was first."""
        with self.store.begin() as tx:
            until = tx.now() + CLAIM
            taken = tx.change_subscription(seen.id, seen=seen.ask_at, ask_at=until)
        return replace(seen, ask_at=until) if taken else None

    def _ask(self, client: httpx.Client, claimed: Subscription) -> bool:
        """Send one request and note the answer; return whether the hub took it."""
        mode: Literal["subscribe", "unsubscribe"]
        mode = "subscribe" if claimed.ending_at is None else "unsubscribe"
        topic, reason = HubTopic(claimed.topic, claimed.hub), WAITS
        try:
            subscribe(client, topic, claimed.callback, claimed.secret, mode)
        except NotSubscribed as error:
            reason = printable(str(error))
        self._note(claimed, reason)
        return reason is WAITS

    def _note(self, claimed: Subscription, reason: str) -> None:
        """Set the next request, unless the hub has called back meanwhile."""
        if reason != WAITS:
            log.warning("a hub was asked in vain", hub=urlsplit(claimed.hub).hostname)
        with self.store.begin() as tx:
            now = tx.now()
            if claimed.ending_at is not None and claimed.n_asked + 1 >= FORGET_AFTER:
                with suppress(SubscriptionNotFound):  # the hub has confirmed the end
                    tx.delete_subscription(claimed.id)
                return
            tx.change_subscription(
                claimed.id,
                seen=claimed.ask_at,
                ask_at=next_request(claimed, now, self._uniform()),
                n_asked=claimed.n_asked + 1,
                reason=reason,
            )

    def _uniform(self) -> float:
        # numpy's generators are not safe for several threads
        with self._drawing:
            return float(self._rng.random())
