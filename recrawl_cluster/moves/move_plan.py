"""Choose the move of a command: a new one, or the one that is not complete."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from recrawl_cluster.moves.move_record import Record, position_of, read_record, start
from recrawl_cluster.moves.move_rows import ACTIVE, LOG, counts, shard_range
from recrawl_cluster.sharded import ShardedStore
from recrawl_cluster.store.claims import Claim, claimed
from recrawl_cluster.store.database import ShardDatabase
from service.model.errors import MoveRefused, ShardMoving
from service.model.words import counted
from service.storage.postgres.connections import translated
from service.storage.postgres.leading import holding
from service.storage.stores.postgres import PostgresTransaction

SAME_NAMES = "SELECT name FROM host_groups WHERE name = ANY(%(names)s)"
MOVE_LOCK = 0x7265_6372_6D6F_7665  # "recrmove"


@contextmanager
def alone(store: ShardedStore) -> Iterator[None]:
    """Keep other processes from moving shards; raise `ShardMoving` while another one does."""
    coordinator = store.coordinator
    busy = ShardMoving
    with coordinator.named(), translated(), holding(coordinator.engine, MOVE_LOCK, busy):
        yield


def planned(store: ShardedStore, shard: int, to: str) -> Record:
    """Return the record of a move, new or not complete; raise as `Move.run` does."""
    store.read_claims()
    with store.coordinator.unchecked() as tx:
        record = read_record(tx)
    if record is None:
        record = start(store.shard_map, shard, to)
        giving, taking = (
            store.databases[position_of(store.shard_map, name)]
            for name in (record.source, record.target)
        )
        source, target = _claim(giving), _claim(taking)
        if shard not in source.numbers:  # the map is in part that of the file
            raise MoveRefused(
                f"shard {shard} has left {record.source}, and the database that has it did not "
                "answer; run this again when all databases answer"
            )
        for claim in (source, target):
            if claim.adopted and shard == 0:
                raise MoveRefused(
                    "shard 0 of an adopted store stays, because the coordinator's table of hosts "
                    "tells which hosts are in it"
                )
        _check_groups(giving, taking, shard)
    elif (record.shard, record.target) != (shard, to):
        raise ShardMoving(
            f"{record}; run `recrawl shards move {record.shard} --to {record.target}` to go on, "
            "with --cancel to undo it"
        )
    return record


def _claim(database: ShardDatabase) -> Claim:
    with database.unchecked() as tx:
        return claimed(tx)


def _check_groups(source: ShardDatabase, target: ShardDatabase, shard: int) -> None:
    """Raise `MoveRefused` if the target has a group of a name that the shard brings."""
    moving = shard_range(shard).rows(ACTIVE[1]._replace(columns=("name",)))
    with source.unchecked() as tx:
        names = np.array([name for (name,) in tx.once(moving)], object)
    with target.unchecked() as tx:
        both = sorted(name for (name,) in tx.once(SAME_NAMES, names=names))
    if both:
        raise MoveRefused(
            f"both databases have a group {both[0]!r}; send DELETE /groups/{both[0]} until its "
            "status is 404, then create the group again"
        )


def sizes(store: ShardedStore, shard: int, to: str) -> str:
    """Return what a move would copy; raise as `Move.run` does."""
    record, some = planned(store, shard, to), shard_range(shard)
    with store.databases[position_of(store.start, record.source)].read_whole() as tx:
        assert isinstance(tx, PostgresTransaction)  # noqa: S101 - for mypy
        n_pages, _, n_validators, n_tags = counts(tx.driver, some)
        n_hosts = int(tx.scalar(f"SELECT count(*) FROM hosts WHERE {some.within(ACTIVE[0])}"))
        n_entries = int(tx.scalar(f"SELECT count(*) FROM ({some.rows(LOG)}) AS log"))
    return (
        f"shard {shard} would move from {record.source} to {to}: "
        f"{counted(n_hosts, 'host')}, {counted(n_pages, 'page')}, {counted(n_tags, 'tag')}, "
        f"{counted(n_validators, 'validator')}, {counted(n_entries, 'entry', 'entries')} of the log"
    )
