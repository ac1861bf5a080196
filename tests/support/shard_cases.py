"""Sharded stores for tests."""

from collections.abc import Sequence

from service.storage.sharding.shard_map import Database, ShardMap, parse_shards

LOGICAL = 64
N_DATABASES = 3
SPANS = ("0-20", "21-42", "43-63")


def shard_map_of(urls: Sequence[str], **exceptions: int) -> ShardMap:
    """Return a map of three databases, the second of which is the coordinator."""
    databases = (
        Database(f"db{n}", url, parse_shards(span, LOGICAL))
        for n, (url, span) in enumerate(zip(urls, SPANS, strict=True))
    )
    return ShardMap(LOGICAL, tuple(databases), coordinator=1, exceptions=exceptions)
