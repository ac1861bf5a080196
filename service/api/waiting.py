"""Lease requests that wait for a crawl, woken when a lease of this process ends.

An ended lease allows its host one crawl more. Without a call a waiting request would look again
only after its pause: up to a second, by which a host that allows one crawl at a time stands idle.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice


class LeaseWaiters:
    """Requests in the order of their arrival; those that have waited longest are woken first.

    As many are woken as leases ended. Because of this, looks at the database cost no more than
    the reports that cause them, however many requests wait.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Event, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def place(self) -> Iterator[asyncio.Event]:
        """Yield the event of a request; take the place before the look that may find nothing."""
        self._loop, event = asyncio.get_running_loop(), asyncio.Event()
        self._waiting[event] = None
        try:
            yield event
        finally:
            self._waiting.pop(event, None)

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Return when the event is set, at the latest after `seconds`; the place is kept."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
        if event.is_set():
            event.clear()
            self._waiting[event] = None

    def wake(self, n_leases: int) -> None:
        """Wake one request for each lease that has ended; from any thread."""
        if n_leases and self._waiting and self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake, n_leases)

    def _wake(self, n_leases: int) -> None:
        for event in list(islice(self._waiting, n_leases)):
            del self._waiting[event]
            event.set()
