"""Results of batches, awaited on the event loop.

A batch of small posts settles many jobs at once. A wake-up of the event loop takes a system call,
in which another thread may take the interpreter's lock. So jobs that end before the loop turns
share one wake-up.
"""

import asyncio
from collections import deque
from concurrent.futures import Future
from typing import TypeVar
from weakref import WeakKeyDictionary

DoneT = TypeVar("DoneT")


class Wakes:
    """Waiting requests of one event loop whose jobs have ended."""

    def __init__(self) -> None:
        self._ended: deque[asyncio.Future[None]] = deque()
        self._called = False

    def add(self, waiting: asyncio.Future[None]) -> None:
        """Wake a request at the loop's next turn; from any thread.

        A call under way takes this request too, because it resets `_called` before its first look.
        """
        self._ended.append(waiting)
        loop = waiting.get_loop()
        if not self._called and not loop.is_closed():
            self._called = True
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._called = False
        while self._ended:
            waiting = self._ended.popleft()
            if not waiting.done():
                waiting.set_result(None)


_WAKES: WeakKeyDictionary[asyncio.AbstractEventLoop, Wakes] = WeakKeyDictionary()


async def settled(job: Future[DoneT]) -> DoneT:
    """Return a job's result without blocking the event loop; a cancelled wait cancels the job."""
    loop = asyncio.get_running_loop()
    wakes = _WAKES.get(loop) or _WAKES.setdefault(loop, Wakes())
    waiting: asyncio.Future[None] = loop.create_future()
    job.add_done_callback(lambda _: wakes.add(waiting))
    try:
        await waiting
    except asyncio.CancelledError:
        job.cancel()
        raise
    return job.result()
