"""Leases that a spider has in hand: their ends on the clock of this process, and their extension.

The engine's thread and those of the scheduler share them, under one lock.
"""

import logging
import threading
import time
from dataclasses import dataclass, replace

from recrawl_client.base import utc_now
from recrawl_client.client import Client
from recrawl_client.errors import ClientError, LeaseNotHeld
from recrawl_client.wire.leases import Crawl

MOST_LEASES = 1_000
"""Maximum number of leases in one answer of the service."""
LOOK_S = 0.25
"""Time between two looks at the ends of the leases, seconds."""
DEFAULT_TTL_S = 300.0
"""Duration of a lease whose end the clock of this machine shows in the past, seconds."""
LONGEST_HELD_S = 3_600.0
"""Longest time in hand for which a lease is extended, seconds."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """Times of a lease in hand, seconds on the monotonic clock."""

    since: float
    end: float
    ttl_s: float


class LeasesInHand:
    """Crawls whose leases this process holds and has not reported."""

    def __init__(
        self, client: Client, most: int, ttl_s: float | None, stop: threading.Event
    ) -> None:
        self.client = client
        self.most = most
        """Number of leases in hand beyond which none is asked for."""
        self.ttl_s = ttl_s
        """Duration that leases are asked with, seconds; None: that of the service."""
        self.crawls: dict[str, Crawl] = {}
        self.times: dict[str, Held] = {}
        """Times of the leases, by lease."""
        self.stop = stop
        self.lock = threading.Condition()
        """Lock of the leases, which notifies of a lease less."""

    def __len__(self) -> int:
        return len(self.crawls)

    def __contains__(self, lease: str) -> bool:
        return lease in self.crawls

    def take(self, crawls: list[Crawl]) -> None:
        """Add the crawls of new leases."""
        with self.lock:
            self.crawls |= {crawl.lease: crawl for crawl in crawls}
            self.times |= {crawl.lease: self._held(crawl) for crawl in crawls}

    def drop(self, lease: str) -> bool:
        """Remove a lease; return whether it was in hand."""
        with self.lock:
            self.times.pop(lease, None)
            self.lock.notify()
            return self.crawls.pop(lease, None) is not None

    def runs(self, lease: str) -> bool:
        """Return whether a lease is in hand and has not ended."""
        held = self.times.get(lease)
        return held is not None and time.monotonic() < held.end

    def wait_for_room(self) -> int:
        """Return the number of crawls to lease, after a wait for room; 0 after the stop."""
        with self.lock:
            while not self.stop.is_set() and len(self.crawls) >= self.most:
                self.lock.wait()
            room = min(self.most - len(self.crawls), MOST_LEASES)
            return 0 if self.stop.is_set() else room

    def end(self) -> None:
        """Stop all waits and extensions; the leases stay in hand."""
        with self.lock:
            self.stop.set()
            self.lock.notify_all()

    def keep(self) -> None:
        """Extend leases whose pages are in hand for half of their time, until the stop."""
        while not self.stop.wait(LOOK_S):
            now = time.monotonic()
            with self.lock:
                late = [
                    crawl
                    for lease, crawl in self.crawls.items()
                    if now < (held := self.times[lease]).end < now + held.ttl_s / 2
                    and now < held.since + LONGEST_HELD_S
                ]
            for crawl in late:
                if not self.stop.is_set():
                    self._extend(crawl)

    def _held(self, crawl: Crawl) -> Held:
        """Return the times of a new lease on the clock of this process.

        The clocks of this machine and of the service may differ.
        """
        left_s = (crawl.expires_at - utc_now()).total_seconds()
        ttl_s = self.ttl_s or (left_s if left_s > 0 else DEFAULT_TTL_S)
        now = time.monotonic()
        return Held(since=now, end=now + ttl_s, ttl_s=ttl_s)

    def _extend(self, crawl: Crawl) -> None:
        held = self.times.get(crawl.lease)
        if held is None:
            return
        sent_at = time.monotonic()
        try:
            self.client.extend(crawl, min(max(held.ttl_s, 1.0), LONGEST_HELD_S))
        except LeaseNotHeld:
            end = sent_at  # another worker may have the page
        except ClientError as error:
            log.warning("the lease of %s is not extended: %s", crawl.url, error)
            return
        else:
            end = sent_at + held.ttl_s
        with self.lock:
            if crawl.lease in self.times:
                self.times[crawl.lease] = replace(held, end=end)
