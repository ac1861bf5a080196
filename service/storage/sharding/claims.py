"""Claims: each database records which shards it has, so that no map can point past its pages.

A map that contradicts a claim is refused at the start. The coordinator records the exceptions with
their version. `add` writes the claims of new databases, `adopt` that of a store that was never
sharded. The hosts of an adopted store are in shard 0 whatever their hash. Therefore a process
reads their names from the store's table of hosts at its start.
"""

import json
from typing import Any, NamedTuple

import numpy as np

from service.model.errors import ShardsDisagree
from service.storage.postgres.transaction import PostgresTransaction
from service.storage.sharding.database import ADD_SEQUENCE, ShardDatabase
from service.storage.sharding.shard_map import (
    SHIFT,
    Database,
    ShardMap,
    format_shards,
    parse_shards,
)

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


def claim_of(shard_map: ShardMap, database: Database) -> Claim:
    """Return the claim that a map expects of a database."""
    return Claim(shard_map.logical, format_shards(database.shards))


def read_claim(tx: PostgresTransaction) -> Claim | None:
    """Return the claim of a database; None: it has none."""
    text = tx.get_meta(CLAIM)
    return Claim(**json.loads(text)) if text else None


def write_claim(tx: PostgresTransaction, claim: Claim) -> None:
    """Write the claim of a database, and add the sequences of its shards."""
    tx.put_meta(CLAIM, json.dumps(claim._asdict()))
    for shard in sorted(parse_shards(claim.shards, claim.logical) - {0}):
        tx.once(ADD_SEQUENCE.format(shard=shard))


def check_claim(tx: PostgresTransaction, shard_map: ShardMap, database: Database) -> Claim:
    """Return the claim of a database; raise `ShardsDisagree` unless it is that of the map."""
    claim, expected = read_claim(tx), claim_of(shard_map, database)
    if claim is None:
        raise ShardsDisagree(
            f"the database {database.name} has no shards yet; run `recrawl shards add`, or "
            "`recrawl shards adopt` for a store that has pages"
        )
    if claim._replace(adopted=False) != expected:
        raise ShardsDisagree(
            f"the database {database.name} has shards {claim.shards or 'none'} of {claim.logical}, "
            f"RECRAWL_SHARDS says {expected.shards or 'none'} of {expected.logical}; correct the "
            "file"
        )
    return claim


def check_exceptions(tx: PostgresTransaction, shard_map: ShardMap) -> None:
    """Raise `ShardsDisagree` unless the coordinator has the map's version and exceptions."""
    stored = json.loads(tx.get_meta(EXCEPTIONS) or "{}")
    if stored == _table(shard_map):
        return
    version = stored.get("version", 0)
    if shard_map.version > version:
        raise ShardsDisagree(
            f"RECRAWL_SHARDS has version {shard_map.version}, the coordinator has version "
            f"{version}; run `recrawl shards add`, then start every process with this file"
        )
    if shard_map.version < version:
        raise ShardsDisagree(
            f"RECRAWL_SHARDS has version {shard_map.version}, the coordinator has version "
            f"{version}; use the newer file"
        )
    raise ShardsDisagree(
        f"the exceptions of RECRAWL_SHARDS are not those of version {version}; raise `version` "
        "and run `recrawl shards add`"
    )


def _table(shard_map: ShardMap) -> dict[str, Any]:
    return {"version": shard_map.version, "exceptions": dict(shard_map.exceptions)}


def add(databases: tuple[ShardDatabase, ...], shard_map: ShardMap) -> list[str]:
    """Write the claims of empty databases and the exceptions; return the new databases.

    Raise `ShardsDisagree` for a database with pages and without a claim, for shards that another
    database has, and for an exception whose host has pages in another shard.
    """
    claimed = {}
    for database in databases:
        with database.begin(write=False) as tx:
            claimed[database.database.name] = read_claim(tx), bool(tx.scalar(N_PAGES))
    for database in databases:
        claim, has_pages = claimed[database.database.name]
        if claim is not None:
            with database.begin(write=False) as tx:
                check_claim(tx, shard_map, database.database)
        elif has_pages:
            raise ShardsDisagree(
                f"the database {database.database.name} has pages and no shards; a store that was "
                "never sharded joins by `recrawl shards adopt`"
            )
        _check_exceptions_kept(database, shard_map)
    new = [each for each in databases if claimed[each.database.name][0] is None]
    for database in new:
        with database.begin() as tx:
            write_claim(tx, claim_of(shard_map, database.database))
    _write_exceptions(databases[shard_map.coordinator], shard_map)
    return [database.database.name for database in new]


def _write_exceptions(coordinator: ShardDatabase, shard_map: ShardMap) -> None:
    with coordinator.begin() as tx:
        stored = json.loads(tx.get_meta(EXCEPTIONS) or "{}")
        if stored.get("version", 0) >= shard_map.version:
            check_exceptions(tx, shard_map)
        tx.put_meta(EXCEPTIONS, json.dumps(_table(shard_map)))


def _check_exceptions_kept(database: ShardDatabase, shard_map: ShardMap) -> None:
    """Raise `ShardsDisagree` for a host with pages in another shard than its exception names."""
    with database.begin(write=False) as tx:
        for host, shard in shard_map.exceptions.items():
            stored = tx.scalar(SHARD_OF_HOST, host=host)
            if stored is not None and stored != shard:
                raise ShardsDisagree(
                    f"exceptions: {host} is in shard {stored} already, not in {shard}; an "
                    "exception must precede the first page of its host"
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
            f"the adopted store becomes shard 0, which RECRAWL_SHARDS does not give to the "
            f"coordinator {name}; correct the file"
        )
    for database in databases:
        with database.begin(write=False) as tx:
            if read_claim(tx) is not None:
                raise ShardsDisagree(f"the database {database.database.name} has shards already")
            if database is not coordinator and tx.scalar(N_PAGES):
                raise ShardsDisagree(
                    f"the database {database.database.name} has pages; only the coordinator can "
                    "be adopted"
                )
    with coordinator.begin() as tx:
        write_claim(tx, claim_of(shard_map, coordinator.database)._replace(adopted=True))
        n_hosts: int = tx.scalar("SELECT count(*) FROM hosts")
    return n_hosts


def adopted_hosts(tx: PostgresTransaction, shard_map: ShardMap) -> dict[str, int]:
    """Return the hosts of an adopted store that its shard 0 keeps, whatever their hash."""
    hosts = [host for (host,) in tx.run(ADOPTED_HOSTS)]
    away = shard_map.shards_of(np.array(hosts, object)) != 0
    return {hosts[row]: 0 for row in np.flatnonzero(away).tolist()}
