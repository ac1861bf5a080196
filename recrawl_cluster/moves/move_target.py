"""The target of a move: what waits beside its tables, and the commit that puts the shard in use."""

from recrawl_cluster.moves.move_rows import (
    ACTIVE,
    EPOCHS,
    LOG_FILES,
    PREFIX,
    SCHEDULE,
    URL_GROUPS,
    Driver,
    Table,
    copy_table,
    shard_range,
)
from recrawl_cluster.store.claims import claimed, write_claim
from service.storage.postgres.partitions import partitions
from service.storage.queue.columns import NEVER_FILLED
from service.storage.stores.postgres import PostgresTransaction

WAITING = (*ACTIVE, SCHEDULE, EPOCHS, URL_GROUPS, LOG_FILES)
"""Tables whose rows wait beside the tables of the target until the shard is in use there."""
SEQUENCES = ("pages", "page_id"), ("hosts", "host_id"), ("host_groups", "group_id")
OF_SEQUENCE = """
CAST(quote_ident(schemaname) || '.' || quote_ident(sequencename) AS regclass)
    = CAST(%(name)s AS regclass)
"""
LAST = f"SELECT coalesce(last_value, 0) FROM pg_sequences WHERE {OF_SEQUENCE}"
ADVANCE = f"SELECT setval(CAST(%(name)s AS regclass), greatest(%(last)s, ({LAST})))"


def aside(table: Table) -> str:
    """Return the name of the table in which rows wait."""
    return f"{PREFIX}{table.name}"


def make_room(tx: PostgresTransaction) -> None:
    """Create the tables in which rows wait."""
    for table in WAITING:
        tx.once(f"CREATE TABLE IF NOT EXISTS {aside(table)} (LIKE {table.name})")


def drop_room(tx: PostgresTransaction) -> None:
    """Drop the tables in which rows wait."""
    for table in WAITING:
        tx.once(f"DROP TABLE IF EXISTS {aside(table)}")


def copy_schedule(
    source: PostgresTransaction, target: PostgresTransaction, shard: int
) -> list[str]:
    """Copy the rows of the kept epochs; return the queries of the rows of both databases."""
    some, kept = shard_range(shard), ", ".join(map(str, sorted(source.kept()))) or "NULL"
    queries = [
        f"{some.rows(SCHEDULE)} AND epoch IN ({kept})",
        f"{some.rows(EPOCHS)} AND epoch IN ({kept})",
        f"{some.rows(URL_GROUPS)} AND epoch IN ({kept}) AND shard = {shard}",
        some.rows(LOG_FILES),
    ]
    for table, query in zip((SCHEDULE, EPOCHS, URL_GROUPS, LOG_FILES), queries, strict=True):
        _refill(source.driver, target.driver, table, query)
    return queries


def copy_active(source: PostgresTransaction, target: PostgresTransaction) -> None:
    """Copy the rows that take effect, which the source has taken out of its tables."""
    for table in ACTIVE:
        query = f"SELECT {', '.join(table.columns)} FROM {aside(table)}"
        _refill(source.driver, target.driver, table, query)


def _refill(source: Driver, target: Driver, table: Table, query: str) -> None:
    target.execute(f"TRUNCATE {aside(table)}")
    copy_table(source, target, table, query, aside(table))


def waiting(table: Table) -> str:
    """Return the query of the rows that wait."""
    return f"SELECT {', '.join(table.columns)} FROM {aside(table)}"


def last_numbers(tx: PostgresTransaction, shard: int) -> list[int]:
    """Return the last numbers of pages, hosts and groups that the source has drawn."""
    return [int(tx.scalar(LAST, name=name) or 0) for name in _sequences(tx, shard)]


def _sequences(tx: PostgresTransaction, shard: int) -> list[str]:
    own = [tx.scalar("SELECT pg_get_serial_sequence(%(t)s, %(c)s)", t=t, c=c) for t, c in SEQUENCES]
    return [f"page_ids_{shard}" if shard else own[0], *own[1:]]


def add_schedules(tx: PostgresTransaction) -> None:
    """Add the epochs that the target has missed, with their partitions."""
    columns = ", ".join(EPOCHS.columns)
    tx.once(f"INSERT INTO epochs ({columns}) {waiting(EPOCHS)} ON CONFLICT DO NOTHING")
    numbers = {epoch for (epoch,) in tx.once(f"SELECT epoch FROM {aside(EPOCHS)}")}
    there = partitions(tx, "schedule")
    for epoch in sorted(numbers):
        name = f"schedule_{epoch}"
        if name not in there:
            tx.once(f"CREATE TABLE {name} (LIKE schedule, CHECK (epoch = {epoch}))")
            tx.once(f"ALTER TABLE schedule ATTACH PARTITION {name} FOR VALUES IN ({epoch})")


def activate(tx: PostgresTransaction, shard: int, last: list[int]) -> None:
    """Put the shard in use here: this commit is the end of the move.

    The next round of the process that runs epochs queues the due pages.
    """
    claim = claimed(tx)
    if shard in claim.numbers:  # an earlier attempt has committed
        return
    write_claim(tx, claim.with_shards(claim.numbers | {shard}))
    for name, number in zip(_sequences(tx, shard), last, strict=True):
        if number:
            tx.scalar(ADVANCE, name=name, last=number)
    add_schedules(tx)
    tx.once(f"DELETE FROM schedule WHERE {shard_range(shard).within(SCHEDULE)}")
    for table in (*ACTIVE, SCHEDULE):
        columns = ", ".join(table.columns)
        tx.once(f"INSERT INTO {table.name} ({columns}) {waiting(table)}")
    for table in (URL_GROUPS, LOG_FILES):
        columns = ", ".join(table.columns)
        tx.once(f"INSERT INTO {table.name} ({columns}) {waiting(table)} ON CONFLICT DO NOTHING")
    tx.set_filled(NEVER_FILLED)
