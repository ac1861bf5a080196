"""Limits of one key: items a second, and requests in work."""

import asyncio
import math
import threading
from collections import deque
from dataclasses import dataclass, field

from service.model.errors import RateLimited
from service.model.words import counted

WINDOW_S = 10
"""Burst of a key, seconds of its rate."""
WAITING_FACTOR = 16
"""Maximum number of requests of a key that wait for work, in multiples of those in work."""


@dataclass(slots=True)
class TokenBucket:
    """A bucket of items that fills at a constant rate.

    A request is admitted while the bucket is not empty, and pays for its items when they have been
    counted. The balance may therefore become negative, and the next request waits until the debt
    is paid.
    """

    per_s: float
    """Rate of items, 1/second."""
    left: float
    """Balance at the instant `at`, items."""
    at: float
    """Instant of the balance, seconds of a monotonic clock."""
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    """Lock of the balance, because threads of requests charge items too."""

    @classmethod
    def full(cls, per_s: float, now: float) -> "TokenBucket":
        """Return a full bucket.

        >>> bucket = TokenBucket.full(2.0, now=0.0)
        >>> bucket.capacity
        20.0
        """
        return cls(per_s, max(per_s * WINDOW_S, 1.0), now)

    @property
    def capacity(self) -> float:
        """Largest balance, items; at least one, so that slow keys can send anything."""
        return max(self.per_s * WINDOW_S, 1.0)

    def balance(self, now: float) -> float:
        """Return the balance of this instant."""
        with self.lock:
            self.left = min(self.left + (now - self.at) * self.per_s, self.capacity)
            self.at = now
            return self.left

    def admit(self, now: float) -> None:
        """Take one item for a request; raise `RateLimited` while there is less than one."""
        if self.balance(now) < 1.0:
            raise self.refusal(now)
        self.charge(1)

    def refusal(self, now: float) -> RateLimited:
        """Return the error of a request that has to wait."""
        wait_s = self.wait_s(now)
        return RateLimited(
            f"the key may send {self.per_s:g} {'item' if self.per_s == 1 else 'items'} a second "
            f"and has used them up; wait {wait_s:g} s",
            retry_after_s=float(wait_s),
        )

    def charge(self, n_items: int) -> None:
        """Take further items; the balance may become negative."""
        with self.lock:
            self.left -= n_items

    def pay(self, n_items: int, now: float) -> None:
        """Take further items before the work on them; raise `RateLimited` while there is a debt."""
        if self.balance(now) < 0.0:
            raise self.refusal(now)
        self.charge(n_items)

    def wait_s(self, now: float) -> int:
        """Return the time until the next request is admitted, whole seconds.

        >>> bucket = TokenBucket.full(2.0, now=0.0)
        >>> bucket.charge(30)
        >>> bucket.wait_s(0.0), bucket.wait_s(5.0)
        (6, 1)
        """
        return max(math.ceil((1.0 - self.balance(now)) / self.per_s), 0)

    def headers(self, now: float) -> dict[str, str]:
        """Return the header fields of draft-ietf-httpapi-ratelimit-headers.

        >>> TokenBucket(2.0, 7.5, 0.0).headers(0.0)
        {'RateLimit-Policy': '"items";q=20;qu="items";w=10', 'RateLimit': '"items";r=7;t=7'}
        """
        left = self.balance(now)
        full_s = math.ceil((self.capacity - left) / self.per_s)
        quota = math.floor(self.capacity)
        window = math.ceil(self.capacity / self.per_s)
        return {
            "RateLimit-Policy": f'"items";q={quota};qu="items";w={window}',
            "RateLimit": f'"items";r={max(math.floor(left), 0)};t={full_s}',
        }


class Slots:
    """Places for requests in work; others wait in the order of their arrival.

    Only the event loop calls these methods.
    """

    def __init__(self, n_slots: int) -> None:
        self.n_slots = n_slots
        self.free = n_slots
        self.waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Take a place, maybe after waiting for it; raise `RateLimited` if too many wait."""
        if self.free > 0:
            self.free -= 1
            return
        if len(self.waiting) >= WAITING_FACTOR * self.n_slots:
            raise RateLimited(
                f"the key has {counted(self.n_slots, 'request')} in work and "
                f"{len(self.waiting)} that wait; "
                "send fewer at a time",
                retry_after_s=1.0,
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the place came at the same moment
                self.leave()
            raise

    def leave(self) -> None:
        """Free the place for the oldest request that still waits."""
        self.free += 1
        while self.free > 0 and self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():
                self.free -= 1
                turn.set_result(None)

    def retake(self) -> None:
        """Take the place of a request again that has waited on purpose, even where none is free."""
        self.free -= 1
