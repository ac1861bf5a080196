"""Old days of the log on Postgres, set aside for the archive.

A partition of old days is detached and becomes a child of `sealed_observations` under a new name.
Nobody appends to it from then on, so it is copied without a lock, and dropped by the commit that
names its files. Each step takes one short transaction and waits at most `partitions.LOCK_TIMEOUT`
for a lock. Readers see detached entries all the time, because they read both tables.
"""

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
from typing_extensions import override

from service.archive.log_archive import ArchivedFile
from service.model.columns import LogColumns
from service.model.errors import PartBusy, PartChanged
from service.storage.archive import LogPart
from service.storage.archive_sql import ArchivedLog
from service.storage.postgres import binary
from service.storage.postgres.partitions import (
    LOCK_ATTEMPTS,
    LOCK_TIMEOUT,
    attempt,
    old_partitions,
    partitions,
)
from service.storage.postgres.statements import PostgresDialect

if TYPE_CHECKING:
    from service.storage.postgres.transaction import PostgresTransaction

PARTS = """
SELECT relname, greatest(reltuples, 0)::bigint AS n_rows FROM pg_inherits
JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent = 'sealed_observations'::regclass ORDER BY relname
"""
ESTIMATE = "SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = to_regclass(%(name)s)"
LATE = "SELECT count(*) FROM observations_default WHERE observed_at < %(before)s"
OLDEST_LATE = "SELECT min(observed_at) FROM observations_default WHERE observed_at < %(before)s"

COPY_PART = """
COPY (
    SELECT page_id, observed_at, kind, coalesce(changed, -1::smallint),
        coalesce("interval", 'NaN'), coalesce(crawl_rate, 'NaN'), coalesce(status, -1::smallint)
    FROM {name} ORDER BY {day}page_id + 0, observed_at, kind
) TO STDOUT (FORMAT BINARY)
"""
"""Statement that sorts the whole part; `+ 0` keeps it from the index on page_id, whose order reads
the entries at random."""
BY_DAY = "(observed_at AT TIME ZONE 'UTC')::date, "
"""First key of the order of a part with several days; it costs two thirds more CPU."""
OF_A_DAY = re.compile(r"sealed_\d{4}_\d\d_\d\d_")
"""Start of the name of a part that was the partition of one day."""


def seal(
    begin: Callable[[], AbstractContextManager["PostgresTransaction"]], before: datetime
) -> None:
    """Set aside the partitions that end before an instant, and entries outside of partitions."""
    with begin() as tx:
        names = old_partitions(partitions(tx, "observations"), before)
        steps = [detached(name) for name in names]
        if (oldest := tx.scalar(OLDEST_LATE, before=before)) is not None:
            steps.append(moved(oldest, before))
    for statements in steps:
        for _ in range(LOCK_ATTEMPTS):
            with begin() as tx:
                if attempt(tx, *statements):
                    break


def detached(name: str) -> tuple[str, ...]:
    """Return the statements that set a partition aside."""
    sealed = f"sealed_{name.removeprefix('observations_')}_{uuid4().hex[:8]}"
    return (
        f"ALTER TABLE observations DETACH PARTITION {name}",
        f"ALTER TABLE {name} RENAME TO {sealed}",
        f"ALTER TABLE {sealed} INHERIT sealed_observations",
    )


def moved(oldest: datetime, before: datetime) -> tuple[str, ...]:
    """Return the statements that set aside the old entries of the default partition."""
    sealed = f"sealed_{oldest:%Y_%m}_{uuid4().hex[:8]}"
    old = f"DELETE FROM observations_default WHERE observed_at < '{before.isoformat()}'"
    return (
        f"CREATE TABLE {sealed} (LIKE observations)",
        f"WITH old AS ({old} RETURNING *) INSERT INTO {sealed} SELECT * FROM old",
        f"CREATE INDEX ON {sealed} (page_id)",
        f"ANALYZE {sealed}",
        f"ALTER TABLE {sealed} INHERIT sealed_observations",
    )


class PostgresArchiving(ArchivedLog, PostgresDialect):
    """The parts of the log in the SQL of Postgres."""

    @override
    def log_parts(self, before: datetime) -> list[LogPart]:
        parts = [LogPart(row["relname"], row["n_rows"]) for row in self.read(PARTS)]
        names = old_partitions(partitions(self, "observations"), before)
        parts += [LogPart(name, self.scalar(ESTIMATE, name=name)) for name in names]
        n_late = self.scalar(LATE, before=before)
        return parts + ([LogPart("observations_default", n_late)] if n_late else [])

    @override
    def read_part(self, part: LogPart) -> Generator[LogColumns]:
        kinds = {"page_id": "i8", "observed_at": "M8[us]", "kind": "i2", "changed": "i2"}
        kinds |= {"interval": "f8", "crawl_rate": "f8", "status": "i2"}
        day = "" if OF_A_DAY.match(part.name) else BY_DAY
        statement = COPY_PART.format(name=part.name, day=day)
        try:
            for columns in binary.copied_blocks(self.driver, statement, kinds):
                yield LogColumns(**dict(zip(kinds, columns, strict=True)))
        except psycopg.errors.UndefinedTable as error:
            raise PartChanged from error

    @override
    def drop_part(self, part: LogPart, files: Sequence[ArchivedFile], now: datetime) -> None:
        self.name_files(files, now)
        try:
            self.once(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
            self.once(f"DROP TABLE {part.name}")
        except psycopg.errors.UndefinedTable as error:
            raise PartChanged from error
        except psycopg.errors.LockNotAvailable as error:
            raise PartBusy from error
