"""One database of a sharded store: a store on Postgres whose ids begin with a logical shard."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from typing_extensions import override

from recrawl_cluster.store.shard_map import SHIFT, Database, ShardMap
from service.model.arrays import Bools, Ints, Keys
from service.model.columns import EpochColumns, ShiftColumns
from service.model.errors import (
    ArchiveRunning,
    EpochRunning,
    RecrawlError,
    SchemaAhead,
    SchemaBehind,
    ShardMoved,
    ShardUnavailable,
    StoreUnavailable,
)
from service.model.id_space import IdSpace
from service.model.incarnations import Incarnation
from service.model.listing import TagColumns
from service.storage.incarnations.recognition import recognise, renewed
from service.storage.pages.postgres import brought_insertion, page_insertion
from service.storage.postgres.connections import taken, translated
from service.storage.postgres.statements import AUTOCOMMIT, PostgresRows, Statements
from service.storage.stores.postgres import PostgresLead, PostgresStore, PostgresTransaction

ADD_HOSTS = f"""
INSERT INTO hosts (host_id, host, known_at)
SELECT (shard << {SHIFT}) + nextval(pg_get_serial_sequence('hosts', 'host_id')), host, %(now)s
FROM (
    SELECT DISTINCT host, shard FROM unnest(%(host)s::text[], %(shard)s::bigint[])
        AS given (host, shard)
    WHERE NOT EXISTS (SELECT FROM hosts WHERE hosts.host = given.host)
    ORDER BY host
) AS new
ON CONFLICT DO NOTHING
"""
PAGE_ID = {
    "id": "page_id, ",
    "next_id": f"""(host_id >> {SHIFT} << {SHIFT}) + CASE host_id >> {SHIFT}
        WHEN 0 THEN nextval(pg_get_serial_sequence('pages', 'page_id'))
        ELSE nextval(CAST('page_ids_' || (host_id >> {SHIFT}) AS regclass)) END, """,
}
"""Id of a new page, which begins with the logical shard of its host. Each shard has a sequence,
because a schedule has blocks of consecutive ids. That of shard 0 is that of a store of one
database."""
ADD_SEQUENCE = "CREATE SEQUENCE IF NOT EXISTS page_ids_{shard}"
GROUP_ID = "SELECT group_id FROM host_groups WHERE name = %(name)s"
ADD_GROUP = f"""
INSERT INTO host_groups (group_id, name)
SELECT (%(shard)s::bigint << {SHIFT})
    + nextval(pg_get_serial_sequence('host_groups', 'group_id')), %(name)s
ON CONFLICT DO NOTHING
"""


ENTRY = "SELECT value FROM meta WHERE name = %(name)s"
EXCEPTIONS_VERSION = "shard_exceptions_version"
"""Name of the entry of `meta` with the version of the exceptions that new hosts follow."""
CHECK_VERSION = f"""
SELECT 1 / count(*) FROM (
    SELECT FROM meta WHERE name = '{EXCEPTIONS_VERSION}' AND value = %(version)s FOR SHARE
) AS in_force
"""
"""Statement that fails (by a division by zero) with other exceptions than those in force, and
keeps them in force until the transaction ends."""
CHECK_CLAIM = """
SELECT 1 / count(*) FROM meta WHERE name = 'shards'
    AND coalesce(CAST(CAST(value AS json) ->> 'n_given' AS integer), 0) = %(n_given)s
"""
"""Statement that fails (by a division by zero) after the database gave another shard away."""
GUARD = "RC017"
"""Code of the error of a write to a shard that the database gave away (`move_notes`)."""


class ShardTransaction(PostgresTransaction):
    """A transaction on one database of a sharded store.

    While a shard moves, its pages and states are in two databases. Therefore statements on all
    pages leave out the shards that the map has elsewhere.
    """

    has_shards = True
    add_pages_sql = page_insertion(**PAGE_ID)
    bring_pages_sql = brought_insertion(**PAGE_ID)

    def __init__(
        self, statements: Statements, width: int, shard_map: ShardMap, position: int
    ) -> None:
        super().__init__(statements, width)
        self.shard_map = shard_map
        self.position = position
        self.foreign: Mapping[bytes, int] = {}
        """Ids of pages of other databases by their keys, as targets of redirects."""

    @property
    def database(self) -> Database:
        """The database as the map of this transaction has it."""
        return self.shard_map.databases[self.position]

    def owns(self, ids: Ints) -> Bools:
        """Return which ids are of the shards of this database."""
        owned: Bools = self.shard_map.databases_of_ids(ids) == self.position
        return owned

    @override
    def page_ids(self, key: Keys, host: NDArray[np.object_] | None = None) -> Ints:
        page_id = super().page_ids(key)
        for row in np.flatnonzero(page_id == 0).tolist() if self.foreign else ():
            page_id[row] = self.foreign.get(key[row].tobytes(), 0)
        return page_id

    @override
    def page_ranges(self) -> IdSpace:
        ranges = super().page_ranges().ranges
        return IdSpace(ranges[self.owns(ranges[:, 1]) & (ranges[:, 1] > 0)])

    @override
    def load_columns(self) -> EpochColumns:
        columns = super().load_columns()
        return columns.where(self.owns(columns.page_id))

    @override
    def load_tags(self) -> TagColumns:
        tags = super().load_tags()
        return tags.where(self.owns(tags.page_id))

    @override
    def shifts(self, epoch: int) -> ShiftColumns:
        shifts = super().shifts(epoch)
        return shifts.where(self.owns(shifts.page_id))

    @override
    def redate_pages(self, after: int, last: int, now: datetime) -> None:
        for stretch in self.shard_map.stretches:
            first, end = max(after, stretch.after), min(last, stretch.last)
            if stretch.database == self.position and first < end:
                super().redate_pages(first, end, now)

    @override
    def _lock_states(self, page_id: Ints, *, scheduled: bool) -> PostgresRows:
        if not self.owns(page_id).all():
            raise ShardMoved
        return super()._lock_states(page_id, scheduled=scheduled)

    @override
    def add_hosts(self, host: NDArray[np.object_], now: datetime) -> None:
        shard = self.shard_map.shards_of(host)
        if not (self.shard_map.database_of_shard[shard] == self.position).all():
            raise ShardMoved
        self.later(CHECK_VERSION, version=str(self.shard_map.version))
        if self.run(ADD_HOSTS, host=host, shard=shard, now=now).rowcount:
            self.resume_pauses(host.tolist())

    @override
    def host_ids(self, names: Sequence[str]) -> Ints:
        self.add_hosts(np.array(names, object), self.now())
        return super().host_ids(names)

    @override
    def group_id(self, group: str, near: str | None = None) -> int:
        shard = self.shard_map.shard_of(group if near is None else near)
        self.run(ADD_GROUP, name=group, shard=shard)
        return int(self.scalar(GROUP_ID, name=group))


class ShardDatabase(PostgresStore):
    """A store on one database of a sharded store; its outages name the database."""

    setting = "RECRAWL_CLUSTER"

    def __init__(self, position: int, shard_map: ShardMap, width: int, **limits: Any) -> None:
        super().__init__(shard_map.databases[position].url, width, **limits)
        self.position = position
        self.shard_map = shard_map
        self.read_claims: Callable[[], None] = lambda: None
        """Function that reads the claims of all databases and replaces `shard_map`."""
        self.outage: RecrawlError | None = None
        """Reason why the claim could not be read."""

    @property
    def database(self) -> Database:
        """The database as the map in force has it."""
        return self.shard_map.databases[self.position]

    @property
    @override
    def name(self) -> str:
        return self.database.name

    @override
    def new_transaction(self, statements: Statements) -> ShardTransaction:
        return ShardTransaction(statements, self.width, self.shard_map, self.position)

    @override
    def transaction(self, statements: Statements, *, write: bool) -> PostgresTransaction:
        """Return the statements of one transaction.

        Its first message fails if the database has given a shard away since the map was read. A
        database that gained a shard works on with an older map.
        """
        tx = super().transaction(statements, write=write)
        assert isinstance(tx, ShardTransaction)  # noqa: S101 - for mypy
        if tx.database.n_given is not None:
            statements.later(CHECK_CLAIM, {"n_given": tx.database.n_given})
        return tx

    @override
    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[PostgresTransaction]:
        self._know_claim()
        with self.named(), super().begin(write=write) as tx:
            yield tx

    def _know_claim(self) -> None:
        """Read the claims if that of this database is not known; raise the outage if it is away."""
        if self.database.n_given is None:
            self.read_claims()
        if self.database.n_given is None:
            raise self.absent(self.outage or StoreUnavailable())

    @contextmanager
    def unchecked(self, *, write: bool = False) -> Iterator[PostgresTransaction]:
        """Open a transaction whatever the database's claim."""
        with self.named(), super().begin(write=write) as tx:
            yield tx

    def entry(self, name: str) -> str | None:
        """Return an entry of `meta`; raise the outage of a database that is away."""
        with (
            self.named(),
            translated(self.check_schema),
            taken(self.checking) as driver,
            driver.statements.transaction(AUTOCOMMIT) as statements,
        ):
            for (text,) in statements.run(ENTRY, {"name": name}, kept=False):
                return str(text)
        return None

    @override
    def recognise(self) -> None:
        recognise(self.unchecked, self.rng)

    @override
    def begin_incarnation(self) -> Sequence[Incarnation]:
        return (renewed(self.unchecked, self.rng),)

    @override
    @contextmanager
    def read_whole(self) -> Iterator[PostgresTransaction]:
        self._know_claim()
        with self.named(), super().read_whole() as tx:
            yield tx

    @override
    @contextmanager
    def lead(self) -> Iterator[PostgresLead]:
        with self.named(), super().lead() as lead:
            yield ShardLead(lead.heartbeat, self)

    @override
    @contextmanager
    def archiving(self) -> Iterator[PostgresLead]:
        with self.named(), super().archiving() as lead:
            yield ShardLead(lead.heartbeat, self)

    @override
    def check(self) -> None:
        with self.named():
            super().check()

    @override
    def check_ready(self) -> Sequence[str]:
        with self.named():
            return super().check_ready()

    @contextmanager
    def named(self) -> Iterator[None]:
        """Name this database in the errors of outages."""
        try:
            yield
        except ShardUnavailable:
            raise
        except StoreUnavailable as error:
            raise self.absent(error) from error
        except psycopg.DatabaseError as error:
            if not isinstance(error, psycopg.errors.DivisionByZero) and error.sqlstate != GUARD:
                raise
            self.read_claims()
            raise ShardMoved from error
        except (SchemaBehind, SchemaAhead, EpochRunning, ArchiveRunning) as error:
            error.extra = {"database": self.database.name, **error.extra}
            raise

    def absent(self, error: RecrawlError) -> ShardUnavailable:
        """Return the error of an outage of this database, which names it once."""
        if isinstance(error, ShardUnavailable):
            return ShardUnavailable(error.detail, **error.extra)
        detail = f"the database {self.database.name} of the shards is away: {error.detail}"
        return ShardUnavailable(detail, **{**error.extra, "database": self.database.name})


class ShardLead(PostgresLead):
    """The lead of one database, whose errors name the database."""

    store: ShardDatabase

    @override
    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[PostgresTransaction]:
        with self.store.named(), super().begin(write=write) as tx:
            yield tx
