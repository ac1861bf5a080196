"""The store over several databases, its map of shards, and the lead of all databases."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog
from typing_extensions import override

from recrawl_cluster.batching.by_shard import ShardBatchers
from recrawl_cluster.epochs.databases import in_this_process
from recrawl_cluster.store.claims import (
    CLAIM,
    Claim,
    adopted_hosts,
    check_exceptions,
    checked,
    claim_from,
    in_force,
    read_claim,
)
from recrawl_cluster.store.database import ShardDatabase, ShardTransaction
from recrawl_cluster.store.epochs import RUN, announce, run_name
from recrawl_cluster.store.mapped import MappedDatabases
from recrawl_cluster.store.shard_map import ShardMap, format_shards, read_map
from recrawl_cluster.store.transaction import Begin, ShardedTransaction
from service.archive.log_archive import LogArchive
from service.batching.batcher import Flush
from service.batching.divided import ReportBatchers, SeveralBatchers
from service.budget.keeper import Keeper
from service.epochs.part import PartSource
from service.epochs.parts import SeveralSources
from service.estimation.rules import Rules
from service.leases.settle import LeaseSettler
from service.model.calendars import Calendars
from service.model.columns import ScheduleColumns
from service.model.domain import Epoch
from service.model.errors import RecrawlError, StoreUnavailable
from service.model.incarnations import Incarnation
from service.storage.clock import Clock
from service.storage.history.contract import Counted, Counter
from service.storage.postgres.connections import BATCH, Deadlines
from service.storage.stores.contract import Lead, Store
from service.storage.topics import Topic

log = structlog.get_logger()


class ShardedStore(MappedDatabases, Store, SeveralSources, SeveralBatchers):
    """Pages, evidence and schedules in several Postgres databases."""

    def __init__(
        self, shard_map: ShardMap, width: int, *, clock: Clock | None = None, **limits: Any
    ) -> None:
        super().__init__(shard_map, width, clock=clock, **limits)
        self._counter = Counter()

    @property
    @override
    def parts(self) -> tuple[Store, ...]:
        return self.databases

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

    @property
    def holds_new(self) -> bool:
        """True where new pages wait, the same for all databases."""
        return self.coordinator.holds_new

    @holds_new.setter
    def holds_new(self, holds_new: bool) -> None:
        for database in self.databases:
            database.holds_new = holds_new

    @property
    def calendars(self) -> Calendars:
        """Open hours of hosts, the same for all databases."""
        return self.coordinator.calendars

    @calendars.setter
    def calendars(self, calendars: Calendars) -> None:
        for database in self.databases:
            database.calendars = calendars

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
            failure = tx.roll_back(error)
            if failure is None or failure is error:
                raise
            raise failure from error
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
    def rings(self, topic: Topic) -> int:
        return sum(database.rings(topic) for database in self.databases)

    @override
    def writes_long(self) -> bool:
        return any(database.writes_long() for database in self.databases)

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
    def sources(self) -> Sequence[PartSource]:
        return in_this_process(self)

    @override
    def divided_batchers(
        self,
        rules: Rules,
        settler: LeaseSettler,
        n_writers: int,
        watch: Callable[[Flush], None],
        keeper: Keeper | None = None,
    ) -> ReportBatchers:
        return ShardBatchers(self, rules, settler, n_writers, watch, keeper)

    @override
    def prepare(self, *, existing: bool = False) -> None:
        """Read the claims, and the hosts of an adopted store, which its shard keeps."""
        self.coordinator.check()
        self.read_claims()
        with self.coordinator.unchecked() as tx:
            claim = read_claim(tx)
            if claim is not None and claim.adopted:
                self.adopted = adopted_hosts(tx, self.shard_map)
                exceptions = {**self.shard_map.exceptions, **self.adopted}
                self._use(replace(self.shard_map, exceptions=exceptions))

    @override
    def check(self) -> None:
        """Raise unless the coordinator answers, and the databases that answer fit the file.

        A database that is away is checked by its first transaction (`ShardDatabase.begin`).
        """
        self.coordinator.check()
        claims: list[Claim | None] = []
        for database in self.databases:
            try:
                database.check()
                text = database.entry(CLAIM)
            except StoreUnavailable as error:
                if database is self.coordinator:
                    raise
                log.warning("the service starts without a database", reason=error.detail)
                claims.append(None)
            else:
                claims.append(checked(claim_from(text), self.shard_map, database.database))
        self._use(in_force(self.shard_map, claims))
        with self.coordinator.unchecked() as tx:
            check_exceptions(tx, self.start)

    @override
    def recognise(self) -> None:
        for database in self.databases:
            try:
                database.recognise()
            except StoreUnavailable:  # a database that is away is recognised when it is back
                if database is self.coordinator:
                    raise

    @override
    def begin_incarnation(self) -> Sequence[Incarnation]:
        return [begun for database in self.databases for begun in database.begin_incarnation()]

    @override
    def check_ready(self) -> Sequence[str]:
        with ThreadPoolExecutor(len(self.databases)) as pool:
            outages = list(pool.map(outage_of, self.databases))
        coordinator = outages[self.shard_map.coordinator]
        if coordinator is not None:
            raise coordinator
        each = zip(self.databases, outages, strict=True)
        away = [database.database.name for database, outage in each if outage is not None]
        closed = self.map_in_force().closed
        return [*away, f"shards {format_shards(closed)}"] if closed else away

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


def opened(
    path: Path, width: int, *, clock: Clock | None = None, deadlines: Deadlines = BATCH
) -> ShardedStore:
    """Return the store of the map at a path, which the service finds by this entry point."""
    return ShardedStore(read_map(path), width, clock=clock, deadlines=deadlines)
