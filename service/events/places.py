"""Places of the requests that run, so that slow addresses never hold all of them. Pure.

A webhook takes a place of its kind: its address answers, its address was slow or failed last, or
the webhook reads through old changes. Slow requests hold places for as long as the deadline
permits. So only quick ones count against the small number that bounds the CPU.
"""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

MOST_AT_ONCE = 256
"""Maximum webhooks that are served at a time."""
MOST_QUICK = 16
"""Maximum webhooks whose present request runs for less than `SLOW_S`."""
SLOW_S = 0.5
"""Duration from which a request is slow, seconds."""


class PlaceKind(StrEnum):
    """The kind of a place."""

    sound = "sound"
    slow = "slow"
    """The last request of the webhook failed or took long."""
    behind = "behind"
    """The webhook has many changes to read before one that its filter matches."""


MOST_OF_KIND = {
    PlaceKind.sound: MOST_AT_ONCE,
    PlaceKind.slow: 64,
    PlaceKind.behind: 4,
}
"""Maximum places of each kind."""
MOST_OF_ADDRESS = {
    PlaceKind.sound: 64,
    PlaceKind.slow: 8,
    PlaceKind.behind: 4,
}
"""Maximum places of each kind for one address."""


def address_of(url: str) -> str:
    """Return host and port of a URL.

    >>> address_of("https://user@Hooks.example:8443/a?b")
    'hooks.example:8443'
    """
    start = re.match(r"[a-z]+://(?:[^/?#]*@)?([^/?#]*)", url, re.IGNORECASE)
    return start[1].lower() if start else url


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one webhook."""

    kind: PlaceKind
    address: str
    since: float
    """Start of the present request, seconds of the clock."""


class Places:
    """The places of one process; safe for several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._taken: dict[str, Place] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def __contains__(self, webhook_id: str) -> bool:
        return webhook_id in self._taken

    @property
    def are_full(self) -> bool:
        """True if no webhook may begin now, of whatever kind."""
        with self._lock:
            started = self._clock() - SLOW_S
            n_quick = sum(place.since > started for place in self._taken.values())
            return len(self._taken) >= MOST_AT_ONCE or n_quick >= MOST_QUICK

    def take(self, webhook_id: str, kind: PlaceKind, address: str) -> bool:
        """Take a place for a webhook; return False without one of its kind or for its address."""
        with self._lock:
            alike = [place for place in self._taken.values() if place.kind is kind]
            n_here = sum(place.address == address for place in alike)
            if len(alike) >= MOST_OF_KIND[kind] or n_here >= MOST_OF_ADDRESS[kind]:
                return False
            self._taken[webhook_id] = Place(kind, address, self._clock())
            return True

    def restart(self, webhook_id: str) -> None:
        """Note that the next request of a webhook begins."""
        with self._lock:
            place = self._taken.get(webhook_id)
            if place is not None:
                self._taken[webhook_id] = replace(place, since=self._clock())

    def release(self, webhook_id: str) -> None:
        """Return the place of a webhook."""
        with self._lock:
            self._taken.pop(webhook_id, None)
