"""Lease requests that wait for a crawl, woken when a lease of this process ends.

An ended lease allows its host one crawl more. Without the wake-up, a waiting request would look
again only after a pause of up to one second. A host that allows one crawl at a time would be idle
during this pause.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice


class LeaseWaiters:
    """Waiting requests in the order of their arrival; the oldest are woken first.

    Each ended lease wakes one request. Because of this, the number of looks at the database
    depends on the number of reports, not on the number of waiting requests.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Event, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def place(self) -> Iterator[asyncio.Event]:
        """Yield the event of a request; enter the block before the first look at the database."""
        self._loop, event = asyncio.get_running_loop(), asyncio.Event()
        self._waiting[event] = None
        try:
            yield event
        finally:
            self._waiting.pop(event, None)

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Wait until the event is set, at most `seconds`; the request keeps its place."""
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
