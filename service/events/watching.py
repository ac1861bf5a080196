"""Watch the feed, so that readers who wait hold no thread and no connection."""

import asyncio
import threading
import time
from functools import cached_property

import structlog

from service.events.reading import feed_id
from service.model.errors import OUTAGES
from service.storage import Store

EVERY_S = 0.1
"""Time between two polls of the store while a reader waits, seconds."""
UNBLOCK_EVERY_S = 1.0
"""Time between two searches for a session that holds up commits, seconds."""
MOST_WAITING = 10_000
"""Maximum readers that wait; more are answered at once."""

log = structlog.get_logger()


class FeedWatch:
    """The newest number of the feed, as this process has read it.

    The thread also ends sessions that hold up the commits of all (`Transaction.end_stuck_commit`).
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.newest = 0
        self.n_waiting = 0
        self.stopped = threading.Event()
        self.released = False
        self.moved = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._unblocked_at = time.monotonic()

    @cached_property
    def feed_id(self) -> str:
        """Id of the database's feed."""
        return feed_id(self.store)

    async def reached(self, seq: int, within_s: float) -> None:
        """Wait until a block has this number or a higher one, at most `within_s` seconds."""
        if self.n_waiting >= MOST_WAITING:
            return
        self.n_waiting += 1
        try:
            async with asyncio.timeout(within_s):
                while self.newest < seq and not self.released:
                    await self.moved.wait()
        except TimeoutError:
            return
        finally:
            self.n_waiting -= 1

    def release(self) -> None:
        """End all waits, because the server ends; call this on the event loop."""
        self.released = True
        self._wake()

    def _wake(self) -> None:
        self.moved.set()
        self.moved = asyncio.Event()

    def poll(self) -> None:
        """Read the newest number if a reader waits, and wake the readers of a new one."""
        if not self.n_waiting:
            return
        with self.store.begin(write=False) as tx:
            newest = tx.newest_change()
        if newest > self.newest and self.loop is not None:
            self.newest = newest
            self.loop.call_soon_threadsafe(self._wake)

    def unblock(self) -> None:
        """End a session that holds up commits, at most once a second."""
        if self.store.embedded or time.monotonic() - self._unblocked_at < UNBLOCK_EVERY_S:
            return
        self._unblocked_at = time.monotonic()
        with self.store.begin(write=False) as tx:
            if tx.end_stuck_commit():
                log.warning("a session that held up the feed of changes was ended")

    def start(self) -> threading.Thread:
        """Poll in a thread until `stopped` is set."""
        self.loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._run, name="feed-watch", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        while not self.stopped.wait(EVERY_S):
            try:
                self.poll()
                self.unblock()
            except OUTAGES:  # the next poll tries again
                continue
            except Exception:
                log.exception("the watch could not read the feed")
