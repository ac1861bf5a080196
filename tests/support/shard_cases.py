"""Sharded stores for tests."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from recrawl_cluster.sharded import ShardedStore
from recrawl_cluster.store.claims import add
from recrawl_cluster.store.shard_map import (
    Database,
    ShardMap,
    hashed,
    parse_shards,
    read_map,
)
from service.storage import CLUSTER
from support.live_server import Live, running

LOGICAL = 64
N_DATABASES = 3
SPANS = ("0-20", "21-42", "43-63")


def host_in(position: int, n: int = 0) -> str:
    """Return the n-th host that the map of three databases puts into one of them."""
    return host_in_shards(parse_shards(SPANS[position], LOGICAL), LOGICAL, n)


def host_in_shards(shards: Collection[int], logical: int, n: int = 0) -> str:
    """Return the n-th host whose hash is in some of the logical shards."""
    hosts = (host for i in range(10_000) if hashed(host := f"h{i}.test") % logical in shards)
    return next(islice(hosts, n, None))


def map_file(path: Path, urls: Sequence[str], head: str = "", tail: str = "") -> Path:
    """Write the file of the map of three databases."""
    tables = "".join(
        f'[[databases]]\nname = "db{n}"\nurl = "{url}"\nshards = "{span}"\n'
        f"coordinator = {str(n == 1).lower()}\n"
        for n, (url, span) in enumerate(zip(urls, SPANS, strict=True))
    )
    path.write_text(f"logical = {LOGICAL}\n{head}\n{tables}{tail}")
    return path


def joined_store(urls: Sequence[str], width: int) -> ShardedStore:
    """Return the store over three databases that are joined."""
    store = ShardedStore(shard_map_of(urls), width)
    add(store.databases, store.shard_map)
    return store


@contextmanager
def serving_shards(path: Path, urls: Sequence[str], **options: Any) -> Iterator[Live]:
    """Serve three databases that are joined."""
    file = map_file(path / "cluster.toml", urls)
    store = ShardedStore(read_map(file), 3)
    add(store.databases, store.shard_map)
    store.close()
    with running(f"{CLUSTER}:///{file}", **options) as live:
        yield live


GROUPED = {f"{name}.example": 30 for name in "abcdef"}
"""Hosts that tests put into one group, so they are in one logical shard."""


def shard_map_of(urls: Sequence[str], exceptions: Mapping[str, int] = GROUPED) -> ShardMap:
    """Return a map of three databases, the second of which is the coordinator."""
    databases = (
        Database(f"db{n}", url, parse_shards(span, LOGICAL))
        for n, (url, span) in enumerate(zip(urls, SPANS, strict=True))
    )
    return ShardMap(LOGICAL, tuple(databases), coordinator=1, exceptions=exceptions)
