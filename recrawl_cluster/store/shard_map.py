"""The map of shards: hosts to logical shards, and logical shards to databases.

A host's logical shard is a stable hash of its name, unless the table of exceptions names another
one. Ids of pages, hosts and groups begin with the logical shard: `shard << 42 | n`. Therefore an id
names its database without a look-up, and keeps its value when its shard moves to another database.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import Ints
from service.model.errors import InvalidField, InvalidSettings
from service.model.urls import normalise_host

SHIFT = 42
"""Number of bits of an id below its logical shard; 52 bits in all, because JSON readers lose
integers beyond 2**53."""
FEWEST, MOST = 64, 1024
"""Limits of the number of logical shards."""
CLOSED = -1
"""Position in place of a database for a logical shard that is on its way to another database."""
HASHES_KEPT = 1 << 17
"""Maximum number of hosts whose hash is kept in memory."""


@lru_cache(HASHES_KEPT)
def hashed(host: str) -> int:
    """Return the hash of a host's name, the same in every process and version.

    >>> hashed("example.com") % 256, hashed("shop.example") % 256
    (102, 39)
    """
    return int.from_bytes(blake2b(host.encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True)
class Database:
    """One database of the map."""

    name: str
    url: str = field(repr=False)
    shards: frozenset[int]
    """Logical shards whose pages the database has."""
    n_given: int | None = None
    """Number of times that the database gave a shard away; None: its claim was not read yet."""


@dataclass(frozen=True)
class ShardMap:
    """The logical shards and their databases."""

    logical: int
    """Number of logical shards; it never changes."""
    databases: tuple[Database, ...]
    """Databases in the order of the file; their columns are concatenated in this order."""
    coordinator: int = 0
    """Position of the database with keys, audit, settings and the numbers of epochs."""
    exceptions: Mapping[str, int] = field(default_factory=dict)
    """Logical shards of hosts that do not follow the hash."""
    version: int = 1
    """Version of the assignment and of the exceptions; each change raises it."""

    @cached_property
    def database_of_shard(self) -> Ints:
        """(logical,) position of the database of each logical shard, or `CLOSED`."""
        table = np.full(self.logical, CLOSED, np.int64)
        for position, database in enumerate(self.databases):
            table[sorted(database.shards)] = position
        return table

    @property
    def closed(self) -> frozenset[int]:
        """Logical shards that no database has, because they are on their way."""
        return frozenset(np.flatnonzero(self.database_of_shard == CLOSED).tolist())

    def shard_of(self, host: str) -> int:
        """Return the logical shard of a host."""
        own = self.exceptions.get(host)
        return hashed(host) % self.logical if own is None else own

    def shards_of(self, hosts: NDArray[np.object_]) -> Ints:
        """Return the logical shard of each of (N,) hosts."""
        return np.fromiter(map(self.shard_of, hosts), np.int64, len(hosts))

    def databases_of_hosts(self, hosts: NDArray[np.object_]) -> Ints:
        """Return the position of the database of each of (N,) hosts."""
        return self.database_of_shard[self.shards_of(hosts)]

    def databases_of_ids(self, ids: Ints) -> Ints:
        """Return the position of the database of each id; of an id of no shard the coordinator."""
        shard = np.abs(ids) >> SHIFT
        is_valid = (shard < self.logical) & (ids != 0) & (ids != -1)
        return np.where(is_valid, self.database_of_shard[shard * is_valid], self.coordinator)

    @cached_property
    def stretches(self) -> tuple["Stretch", ...]:
        """Maximal runs of logical shards of one database, ascending."""
        table = self.database_of_shard
        starts = np.append(0, 1 + np.flatnonzero(np.diff(table)))
        ends = np.append(starts[1:], self.logical)
        return tuple(
            Stretch(int(table[start]), (start << SHIFT) - (start > 0), (end << SHIFT) - 1)
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        )


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range of ids whose pages are in one database: after < id <= last."""

    database: int
    after: int
    last: int


def read_map(path: Path) -> ShardMap:
    """Return the map of a TOML file; raise `InvalidSettings` that names every fault's place."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidSettings(
            f"RECRAWL_CLUSTER: {path} cannot be read: {error.strerror}"
        ) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSettings(f"RECRAWL_CLUSTER: {path} is not TOML: {error}") from error
    try:
        return map_of(content)
    except ValueError as error:
        raise InvalidSettings(f"RECRAWL_CLUSTER: {path}: {error}") from error


KEYS = {"logical", "version", "databases", "exceptions"}
DATABASE_KEYS = {"name", "url", "shards", "coordinator"}


def map_of(content: Mapping[str, Any]) -> ShardMap:
    """Return the map of the content of a file; raise `ValueError` that names place and remedy."""
    _check_keys("the file", content, KEYS)
    logical = _whole(content, "logical", FEWEST, MOST)
    version = _whole(content, "version", 1, 2**31, default=1)
    entries = content.get("databases")
    if not isinstance(entries, list) or not entries:
        raise ValueError("databases is missing; add a table [[databases]] for each database")
    databases = tuple(_database(entry, n, logical) for n, entry in enumerate(entries, 1))
    _check_unique("name", [database.name for database in databases])
    _check_unique("url", [database.url for database in databases])
    _check_assignment(databases, logical)
    chosen = [n for n, entry in enumerate(entries) if entry.get("coordinator", False)]
    if len(chosen) > 1:
        names = ", ".join(databases[n].name for n in chosen)
        raise ValueError(f"{names} are all coordinator; set coordinator = true in one of them")
    coordinator = chosen[0] if chosen else 0
    exceptions = content.get("exceptions", {})
    if not isinstance(exceptions, dict):
        raise ValueError("exceptions must be a table; write [exceptions] in single brackets")  # noqa: TRY004 - as below
    for host, shard in exceptions.items():
        if type(shard) is not int or not 0 <= shard < logical:
            raise ValueError(
                f"exceptions: {host} = {shard!r} is no logical shard; use 0 to {logical - 1}, and "
                "put the host in quotes"
            )
        _check_host(host)
    return ShardMap(logical, databases, coordinator, exceptions, version)


def _check_host(host: str) -> None:
    try:
        normal = normalise_host(host)
    except InvalidField as error:
        raise ValueError(f"exceptions: {error.detail}") from error
    if host != normal:
        raise ValueError(f"exceptions: {host!r} is not the host of a normal URL; write {normal!r}")


def _database(entry: Any, n: int, logical: int) -> Database:
    if not isinstance(entry, dict):
        raise ValueError("databases must be tables; write [[databases]] in double brackets")  # noqa: TRY004 - one kind of error for one kind of fault
    _check_keys(f"database {n}", entry, DATABASE_KEYS)
    url = entry.get("url")
    if not isinstance(url, str) or not url.startswith(("postgresql://", "postgres://")):
        raise ValueError(f"database {n}: url must be postgresql://USER@HOST/DATABASE")
    if type(entry.get("coordinator", False)) is not bool:
        raise ValueError(f"database {n}: coordinator must be true or false")
    shards = entry.get("shards", "")
    if not isinstance(shards, str):
        raise ValueError(f'database {n}: shards must be text such as "0-63, 70", not {shards!r}')  # noqa: TRY004 - as above
    name = entry.get("name", str(n))
    if not isinstance(name, str) or not name:
        raise ValueError(f"database {n}: name must be text that is not empty")
    return Database(name, url, parse_shards(shards, logical, f"database {n}"))


def parse_shards(text: str, logical: int, place: str = "shards") -> frozenset[int]:
    """Return the logical shards of a text; raise `ValueError`.

    >>> sorted(parse_shards("0-2, 7", 8))
    [0, 1, 2, 7]
    """
    shards: set[int] = set()
    for span in filter(None, (span.strip() for span in text.split(","))):
        first, dash, last = (end.strip() for end in span.partition("-"))
        last = last if dash else first
        is_span = first.isascii() and first.isdigit() and last.isascii() and last.isdigit()
        if not is_span or not int(first) <= int(last) < logical:
            raise ValueError(
                f"{place}: {span!r} is no range of logical shards; use numbers from 0 to "
                f'{logical - 1}, such as "0-{logical - 1}"'
            )
        shards |= set(range(int(first), int(last) + 1))
    return frozenset(shards)


def format_shards(shards: frozenset[int]) -> str:
    """Return the text of logical shards that `parse_shards` reads.

    >>> format_shards(frozenset({0, 1, 2, 7}))
    '0-2, 7'
    """
    ordered = np.array(sorted(shards), np.int64)
    runs = np.split(ordered, 1 + np.flatnonzero(np.diff(ordered) > 1)) if len(ordered) else []
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _check_keys(place: str, table: Mapping[str, Any], allowed: set[str]) -> None:
    if unknown := sorted(set(table) - allowed):
        raise ValueError(
            f"{place} has the unknown key {unknown[0]}; known are {', '.join(sorted(allowed))}"
        )


def _whole(
    content: Mapping[str, Any], name: str, least: int, most: int, default: int | None = None
) -> int:
    value = content.get(name, default)
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, not {value!r}")
    return value


def _check_unique(name: str, values: list[str]) -> None:
    for n, value in enumerate(values, 1):
        if (first := values.index(value) + 1) < n:
            raise ValueError(f"databases {first} and {n} have the same {name}; give each its own")


def _check_assignment(databases: tuple[Database, ...], logical: int) -> None:
    taken: dict[int, str] = {}
    for database in databases:
        for shard in sorted(database.shards):
            if shard in taken:
                raise ValueError(
                    f"shard {shard} is in {taken[shard]} and in {database.name}; keep one of them"
                )
            taken[shard] = database.name
    if missing := frozenset(range(logical)) - set(taken):
        raise ValueError(
            f"shards {format_shards(missing)} are in no database; add them to one of `shards`"
        )
