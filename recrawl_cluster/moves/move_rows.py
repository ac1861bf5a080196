"""The rows of a logical shard: which they are, how they are copied, and their checksums.

| rows | copied | by |
| --- | --- | --- |
| pages, states, tags, validators, log | in use, then the changed ones again | id of the page |
| hosts, groups, host queues, leases, incidents, change hours | after the shard is closed | id |
| schedule of the kept epochs, URL groups, names of files of the log | under the lead | id, epoch |

The first rows may be in two databases, because statements on all pages leave out the shards of
others (`ShardTransaction`). The others take effect wherever they are, such as a lease. Therefore
they leave their tables when the shard is closed, and enter those of the target with its claim. Due
pages without a lease are not copied: without host queues nobody takes them, and the target queues
its own.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import psycopg

from recrawl_cluster.store.shard_map import SHIFT
from service.storage.postgres.words import SHIFT as BLOCK_BITS
from service.storage.tables import (
    change_hours,
    crawl_days,
    deleted_hosts,
    due_pages,
    epochs,
    group_hours,
    host_groups,
    host_incidents,
    host_queues,
    hosts,
    log_files,
    observations,
    page_states,
    page_validators,
    pages,
    schedule,
    url_groups,
)

RowsT = TypeVar("RowsT")
NumbersT = TypeVar("NumbersT")
Driver = psycopg.Connection[tuple[object, ...]]
PREFIX = "moving_"
"""Start of the names of tables that a move adds."""


class Table(NamedTuple):
    """A table, its columns on Postgres, and the condition of the rows of a range of ids."""

    name: str
    columns: tuple[str, ...]
    within: str
    only: str = "true"
    """Condition of the rows of a range that move."""


def _table(table: object, within: str, only: str = "true") -> Table:
    columns = (c.name for c in table.columns if c.info.get("only") != "sqlite")  # type: ignore[attr-defined]
    return Table(table.name, tuple(f'"{name}"' for name in columns), within, only)  # type: ignore[attr-defined]


OF_PAGE = "page_id >= {first} AND page_id <= {last}"
PAGE_TABLES = tuple(_table(t, OF_PAGE) for t in (pages, page_states, page_validators))
LOG = _table(observations, OF_PAGE)
OF_HOST = "host_id >= {first} AND host_id <= {last}"
OF_QUEUE = (
    "(queue_id >= {first} AND queue_id <= {last} OR queue_id >= -{last} AND queue_id <= -{first})"
)
ACTIVE = (
    _table(hosts, OF_HOST),
    _table(host_groups, "group_id >= {first} AND group_id <= {last}"),
    _table(host_queues, OF_QUEUE),
    _table(crawl_days, OF_QUEUE),
    _table(due_pages, OF_PAGE, "(token IS NOT NULL OR n_unfinished IS NOT NULL)"),
    _table(deleted_hosts, OF_HOST),
    _table(change_hours, OF_HOST),
    _table(group_hours, OF_HOST),
    _table(host_incidents, OF_HOST),
)
"""Tables whose rows take effect in any database."""
SCHEDULE = _table(
    schedule, f"block >= {{first}} >> {BLOCK_BITS} AND block <= {{last}} >> {BLOCK_BITS}"
)
EPOCHS, URL_GROUPS = _table(epochs, "true"), _table(url_groups, "true")
LOG_FILES = _table(log_files, "last_page >= {first} AND first_page <= {last}")

TAGS = """
SELECT page_id, tag FROM page_tags JOIN tags USING (tag_id) WHERE {within}
"""
ROWS_OF_LOG = """
SELECT {columns} FROM observations WHERE {within}
UNION ALL SELECT {columns} FROM sealed_observations WHERE {within}
"""
CHECKSUM = """
SELECT count(*), coalesce(sum(CAST(CAST('x' || left(md5(CAST(moved AS text)), 15) AS bit(60))
    AS bigint)), 0) FROM ({rows}) AS moved
"""
"""Statement that reads the number of rows and a sum over the rows, whatever their order."""
PLAIN = (
    "SET LOCAL TimeZone = 'UTC'",
    "SET LOCAL DateStyle = 'ISO'",
    "SET LOCAL bytea_output = 'hex'",
    "SET LOCAL extra_float_digits = 1",
)
"""Settings with which two servers write a row as the same text."""


class Range(NamedTuple):
    """Ids from `first` to `last`, and of these only some if `ids` are given."""

    first: int
    last: int
    ids: tuple[int, ...] = ()

    def rows(self, table: Table) -> str:
        """Return the query of the rows of a table."""
        within = self.within(table)
        columns = ", ".join(table.columns)
        if table is LOG:
            return ROWS_OF_LOG.format(columns=columns, within=within)
        return f"SELECT {columns} FROM {table.name} WHERE {within} AND {table.only}"

    def within(self, table: Table) -> str:
        """Return the condition of the rows of a table."""
        if self.ids:
            return f"page_id = ANY('{{{','.join(map(str, self.ids))}}}'::bigint[])"
        return table.within.format(first=self.first, last=self.last)

    def tags(self) -> str:
        """Return the query of the tags of pages by their names."""
        return TAGS.format(within=self.within(LOG))

    def queries(self) -> list[str]:
        """Return the queries of all rows of pages."""
        return [*(self.rows(table) for table in (*PAGE_TABLES, LOG)), self.tags()]


def shard_range(shard: int) -> Range:
    """Return the ids of a logical shard."""
    return Range(max(shard << SHIFT, 1), ((shard + 1) << SHIFT) - 1)


def pipe(source: Driver, target: Driver, query: str, into: str) -> None:
    """Copy the rows of a query into a table of another database."""
    read, write = (
        f"COPY ({query}) TO STDOUT (FORMAT BINARY)",
        f"COPY {into} FROM STDIN (FORMAT BINARY)",
    )
    with (
        source.cursor() as reading,
        target.cursor() as writing,
        reading.copy(read) as rows,
        writing.copy(write) as copied,
    ):
        for block in rows:
            copied.write(block)


def copy_table(source: Driver, target: Driver, table: Table, query: str, into: str = "") -> None:
    """Copy rows of a table into that of another database, or into another table of it."""
    pipe(source, target, query, f"{into or table.name} ({', '.join(table.columns)})")


def copy_pages(source: Driver, target: Driver, some: Range) -> None:
    """Replace the rows of some pages in the target by those of the source."""
    delete_pages(target, some)
    for table in (*PAGE_TABLES, LOG):
        copy_table(source, target, table, some.rows(table))
    target.execute(
        "CREATE TEMP TABLE IF NOT EXISTS copied_tags (page_id bigint, tag text) "
        "ON COMMIT DELETE ROWS"
    )
    pipe(source, target, some.tags(), "copied_tags")
    target.execute(
        "INSERT INTO tags (tag) SELECT DISTINCT tag FROM copied_tags ORDER BY tag "
        "ON CONFLICT DO NOTHING"
    )
    target.execute(
        "INSERT INTO page_tags (tag_id, page_id) SELECT tag_id, page_id FROM copied_tags "
        "JOIN tags USING (tag)"
    )


def delete_pages(driver: Driver, some: Range) -> None:
    """Delete the rows of some pages."""
    for name in ("page_tags", "observations", "sealed_observations", "due_pages"):
        driver.execute(f"DELETE FROM {name} WHERE {some.within(LOG)}")
    for table in PAGE_TABLES:
        driver.execute(f"DELETE FROM {table.name} WHERE {some.within(table)}")


def checksums(driver: Driver, queries: Sequence[str]) -> list[tuple[int, int]]:
    """Return the number of rows and the sum of their hashes of each query."""
    for setting in PLAIN:
        driver.execute(setting)
    sums: list[tuple[int, int]] = []
    for query in queries:
        row = driver.execute(CHECKSUM.format(rows=query)).fetchone()
        assert row is not None  # noqa: S101 - an aggregate has one row
        sums.append((int(str(row[0])), int(str(row[1]))))
    return sums


def counts(driver: Driver, some: Range) -> list[int]:
    """Return the numbers of pages, states, validators and tags."""
    queries = [some.rows(table) for table in PAGE_TABLES] + [some.tags()]
    rows = (driver.execute(f"SELECT count(*) FROM ({q}) AS moved").fetchone() for q in queries)
    return [int(str(row[0])) if row else 0 for row in rows]


def read_both(
    read: Callable[[Driver, RowsT], NumbersT],
    source: Driver,
    of_source: RowsT,
    target: Driver,
    of_target: RowsT,
) -> tuple[NumbersT, NumbersT]:
    """Return what a function reads in two databases, both at one time."""
    with ThreadPoolExecutor(1) as other:
        theirs = other.submit(read, target, of_target)
        ours = read(source, of_source)
        return ours, theirs.result()
