"""Reports and registrations of a store over several databases, divided by the shards of the items.

Each item belongs to the database of its page: that of the URL's host, or of the page_id. A redirect
to a host of another database is registered there first, in a transaction of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from recrawl_cluster.batching.divided import DividedBatcher, Division
from recrawl_cluster.store.shard_map import CLOSED, ShardMap
from recrawl_cluster.store.store import ShardedStore
from service.batching.batcher import Batcher, Flush
from service.batching.reports import (
    REGISTRATION_LIMITS,
    CommittedCrawls,
    CommittedPings,
    Recorder,
    Registrar,
    Registration,
    Registrations,
    Report,
    batched,
    lost_crawls,
    lost_pings,
)
from service.estimation.estimates import InForce, Rules
from service.ingest.record import PageNames
from service.leases.settle import LeaseSettler
from service.model.arrays import Bools, Ints
from service.model.columns import CrawlColumns, PingColumns
from service.model.errors import OUTAGES
from service.storage import Registered
from service.storage.pages.tagging import TaggedRows

ColumnsT = TypeVar("ColumnsT", CrawlColumns, PingColumns)


def selected(names: PageNames, rows: Ints) -> PageNames:
    """Return the names of some items, with the URLs that these items need."""
    row = names.row[rows]
    target = None if names.target is None else names.target[rows]
    needed = row if target is None else np.concatenate([row, target])
    kept = np.unique(needed[needed >= 0])

    def renumbered(old: Ints) -> Ints:
        return np.where(old >= 0, np.searchsorted(kept, old), -1)

    new_target = None if target is None or (target < 0).all() else renumbered(target)
    return PageNames(names.page_id[rows], renumbered(row), names.pages.take(kept), new_target)


def some_of(report: Report[ColumnsT], rows: Ints) -> Report[ColumnsT]:
    """Return the report of some items."""
    return replace(report, columns=report.columns.take(rows), names=selected(report.names, rows))


@dataclass(frozen=True, slots=True)
class Divider:
    """The division of jobs over the databases of a map."""

    shard_map: ShardMap

    def owners(self, names: PageNames) -> Ints:
        """Return the position of the database of each item."""
        by_id = self.shard_map.databases_of_ids(names.page_id)
        if not len(names.pages):
            return by_id
        of_url = self.shard_map.databases_of_hosts(names.pages.host)
        return np.where(names.row >= 0, of_url[names.row], by_id)

    def report(self, job: Report[ColumnsT]) -> list[Division[Report[ColumnsT]]]:
        """Return the divisions of a report."""
        owner = self.owners(job.names)
        databases = np.unique(owner).tolist()
        if len(databases) <= 1:
            n = databases[0] if databases else self.shard_map.coordinator
            return [Division(n, np.arange(len(owner)), job)]
        every = [(n, np.flatnonzero(owner == n)) for n in databases]
        return [Division(n, rows, some_of(job, rows)) for n, rows in every]

    def registration(self, job: Registration) -> list[Division[Registration]]:
        """Return the divisions of a registration."""
        owner = self.shard_map.databases_of_hosts(job.pages.host)
        databases = np.unique(owner).tolist()
        if len(databases) <= 1:
            n = databases[0] if databases else self.shard_map.coordinator
            return [Division(n, np.arange(len(owner)), job)]
        divisions = []
        for n in databases:
            rows = np.flatnonzero(owner == n)
            tags = None if job.tags is None else tags_of_rows(job.tags, rows)
            divisions.append(Division(n, rows, replace(job, pages=job.pages.take(rows), tags=tags)))
        return divisions


def tags_of_rows(tags: TaggedRows, rows: Ints) -> TaggedRows | None:
    """Return the tags of some ascending rows, numbered among these; None if none has tags."""
    here, pairs = np.isin(tags.row, rows), np.isin(tags.pair_row, rows)
    if not here.any():
        return None
    return TaggedRows(
        np.searchsorted(rows, tags.row[here]),
        np.searchsorted(rows, tags.pair_row[pairs]),
        tags.tag[pairs],
    )


OutcomeT = TypeVar("OutcomeT", CommittedCrawls, CommittedPings)


def united(
    lost: Callable[[int], OutcomeT],
) -> Callable[[Report[ColumnsT], Sequence[tuple[Ints, OutcomeT | None]]], OutcomeT]:
    """Return the function that puts outcomes of divisions into the order of the items."""

    def unite(_: Report[ColumnsT], parts: Sequence[tuple[Ints, OutcomeT | None]]) -> OutcomeT:
        outcomes = [lost(len(rows)) if part is None else part for rows, part in parts]
        back = np.argsort(np.concatenate([rows for rows, _ in parts]))
        whole: OutcomeT = type(outcomes[0]).concatenate(outcomes).take(back)
        return whole

    return unite


def united_registrations(
    job: Registration, parts: Sequence[tuple[Ints, Registered | None]]
) -> Registered:
    """Return the ids of registered pages, 0 for those of a database that is away."""
    page_id, created = np.zeros(len(job.pages), np.int64), np.zeros(len(job.pages), np.bool_)
    for rows, part in parts:
        if part is not None:
            page_id[rows], created[rows] = part
    return Registered(page_id, created)


@dataclass(frozen=True, slots=True)
class ShardRecorder:
    """The recorder of one database, which registers foreign targets of redirects first."""

    store: ShardedStore
    position: int
    recorder: Recorder

    def flush_crawls(self, jobs: list[Report[CrawlColumns]]) -> list[CommittedCrawls]:
        """Record crawls; items whose redirect leads to a database that is away are lost."""
        foreign: dict[bytes, int] = {}
        kept = [self._kept(job, self._know(job, foreign)) for job in jobs]
        some = [some_of(job, rows) for job, rows in zip(jobs, kept, strict=True)]
        now = max(job.now for job in jobs)
        with self.store.databases[self.position].begin() as tx:
            tx.foreign = foreign  # type: ignore[attr-defined]
            committed, sooner = self.recorder.record_crawls(tx, some)
        self.recorder.queue_apart(sooner, now)
        results, start = [], 0
        for job, rows in zip(jobs, kept, strict=True):
            own, start = committed.take(slice(start, start + len(rows))), start + len(rows)
            if len(rows) < len(job.columns):
                others = np.setdiff1d(np.arange(len(job.columns)), rows)
                own = united(lost_crawls)(job, [(rows, own), (others, None)])
            results.append(own)
        return results

    def _know(self, job: Report[CrawlColumns], foreign: dict[bytes, int]) -> Bools:
        """Add the ids of foreign URLs of a report; return which of its URLs stay unknown."""
        pages, away = job.names.pages, np.zeros(len(job.names.pages) + 1, np.bool_)
        if job.names.target is None:
            return away
        owner = self.store.shard_map.databases_of_hosts(pages.host)
        targets = np.unique(job.names.target[job.names.target >= 0])
        for n in np.unique(owner[targets]).tolist():
            rows = targets[owner[targets] == n]
            if n == self.position:
                continue
            if n == CLOSED:
                away[rows] = True
                continue
            try:
                ids = self._ids(n, job, rows)
            except OUTAGES:
                away[rows] = True
            else:
                keys = (key.tobytes() for key in pages.key[rows])
                foreign.update(zip(keys, ids.tolist(), strict=True))
        return away

    def _ids(self, position: int, job: Report[CrawlColumns], rows: Ints) -> Ints:
        """Return the ids of URLs in their database; register new ones, and queue them."""
        pages, settler = job.names.pages.take(rows), self.recorder.settler
        with self.store.databases[position].begin() as tx:
            page_id = tx.page_ids(pages.key)
            new = page_id == 0
            if job.register and new.any():
                page_id[new] = tx.register(pages.take(new), job.now).page_id
                if settler is not None:
                    settler.queue_pinged(tx, page_id[new], job.now)
        return page_id

    @staticmethod
    def _kept(job: Report[CrawlColumns], away: Bools) -> Ints:
        if job.names.target is None:
            return np.arange(len(job.columns))
        return np.flatnonzero(~away[job.names.target])


@dataclass(frozen=True, slots=True)
class ShardBatchers:
    """The batchers of a store over several databases, each divided by database."""

    store: ShardedStore
    rules: Rules
    settler: LeaseSettler
    n_writers: int
    watch: Callable[[Flush], None]

    def report(self, job: Report[ColumnsT]) -> list[Division[Report[ColumnsT]]]:
        """Return the divisions of a report by the map in force."""
        return Divider(self.store.map_in_force()).report(job)

    def registration(self, job: Registration) -> list[Division[Registration]]:
        """Return the divisions of a registration by the map in force."""
        return Divider(self.store.map_in_force()).registration(job)

    def _recorders(self) -> list[Recorder]:
        # rules in force of its own, because each database announces an epoch at another moment
        return [
            Recorder(database, InForce(self.rules), self.settler)
            for database in self.store.databases
        ]

    def crawls(self) -> Batcher[Report[CrawlColumns], CommittedCrawls]:
        """Return the batcher of crawls."""
        each = [
            batched(
                f"crawls-{n}",
                ShardRecorder(self.store, n, recorder).flush_crawls,
                self.n_writers,
                self.watch,
            )
            for n, recorder in enumerate(self._recorders())
        ]
        return DividedBatcher(each, self.report, united(lost_crawls))

    def pings(self) -> Batcher[Report[PingColumns], CommittedPings]:
        """Return the batcher of pings."""
        each = [
            batched(f"pings-{n}", recorder.flush_pings, self.n_writers, self.watch)
            for n, recorder in enumerate(self._recorders())
        ]
        return DividedBatcher(each, self.report, united(lost_pings))

    def registrations(self) -> Registrations:
        """Return the batcher of registrations."""
        each = [
            Batcher(
                f"registrations-{n}",
                Registrar(database, self.settler).flush,
                REGISTRATION_LIMITS,
                n_writers=self.n_writers,
            )
            for n, database in enumerate(self.store.databases)
        ]
        return DividedBatcher(each, self.registration, united_registrations)
