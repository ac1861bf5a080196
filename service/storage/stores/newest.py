"""The newest of ascending numbers in a store, for requests that wait for a newer one.

One thread polls the store after a ring of the topic, and rarely without one. Requests wait on the
event loop, and hold no thread and no connection.
"""

import asyncio
import threading
import time
from abc import ABC, abstractmethod

import structlog

from service.model.errors import OUTAGES
from service.storage.stores.contract import Store
from service.storage.topics import Topic

MOST_WAITING = 10_000
"""Maximum requests that wait; more are answered at once."""

log = structlog.get_logger()


class NewestWatch(ABC):
    """The newest number, as this process has read it."""

    topic: Topic
    """Topic whose rings may show a newer number."""
    every_s: float
    """Time between two looks whether the topic has rung, seconds."""
    silent_s: float = 1.0
    """Maximum time between two polls of the store without a ring, seconds."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.newest = 0
        self.n_waiting = 0
        self.released = False
        self.moved = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stopped = threading.Event()
        self.turn = threading.Lock()
        self._rings = -1
        self._poll_at = time.monotonic()

    @abstractmethod
    def poll(self) -> None:
        """Read the newest number and note it."""

    def look(self) -> None:
        """Poll if the topic has rung since the last poll, or if that was `silent_s` ago."""
        rings, now = self.store.rings(self.topic), time.monotonic()
        if rings != self._rings or now >= self._poll_at:
            self.poll()
            self._rings, self._poll_at = rings, now + self.silent_s

    def note_newest(self, number: int) -> None:
        """Remember a number that this process has read; from any thread."""
        with self.turn:
            newer = number > self.newest
            self.newest = max(number, self.newest)
        if newer and self.loop is not None:
            self.loop.call_soon_threadsafe(self._wake)

    async def reached(self, number: int, within_s: float) -> bool:
        """Wait until the newest number is as high, at most `within_s`, or until released.

        Return at once if `MOST_WAITING` requests wait already. Return False if the time is over.
        """
        if self.n_waiting >= MOST_WAITING:
            return True
        self.n_waiting += 1
        try:
            async with asyncio.timeout(within_s):
                while self.newest < number and not self.released:
                    await self.moved.wait()
        except TimeoutError:
            return False
        finally:
            self.n_waiting -= 1
        return True

    def release(self) -> None:
        """End all waits, because the server ends; call this on the event loop."""
        self.released = True
        self._wake()

    def _wake(self) -> None:
        self.moved.set()
        self.moved = asyncio.Event()

    def start(self) -> threading.Thread:
        """Poll in a thread until `stopped` is set."""
        self.loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        while True:
            try:
                self.look()
            except OUTAGES:  # the next poll tries again
                pass
            except Exception:
                log.exception("a watch could not read the newest number")
            if self.stopped.wait(self.every_s):
                return
