"""Incarnations in the SQL of Postgres.

A database is known by three numbers: that of the cluster, and the OIDs of database and table. A
dump that is restored has another OID at least. A physical copy has the same numbers, and after a
recovery another timeline.
"""

from contextlib import suppress
from typing import Any

import psycopg
from typing_extensions import override

from service.model.errors import StoreUnavailable
from service.model.incarnations import Numbers, Surroundings
from service.storage.incarnations.contract import IncarnationsSql
from service.storage.postgres.dialect import PostgresDialect

CLOCK = "CAST(extract(epoch FROM clock_timestamp()) * 1e6 AS bigint)"
CLUSTER = "SELECT CAST(system_identifier AS text) FROM pg_control_system()"
TABLES = """
SELECT (SELECT oid FROM pg_database WHERE datname = current_database()) || '/'
    || CAST(CAST('incarnations' AS regclass) AS oid)
"""
TIMELINE = """
SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END
"""
ALIVE = """
SELECT greatest((SELECT max(renewed_at) FROM leads), (SELECT max(at) FROM history),
    (SELECT max(requested_at) FROM epochs))
"""
"""Statement that finds a sign of life: a leader writes one every 5 s."""
SEQUENCES = """
SELECT CAST(oid AS regclass) FROM pg_class
WHERE relkind = 'S' AND pg_table_is_visible(oid) AND relname ~ '^page_ids_[0-9]+$'
UNION ALL SELECT CAST(pg_get_serial_sequence('pages', 'page_id') AS regclass)
"""
"""Statement that finds the sequences of page_ids: that of the table, and one for each further
logical shard."""
LAST_PAGES = f"""
SELECT {{which}}(coalesce(pg_sequence_last_value(name), 0)) FROM ({SEQUENCES}) AS page_ids (name)
"""
LAST = """
SELECT coalesce(pg_sequence_last_value(CAST(pg_get_serial_sequence('epochs', 'epoch')
        AS regclass)), 0),
    coalesce((SELECT max(seq) FROM feed), 0),
    coalesce(pg_sequence_last_value(CAST(pg_get_serial_sequence('audit', 'entry') AS regclass)), 0)
"""
NEXT_CHANGE = f"SELECT greatest((SELECT last_value FROM feed_seq), {CLOCK}) + 1"
ADVANCE_PAGES = f"""
SELECT setval(name, %(first)s, false) FROM ({SEQUENCES}) AS page_ids (name)
"""
ADVANCE_HOSTS = """
SELECT setval(name, greatest(%(first)s, coalesce(pg_sequence_last_value(name), 0) + 1), false)
FROM (
    SELECT CAST(pg_get_serial_sequence('hosts', 'host_id') AS regclass)
    UNION ALL SELECT CAST(pg_get_serial_sequence('host_groups', 'group_id') AS regclass)
) AS host_ids (name)
"""
"""Statement for ids by which the coordinator of several databases keeps the history of hosts."""
ADVANCE = """
SELECT setval(CAST(pg_get_serial_sequence('epochs', 'epoch') AS regclass), %(epoch)s, false),
    setval(CAST(pg_get_serial_sequence('audit', 'entry') AS regclass), %(entry)s, false)
"""


class PostgresIncarnations(IncarnationsSql, PostgresDialect):
    """Incarnations in the SQL of Postgres."""

    @override
    def surroundings(self) -> Surroundings:
        place = f"{self._told(CLUSTER)}/{self.tables()}"
        return Surroundings(place, self._told(TIMELINE), self.scalar(ALIVE))

    @override
    def tables(self) -> str:
        return str(self.scalar(TABLES))

    def _told(self, statement: str) -> str:
        """Return a value of the server; "" if this service of Postgres has no such function."""
        with suppress(psycopg.Error, StoreUnavailable):
            return self.scalar(statement) or ""
        return ""

    @override
    def last_numbers(self) -> Numbers:
        (last,) = self.run(LAST)
        epoch, change, entry = last
        return Numbers(self.scalar(LAST_PAGES.format(which="max")), epoch, change, entry)

    @override
    def least_last_page(self) -> int:
        return int(self.scalar(LAST_PAGES.format(which="min")))

    @override
    def next_change(self) -> int:
        return int(self.scalar(NEXT_CHANGE))

    @override
    def advance(self, first: Numbers) -> None:
        list(self.run(ADVANCE_PAGES, first=first.page))
        list(self.run(ADVANCE_HOSTS, first=first.page))
        values: dict[str, Any] = {"epoch": first.epoch, "entry": first.entry}
        list(self.run(ADVANCE, **values))
