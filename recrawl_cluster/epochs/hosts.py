"""Epochs over one large database: its pages in parts by hosts, each computed by an actor.

The hosts of a part are whole in it, and so are siblings, caps, change hours and revisions. Their
ids lie anywhere among those of other parts. Therefore no part can write a block of the schedule
alone. The leader asks for the rows of one stretch of ids after the other. It writes them in one
transaction under its lead, so nothing but the lead decides who may publish.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NoReturn, TypeVar

import numpy as np
import structlog
from typing_extensions import override

from recrawl_cluster.epochs.actors import LOCAL, Actors
from service.archive.log_archive import LogArchive
from service.epochs.group_tables import PartShare, joined
from service.epochs.inputs import Input, Task, read, with_tables
from service.epochs.part import Run
from service.epochs.parts import EpochParts, in_this_process
from service.epochs.requests import of_other_shards
from service.model.calendars import ALWAYS_OPEN, Calendars
from service.model.columns import (
    CapColumns,
    ChangeHours,
    GroupHours,
    GroupScreens,
    ScheduleColumns,
)
from service.model.host_sets import NO_END, HostSet, host_sets
from service.storage import Lead, Store
from service.storage.epochs.contract import NOTHING, Learnt
from service.storage.epochs.schedule_blocks import SELDOM, long
from service.storage.postgres.words import PAGES
from service.storage.stores.postgres import PostgresLead, PostgresStore, PostgresTransaction

LEAST_PAGES = 250_000
"""Pages of a part below which the questions of an epoch cost more than an actor saves."""
MOST_PARTS = 8
"""Maximum number of parts. Each reads all rows of the database and skips those of the others."""
SAMPLED_BLOCKS = 4_096
"""Number of blocks of 8 KB by which hosts are divided; a sample errs by about 1 % of a part."""
TOGETHER = 8
"""Number of `STRETCH`es of ids whose rows the leader asks for at a time: half a million rows."""

T = TypeVar("T")

log = structlog.get_logger()


@dataclass(frozen=True)
class HostSource:
    """The pages of some hosts of a database, which another process reads."""

    url: str = field(repr=False)
    width: int
    """Number of columns of the estimator."""
    hosts: HostSet
    number: int
    """Number of the part; the first one has the requests of all."""
    archive: LogArchive | None = None
    calendars: Calendars = ALWAYS_OPEN

    def load(self, task: Task) -> dict[int, Input]:
        """Return the input of the part, as of one instant."""
        with closing(PostgresStore(self.url, self.width)) as store:
            store.archive, store.calendars = self.archive, self.calendars
            with store.read_whole() as tx:
                return {self.number: self._read(tx, task)}

    def _read(self, tx: PostgresTransaction, task: Task) -> Input:
        pages, digest = tx.load_hosts(self.hosts)
        whole, has = with_tables(tx, task, read(tx, task, pages), 0), self.hosts.has
        hours, revisions, requests = whole.change_hours, whole.revisions, whole.requests
        if hours is not None:  # evidence is that of the hosts of the lesson, which are own hosts
            hours = hours._replace(
                hosts=hours.hosts.where(has(hours.hosts.host_id)),
                groups=hours.groups.where(has(hours.groups.host_id)),
            )
        return whole._replace(
            caps=whole.caps.where(has(whole.caps.host_id)),
            change_hours=hours,
            revisions=None if revisions is None else revisions.where(has(revisions.host_id)),
            requests=requests if self.number == 0 else of_other_shards(requests),
            digest=digest,
        )

    def prepare(self, *_: object) -> NoReturn:
        """Refuse, because the leader writes."""
        raise TypeError("a part by hosts writes nothing; ask for its rows")


class HostParts(EpochParts):
    """Parts by hosts, for which the leader writes."""

    def __init__(self, parts: EpochParts, lead: PostgresLead) -> None:
        self.parts, self.lead, self.n_parts = parts, lead, parts.n_parts
        self.learnt = NOTHING

    @property
    @override
    def unwritten(self) -> Learnt:
        return self.learnt

    @override
    def ask(self, question: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        return self.parts.ask(question, arguments)

    @override
    def renew(self, which: Sequence[int]) -> None:
        self.parts.renew(which)

    @override
    def prepare(self, run: Run) -> None:
        shares = [share for share in self.ask_all("share") if share is not None]
        self.learnt = learnt_by_all(shares)
        names = [name for name in SELDOM if any(name in share.seldom for share in shares)]
        with self.lead.begin() as tx:
            tx.write_stretches(run.epoch, ahead(self._stretches(shares, names)), names)

    def _stretches(
        self, shares: Sequence[PartShare], names: list[str]
    ) -> Iterator[ScheduleColumns]:
        """Yield the rows of all parts in whole blocks, by ascending page_id."""
        ids = np.sort(np.concatenate([share.stretch for share in shares]))
        ends = (ids[TOGETHER::TOGETHER] | PAGES - 1) + 1
        for first, end in pairwise([0, *np.unique(ends).tolist(), NO_END]):
            parts = [rows for rows in self.ask_all("rows", first, end, names) if rows]
            columns = {name: np.concatenate([rows[name] for rows in parts]) for name in parts[0]}
            order = np.argsort(columns["page_id"], kind="stable")
            yield long({name: column[order] for name, column in columns.items()})


def learnt_by_all(shares: Sequence[PartShare]) -> Learnt:
    """Return what an epoch learnt in all parts."""
    tables = {0: joined([share.tables for share in shares])}
    hours = [share.change_hours for share in shares if share.change_hours is not None]
    if not hours:
        return Learnt(tables)
    hosts, records, screens = zip(*hours, strict=True)
    return Learnt(
        tables,
        ChangeHours.concatenate(hosts),
        GroupHours.concatenate(records),
        GroupScreens.concatenate(screens),
    )


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield items that are not None, while a thread makes the next one.

    >>> list(ahead(iter([3, 1, 2])))
    [3, 1, 2]
    """
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, items, None)
        while (item := following.result()) is not None:
            following = thread.submit(next, items, None)
            yield item


class ByHosts:
    """A runner of epochs over one database; `opened` places an actor for each part by hosts."""

    def __init__(self, actors: Actors) -> None:
        self.actors = actors

    @contextmanager
    def opened(self, store: Store, lead: Lead, task: Task) -> Iterator[EpochParts]:
        """Open the parts of an epoch; a database with few pages has one, in this process."""
        assert isinstance(store, PostgresStore)  # noqa: S101 - as the settings state
        assert isinstance(lead, PostgresLead)  # noqa: S101 - for mypy
        sources = host_sources(store, lead, self.n_workers())
        if len(sources) == 1:
            with in_this_process(store, lead, task) as whole:
                yield whole
            return
        with self.actors.placed(sources, task) as parts:
            yield HostParts(parts, lead)

    def n_workers(self) -> int:
        """Return the number of workers; of this machine, one for each core."""
        if self.actors.address == LOCAL:
            return len(os.sched_getaffinity(0))
        return self.actors.n_workers()


def host_sources(store: PostgresStore, lead: PostgresLead, n_workers: int) -> list[HostSource]:
    """Return the sources of parts with about as many pages each, at most `n_workers`."""
    with lead.begin(write=False) as tx:
        sizes, caps = tx.host_sizes(SAMPLED_BLOCKS), tx.load_caps()
    n_parts = min(n_workers, MOST_PARTS, int(sizes.n_pages.sum()) // LEAST_PAGES)
    sets = host_sets(sizes, capped_groups(caps), max(n_parts, 1))
    if len(sets) < n_parts:
        log.warning(
            "this process computes the epoch alone, because groups with a cap have too many hosts"
        )
    return [
        HostSource(store.url, store.width, hosts, number, store.archive, store.calendars)
        for number, hosts in enumerate(sets)
    ]


def capped_groups(caps: CapColumns) -> list[Any]:
    """Return the hosts of each group with a cap."""
    grouped = np.flatnonzero(caps.group_id)
    order = grouped[np.argsort(caps.group_id[grouped], kind="stable")]
    ends = np.flatnonzero(np.diff(caps.group_id[order])) + 1
    return np.split(caps.host_id[order], ends) if len(order) else []
