"""Registrations of pages, batched.

One locked row must not hold up the registrations of other pages. A batch that waits for a lock for
long is rolled back, then committed without the pages whose rows another session has locked; these
are tried again (`held`). If a host queue is locked, the new pages are committed first and queued
apart.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from service.batching.apart import queue_apart
from service.batching.batcher import Batcher, Limits, slices
from service.batching.held import (
    MAX_ATTEMPTS,
    PATIENCE_S,
    Attempt,
    Prepare,
    WaitingItems,
    after,
)
from service.budget.admission import admit_new
from service.ingest.bounds import bounded, crossed
from service.leases.settle import LeaseSettler
from service.model.arrays import Bools, Codes, Columns, Ints
from service.model.columns import PageColumns
from service.model.domain import ItemVerdict
from service.model.errors import RowLocked, TablesChanged
from service.storage import RegisteredPages, Store
from service.storage.pages.kinds import KindRows
from service.storage.pages.noting import NotedRows
from service.storage.pages.tagging import TaggedRows

REGISTRATION_LIMITS = Limits(max_batch=50_000, max_waiting=1_000_000, min_batch=1)
"""Limits of registrations, which never linger; an item is a page."""


class OverlappingPages(Exception):
    """Two requests have the same page, so the batcher must flush each request alone, in order."""


@dataclass(frozen=True, slots=True, eq=False)
class Registration:
    """The pages of one request, each distinct."""

    pages: PageColumns
    now: datetime
    tags: TaggedRows | None = None
    notes: NotedRows | None = None
    kinds: KindRows | None = None
    kind = None

    @property
    def size(self) -> int:
        """Number of pages, at least one."""
        return max(len(self.pages), 1)


Registrations = Batcher[Registration, RegisteredPages]

CROSSED, LOCKED = -1, -2
"""Ids of pages that were not registered: the minimum would lie above the maximum, or another
session holds the page's row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationOutcomes(Columns):
    """(N,) outcomes of a registration."""

    page_id: Ints
    """Id of the page; `CROSSED` where the page stays as it is."""
    created: Bools
    verdict: Codes
    """`accepted`, or `locked` for a page that must wait."""

    @property
    def pages(self) -> RegisteredPages:
        """The pages as a caller receives them."""
        waits = self.verdict == ItemVerdict.locked
        return RegisteredPages(np.where(waits, LOCKED, self.page_id), self.created)


def some_pages(job: Registration, rows: Ints) -> Registration:
    """Return the registration of some pages."""
    tags = None if job.tags is None else job.tags.of_rows(rows)
    notes = None if job.notes is None else job.notes.of_rows(rows)
    kinds = None if job.kinds is None else job.kinds.of_rows(rows)
    return replace(job, pages=job.pages.take(rows), tags=tags, notes=notes, kinds=kinds)


class Registrar:
    """Registers the pages of several requests in one transaction."""

    def __init__(self, store: Store, settler: LeaseSettler, patience_s: float = PATIENCE_S) -> None:
        self.store = store
        self.settler = settler
        self.waiting: WaitingItems[Registration, RegistrationOutcomes] = WaitingItems(
            store, self._flush_patiently, some_pages, patience_s
        )

    def flush(
        self, jobs: list[Registration]
    ) -> Sequence[RegisteredPages | Future[RegisteredPages]]:
        """Register the pages and queue the new ones; raise `OverlappingPages`.

        A page whose bounds would cross stays as it is, and has the id `CROSSED` in the result. The
        result for a request with a locked page is a future.
        """
        outcomes = self._flush_patiently(jobs, (), Attempt(self.waiting.pages()))
        results = map(self.waiting.result, jobs, outcomes)
        return [after(result, lambda registered: registered.pages) for result in results]

    def _flush_patiently(
        self, jobs: list[Registration], _: Sequence[Prepare], attempt: Attempt
    ) -> Sequence[RegistrationOutcomes]:
        """Register the pages, without those that hold the batch up."""
        apart, queues = attempt.apart, True
        for _attempt in range(MAX_ATTEMPTS - 1):
            try:
                return self._flush(jobs, apart, queues=queues)
            except TablesChanged:
                continue
            except RowLocked:
                locked = np.union1d(apart, self._locked(jobs))
                if len(locked) == len(apart):
                    queues = False  # a host queue holds the batch up, or something else
                apart = locked
        # the lock is on none of these, such as on a whole table: wait for it as long as requests do
        return self._flush(jobs, apart, queues=queues, hurries=False)

    def _locked(self, jobs: list[Registration]) -> Ints:
        """Return the registered pages of a batch whose rows another session has locked."""
        pages = PageColumns.concatenate([job.pages for job in jobs])
        with self.store.begin() as tx:
            tx.hurry()
            page_id = np.unique(tx.page_ids(pages.key, pages.host))
            page_id = page_id[page_id > 0]
            return np.union1d(tx.locked_page_rows(page_id), tx.locked_pages(page_id))

    def _flush(
        self, jobs: list[Registration], apart: Ints, *, queues: bool, hurries: bool = True
    ) -> Sequence[RegistrationOutcomes]:
        pages = PageColumns.concatenate([job.pages for job in jobs])
        # flushed alone and in order, the later request changes what the earlier one created
        if len(jobs) > 1 and len(np.unique(pages.key)) < len(pages):
            raise OverlappingPages
        now, tags, notes = max(job.now for job in jobs), _tags(jobs), _notes(jobs)
        kinds = _kinds(jobs)
        page_id, created = np.full(len(pages), CROSSED), np.zeros(len(pages), np.bool_)
        with self.store.begin() as tx:
            if hurries:
                tx.hurry()
            stored_id = np.zeros(len(pages), np.int64)
            good = np.ones(len(pages), np.bool_)
            if tags is not None or kinds is not None or len(apart) or bounded(pages).any():
                stored_id = tx.page_ids(pages.key, pages.host)
                good = ~np.isin(stored_id, apart) | (stored_id == 0)
                tx.lock_page_rows(stored_id[good])  # all locks at once, ascending
            waits = ~good
            good &= ~crossed(tx, pages, stored_id)
            page_id[good], created[good] = tx.register(
                pages if good.all() else pages.take(good), now
            )
            if tags is not None:
                tags.where(good).save(tx, page_id)
            if notes is not None:
                notes.where(good).save(tx, page_id, created)
            changed = page_id[:0] if kinds is None else kinds.where(good).save(tx, page_id)
            admitted = admit_new(tx, pages.url[created], page_id[created], tx.now())
            soon = admitted if tx.holds_new else page_id[created]
            if queues and tx.holds_new:
                self.settler.queue_pinged(tx, soon, now)
            elif queues:
                self.settler.queue_new(tx, soon, now)
            if len(changed):  # the host queues of rows that were of the other kind
                tx.lower_host_queues(tx.queued_bounds(changed))
        if not queues:
            queue_apart(self.store, self.settler, soon, now)
        whole = RegistrationOutcomes(
            page_id=np.where(waits, stored_id, page_id),
            created=created,
            verdict=np.where(waits, ItemVerdict.locked, ItemVerdict.accepted).astype(np.int16),
        )
        return [whole.take(rows) for rows in slices(len(job.pages) for job in jobs)]


def _tags(jobs: list[Registration]) -> TaggedRows | None:
    """Return the tags of the pages of all jobs; None if none has tags."""
    parts = [job.tags.moved(n) for job, n in zip(jobs, _starts(jobs), strict=True) if job.tags]
    return TaggedRows(*map(np.concatenate, zip(*parts, strict=True))) if parts else None


def _notes(jobs: list[Registration]) -> NotedRows | None:
    """Return the notes of the pages of all jobs; None if none has a note."""
    parts = [job.notes.moved(n) for job, n in zip(jobs, _starts(jobs), strict=True) if job.notes]
    return NotedRows(*map(np.concatenate, zip(*parts, strict=True))) if parts else None


def _kinds(jobs: list[Registration]) -> KindRows | None:
    """Return the kinds of the pages of all jobs; None if none has a kind."""
    parts = [job.kinds.moved(n) for job, n in zip(jobs, _starts(jobs), strict=True) if job.kinds]
    return KindRows(*map(np.concatenate, zip(*parts, strict=True))) if parts else None


def _starts(jobs: list[Registration]) -> list[int]:
    return [rows.start for rows in slices(len(job.pages) for job in jobs)]


def batched_registrations(
    store: Store, settler: LeaseSettler, n_writers: int = 1, patience_s: float = PATIENCE_S
) -> Registrations:
    """Return the batcher of registrations."""
    flush = Registrar(store, settler, patience_s).flush
    return Batcher("registrations", flush, REGISTRATION_LIMITS, n_writers=n_writers)
