"""One store over several Postgres databases, sharded by host."""

from pathlib import Path
from typing import Any


def opened(path: Path, width: int, **options: Any) -> Any:
    """Return the store that a map names."""
    from recrawl_cluster.store.shard_map import read_map
    from recrawl_cluster.store.store import ShardedStore

    return ShardedStore(read_map(path), width, **options)
