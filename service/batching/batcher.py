"""One class for all batching: jobs that wait at the same moment are committed together."""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Generic, NamedTuple, Protocol, TypeVar

from service.model.errors import OUTAGES, Overloaded


class Job(Protocol):
    """The work of one request that a batch commits."""

    @property
    def size(self) -> int:
        """Number of items, at least one."""

    @property
    def kind(self) -> Hashable:
        """Jobs of one kind may share a batch."""


JobT = TypeVar("JobT", bound=Job)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a batcher."""

    max_batch: int
    """Maximum size of a batch of several jobs, items."""
    max_waiting: int
    """Maximum size of a queue of several jobs, items."""
    min_batch: int
    """Number of waiting items that are flushed without lingering."""
    linger: float = 0.5
    """Maximum wait for more jobs, as a share of the duration of the last flush."""


class Flush(NamedTuple):
    """Figures of one flush, for metrics."""

    n_jobs: int
    n_items: int
    seconds: float


class Batcher(Generic[JobT, ResultT]):
    """A queue of jobs and the threads that flush them in batches.

    **Answered means committed.** A future has a result only after `flush` has committed. A job
    that must wait longer than the others of its batch has a future as its result.
    **Faults.** A batch that fails is flushed again job by job, so that only the job at fault fails.
    An outage of the database fails every job of the batch.
    **Order.** A batch has the oldest job and later jobs of its kind, in no order among each other.
    **Linger.** A writer waits for as many jobs as the last batch had, because clients with an
    answer send their next request. `min_batch` items end the wait and wake another writer.
    **Backpressure.** `submit` raises `Overloaded` if more than `max_waiting` items would wait.
    """

    def __init__(
        self,
        name: str,
        flush: Callable[[list[JobT]], Sequence[ResultT | Future[ResultT]]],
        limits: Limits,
        *,
        n_writers: int = 1,
        watch: Callable[[Flush], None] = lambda _: None,
    ) -> None:
        self.flush = flush
        self.limits = limits
        self.watch = watch
        self.n_waiting = 0
        """Number of waiting items."""
        self._last = Flush(0, 0, 0.0)
        self._n_writing = 0
        self._waiting: deque[tuple[JobT, Future[ResultT]]] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._writers = [
            threading.Thread(target=self._write, name=f"{name}-{i}", daemon=True)
            for i in range(n_writers)
        ]

    def start(self) -> None:
        """Start the writers."""
        for writer in self._writers:
            writer.start()

    def finish(self) -> list[threading.Thread]:
        """Refuse further jobs; return the writers, which end after the queue is empty."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        return self._writers

    def stop(self) -> None:
        """Refuse further jobs, flush the waiting ones and end the writers."""
        for writer in self.finish():
            writer.join()

    def submit(self, job: JobT) -> Future[ResultT]:
        """Return the future result of a job; raise `Overloaded` when the queue is full."""
        result: Future[ResultT] = Future()
        with self._changed:
            n_waiting = self.n_waiting + job.size
            # an empty queue takes a job of any size
            if self._stopping or (self._waiting and n_waiting > self.limits.max_waiting):
                raise Overloaded
            self._waiting.append((job, result))
            self.n_waiting = n_waiting
            # the first job wakes a writer, which lingers; later ones wake it once a batch is ready
            if len(self._waiting) == 1 or self._ready():
                self._changed.notify()
        return result

    def _write(self) -> None:
        while batch := self._next_batch():
            started = time.perf_counter()
            self._settle(batch)
            n_items = sum(job.size for job, _ in batch)
            flush = Flush(len(batch), n_items, time.perf_counter() - started)
            with self._changed:
                self._n_writing -= 1
                self._last = flush
            self.watch(flush)

    def _next_batch(self) -> list[tuple[JobT, Future[ResultT]]]:
        """Return the next batch, after waiting; empty after a stop with an empty queue."""
        with self._changed:
            while not (batch := self._linger_and_take()) and not self._stopping:
                self._changed.wait()
            self._n_writing += bool(batch)
            # this batch did not take all: another writer takes the rest
            if self._waiting and self._ready():
                self._changed.notify()
        return batch

    def _linger_and_take(self) -> list[tuple[JobT, Future[ResultT]]]:
        """Return a batch, after lingering if it is not ready; empty while another writer writes."""
        if self._waiting and not self._n_writing:
            self._changed.wait_for(self._ready, self.limits.linger * self._last.seconds)
        # while another writer writes, more jobs gather for a larger batch
        return self._take() if not self._n_writing or self._ready() else []

    def _ready(self) -> bool:
        """Return whether to flush the waiting jobs without lingering."""
        if self.n_waiting >= self.limits.min_batch or self._stopping:
            return True
        return not self._n_writing and len(self._waiting) >= self._last.n_jobs

    def _take(self) -> list[tuple[JobT, Future[ResultT]]]:
        """Remove and return the oldest job and later jobs of its kind; drop cancelled jobs."""
        batch: list[tuple[JobT, Future[ResultT]]] = []
        others: list[tuple[JobT, Future[ResultT]]] = []
        room = self.limits.max_batch
        while self._waiting:
            job, result = self._waiting[0]
            size = job.size
            # a job that is larger than a batch is a batch of its own
            if batch and size > room:
                break
            self._waiting.popleft()
            if batch and job.kind != batch[0][0].kind:
                others.append((job, result))
                continue
            self.n_waiting -= size
            if result.set_running_or_notify_cancel():
                batch.append((job, result))
                room -= size
        # jobs of other kinds keep their places at the head of the queue
        self._waiting.extendleft(reversed(others))
        return batch

    def _settle(self, batch: list[tuple[JobT, Future[ResultT]]]) -> None:
        """Flush a batch; flush each of its jobs alone if the batch fails."""
        try:
            results = self.flush([job for job, _ in batch])
        except Exception as error:  # noqa: BLE001 - each caller receives the error
            # without the database each job alone would fail too
            if len(batch) > 1 and not isinstance(error, OUTAGES):
                for entry in batch:
                    self._settle([entry])
                return
            for _, future in batch:
                future.set_exception(error)
        else:
            for (_, future), result in zip(batch, results, strict=True):
                if isinstance(result, Future):
                    result.add_done_callback(partial(_pass_on, future))
                else:
                    future.set_result(result)


def _pass_on(to: Future[ResultT], done: Future[ResultT]) -> None:
    error = done.exception()
    if error is None:
        to.set_result(done.result())
    else:
        to.set_exception(error)


def slices(sizes: Iterable[int]) -> list[slice]:
    """Return the rows of each part in the concatenation of parts of these sizes.

    >>> slices([2, 0, 1])
    [slice(0, 2, None), slice(2, 2, None), slice(2, 3, None)]
    """
    return [slice(start, end) for start, end in pairwise(accumulate(sizes, initial=0))]
