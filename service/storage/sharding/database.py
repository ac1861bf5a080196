"""One database of a sharded store: a store on Postgres whose ids begin with a logical shard."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.model.arrays import Ints, Keys
from service.model.errors import (
    ArchiveRunning,
    EpochRunning,
    RecrawlError,
    SchemaAhead,
    SchemaBehind,
    ShardUnavailable,
    StoreUnavailable,
)
from service.model.id_space import IdSpace
from service.storage.postgres import sql
from service.storage.postgres.statements import Statements
from service.storage.postgres.store import PostgresLead, PostgresStore
from service.storage.postgres.transaction import PostgresTransaction
from service.storage.sharding.shard_map import SHIFT, Database, ShardMap

ADD_HOSTS = f"""
INSERT INTO hosts (host_id, host)
SELECT (shard << {SHIFT}) + nextval(pg_get_serial_sequence('hosts', 'host_id')), host
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


RANGES = f"""
SELECT greatest(first - 1, 0) AS after, (
    SELECT max(page_id) FROM pages
    WHERE page_id >= first AND page_id < first + (1::bigint << {SHIFT})
)
FROM (SELECT shard << {SHIFT} FROM unnest(%(shard)s::bigint[]) AS given (shard)) AS shards (first)
ORDER BY first
"""
"""Statement that reads the range of the page_ids of each logical shard."""


class ShardTransaction(PostgresTransaction):
    """A transaction on one database of a sharded store."""

    has_shards = True
    add_pages_sql = sql.add_pages(**PAGE_ID)
    bring_pages_sql = sql.bring_pages(**PAGE_ID)

    def __init__(
        self, statements: Statements, width: int, shard_map: ShardMap, database: Database
    ) -> None:
        super().__init__(statements, width)
        self.database = database
        self.shard_map = shard_map
        self.foreign: Mapping[bytes, int] = {}
        """Ids of pages of other databases by their keys, as targets of redirects."""

    @override
    def page_ids(self, key: Keys, host: NDArray[np.object_] | None = None) -> Ints:
        page_id = super().page_ids(key)
        for row in np.flatnonzero(page_id == 0).tolist() if self.foreign else ():
            page_id[row] = self.foreign.get(key[row].tobytes(), 0)
        return page_id

    @override
    def page_ranges(self) -> IdSpace:
        shards = np.array(sorted(self.database.shards), np.int64)
        rows = self.run(RANGES, shard=shards)
        ranges = [(after, last) for after, last in rows if last is not None]
        return IdSpace(np.array(ranges, np.int64).reshape(-1, 2))

    @override
    def add_hosts(self, host: NDArray[np.object_]) -> None:
        self.run(ADD_HOSTS, host=host, shard=self.shard_map.shards_of(host))

    @override
    def host_ids(self, names: Sequence[str]) -> Ints:
        self.add_hosts(np.array(names, object))
        return super().host_ids(names)

    @override
    def group_id(self, group: str, near: str | None = None) -> int:
        shard = self.shard_map.shard_of(group if near is None else near)
        self.run(ADD_GROUP, name=group, shard=shard)
        return int(self.scalar(GROUP_ID, name=group))


class ShardDatabase(PostgresStore):
    """A store on one database of a sharded store; its outages name the database."""

    def __init__(self, database: Database, shard_map: ShardMap, width: int, **limits: Any) -> None:
        super().__init__(database.url, width, **limits)
        self.database = database
        self.shard_map = shard_map

    @override
    def new_transaction(self, statements: Statements) -> ShardTransaction:
        return ShardTransaction(statements, self.width, self.shard_map, self.database)

    @override
    @contextmanager
    def begin(self, *, write: bool = True) -> Iterator[PostgresTransaction]:
        with self.named(), super().begin(write=write) as tx:
            yield tx

    @override
    @contextmanager
    def read_whole(self) -> Iterator[PostgresTransaction]:
        with self.named(), super().read_whole() as tx:
            yield tx

    @override
    @contextmanager
    def lead(self) -> Iterator[PostgresLead]:
        with self.named(), super().lead() as lead:
            yield lead

    @override
    @contextmanager
    def archiving(self) -> Iterator[PostgresLead]:
        with self.named(), super().archiving() as lead:
            yield lead

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
        except (SchemaBehind, SchemaAhead, EpochRunning, ArchiveRunning) as error:
            error.extra = {"shard": self.database.name, **error.extra}
            raise

    def absent(self, error: RecrawlError) -> ShardUnavailable:
        """Return the error of an outage of this database."""
        detail = f"the database {self.database.name} of the shards is away: {error.detail}"
        return ShardUnavailable(detail, **{**error.extra, "shard": self.database.name})
