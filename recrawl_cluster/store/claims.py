"""Claims: each database records which shards it has, and these records are the map in force.

The file is only the start: `add` writes its spans into the claims of new databases, and `adopt`
writes that of a store that was never sharded. Later moves change the claims (`move`). A shard that
no claim names is on its way. The coordinator records the exceptions with their version. Each
database records the version that its new hosts follow. The hosts of an adopted store are in shard 0
whatever their hash. Therefore a process reads their names from the store's table of hosts at its
start.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from recrawl_cluster.store.database import ADD_SEQUENCE, EXCEPTIONS_VERSION, ShardDatabase
from recrawl_cluster.store.shard_map import (
    SHIFT,
    Database,
    ShardMap,
    format_shards,
    parse_shards,
)
from service.model.errors import ShardsDisagree
from service.storage.stores.postgres import PostgresTransaction

CLAIM = "shards"
"""Name of the entry of `meta` with the shards of a database."""
EXCEPTIONS = "shard_exceptions"
"""Name of the entry of `meta` of the coordinator with the version and the exceptions."""
ADOPTED_HOSTS = f"SELECT host FROM hosts WHERE host_id < (1::bigint << {SHIFT})"
SHARD_OF_HOST = f"SELECT host_id >> {SHIFT} FROM hosts WHERE host = %(host)s"
N_PAGES = "SELECT count(*) FROM (SELECT FROM pages LIMIT 1) AS one_page"


class Claim(NamedTuple):
    """The record of a database."""

    logical: int
    shards: str
    adopted: bool = False
    """True where shard 0 is a store that was never sharded."""
    n_given: int = 0
    """Number of times that the database gave a shard away (`ShardDatabase.transaction`)."""

    @property
    def numbers(self) -> frozenset[int]:
        """Logical shards of the database."""
        return parse_shards(self.shards, self.logical)

    def with_shards(self, numbers: frozenset[int]) -> "Claim":
        """Return the claim to these shards."""
        return self._replace(shards=format_shards(numbers))


def claim_of(shard_map: ShardMap, database: Database) -> Claim:
    """Return the claim of a new database of a map."""
    return Claim(shard_map.logical, format_shards(database.shards))


def read_claim(tx: PostgresTransaction) -> Claim | None:
    """Return the claim of a database; None: it has none."""
    return claim_from(tx.get_meta(CLAIM))


def claim_from(text: str | None) -> Claim | None:
    """Return the claim of an entry of `meta`."""
    return Claim(**json.loads(text)) if text else None


def write_claim(tx: PostgresTransaction, claim: Claim) -> None:
    """Write the claim of a database, and add the sequences of its shards."""
    put_claim(tx, claim)
    for shard in sorted(claim.numbers - {0}):
        tx.once(ADD_SEQUENCE.format(shard=shard))


def put_claim(tx: PostgresTransaction, claim: Claim) -> None:
    """Write the claim of a database whose shards have their sequences."""
    tx.put_meta(CLAIM, json.dumps(claim._asdict()))


def claimed(tx: PostgresTransaction) -> Claim:
    """Return the claim of a database that has joined."""
    claim = read_claim(tx)
    if claim is None:
        raise ShardsDisagree("the database has no shards; run `recrawl shards status`")
    return claim


def checked(claim: Claim | None, shard_map: ShardMap, database: Database) -> Claim:
    """Return a claim; raise `ShardsDisagree` for none, and for another number of shards."""
    if claim is None:
        raise ShardsDisagree(
            f"the database {database.name} has no shards yet; run `recrawl shards add`, or "
            "`recrawl shards adopt` for a store that has pages"
        )
    if claim.logical != shard_map.logical:
        raise ShardsDisagree(
            f"the database {database.name} has shards of {claim.logical}, RECRAWL_CLUSTER says "
            f"logical = {shard_map.logical}; correct the file"
        )
    return claim


def in_force(last: ShardMap, claims: Sequence[Claim | None]) -> ShardMap:
    """Return the map of the claims; a claim of None was not read, so `last` decides.

    Raise `ShardsDisagree` for a shard that two databases claim.
    """
    owner: dict[int, str] = {}
    for claim, database in zip(claims, last.databases, strict=True):
        for shard in checked(claim, last, database).numbers if claim is not None else ():
            if shard in owner:
                raise ShardsDisagree(
                    f"the databases {owner[shard]} and {database.name} both have shard {shard}; "
                    "one of them is an old copy: see docs/how-to/several-databases.md"
                )
            owner[shard] = database.name
    databases = tuple(
        replace(database, shards=database.shards - owner.keys(), n_given=None)
        if claim is None
        else replace(database, shards=claim.numbers, n_given=claim.n_given)
        for claim, database in zip(claims, last.databases, strict=True)
    )
    return replace(last, databases=databases)


def check_exceptions(tx: PostgresTransaction, shard_map: ShardMap) -> None:
    """Raise `ShardsDisagree` unless the coordinator has the map's version and exceptions."""
    stored = stored_exceptions(tx.get_meta(EXCEPTIONS))
    if stored == _table(shard_map):
        return
    version = stored["version"]
    if shard_map.version > version:
        raise ShardsDisagree(
            f"RECRAWL_CLUSTER has version {shard_map.version}, the coordinator has version "
            f"{version}; run `recrawl shards add`, then start every process with this file"
        )
    if shard_map.version < version:
        raise ShardsDisagree(
            f"RECRAWL_CLUSTER has version {shard_map.version}, the coordinator has version "
            f"{version}; use the newer file"
        )
    raise ShardsDisagree(
        f"the exceptions of RECRAWL_CLUSTER are not those of version {version}; raise `version` "
        "and run `recrawl shards add`"
    )


def _table(shard_map: ShardMap) -> dict[str, Any]:
    return {"version": shard_map.version, "exceptions": dict(shard_map.exceptions)}


def add(databases: tuple[ShardDatabase, ...], shard_map: ShardMap) -> list[str]:
    """Write the claims of empty databases and the exceptions; return the new databases.

    Raise `ShardsDisagree` for a database with pages and without a claim, or for shards that another
    database has. Raise it also for an exception whose host has pages in another shard.
    """
    claims: list[Claim | None] = []
    for database in databases:
        with database.unchecked() as tx:
            claims.append(read_claim(tx))
            if claims[-1] is None and tx.scalar(N_PAGES):
                raise ShardsDisagree(
                    f"the database {database.database.name} has pages and no shards; a store that "
                    "was never sharded joins by `recrawl shards adopt`"
                )
    joined = [
        claim or claim_of(shard_map, shard_map.databases[n]) for n, claim in enumerate(claims)
    ]
    _check_new(shard_map, claims)
    in_force(shard_map, joined)
    new = [n for n, claim in enumerate(claims) if claim is None]
    for n in new:
        with databases[n].unchecked(write=True) as tx:
            write_claim(tx, joined[n])
    _put_in_force(databases, shard_map)
    return [shard_map.databases[n].name for n in new]


def _check_new(shard_map: ShardMap, claims: Sequence[Claim | None]) -> None:
    """Raise `ShardsDisagree` for a new database whose shards in the file another one has."""
    owner = {
        shard: database.name
        for claim, database in zip(claims, shard_map.databases, strict=True)
        for shard in (claim.numbers if claim is not None else ())
    }
    for claim, database in zip(claims, shard_map.databases, strict=True):
        taken = sorted(database.shards & owner.keys()) if claim is None else []
        if taken:
            raise ShardsDisagree(
                f"shard {taken[0]} is in {owner[taken[0]]} already, not in the new database "
                f'{database.name}; leave it to {owner[taken[0]]} in the file, such as shards = "" '
                "for the new one, and move it by `recrawl shards move`"
            )


def _put_in_force(databases: tuple[ShardDatabase, ...], shard_map: ShardMap) -> None:
    """Put the exceptions in force, whatever processes add hosts meanwhile.

    First no database adds a host by older exceptions any more. Then the coordinator has the new
    ones, which each process reads as soon as a database refuses its host (`CHECK_VERSION`).
    """
    coordinator = databases[shard_map.coordinator]
    with coordinator.unchecked() as tx:
        stored = stored_exceptions(tx.get_meta(EXCEPTIONS))
        if stored["version"] >= shard_map.version:
            check_exceptions(tx, shard_map)
    hosts = stored["exceptions"].keys() | shard_map.exceptions.keys()
    try:
        for database in databases:
            with database.unchecked(write=True) as tx:
                tx.put_meta(EXCEPTIONS_VERSION, str(shard_map.version))
                _check_hosts(tx, hosts, shard_map)
    except ShardsDisagree:
        for database in databases:
            with database.unchecked(write=True) as tx:
                tx.put_meta(EXCEPTIONS_VERSION, str(stored["version"]))
        raise
    with coordinator.unchecked(write=True) as tx:
        tx.put_meta(EXCEPTIONS, json.dumps(_table(shard_map)))


def stored_exceptions(text: str | None) -> dict[str, Any]:
    """Return the version and the exceptions of an entry of `meta`."""
    table: dict[str, Any] = json.loads(text) if text else {"version": 0, "exceptions": {}}
    return table


def _check_hosts(tx: PostgresTransaction, hosts: Iterable[str], shard_map: ShardMap) -> None:
    """Raise `ShardsDisagree` for a host with pages in another shard than that of the map."""
    for host in hosts:
        stored, shard = tx.scalar(SHARD_OF_HOST, host=host), shard_map.shard_of(host)
        if stored is not None and stored != shard:
            raise ShardsDisagree(
                f"exceptions: {host} is in shard {stored} already, not in {shard}; an "
                "exception must precede the first page of its host, and stays as long as its pages"
            )


def adopt(databases: tuple[ShardDatabase, ...], shard_map: ShardMap) -> int:
    """Make a store that was never sharded the coordinator with shard 0; return its hosts.

    Raise `ShardsDisagree` unless the coordinator has shard 0 and no claim, and other databases have
    no pages.
    """
    coordinator = databases[shard_map.coordinator]
    name = coordinator.database.name
    if 0 not in coordinator.database.shards:
        raise ShardsDisagree(
            f"the adopted store becomes shard 0, which RECRAWL_CLUSTER does not give to the "
            f"coordinator {name}; correct the file"
        )
    for database in databases:
        with database.unchecked() as tx:
            if read_claim(tx) is not None:
                raise ShardsDisagree(f"the database {database.database.name} has shards already")
            if database is not coordinator and tx.scalar(N_PAGES):
                raise ShardsDisagree(
                    f"the database {database.database.name} has pages; only the coordinator can "
                    "be adopted"
                )
    with coordinator.unchecked(write=True) as tx:
        write_claim(tx, claim_of(shard_map, coordinator.database)._replace(adopted=True))
        n_hosts: int = tx.scalar("SELECT count(*) FROM hosts")
    return n_hosts


def adopted_hosts(tx: PostgresTransaction, shard_map: ShardMap) -> dict[str, int]:
    """Return the hosts of an adopted store that its shard 0 keeps, whatever their hash."""
    hosts = [host for (host,) in tx.run(ADOPTED_HOSTS)]
    away = shard_map.shards_of(np.array(hosts, object)) != 0
    return {hosts[row]: 0 for row in np.flatnonzero(away).tolist()}
