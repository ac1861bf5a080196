"""Reports and registrations of a store over several databases, divided by the shards of the items.

Each item belongs to the database of its page: that of the URL's host, or of the page_id. A redirect
to a host of another database is registered there first, in a transaction of its own.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from recrawl_cluster.batching.divided import DividedBatcher, Division, Parts
from recrawl_cluster.store.mapped import MappedDatabases
from recrawl_cluster.store.shard_map import CLOSED, ShardMap
from service.batching.batcher import Batcher, Flush, ResultT
from service.batching.held import after
from service.batching.registrations import (
    Registration,
    Registrations,
    batched_registrations,
    some_pages,
)
from service.batching.reports import (
    CommittedCrawls,
    CommittedT,
    CrawlReport,
    PingReport,
    Recorder,
    batched,
    lost,
    some_items,
)
from service.budget.admission import admit_new
from service.budget.keeper import Keeper
from service.estimation.rules import InForce, Rules
from service.ingest.record import PingOutcome
from service.ingest.redirects import MOST_HOPS, hops_of_targets, nearest
from service.leases.settle import LeaseSettler
from service.model.arrays import Bools, Ints
from service.model.errors import OUTAGES
from service.storage import RegisteredPages, Transaction

JobT = TypeVar("JobT", CrawlReport, PingReport, Registration)
AnyJob = CrawlReport | PingReport | Registration


def some_of(job: JobT, rows: Ints) -> JobT:
    """Return the job of some items."""
    if isinstance(job, Registration):
        return some_pages(job, rows)
    return some_items(job, rows)


def owners(shard_map: ShardMap, job: AnyJob) -> Ints:
    """Return the position of the database of each item."""
    if isinstance(job, Registration):
        return shard_map.databases_of_hosts(job.pages.host)
    names = job.names
    by_id = shard_map.databases_of_ids(names.page_id)
    if not len(names.pages):
        return by_id
    of_url = shard_map.databases_of_hosts(names.pages.host)
    return np.where(names.row >= 0, of_url[names.row], by_id)


@dataclass(frozen=True, slots=True)
class Divider:
    """The division of jobs over databases, by the map in force."""

    store: MappedDatabases

    def __call__(self, job: JobT) -> list[Division[JobT]]:
        """Return the divisions of a job; at least one."""
        shard_map = self.store.map_in_force()
        owner = owners(shard_map, job)
        databases = np.unique(owner).tolist() or [shard_map.coordinator]
        if len(databases) == 1:
            return [Division(databases[0], np.arange(len(owner)), job)]
        every = [(n, np.flatnonzero(owner == n)) for n in databases]
        return [Division(n, rows, some_of(job, rows)) for n, rows in every]


def united(kind: type[CommittedT], parts: Parts[CommittedT]) -> CommittedT:
    """Return the outcomes of divisions in the order of the items."""
    outcomes = [lost(kind, len(rows)) if part is None else part for rows, part in parts]
    back = np.argsort(np.concatenate([rows for rows, _ in parts]))
    return kind.concatenate(outcomes).take(back)


def united_registrations(parts: Parts[RegisteredPages]) -> RegisteredPages:
    """Return the ids of registered pages, 0 for those of a database that is away."""
    n = sum(len(rows) for rows, _ in parts)
    page_id, created = np.zeros(n, np.int64), np.zeros(n, np.bool_)
    for rows, part in parts:
        if part is not None:
            page_id[rows], created[rows] = part
    return RegisteredPages(page_id, created)


@dataclass(frozen=True, slots=True)
class ShardRecorder:
    """The recorder of one database, which registers foreign targets of redirects first."""

    store: MappedDatabases
    position: int
    recorder: Recorder

    def flush_crawls(
        self, jobs: list[CrawlReport]
    ) -> list[CommittedCrawls | Future[CommittedCrawls]]:
        """Record crawls; items whose redirect leads to a database that is away are lost."""
        foreign: dict[bytes, int] = {}
        kept = [self._kept(job, self._know(job, foreign)) for job in jobs]
        some = [some_of(job, rows) for job, rows in zip(jobs, kept, strict=True)]

        def prepare(tx: Transaction) -> None:
            tx.foreign = {**tx.foreign, **foreign}  # type: ignore[attr-defined]

        committed = self.recorder.flush_crawls(some, prepare)
        every = [np.arange(len(job.columns)) for job in jobs]

        def completed(whole: Ints, rows: Ints, own: CommittedCrawls) -> CommittedCrawls:
            return united(CommittedCrawls, [(rows, own), (np.setdiff1d(whole, rows), None)])

        return [
            after(own, partial(completed, whole, rows))
            for whole, rows, own in zip(every, kept, committed, strict=True)
        ]

    def _know(self, job: CrawlReport, foreign: dict[bytes, int]) -> Bools:
        """Add the ids of foreign URLs of a report; return which of its URLs stay unknown."""
        pages, away = job.names.pages, np.zeros(len(job.names.pages) + 1, np.bool_)
        if job.names.target is None:
            return away
        owner = self.store.shard_map.databases_of_hosts(pages.host)
        targets = np.unique(job.names.target[job.names.target >= 0])
        hops = self._hops(job, targets[owner[targets] != self.position])
        for n in np.unique(owner[targets]).tolist():
            rows = targets[owner[targets] == n]
            if n == self.position:
                continue
            if n == CLOSED:
                away[rows] = True
                continue
            try:
                ids = self._ids(n, job, rows, hops[rows])
            except OUTAGES:
                away[rows] = True
            else:
                keys = (key.tobytes() for key in pages.key[rows])
                foreign.update(zip(keys, ids.tolist(), strict=True))
        return away

    def _hops(self, job: CrawlReport, foreign: Ints) -> Ints:
        """Return the hops of each foreign URL of a report; 0 for the other URLs.

        The redirects of the page that leads there are in this database.
        """
        names, hops = job.names, np.zeros(len(job.names.pages), np.int64)
        if names.target is None or not len(foreign):
            return hops
        items = np.flatnonzero(np.isin(names.target, foreign))
        with self.store.databases[self.position].begin(write=False) as tx:
            of_url = np.append(tx.page_ids(names.pages.key), 0)
            source = np.where(names.row >= 0, of_url[names.row], names.page_id)[items]
            return nearest(len(hops), names.target[items], hops_of_targets(tx, source))

    def _ids(self, position: int, job: CrawlReport, rows: Ints, hops: Ints) -> Ints:
        """Return the ids of URLs in their database; register new ones, and queue them.

        A target beyond `MOST_HOPS` is not registered. A chain of redirects over several databases
        is followed only to its first page of another database.
        """
        pages, settler = job.names.pages.take(rows), self.recorder.settler
        with self.store.databases[position].begin() as tx:
            page_id = tx.page_ids(pages.key)
            new = (page_id == 0) & (hops <= MOST_HOPS)
            if job.register and new.any():
                page_id[new] = tx.register(pages.take(new), job.now).page_id
                for n in np.unique(hops[new]).tolist():
                    tx.add_hops(page_id[new & (hops == n)], n)
                admitted = admit_new(tx, pages.url[new], page_id[new], tx.now())
                if settler is not None:
                    soon = admitted if tx.holds_new else page_id[new]
                    settler.queue_pinged(tx, soon, job.now)
        return page_id

    @staticmethod
    def _kept(job: CrawlReport, away: Bools) -> Ints:
        if job.names.target is None:
            return np.arange(len(job.columns))
        return np.flatnonzero(~away[job.names.target])


@dataclass(frozen=True, slots=True)
class ShardBatchers:
    """The batchers of a store over several databases, each divided by database."""

    store: MappedDatabases
    rules: Rules
    settler: LeaseSettler
    n_writers: int
    watch: Callable[[Flush], None]
    keeper: Keeper | None = None
    """Counter of the crawls without a lease; None: no budget is kept."""

    def crawls(self) -> Batcher[CrawlReport, CommittedCrawls]:
        """Return the batcher of crawls."""
        flushes = [
            ShardRecorder(self.store, n, recorder).flush_crawls
            for n, recorder in enumerate(self._recorders())
        ]
        return self._divided(self._batched("crawls", flushes), partial(united, CommittedCrawls))

    def pings(self) -> Batcher[PingReport, PingOutcome]:
        """Return the batcher of pings."""
        flushes = [recorder.flush_pings for recorder in self._recorders()]
        return self._divided(self._batched("pings", flushes), partial(united, PingOutcome))

    def registrations(self) -> Registrations:
        """Return the batcher of registrations."""
        stores, settler, n_writers = self.store.databases, self.settler, self.n_writers
        each = [batched_registrations(store, settler, n_writers) for store in stores]
        return self._divided(each, united_registrations)

    def _recorders(self) -> list[Recorder]:
        # rules in force of its own, because each database announces an epoch at another moment
        stores = self.store.databases
        rules, settler, keeper = self.rules, self.settler, self.keeper
        return [Recorder(store, InForce(rules), settler, keeper=keeper) for store in stores]

    def _batched(
        self,
        name: str,
        flushes: Sequence[Callable[[list[JobT]], Sequence[ResultT | Future[ResultT]]]],
    ) -> list[Batcher[JobT, ResultT]]:
        limits = self.n_writers, self.watch
        return [batched(f"{name}-{n}", flush, *limits) for n, flush in enumerate(flushes)]

    def _divided(
        self, each: Sequence[Batcher[JobT, ResultT]], unite: Callable[[Parts[ResultT]], ResultT]
    ) -> Batcher[JobT, ResultT]:
        return DividedBatcher(each, Divider(self.store), unite)
