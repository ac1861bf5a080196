"""Requests that wait: for a newer epoch, or for a crawl until a lease of this process ends.

An ended lease allows its host one crawl more. Without the wake-up, a waiting request would look
again only after a pause of up to one second. A host that allows one crawl at a time would be idle
during this pause.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice

from starlette.types import Scope

from service.runtime.requests import ASK_EVERY_S, waiting
from service.storage.stores.newest import NewestWatch


async def reach(scope: Scope, watch: NewestWatch, number: int, within_s: float) -> None:
    """Wait until a watch reaches a number, at most `within_s`; raise as `waiting`."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while (left_s := until - loop.time()) > 0:
        with waiting(scope):
            done = await watch.reached(number, min(left_s, ASK_EVERY_S))
        if done:
            return


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

    def wake_all(self) -> None:
        """Wake all requests, because a pause of all hosts began or ended; from any thread."""
        self.wake(len(self._waiting))

    def _wake(self, n_leases: int) -> None:
        for event in list(islice(self._waiting, n_leases)):
            del self._waiting[event]
            event.set()
