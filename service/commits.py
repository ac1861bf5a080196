"""Group commit: what waits together is written together.

A request hands its evidence over as a job and waits. A writer thread takes whatever is waiting,
folds it into one transaction, commits, and only then are the jobs done. Durability costs one
flush for all of them, and many small requests are as cheap as a large one.

**Answered means committed.** A job is done when its transaction has been committed; one that
failed has left nothing behind.

**As one request.** Jobs that are folded are recorded as if one request had brought their items:
per page by time. Jobs wait in line; who waits for an answer before sending on is recorded in
that order. Jobs at work at the same moment have no order among them.

**One's trouble is one's own.** When a fold fails for another reason than the database, its jobs
are run one by one, and only the one at fault fails. When the database does not answer or is
full, all jobs of the fold fail with that, and the writer goes on to the next.

**As large as they come.** While one writer writes, the line grows; another one helps only with a
crowd, as two small commits cost more than one. A writer waits a moment, a part of what the last
commit took, for as many jobs as that had: who was answered is about to send again. A crowd need
not wait, but where nobody else writes: there, too, one commit costs less than two.

**Bounded.** Over `MAX_WAITING` waiting items a job is refused (`Overloaded`); a fold has at most
`MAX_FOLD` items or one job, so nobody waits long behind a large request.

**Locks.** A fold is of one kind, crawls or pings, so that its pages are locked by one statement
in their order: writers of several processes wait for each other and never deadlock.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from service import crawls, ingest
from service.arrays import Bools, Columns, Ints
from service.columns import CrawlColumns, PageColumns
from service.domain import Verdict
from service.errors import OUTAGES, Overloaded
from service.ingest import Answered, InForce, Named, Recorded, Rules
from service.storage import QueueTransaction, Store, Transaction

MAX_FOLD = 10_000
MAX_WAITING = 100_000
CROWD = 1_000
"""So many waiting items are worth a commit now, and a second writer where there is one."""
PATIENCE = 0.5
"""The part of the last commit's time that a writer waits for a smaller line to grow."""

ColumnsT = TypeVar("ColumnsT", bound=Columns)
MadeT = TypeVar("MadeT", bound=Recorded | Answered)


@dataclass(frozen=True, slots=True)
class Done(Generic[MadeT]):
    """What became of a job."""

    page_id: Ints
    """(N,) the page of each item; 0 where there is none."""
    made: MadeT
    held: Bools
    """(N,) whether the lease under which it was crawled was in force."""


@dataclass(frozen=True, slots=True, eq=False)
class Job(Generic[ColumnsT, MadeT]):
    """The evidence of one request, or of several that came at the same moment."""

    record: Callable[[Transaction, ColumnsT, InForce], MadeT]
    """`ingest.record` or `ingest.ping`."""
    columns: ColumnsT
    named: Named
    register: bool
    now: datetime
    n_requests: int = 1
    done: Future[Done[MadeT]] = field(default_factory=Future)

    @property
    def kind(self) -> tuple[Any, bool]:
        """Jobs of one kind can be folded."""
        return self.record, self.register

    def __len__(self) -> int:
        return max(len(self.columns), 1)


AnyJob = Job[Any, Any]


class Fold(NamedTuple):
    """One commit, for whoever watches."""

    n_requests: int
    n_items: int
    seconds: float


class Commits:
    """The line of jobs and the threads that write them."""

    def __init__(
        self,
        store: Store,
        rules: Rules,
        desk: crawls.Desk | None = None,
        *,
        n_writers: int = 1,
        watch: Callable[[Fold], None] = lambda _: None,
    ) -> None:
        self.store = store
        self.rules = InForce(rules)
        self.desk = desk
        self.watch = watch
        self.n_waiting = 0
        self._crowd = CROWD if n_writers > 1 else MAX_FOLD
        self._n_writing = 0
        self._last = Fold(0, 0, 0.0)
        self._waiting: deque[AnyJob] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._writers = [
            threading.Thread(target=self._write, name=f"commits-{i}", daemon=True)
            for i in range(n_writers)
        ]

    def start(self) -> None:
        """Start the writers."""
        for writer in self._writers:
            writer.start()

    def finish(self) -> list[threading.Thread]:
        """Refuse what comes now; return the writers, which end when the line is written."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        return self._writers

    def stop(self) -> None:
        """Write what has been accepted, refuse what comes now, and end the writers."""
        for writer in self.finish():
            writer.join()

    def submit(self, job: Job[ColumnsT, MadeT]) -> Future[Done[MadeT]]:
        """Put a job in the line; raises `Overloaded` when that is full."""
        with self._changed:
            if self._stopping or (self._waiting and self.n_waiting + len(job) > MAX_WAITING):
                raise Overloaded
            self._waiting.append(job)
            self.n_waiting += len(job)
            if len(self._waiting) == 1 or self._worthwhile():
                self._changed.notify()
        return job.done

    def _write(self) -> None:
        while jobs := self._take():
            started = time.perf_counter()
            self._settle(jobs)
            n_items = sum(len(job.columns) for job in jobs)
            fold = Fold(n_requests(jobs), n_items, time.perf_counter() - started)
            with self._changed:
                self._n_writing -= 1
                self._last = fold
            self.watch(fold)

    def _take(self) -> list[AnyJob]:
        """Wait for a fold; nothing once stopped, when all is written or in another's hands."""
        with self._changed:
            while not (fold := self._next()) and not self._stopping:
                self._changed.wait()
            self._n_writing += bool(fold)
            if self._waiting and self._worthwhile():
                self._changed.notify()
        return fold

    def _next(self) -> list[AnyJob]:
        """Take what is worth a commit; where nobody else writes, whatever is there in a moment."""
        if self._waiting and not self._n_writing:
            self._changed.wait_for(self._worthwhile, PATIENCE * self._last.seconds)
        return self._fold() if not self._n_writing or self._worthwhile() else []

    def _worthwhile(self) -> bool:
        """Tell whether to commit what waits without waiting for more."""
        if self.n_waiting >= self._crowd or self._stopping:
            return True
        return not self._n_writing and n_requests(self._waiting) >= self._last.n_requests

    def _fold(self) -> list[AnyJob]:
        """Take the oldest job and those of its kind behind it that fit; drop who left."""
        fold: list[AnyJob] = []
        others: list[AnyJob] = []
        n_items = 0
        while self._waiting and (not fold or n_items + len(self._waiting[0]) <= MAX_FOLD):
            job = self._waiting.popleft()
            if fold and job.kind != fold[0].kind:
                others.append(job)
                continue
            self.n_waiting -= len(job)
            if job.done.set_running_or_notify_cancel():
                fold.append(job)
                n_items += len(job)
        self._waiting.extendleft(reversed(others))
        return fold

    def _settle(self, jobs: list[AnyJob]) -> None:
        """Commit the jobs together, or find out which of them cannot be."""
        try:
            done = commit(self.store, self.rules, self.desk, jobs)
        except Exception as error:  # noqa: BLE001 - whatever it is, the job's caller is told
            if len(jobs) == 1 or isinstance(error, OUTAGES):
                for job in jobs:
                    job.done.set_exception(error)
            else:
                for job in jobs:
                    self._settle([job])
        else:
            for job, what in zip(jobs, done, strict=True):
                job.done.set_result(what)


def n_requests(jobs: Iterable[AnyJob]) -> int:
    """Count who waits for these jobs."""
    return sum(job.n_requests for job in jobs)


def commit(
    store: Store, rules: InForce, desk: crawls.Desk | None, jobs: list[Job[ColumnsT, MadeT]]
) -> list[Done[MadeT]]:
    """Record jobs of one kind in one transaction, with what follows for leases."""
    first, now = jobs[0], max(job.now for job in jobs)
    named = together([job.named for job in jobs])
    columns = type(first.columns).concatenate([job.columns for job in jobs])
    with store.begin() as tx:
        leased = columns.leased_page_id if isinstance(columns, CrawlColumns) else None
        page_id, redirects_to, new = ingest.resolve(
            tx, named, now, register=first.register, leased=leased
        )
        named_columns = replace(columns, page_id=page_id)  # type: ignore[call-arg]
        if named.target is not None:
            named_columns = replace(named_columns, redirects_to=redirects_to)  # type: ignore[call-arg]
        if isinstance(named_columns, CrawlColumns) and isinstance(tx, QueueTransaction):
            named_columns = crawls.dated(tx, named_columns, now)  # type: ignore[assignment]
        made = first.record(tx, named_columns, rules)
        held = follow(tx, desk, named_columns, made, tx.now())
    if isinstance(made, Recorded) and made.moved.any():
        new = np.union1d(new, page_id[made.moved & ~held])
    if desk is not None and len(new):
        with suppress(*OUTAGES):  # the evidence is kept already
            queue_more(store, desk, new, now)
    ends = list(accumulate(len(job.columns) for job in jobs))
    all_made: list[NDArray[Any]] = list(made)
    parts = [slice(start, end) for start, end in pairwise([0, *ends])]
    return [
        Done(page_id[part], type(made)(*(of[part] for of in all_made)), held[part])
        for part in parts
    ]


def follow(
    tx: Transaction, desk: crawls.Desk | None, columns: Columns, made: Recorded | Answered,
    now: datetime,
) -> Bools:  # fmt: skip
    """Settle the leases that were reported, queue what pings want; tells which leases were held.

    A store without a queue has no leases.
    """
    held = np.zeros(len(columns), np.bool_)
    if desk is None or not isinstance(tx, QueueTransaction):
        return held
    if isinstance(columns, CrawlColumns):
        return desk.hear_crawls(tx, columns, made.verdict == Verdict.accepted, now)
    if isinstance(made, Answered) and made.crawl.any():
        desk.hear_pings(tx, columns.page_id[made.crawl], now)  # type: ignore[attr-defined]
    return held


def queue_more(store: Store, desk: crawls.Desk, page_id: Ints, now: datetime) -> None:
    """Queue pages that others redirect to, and those that failed when nobody had leased them.

    In a transaction of its own, as the first has locked lanes by now; should it not come to
    that, the next epoch queues them.
    """
    with store.begin() as tx:
        if isinstance(tx, QueueTransaction):
            desk.hear_pings(tx, page_id, now)


def together(named: list[Named]) -> Named:
    """Name the pages of several requests as one request would: each distinct URL once."""
    if len(named) == 1:
        return named[0]
    page_id = np.concatenate([each.page_id for each in named])
    if not any(len(each.pages) for each in named):
        return Named(page_id, np.concatenate([each.row for each in named]), named[0].pages)
    pages = PageColumns.concatenate([each.pages for each in named])
    _, first, distinct = np.unique(pages.key, return_index=True, return_inverse=True)
    starts = np.cumsum([0, *(len(each.pages) for each in named[:-1])]).tolist()

    def rows(of: Iterable[Ints]) -> Ints:
        parts = zip(starts, of, strict=True)
        return np.concatenate([np.append(distinct[start:], -1)[row] for start, row in parts])

    target = None
    if any(each.target is not None for each in named):
        nowhere = (np.full(len(each.row), -1) for each in named)
        targets = zip(named, nowhere, strict=True)
        target = rows(none if each.target is None else each.target for each, none in targets)
    return Named(page_id, rows(each.row for each in named), pages.take(first), target)
