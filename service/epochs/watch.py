"""Watch the epoch in force, so that requests need not ask the database.

One thread polls the store. A request that reads a newer epoch reports it here. Therefore no client
gets "not modified" for an older epoch than one that this process has shown. Requests that wait for
a newer epoch wait on the event loop and hold no thread and no connection.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable

import structlog

from service.model.domain import Epoch
from service.model.errors import RecrawlError
from service.storage import Store, Transaction

EVERY_S = 0.2
"""Time between two polls of the store, seconds."""
MAX_AGE_S = 2.0
"""Maximum age of the epoch number in memory, seconds; older numbers are read from the database."""
MAX_WAITING = 10_000
"""Maximum requests that wait for a newer epoch."""
MAX_EPOCHS = 4
"""Maximum published epochs in memory."""

log = structlog.get_logger()


class Watch:
    """The epoch in force, as this process has read it."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self.store = store
        self.clock = clock
        self.newest = 0
        self.polled_at = -MAX_AGE_S
        self.n_waiting = 0
        self.published: dict[int, Epoch] = {}
        self.released = False
        self.moved = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stopped = threading.Event()
        self.turn = threading.Lock()

    @property
    def in_force(self) -> int | None:
        """Epoch in force; 0 before the first, None while the store does not answer."""
        return self.newest if self.clock() - self.polled_at < MAX_AGE_S else None

    def note_in_force(self, epoch: int) -> None:
        """Remember an epoch in force; from any thread."""
        with self.turn:
            newer = epoch > self.newest
            self.newest = max(epoch, self.newest)
        if newer and self.loop is not None:
            self.loop.call_soon_threadsafe(self._wake)

    def note(self, epochs: Iterable[Epoch]) -> None:
        """Remember the newest published epoch among `epochs`, which a client is shown."""
        self.note_in_force(max((e.epoch for e in epochs if e.certificate is not None), default=0))

    def epoch(self, tx: Transaction, number: int) -> Epoch:
        """Return an epoch; a published epoch is read once, because it never changes."""
        epoch = self.published.get(number) or tx.epoch(number)
        if epoch.certificate is not None and number not in self.published:
            with self.turn:
                newest = sorted({**self.published, number: epoch}.items())[-MAX_EPOCHS:]
                self.published = dict(newest)
        return epoch

    async def newer(self, than: int, within_s: float) -> None:
        """Wait until an epoch above `than` is in force, at most `within_s`, or until released.

        Return at once if `MAX_WAITING` requests wait already.
        """
        if self.n_waiting >= MAX_WAITING:
            return
        self.n_waiting += 1
        try:
            async with asyncio.timeout(within_s):
                while self.newest <= than and not self.released:
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
        """Poll the store once."""
        began = self.clock()
        try:
            with self.store.begin(write=False) as tx:
                self.note_in_force(tx.number_in_force())
        except RecrawlError:
            return
        self.polled_at = began

    def start(self) -> threading.Thread:
        """Poll in a thread until `stopped` is set."""
        self.loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._run, name="watch", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        while True:
            try:
                self.poll()
            except Exception:
                log.exception("the watch could not read the epoch in force")
            if self.stopped.wait(EVERY_S):
                return
