"""Items of pages whose rows another session has locked: set aside, and tried again.

One locked row must not hold up the reports of other pages. A batch that waits for a lock for longer
than `HURRY_S` is rolled back, then committed again without the items of the locked pages. These
items are tried every `TRY_EVERY_S` until their pages are free or their time is over. An item whose
time is over has the verdict `locked`. While items of a page wait, later items of the page wait too,
so that their order stays.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import structlog

from service.ingest.page_names import PageNames
from service.model.arrays import Codes, Columns, Ints, distinct, positions
from service.model.domain import ItemVerdict
from service.model.errors import OUTAGES, RowLocked, TablesChanged
from service.storage import Store, Transaction

PATIENCE_S = 5.0
"""Default time for which an item that was set aside is tried, seconds."""
TRY_EVERY_S = 0.05
"""Time between two attempts, seconds."""
MAX_ATTEMPTS = 4
"""Maximum number of attempts of a batch, each without the pages that held up the last one."""

LOCKED = int(ItemVerdict.locked)
"""Verdict of an item whose page another session has locked."""

Prepare = Callable[[Transaction], None]
"""First step of a job in its transaction."""

T = TypeVar("T")
MappedT = TypeVar("MappedT")

log = structlog.get_logger()


class Outcomes(Protocol):
    """(N,) outcomes of items."""

    @property
    def page_id(self) -> Ints:
        """Ids of the pages."""

    @property
    def verdict(self) -> Codes:
        """Verdicts of the items."""


OutcomesT = TypeVar("OutcomesT", bound=Columns)
JobT = TypeVar("JobT")


@dataclass(slots=True)
class Attempt:
    """One attempt to commit a batch."""

    apart: Ints
    """Pages whose items are set aside, ascending."""
    page_id: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Pages that the attempt locks, ascending; empty before it has found them."""

    def free(self, page_id: Ints) -> Ints | None:
        """Return the rows of items that are not set aside; None: all."""
        if not len(self.apart):
            return None
        held = np.isin(page_id, self.apart) & (page_id > 0)
        return np.flatnonzero(~held) if held.any() else None


def attempted(store: Store, apart: Ints, flush: Callable[[Attempt], T]) -> T:
    """Return the result of a flush, without the items of pages that hold it up.

    A flush that meets changed tables is repeated. So is one whose pages are all free by now: a
    busy machine may hold a lock for long. Raise `RowLocked` if the last attempt meets a lock too.
    """
    for _ in range(MAX_ATTEMPTS - 1):
        attempt = Attempt(apart)
        try:
            return flush(attempt)
        except TablesChanged:
            continue
        except RowLocked:
            if not len(attempt.page_id):
                raise
            apart = np.union1d(apart, locked_pages(store, attempt.page_id))
    return flush(Attempt(apart))


def locked_pages(store: Store, page_id: Ints) -> Ints:
    """Return those of some pages whose rows another transaction has locked, ascending."""
    with store.begin() as tx:
        tx.hurry()
        return tx.locked_pages(page_id)


def locked_rows(outcomes: Any) -> Ints:
    """Return the rows of items with the verdict `locked`."""
    return positions(outcomes.verdict == LOCKED)


def patched(outcomes: OutcomesT, rows: Ints, others: OutcomesT) -> OutcomesT:
    """Return outcomes with others in place of some rows."""
    columns: dict[str, Any] = {}
    for name, column in outcomes.arrays().items():
        columns[name] = column.copy()
        columns[name][rows] = getattr(others, name)
    return replace(outcomes, **columns)


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


def after(result: T | Future[T], then: Callable[[T], MappedT]) -> MappedT | Future[MappedT]:
    """Return what `then` makes of a result, as a future if the result is one."""
    if not isinstance(result, Future):
        return then(result)
    made: Future[MappedT] = Future()

    def settle(done: Future[T]) -> None:
        try:
            made.set_result(then(done.result()))
        except BaseException as error:  # noqa: BLE001 - the caller receives the error
            made.set_exception(error)

    result.add_done_callback(settle)
    return made


@dataclass(slots=True, eq=False)
class SetAside(Generic[JobT, OutcomesT]):
    """Items of one job that wait for their pages."""

    job: JobT
    """The items that still wait."""
    rows: Ints
    """Rows of these items in `outcomes`."""
    outcomes: OutcomesT
    until: float
    """End of their time, seconds of the monotonic clock."""
    prepare: Prepare
    done: Future[OutcomesT] = field(default_factory=Future)

    @property
    def page_id(self) -> Ints:
        """Pages of the items that still wait."""
        page_id: Ints = self.outcomes.page_id[self.rows]  # type: ignore[attr-defined]
        return page_id


Flush = Callable[[list[JobT], Sequence[Prepare], Attempt], Sequence[OutcomesT]]


class WaitingItems(Generic[JobT, OutcomesT]):
    """Items that wait for locked pages, and the thread that tries them again."""

    def __init__(
        self,
        store: Store,
        flush: Flush[JobT, OutcomesT],
        some_of: Callable[[JobT, Ints], JobT],
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.flush = flush
        self.some_of = some_of
        self.patience_s = patience_s
        self.clock = clock
        self.waiting: list[SetAside[JobT, OutcomesT]] = []
        self._turn = threading.Lock()
        self._trying = False

    def pages(self) -> Ints:
        """Return the pages of the items that wait, ascending."""
        if not self.waiting:
            return np.zeros(0, np.int64)
        with self._turn:
            return distinct(np.concatenate([np.zeros(0, np.int64), *self._pages()]))

    def _pages(self) -> list[Ints]:
        return [each.page_id for each in self.waiting]

    def result(
        self,
        job: JobT,
        outcomes: OutcomesT,
        prepare: Prepare = lambda _: None,
        rows: Ints | None = None,
    ) -> OutcomesT | Future[OutcomesT]:
        """Return the outcomes of a job, as a future if some of its items must wait.

        `rows` are those of the items that wait; None: all with the verdict `locked`.
        """
        rows = locked_rows(outcomes) if rows is None else rows
        if not len(rows):
            return outcomes
        until = self.clock() + self.patience_s
        entry = SetAside(self.some_of(job, rows), rows, outcomes, until, prepare)
        with self._turn:
            self.waiting.append(entry)
            begins, self._trying = not self._trying, True
        if begins:
            threading.Thread(target=self._try_all, name="waiting items", daemon=True).start()
        return entry.done

    def _try_all(self) -> None:
        """Try the items until none waits."""
        while True:
            time.sleep(TRY_EVERY_S)
            self.try_once()
            with self._turn:
                if not self.waiting:
                    self._trying = False
                    return

    def try_once(self) -> None:
        """Commit the items whose pages are free; end the wait of items whose time is over."""
        entries, now = list(self.waiting), self.clock()
        try:
            self._commit(entries)
        except OUTAGES:  # the next attempt, or the end of their time
            pass
        except Exception:
            log.exception("items of locked pages could not be committed")
        over = [e for e in entries if not len(e.rows) or now >= e.until]
        with self._turn:
            self.waiting = [each for each in self.waiting if each not in over]
        for entry in over:
            if entry.done.set_running_or_notify_cancel():
                entry.done.set_result(entry.outcomes)

    def _commit(self, entries: list[SetAside[JobT, OutcomesT]]) -> None:
        page_id = distinct(np.concatenate([each.page_id for each in entries]))
        locked = locked_pages(self.store, page_id)
        if len(locked) == len(page_id):
            return
        jobs, prepares = [e.job for e in entries], [e.prepare for e in entries]
        for entry, outcomes in zip(
            entries, self.flush(jobs, prepares, Attempt(locked)), strict=True
        ):
            entry.outcomes = patched(entry.outcomes, entry.rows, outcomes)
            still = locked_rows(outcomes)
            entry.job, entry.rows = self.some_of(entry.job, still), entry.rows[still]
