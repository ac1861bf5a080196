"""Knows which epoch is in force without asking the database at every request.

One thread asks the store; requests that learn of a newer epoch tell it, so that no client is
told "not modified" of an epoch older than one it has seen here. Whoever waits for a newer
epoch waits on the event loop and holds no thread and no connection.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable

import structlog

from service.domain import Epoch
from service.errors import RecrawlError
from service.storage import Store, Transaction

EVERY_S = 0.2
TRUSTED_S = 2.0
"""What was read longer ago is not answered from; the database is asked."""
MOST_WAITING = 10_000
MOST_KNOWN = 4
"""Published epochs that are remembered whole."""

log = structlog.get_logger()


class Watch:
    """The epoch in force, as this process knows it."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self.store = store
        self.clock = clock
        self.newest = 0
        self.looked_at = -TRUSTED_S
        self.n_waiting = 0
        self.known: dict[int, Epoch] = {}
        self.released = False
        self.moved = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stopped = threading.Event()
        self.turn = threading.Lock()

    @property
    def in_force(self) -> int | None:
        """The number of the epoch in force, 0 before the first, None if the store is silent."""
        return self.newest if self.clock() - self.looked_at < TRUSTED_S else None

    def saw(self, epoch: int) -> None:
        """Take note of an epoch in force; from any thread."""
        with self.turn:
            newer = epoch > self.newest
            self.newest = max(epoch, self.newest)
        if newer and self.loop is not None:
            self.loop.call_soon_threadsafe(self._wake)

    def tell(self, epochs: Iterable[Epoch]) -> None:
        """Take note of the published ones among epochs that a client is shown."""
        self.saw(max((e.epoch for e in epochs if e.certificate is not None), default=0))

    def epoch(self, tx: Transaction, number: int) -> Epoch:
        """Give an epoch; one that was published never changes and is read but once."""
        epoch = self.known.get(number) or tx.epoch(number)
        if epoch.certificate is not None and number not in self.known:
            with self.turn:
                newest = sorted({**self.known, number: epoch}.items())[-MOST_KNOWN:]
                self.known = dict(newest)
        return epoch

    async def newer(self, than: int, within_s: float) -> None:
        """Return when an epoch above `than` is in force, after a time, or when released.

        At once when too many wait already: they poll, then, as often as they like.
        """
        if self.n_waiting >= MOST_WAITING:
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
        """Let nobody wait any more: the server ends. On the event loop."""
        self.released = True
        self._wake()

    def _wake(self) -> None:
        self.moved.set()
        self.moved = asyncio.Event()

    def look(self) -> None:
        """Ask the store once."""
        began = self.clock()
        try:
            with self.store.begin(write=False) as tx:
                self.saw(tx.number_in_force())
        except RecrawlError:
            return
        self.looked_at = began

    def start(self) -> threading.Thread:
        """Look again and again in a thread of its own, until `stopped` is set."""
        self.loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._run, name="watch", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        while True:
            try:
                self.look()
            except Exception:
                log.exception("the watch could not look")
            if self.stopped.wait(EVERY_S):
                return
