"""Watch the epoch in force and the orders of operators, so that requests need not ask for them.

A request that reads a newer epoch reports it here. Therefore no client gets "not modified" for an
older epoch than one that this process has shown.

A database may be restored while its servers run. The watch notices other tables, or another
incarnation. The parts of the process that remember the database then forget it.
"""

import threading
import time
from collections.abc import Callable, Iterable

from typing_extensions import override

from service.model.domain import Epoch
from service.model.errors import RecrawlError
from service.storage import Store, Transaction
from service.storage.budget.orders import Orders
from service.storage.queue.hours import follow_hours
from service.storage.stores.newest import NewestWatch
from service.storage.topics import Topic

MAX_AGE_S = 2.0
"""Maximum age of the epoch number in memory, seconds; older numbers are read from the database."""
MAX_EPOCHS = 4
"""Maximum published epochs in memory."""


def ignore(_: Orders) -> None:
    """Follow no orders."""


def nothing() -> None:
    """Forget nothing."""


class Watch(NewestWatch):
    """The epoch in force, as this process has read it."""

    topic = Topic.orders
    every_s = 0.2

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(store)
        self.clock = clock
        self.polled_at = -MAX_AGE_S
        self.published: dict[int, Epoch] = {}
        self.follow: Callable[[Orders], object] = ignore
        """Follows the orders of operators, as read."""
        self.following = threading.Lock()
        self.incarnation = ""
        """Name of the database's incarnation; "" before the first poll."""
        self.tables = ""
        """Identity of the tables, as the last poll read it."""
        self.forget: Callable[[], object] = nothing
        """Called after a restore, to forget the database as it was before."""

    @property
    def in_force(self) -> int | None:
        """Epoch in force; 0 before the first, None while the store does not answer."""
        return self.newest if self.clock() - self.polled_at < MAX_AGE_S else None

    def note(self, epochs: Iterable[Epoch]) -> None:
        """Remember the newest published epoch among `epochs`, which a client is shown."""
        self.note_newest(max((e.epoch for e in epochs if e.certificate is not None), default=0))

    def note_incarnation(self, name: str) -> None:
        """Forget the epochs of another incarnation: the database was restored meanwhile."""
        if self.incarnation not in ("", name):
            self.forget()
            with self.turn:
                self.newest, self.published = 0, {}
        self.incarnation = name

    def epoch(self, tx: Transaction, number: int) -> Epoch:
        """Return an epoch; a published epoch is read once, because it never changes."""
        epoch = self.published.get(number) or tx.epoch(number)
        if epoch.certificate is not None and number not in self.published:
            with self.turn:
                newest = sorted({**self.published, number: epoch}.items())[-MAX_EPOCHS:]
                self.published = dict(newest)
        return epoch

    @override
    def poll(self) -> None:
        began = self.clock()
        try:
            with self.following:  # orders that were read earlier are followed earlier
                with self.store.begin(write=False) as tx:
                    number, incarnation = tx.number_in_force(), tx.incarnation()
                    orders, tables = tx.orders(), tx.tables()
                    follow_hours(tx, orders.hours)
                self.follow(orders)
            if tables != self.tables:
                incarnation = self._recognise(incarnation)
                self.tables = tables
            self.note_incarnation(incarnation)
            self.note_newest(number)
        except RecrawlError:
            return
        # the time before the question: the number may be that old
        self.polled_at = began

    def _recognise(self, incarnation: str) -> str:
        """Begin an incarnation in other tables, as a worker does if one runs; return its name."""
        if not self.tables:  # the first poll, after a start that asked
            return incarnation
        self.store.recognise()
        with self.store.begin(write=False) as tx:
            return tx.incarnation()
