"""The store over several databases: the transactions on each, their commits, and the lead.

A transaction opens a transaction on a database at its first statement there. The end of the block
commits one database after the other. No database waits for another, so a failure in between leaves
the databases before it committed; callers send again, which is safe.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import structlog
from typing_extensions import override

from service.archive.log_archive import LogArchive
from service.model.columns import ScheduleColumns
from service.model.domain import Epoch
from service.model.errors import RecrawlError
from service.storage.clock import Clock
from service.storage.contract import Lead, Store, Transaction
from service.storage.history import Counted, Counter
from service.storage.sharding.claims import (
    adopted_hosts,
    check_claim,
    check_exceptions,
    read_claim,
)
from service.storage.sharding.coordinator import Coordinated
from service.storage.sharding.database import ShardDatabase, ShardTransaction
from service.storage.sharding.epochs import RUN, ShardedEpochs, announce, run_name
from service.storage.sharding.feed import ShardedFeed
from service.storage.sharding.lists import ShardedLists
from service.storage.sharding.log import ShardedLog
from service.storage.sharding.pages import ShardedPages
from service.storage.sharding.queue import ShardedHosts, ShardedQueue
from service.storage.sharding.shard_map import ShardMap

log = structlog.get_logger()

Begin = Callable[[int], AbstractContextManager[Transaction]]


class ShardedTransaction(
    ShardedPages,
    ShardedQueue,
    ShardedHosts,
    ShardedLists,
    ShardedLog,
    ShardedFeed,
    ShardedEpochs,
    Coordinated,
):
    """The statements of a store over several databases."""

    def __init__(self, store: "ShardedStore", begin: Begin) -> None:
        self.store = store
        self.shard_map = store.routes
        self.clock = store.clock
        self.counted: list[Counted] = []
        self.last_number = store.last_number
        self._begin = begin
        self._blocks: dict[int, tuple[AbstractContextManager[Transaction], ShardTransaction]] = {}

    @override
    def on(self, position: int) -> ShardTransaction:
        if position not in self._blocks:
            block = self._begin(position)
            tx = block.__enter__()
            assert isinstance(tx, ShardTransaction)  # noqa: S101 - for mypy
            self._blocks[position] = block, tx
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
            with suppress(RecrawlError):
                block.__exit__(None, None, None)

    @override
    def bring(self, tx: ShardTransaction, epoch: Epoch) -> None:
        position = next(n for n, (_, each) in self._blocks.items() if each is tx)
        with self.store.databases[position].begin() as own:
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

    def roll_back(self, *error: Any) -> None:
        """Roll back all databases."""
        blocks, self._blocks = self._blocks, {}
        for block, _ in blocks.values():
            with suppress(BaseException):
                block.__exit__(*error)


class ShardedStore(Store):
    """Pages, evidence and schedules in several Postgres databases."""

    last_number = 0
    """Number of the last epoch in force that this process has read."""

    def __init__(
        self, shard_map: ShardMap, width: int, *, clock: Clock | None = None, **limits: Any
    ) -> None:
        self.shard_map = self.routes = shard_map
        self.databases = tuple(
            ShardDatabase(database, shard_map, width, clock=clock, **limits)
            for database in shard_map.databases
        )
        self.coordinator = self.databases[shard_map.coordinator]
        self._counter = Counter()

    @property
    @override
    def parts(self) -> tuple[Store, ...]:
        return self.databases

    @property
    def clock(self) -> Clock:
        """Clock of the coordinator; a clock that is set replaces those of all databases."""
        return self.coordinator.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        for database in self.databases:
            database.clock = clock

    @property
    def counter(self) -> Counter:
        """Receiver of the events of all databases."""
        return self._counter

    @counter.setter
    def counter(self, counter: Counter) -> None:
        self._counter = counter
        for database in self.databases:
            database.counter = Forwarded(counter)

    @property
    def archive(self) -> LogArchive | None:
        """Archive of the log, the same for all databases."""
        return self.coordinator.archive

    @archive.setter
    def archive(self, archive: LogArchive | None) -> None:
        for database in self.databases:
            database.archive = archive

    @override
    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[ShardedTransaction]:
        with self.transaction(lambda n: self.databases[n].begin(write=write)) as tx:
            yield tx
        self.counter.add(tx.counted)

    @override
    @contextmanager
    def read_whole(self) -> Iterator[ShardedTransaction]:
        with self.transaction(lambda n: self.databases[n].read_whole()) as tx:
            yield tx

    @contextmanager
    def transaction(self, begin: Begin) -> Iterator[ShardedTransaction]:
        """Open a transaction whose transactions on databases `begin` opens."""
        tx = ShardedTransaction(self, begin)
        try:
            yield tx
        except BaseException as error:
            tx.roll_back(type(error), error, error.__traceback__)
            raise
        tx.commit()
        self.last_number = max(self.last_number, tx.last_number)
        if tx.published is not None:
            self.announce(tx.published, begin)

    def announce(self, published: Epoch, begin: Begin) -> None:
        """Announce a published epoch; a database that is away gets it later."""
        for n in range(len(self.databases)):
            try:
                with begin(n) as tx:
                    assert isinstance(tx, ShardTransaction)  # noqa: S101 - for mypy
                    announce(tx, published)
            except RecrawlError as error:  # the epoch is in force all the same
                log.warning("an epoch was not announced yet", reason=str(error))

    @override
    def wait_for_keys(self, within_s: float, ended: threading.Event) -> None:
        self.coordinator.wait_for_keys(within_s, ended)

    @override
    @contextmanager
    def lead(self) -> Iterator["ShardedLead"]:
        with ExitStack() as stack:
            first = self.shard_map.coordinator
            leads = {first: stack.enter_context(self.coordinator.lead())}
            for n, database in enumerate(self.databases):
                if n != first:
                    leads[n] = stack.enter_context(database.lead())
            yield ShardedLead(self, leads)

    @override
    @contextmanager
    def archiving(self) -> Iterator["ShardedLead"]:
        with ExitStack() as stack:
            leads = {
                n: stack.enter_context(database.archiving())
                for n, database in enumerate(self.databases)
            }
            yield ShardedLead(self, leads)

    @override
    def prepare(self, *, existing: bool = False) -> None:
        """Read the hosts of an adopted store, which its shard keeps."""
        self.coordinator.check()
        with self.coordinator.begin(write=False) as tx:
            claim = read_claim(tx)
            if claim is not None and claim.adopted:
                self._use(adopted_hosts(tx, self.shard_map))

    def _use(self, adopted: dict[str, int]) -> None:
        exceptions = {**self.shard_map.exceptions, **adopted}
        self.routes = replace(self.shard_map, exceptions=exceptions)
        for database in self.databases:
            database.shard_map = self.routes

    @override
    def check(self) -> None:
        for database in self.databases:
            database.check()
            with database.begin(write=False) as tx:
                check_claim(tx, self.shard_map, database.database)
        with self.coordinator.begin(write=False) as tx:
            check_exceptions(tx, self.shard_map)

    @override
    def check_ready(self) -> Sequence[str]:
        with ThreadPoolExecutor(len(self.databases)) as pool:
            outages = list(pool.map(outage_of, self.databases))
        coordinator = outages[self.shard_map.coordinator]
        if coordinator is not None:
            raise coordinator
        each = zip(self.databases, outages, strict=True)
        return [database.database.name for database, outage in each if outage is not None]

    @override
    def abort(self) -> None:
        for database in self.databases:
            database.abort()

    @override
    def close(self) -> None:
        self.counter.close()
        for database in self.databases:
            database.close()


def outage_of(database: ShardDatabase) -> RecrawlError | None:
    """Return the reason why a database is not ready; None: it is."""
    try:
        database.check_ready()
    except RecrawlError as error:
        return error
    return None


class Forwarded(Counter):
    """The counter of one database, which the store of all of them writes and closes."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter

    @override
    def add(self, counted: list[Counted]) -> None:
        self.counter.add(counted)


class ShardedLead(Lead):
    """The lead of all databases."""

    def __init__(self, store: ShardedStore, leads: dict[int, Any]) -> None:
        self.store = store
        self.leads = leads

    @override
    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[ShardedTransaction]:
        with self.store.transaction(lambda n: self.leads[n].begin(write=write)) as tx:
            yield tx

    @override
    def write_schedule(self, epoch: int, schedule: ScheduleColumns) -> None:
        with self.begin() as tx:
            tx.write_schedule(epoch, schedule)

    @override
    def allow(self, epoch: int, attempt: int) -> None:
        with self.begin() as tx:
            for each in tx.every():
                each.put_meta(RUN, run_name(epoch, attempt))

    @override
    def housekeep(self, keep_log_since: datetime | None, now: datetime) -> None:
        with self.begin(write=False) as tx:
            latest = tx.epoch_in_force()
        for n, lead in self.leads.items():
            self._catch_up(n, latest)
            lead.housekeep(keep_log_since, now)

    def _catch_up(self, position: int, latest: Epoch | None) -> None:
        """Announce the epoch in force to a database, so that it keeps the schedule."""
        if latest is None:
            return
        with self.begin() as tx:
            tx.know(tx.on(position), latest.epoch)

    @override
    def seal_log(self, before: datetime) -> None:
        for lead in self.leads.values():
            lead.seal_log(before)
