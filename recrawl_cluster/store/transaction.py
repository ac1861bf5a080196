"""A transaction over several databases.

A transaction opens a transaction on a database at its first statement there. The end of the block
commits one database after the other. No database waits for another, so a failure in between leaves
the databases before it committed; callers send again, which is safe.

A transaction has one map from its begin to its end. A database that has given a shard away since
the map was read fails the transaction, and the next one has the new map (`claims`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import datetime

from typing_extensions import override

from recrawl_cluster.store.coordinator import Coordinated
from recrawl_cluster.store.database import ShardTransaction
from recrawl_cluster.store.epochs import ShardedEpochs, announce
from recrawl_cluster.store.feed import ShardedFeed
from recrawl_cluster.store.lists import ShardedLists
from recrawl_cluster.store.log import ShardedLog
from recrawl_cluster.store.mapped import MappedDatabases
from recrawl_cluster.store.pages import ShardedPages
from recrawl_cluster.store.queue import ShardedHosts, ShardedQueue
from recrawl_cluster.store.shard_map import CLOSED
from recrawl_cluster.store.worth import ShardedWorth
from service.model.domain import Epoch
from service.model.errors import RecrawlError, ShardMoved, StoreUnavailable
from service.storage.history.contract import Counted
from service.storage.postgres.connections import translated
from service.storage.stores.contract import Transaction

Begin = Callable[[int], AbstractContextManager[Transaction]]


class ShardedTransaction(
    ShardedPages,
    ShardedQueue,
    ShardedHosts,
    ShardedLists,
    ShardedLog,
    ShardedFeed,
    ShardedEpochs,
    ShardedWorth,
    Coordinated,
):
    """The statements of a store over several databases."""

    def __init__(self, mapped: MappedDatabases, begin: Begin) -> None:
        self.databases = mapped.databases
        self.shard_map = mapped.map_in_force()
        self.clock = mapped.clock
        self.calendars = mapped.coordinator.calendars
        self.counted: list[Counted] = []
        self.last_number = mapped.last_number
        self._begin = begin
        self._blocks: dict[int, tuple[AbstractContextManager[Transaction], ShardTransaction]] = {}
        self._latest = CLOSED
        """Position of the database that was used last, whose statement is the one that fails."""

    @override
    def on(self, position: int) -> ShardTransaction:
        if position not in self._blocks:
            if position == CLOSED:
                raise ShardMoved
            block = self._begin(position)
            tx = block.__enter__()
            assert isinstance(tx, ShardTransaction)  # noqa: S101 - for mypy
            self._blocks[position] = block, tx
            if tx.database != self.shard_map.databases[position]:
                raise ShardMoved
        self._latest = position
        return self._blocks[position][1]

    @property
    @override
    def opened(self) -> Sequence[ShardTransaction]:
        return [tx for _, tx in self._blocks.values()]

    @override
    def now(self) -> datetime:
        for tx in self.opened:
            return tx.now()
        return self.clock()

    @override
    def give_up(self, position: int) -> None:
        block, _ = self._blocks.pop(position, (None, None))
        if block is not None:
            outage = StoreUnavailable()
            with suppress(RecrawlError):
                block.__exit__(type(outage), outage, None)

    @override
    @contextmanager
    def named(self, position: int) -> Iterator[None]:
        database = self.databases[position]
        with database.named(), translated(database.check_schema):
            yield

    @override
    def bring(self, tx: ShardTransaction, epoch: Epoch) -> None:
        position = next(n for n, (_, each) in self._blocks.items() if each is tx)
        with self.databases[position].begin() as own:
            assert isinstance(own, ShardTransaction)  # noqa: S101 - for mypy
            announce(own, epoch)

    def commit(self) -> None:
        """Commit all databases; the coordinator first with an entry of the audit, else last."""
        coordinator, order = self.shard_map.coordinator, sorted(self._blocks)
        if coordinator in order:
            order.remove(coordinator)
            order.insert(0 if self.audited else len(order), coordinator)
        with ExitStack() as blocks:  # rolls back those after a database that fails
            for position in reversed(order):
                blocks.push(self._blocks[position][0].__exit__)
            self._blocks = {}

    def roll_back(self, error: BaseException) -> RecrawlError | None:
        """Roll back all databases; return the service's error for an error of the driver."""
        blocks, self._blocks = self._blocks, {}
        failure: RecrawlError | None = None
        for position in sorted(blocks, key=lambda position: position != self._latest):
            try:
                blocks[position][0].__exit__(type(error), error, error.__traceback__)
            except RecrawlError as translation:
                failure = failure or translation
            except BaseException:  # noqa: BLE001, S110 - `error` is raised again
                pass
        return failure
