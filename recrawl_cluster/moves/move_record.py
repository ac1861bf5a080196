"""The record of a move at the coordinator, and the run that may go on with it.

One shard moves at a time. The record stays from the first step to the last, so a move that was
killed goes on where it stopped. Each run writes its number into the databases, and each of its
transactions checks the number. Therefore a run that was stopped changes nothing after another one
took over.
"""

import json
from typing import NamedTuple

from recrawl_cluster.store.shard_map import CLOSED, ShardMap
from service.model.errors import MoveRefused, ShardMoving
from service.storage.stores.postgres import PostgresTransaction

RECORD = "moving"
"""Name of the entry of `meta` of the coordinator with the move that is not complete."""
RUN = "moving_run"
"""Name of the entry of `meta` with the number of the run that may write."""
PLACE = "moving_place"
"""Name of the entry of `meta` of the target with the last page that was copied."""
CHECK_RUN = "SELECT value FROM meta WHERE name = %(name)s FOR SHARE"
DROP = "DELETE FROM meta WHERE name = %(name)s"


class Record(NamedTuple):
    """A move that is not complete."""

    shard: int
    source: str
    target: str
    number: str
    """Number of the copy; a copy that begins anew has another one."""
    n_files: int
    """Number of files of the archive in both databases when the copy began."""

    def __str__(self) -> str:
        return f"shard {self.shard} is on its way from {self.source} to {self.target}"


def read_record(tx: PostgresTransaction) -> Record | None:
    """Return the move that is not complete."""
    text = tx.get_meta(RECORD)
    return Record(**json.loads(text)) if text else None


def write_record(tx: PostgresTransaction, record: Record | None) -> None:
    """Write the record of a move, or delete it."""
    if record is None:
        tx.run(DROP, name=RECORD)
    else:
        tx.put_meta(RECORD, json.dumps(record._asdict()))


def check_run(tx: PostgresTransaction, run: str) -> None:
    """Raise `ShardMoving` if another run has taken over; else nobody takes over before the end."""
    if tx.scalar(CHECK_RUN, name=RUN) != run:
        raise ShardMoving("another process went on with this move")


def start(shard_map: ShardMap, shard: int, to: str) -> Record:
    """Return the record of a new move; raise `MoveRefused` unless it is possible."""
    position_of(shard_map, to)
    if not 0 <= shard < shard_map.logical:
        raise MoveRefused(f"there is no shard {shard}; they are 0 to {shard_map.logical - 1}")
    position = int(shard_map.database_of_shard[shard])
    if position == CLOSED:
        raise MoveRefused(f"no database has shard {shard}; see `recrawl shards status`")
    source = shard_map.databases[position].name
    if source == to:
        raise MoveRefused(f"shard {shard} is in {to} already")
    return Record(shard, source, to, "", 0)


def position_of(shard_map: ShardMap, name: str) -> int:
    """Return the position of a database; raise `MoveRefused` for an unknown name."""
    names = [database.name for database in shard_map.databases]
    if name not in names:
        raise MoveRefused(f"RECRAWL_CLUSTER has no database {name}; it has {', '.join(names)}")
    return names.index(name)
