"""The databases of a store, and the map in force, which their claims name."""

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import structlog

from recrawl_cluster.store.claims import (
    CLAIM,
    EXCEPTIONS,
    Claim,
    checked,
    claim_from,
    in_force,
    stored_exceptions,
)
from recrawl_cluster.store.database import ShardDatabase
from recrawl_cluster.store.shard_map import ShardMap
from service.model.errors import RecrawlError, ShardsDisagree
from service.storage.clock import Clock

READ_AGAIN_S = 0.5
"""Minimum time between two readings of the claims for shards that no database has."""

log = structlog.get_logger()


class MappedDatabases:
    """Databases, and the map that names the database of each logical shard."""

    last_number = 0
    """Number of the last epoch in force that this process has read."""

    def __init__(
        self, shard_map: ShardMap, width: int, *, clock: Clock | None = None, **limits: Any
    ) -> None:
        self.start = self.shard_map = shard_map
        """The map of the file, and the map in force."""
        self.databases = tuple(
            ShardDatabase(n, shard_map, width, clock=clock, **limits)
            for n in range(len(shard_map.databases))
        )
        for database in self.databases:
            database.read_claims = self.read_claims
        self.adopted: Mapping[str, int] = {}
        """Hosts of an adopted store, which are in shard 0 whatever their hash."""
        self._reading = threading.Lock()
        self._read_at = -READ_AGAIN_S
        self.coordinator = self.databases[shard_map.coordinator]

    def map_in_force(self) -> ShardMap:
        """Return the map; read the claims again first if one of them is missing."""
        unread = any(database.n_given is None for database in self.shard_map.databases)
        if (unread or self.shard_map.closed) and time.monotonic() - self._read_at > READ_AGAIN_S:
            self.read_claims()
        return self.shard_map

    def read_claims(self) -> None:
        """Read the claims of all databases that answer, and use their map from now on."""
        before = self._read_at
        with self._reading:
            if self._read_at != before:  # another thread has read them meanwhile
                return
            with ThreadPoolExecutor(len(self.databases)) as pool:
                claims = list(pool.map(self._claim, self.databases))
            try:
                self._use(in_force(self._with_exceptions(), claims))
            except ShardsDisagree as error:  # the last map stays, whose databases refuse writes
                log.warning("the claims of the databases disagree", reason=error.detail)
            self._read_at = time.monotonic()

    def _with_exceptions(self) -> ShardMap:
        """Return the last map with the exceptions in force, if they are newer than those."""
        try:
            stored = stored_exceptions(self.coordinator.entry(EXCEPTIONS))
        except RecrawlError:  # new hosts are refused until the coordinator answers
            return self.shard_map
        if stored["version"] <= self.shard_map.version:
            return self.shard_map
        exceptions = {**stored["exceptions"], **self.adopted}
        return replace(self.shard_map, version=stored["version"], exceptions=exceptions)

    def _claim(self, database: ShardDatabase) -> Claim | None:
        """Return the claim of a database; None: it is away, or has no claim that fits."""
        try:
            claim = checked(claim_from(database.entry(CLAIM)), self.shard_map, database.database)
        except RecrawlError as error:
            database.outage = error
            return None
        return claim

    def _use(self, shard_map: ShardMap) -> None:
        self.shard_map = shard_map
        for database in self.databases:
            database.shard_map = shard_map

    @property
    def clock(self) -> Clock:
        """Clock of the coordinator; a clock that is set replaces those of all databases."""
        return self.coordinator.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        for database in self.databases:
            database.clock = clock
