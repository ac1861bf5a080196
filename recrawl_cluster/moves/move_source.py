"""The source of a move: notes of changed pages, and the end of writes.

**Notes.** While rows are copied, triggers write the ids of changed pages of the shard into a table.
A page is copied again after each note. Only writes to the shard cost more.
**Closing.** One transaction waits for all writers, as a migration does. It takes the rows that take
effect out of their tables, and ends the database's claim to the shard. It also makes the triggers
refuse further writes to the shard. Every process that has the old map fails at its next
transaction and reads the claims again.
"""

from collections.abc import Iterable

from recrawl_cluster.moves.move_rows import (
    ACTIVE,
    LOG,
    PAGE_TABLES,
    PREFIX,
    Range,
    Table,
    shard_range,
)
from recrawl_cluster.sharded import ShardedStore
from recrawl_cluster.store.claims import claimed, put_claim
from recrawl_cluster.store.database import GUARD, ShardTransaction
from recrawl_cluster.store.epochs import announce
from service.storage.queue.columns import NEVER_FILLED
from service.storage.stores.postgres import PostgresTransaction

TRIGGER = f"{PREFIX}note"
NOTES = f"{PREFIX}notes"
NOTE = f"""
CREATE OR REPLACE FUNCTION {TRIGGER}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_ARGV[0] <> 'page' THEN RETURN NULL; END IF;
    IF TG_OP = 'DELETE' THEN
        INSERT INTO {NOTES} (page_id) VALUES (OLD.page_id);
    ELSE
        INSERT INTO {NOTES} (page_id) VALUES (NEW.page_id);
    END IF;
    RETURN NULL;
END $$
"""
REFUSE = f"""
CREATE OR REPLACE FUNCTION {TRIGGER}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the shard of this row is in another database' USING ERRCODE = '{GUARD}';
END $$
"""
LOCK_WRITERS = "LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE"
"""Statement that waits for all transactions that write, and holds up later ones."""
LOCK_S = 2
"""Maximum wait for writers, and of later writers, seconds."""
READ_NOTES = f"""
SELECT array_agg(n), array_agg(DISTINCT page_id)
FROM (SELECT n, page_id FROM {NOTES} ORDER BY n LIMIT %(limit)s) AS oldest
"""
DROP_NOTES = f"DELETE FROM {NOTES} WHERE n = ANY(%(n)s::bigint[])"
N_NOTES = f"SELECT count(*) FROM {NOTES}"
TAGGED = Table("page_tags", ("page_id", "tag_id"), LOG.within)


def watch(tx: PostgresTransaction, shard: int) -> None:
    """Note the changes of a shard from now on; do nothing if they are noted."""
    if tx.scalar("SELECT to_regclass(%(name)s) IS NOT NULL", name=NOTES):
        return
    _keep_writers_out(tx)
    tx.once(
        f"CREATE TABLE {NOTES} (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, page_id bigint)"
    )
    tx.once(NOTE)
    within = shard_range(shard)
    for table in (*PAGE_TABLES, TAGGED):
        _trigger(tx, table, within, "page", ("INSERT OR UPDATE", "DELETE"))
    _trigger(tx, LOG, within, "page", ("INSERT",))
    for table in ACTIVE:
        _trigger(tx, table, within, "active", ("INSERT OR UPDATE",))


def _trigger(
    tx: PostgresTransaction, table: Table, within: Range, kind: str, events: Iterable[str]
) -> None:
    condition = within.within(table)
    column = condition.lstrip("(").split()[0]
    for event in events:
        row = "OLD" if event == "DELETE" else "NEW"
        name = f"{TRIGGER}_delete" if event == "DELETE" else TRIGGER
        tx.once(
            f"CREATE TRIGGER {name} AFTER {event} ON {table.name} FOR EACH ROW "
            f"WHEN ({condition.replace(column, f'{row}.{column}')}) "
            f"EXECUTE FUNCTION {TRIGGER}('{kind}')"
        )


def read_notes(tx: PostgresTransaction, limit: int) -> tuple[list[int], list[int]]:
    """Return the oldest notes: their numbers, and the ids of their pages."""
    ((numbers, page_id),) = tx.run(READ_NOTES, limit=limit)
    return ([], []) if numbers is None else (numbers.tolist(), page_id.tolist())


def close(tx: PostgresTransaction, shard: int) -> None:
    """End the database's claim to a shard, and all writes to the shard."""
    _keep_writers_out(tx)
    claim = claimed(tx)
    if shard not in claim.numbers:  # an earlier attempt has committed
        return
    some = shard_range(shard)
    for table in ACTIVE:
        aside, columns = f"{PREFIX}{table.name}", ", ".join(table.columns)
        tx.once(f"CREATE TABLE {aside} (LIKE {table.name})")
        tx.once(f"INSERT INTO {aside} ({columns}) {some.rows(table)}")
        tx.once(f"DELETE FROM {table.name} WHERE {some.within(table)} AND {table.only}")
    tx.once(REFUSE)
    put_claim(tx, claim.with_shards(claim.numbers - {shard})._replace(n_given=claim.n_given + 1))


def reopen(tx: PostgresTransaction, shard: int) -> None:
    """Undo `close`: the shard is in use here again, and its changes are noted.

    A queue that was filled meanwhile lacks pages of the shard, so it will be filled again.
    """
    claim = claimed(tx)
    if shard in claim.numbers:
        return
    tx.once(NOTE)
    for table in ACTIVE:
        aside, columns = f"{PREFIX}{table.name}", ", ".join(table.columns)
        tx.once(f"INSERT INTO {table.name} ({columns}) SELECT {columns} FROM {aside}")
        tx.once(f"DROP TABLE {aside}")
    tx.set_filled(NEVER_FILLED)
    put_claim(tx, claim.with_shards(claim.numbers | {shard}))


def _keep_writers_out(tx: PostgresTransaction) -> None:
    tx.once(f"SET LOCAL lock_timeout = '{LOCK_S}s'")
    tx.once(LOCK_WRITERS)


def unwatch(tx: PostgresTransaction) -> None:
    """Drop the triggers, the notes and what was taken aside."""
    _keep_writers_out(tx)
    for name in (*(table.name for table in (*PAGE_TABLES, TAGGED)), LOG.name):
        tx.once(f"DROP TRIGGER IF EXISTS {TRIGGER}_delete ON {name}")
        tx.once(f"DROP TRIGGER IF EXISTS {TRIGGER} ON {name}")
    for table in ACTIVE:
        tx.once(f"DROP TRIGGER IF EXISTS {TRIGGER} ON {table.name}")
        tx.once(f"DROP TABLE IF EXISTS {PREFIX}{table.name}")
    tx.once(f"DROP FUNCTION IF EXISTS {TRIGGER}()")
    tx.once(f"DROP TABLE IF EXISTS {NOTES}")


def announce_epoch(tx: PostgresTransaction, store: ShardedStore) -> None:
    """Announce the epoch in force to the source: only schedules that it knows are copied.

    A leader that dies after it has published an epoch announces it to no database.
    """
    with store.begin(write=False) as whole:
        epoch = whole.epoch_in_force()
    if epoch is not None:
        assert isinstance(tx, ShardTransaction)  # noqa: S101 - for mypy
        announce(tx, epoch)
