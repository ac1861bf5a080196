"""The log of observations in the SQL of Postgres."""

import re
from collections.abc import Generator, Sequence
from contextlib import nullcontext
from datetime import datetime

import psycopg
from typing_extensions import override

from service.archive.log_archive import ArchivedFile
from service.model.arrays import Ints
from service.model.columns import EvidenceColumns, LogColumns
from service.model.errors import PartBusy, PartChanged
from service.storage.log.contract import ArchivedLog, LogPart
from service.storage.log.partitions import keep_house, old_partitions
from service.storage.postgres import binary
from service.storage.postgres.binary import copy_in, masked
from service.storage.postgres.dialect import PostgresDialect
from service.storage.postgres.partitions import LOCK_TIMEOUT, partitions
from service.storage.postgres.words import given

FEW = 100
"""Maximum entries of the log that are inserted; more entries are copied."""

LOGGED = ("page_id", "observed_at", "kind", "changed", "interval", "crawl_rate", "status")
"""Columns of entries without a weight."""
APPEND_LOG = """
COPY observations (page_id, observed_at, kind, changed, "interval", crawl_rate, status{weight})
FROM STDIN (FORMAT BINARY)
"""
WEIGHT = ", weight"

INSERT_LOG = f"""
INSERT INTO observations (page_id, observed_at, kind, changed, "interval", crawl_rate, status)
SELECT page_id, observed_at, kind, nullif(changed, -1::smallint), nullif("interval", 'NaN'),
    nullif(crawl_rate, 'NaN'), nullif(status, -1::smallint)
FROM {given(*LOGGED)}
"""
INSERT_WEIGHED = f"""
INSERT INTO observations
    (page_id, observed_at, kind, changed, "interval", crawl_rate, status, weight)
SELECT page_id, observed_at, kind, nullif(changed, -1::smallint), nullif("interval", 'NaN'),
    nullif(crawl_rate, 'NaN'), nullif(status, -1::smallint), nullif(weight, 'NaN')
FROM {given(*LOGGED, "weight")}
"""

LOG_OF = """
SELECT array_agg(page_id), array_agg(observed_at), array_agg(kind),
    array_agg(coalesce(changed, -1::smallint)), array_agg(coalesce("interval", 'NaN')),
    array_agg(coalesce(crawl_rate, 'NaN')), array_agg(coalesce(status, -1::smallint)),
    array_agg(coalesce(weight, 'NaN'))
FROM (
    SELECT * FROM {log} WHERE page_id = ANY(%(page_id)s::bigint[])
    ORDER BY page_id, observed_at, kind
) AS entries
"""

EVIDENCE_OF = """
SELECT array_agg(page_id), array_agg("interval"), array_agg(coalesce(changed, -1::smallint)),
    array_agg(coalesce(weight, 'NaN'))
FROM (
    SELECT * FROM {log}
    WHERE page_id = ANY(%(page_id)s::bigint[]) AND "interval" IS NOT NULL
    ORDER BY page_id, observed_at, kind
) AS entries
"""

PARTS = """
SELECT relname, greatest(reltuples, 0)::bigint AS n_rows FROM pg_inherits
JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent = 'sealed_observations'::regclass ORDER BY relname
"""
ESTIMATE = "SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = to_regclass(%(name)s)"
LATE = "SELECT count(*) FROM observations_default WHERE observed_at < %(before)s"

COPY_PART = """
COPY (
    SELECT page_id, observed_at, kind, coalesce(changed, -1::smallint),
        coalesce("interval", 'NaN'), coalesce(crawl_rate, 'NaN'), coalesce(status, -1::smallint),
        coalesce(weight, 'NaN')
    FROM {name} ORDER BY {day}page_id + 0, observed_at, kind
) TO STDOUT (FORMAT BINARY)
"""
"""Statement that sorts the whole part; `+ 0` keeps it from the index on page_id, whose order reads
the entries at random."""
BY_DAY = "(observed_at AT TIME ZONE 'UTC')::date, "
"""First key of the order of a part with several days; it costs two thirds more CPU."""
OF_A_DAY = re.compile(r"sealed_\d{4}_\d\d_\d\d_")
"""Start of the name of a part that was the partition of one day."""


class PostgresLog(ArchivedLog, PostgresDialect):
    """The log in the SQL of Postgres."""

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
        kinds |= {"interval": "f8", "crawl_rate": "f8", "status": "i2", "weight": "f8"}
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

    @override
    def append_log(self, entries: LogColumns) -> None:
        # inserting takes one message, copying three
        plain = entries.weight is None
        if len(entries) <= FEW:
            self.later(INSERT_LOG if plain else INSERT_WEIGHED, **entries.arrays())
            return
        columns = [masked(column) for column in entries.arrays().values()]
        self.copy(APPEND_LOG.format(weight="" if plain else WEIGHT), copy_in(columns))

    @override
    def stored_log(self, page_id: Ints) -> LogColumns:
        return self.columns(LogColumns, LOG_OF, page_id=page_id)

    @override
    def stored_evidence(self, page_id: Ints) -> EvidenceColumns:
        return self.columns(EvidenceColumns, EVIDENCE_OF, page_id=page_id)

    @override
    def housekeep(self, keep_log_since: datetime | None, now: datetime) -> None:
        keep_house(lambda: nullcontext(self), keep_log_since, now)
