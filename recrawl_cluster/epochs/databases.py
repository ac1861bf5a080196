"""The databases of a sharded store, as the sources of the parts of an epoch.

A part of an epoch has one database or several. It reads each in one snapshot. It writes each in
one transaction, which checks that no later attempt of the epoch, and no later epoch, has begun.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
from typing_extensions import override

from recrawl_cluster.store.database import ShardDatabase, ShardTransaction
from recrawl_cluster.store.epochs import write_share
from recrawl_cluster.store.mapped import MappedDatabases
from recrawl_cluster.store.shard_map import ShardMap
from service.archive.log_archive import LogArchive
from service.epochs.inputs import Input, Task, load_divided
from service.epochs.part import PartSource, Run
from service.model.arrays import Bools, Ints
from service.model.calendars import ALWAYS_OPEN, Calendars
from service.model.columns import ScheduleColumns
from service.model.errors import ShardMoved
from service.storage.epochs.contract import Learnt


class Databases(ABC):
    """Some databases of a sharded store."""

    shard_map: ShardMap
    positions: tuple[int, ...]
    """Positions of the databases in the map."""

    @abstractmethod
    def opened(self, position: int) -> AbstractContextManager[ShardDatabase]:
        """Return the store on one of the databases."""

    def load(self, task: Task) -> dict[int, Input]:
        """Return the input of each logical shard, each database as of one instant."""
        inputs: dict[int, Input] = {}
        nothing: dict[int, Input] = {}
        for position in self.positions:
            with self.opened(position) as store, store.read_whole() as tx:
                own = load_divided(tx, task)
            inputs |= {shard: part for shard, part in own.items() if len(part.pages)}
            nothing = own
        return dict(sorted((inputs or nothing).items()))

    def prepare(self, run: Run, schedule: ScheduleColumns, learnt: Learnt) -> None:
        """Write the schedule and what the epoch learnt, in place of an earlier attempt."""
        of_pages = self.shard_map.databases_of_ids(schedule.page_id)
        for position in self.positions:
            own = _share(self.shard_map, position, learnt)
            with self.opened(position) as store, store.begin() as tx:
                assert isinstance(tx, ShardTransaction)  # noqa: S101 - for mypy
                rows = schedule.where(of_pages == position)
                write_share(tx, run.epoch, rows, run.attempt)
                tx.save_learnt(run.epoch, own)


def _share(shard_map: ShardMap, position: int, learnt: Learnt) -> Learnt:
    """Return what an epoch learnt of the pages and hosts of one database."""
    shards = shard_map.databases[position].shards
    tables = {shard: each for shard, each in learnt.of_shards.items() if shard in shards}
    if learnt.change_hours is None:
        return Learnt(tables)

    def own(host_id: Ints) -> Bools:
        return np.asarray(shard_map.databases_of_ids(host_id) == position)

    hours, groups, screens = learnt.change_hours, learnt.group_hours, learnt.group_screens
    return Learnt(
        tables,
        hours.where(own(hours.host_id)),
        groups.where(own(groups.host_id)),
        screens.where(own(screens.host_id)),
    )


@dataclass(frozen=True)
class OpenDatabases(Databases):
    """Databases that a store of this process has open."""

    store: MappedDatabases
    positions: tuple[int, ...]

    @property
    @override
    def shard_map(self) -> ShardMap:  # type: ignore[override]
        return self.store.shard_map

    @override
    def opened(self, position: int) -> AbstractContextManager[ShardDatabase]:
        return nullcontext(self.store.databases[position])


@dataclass(frozen=True)
class RemoteDatabases(Databases):
    """Databases that another process opens for the time of a question."""

    shard_map: ShardMap = field(repr=False)
    positions: tuple[int, ...]
    width: int
    """Number of columns of the estimator."""
    archive: LogArchive | None = None
    calendars: Calendars = ALWAYS_OPEN

    @override
    def opened(self, position: int) -> AbstractContextManager[ShardDatabase]:
        store = ShardDatabase(position, self.shard_map, self.width)
        store.archive, store.calendars = self.archive, self.calendars
        return closing(store)


def in_this_process(store: MappedDatabases) -> Sequence[PartSource]:
    """Return a source for each database, for this process; raise `ShardMoved`."""
    _whole(store)
    return [OpenDatabases(store, (n,)) for n in range(len(store.databases))]


def for_processes(store: MappedDatabases, n_processes: int | None = None) -> Sequence[PartSource]:
    """Return sources for other processes: one for each database, at most `n_processes`.

    They take no exceptions of hosts along, because ids name their logical shards. Raise
    `ShardMoved` while a logical shard is on its way to another database.
    """
    n_databases = len(store.databases)
    n = min(n_processes or n_databases, n_databases)
    shard_map = replace(_whole(store), exceptions={})
    spans = np.array_split(np.arange(n_databases), n)
    own = store.coordinator
    rest = own.width, own.archive, own.calendars
    return [RemoteDatabases(shard_map, tuple(span.tolist()), *rest) for span in spans]


def _whole(store: MappedDatabases) -> ShardMap:
    """Return the map in force; raise `ShardMoved` while a logical shard is in no database."""
    shard_map = store.map_in_force()
    if shard_map.closed:
        raise ShardMoved
    return shard_map
