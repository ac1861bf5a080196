"""A batcher whose jobs are divided over several databases, each with a batcher of its own.

A job commits in each database alone. A database that is away loses only its own rows: their results
are those of `lost`, and the others stand. A job without any commit has the error of one database.
Rows of a shard that has moved meanwhile are divided again, once.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Generic, NamedTuple

from service.batching.batcher import Batcher, JobT, ResultT
from service.model.arrays import Ints
from service.model.errors import OUTAGES, Overloaded, RecrawlError, ShardMoved

RETRYABLE = (*OUTAGES, Overloaded)
"""Errors that lose the rows of one database; the caller sends them again."""


class Division(NamedTuple, Generic[JobT]):
    """The rows of a job that one database commits."""

    database: int
    rows: Ints
    job: JobT


class DividedBatcher(Batcher[JobT, ResultT]):
    """Batchers of single databases behind the interface of one."""

    def __init__(  # as `Batcher`, without a queue of its own
        self,
        batchers: Sequence[Batcher[JobT, ResultT]],
        divide: Callable[[JobT], Sequence[Division[JobT]]],
        unite: Callable[[JobT, Sequence[tuple[Ints, ResultT | None]]], ResultT],
    ) -> None:
        self.batchers = batchers
        self.divide = divide
        self.unite = unite
        """Function of a job and of the rows of each database with their result; None: lost."""

    @property
    def n_waiting(self) -> int:  # type: ignore[override]
        """Number of waiting items of all databases."""
        return sum(batcher.n_waiting for batcher in self.batchers)

    def start(self) -> None:
        """Start the writers of all databases."""
        for batcher in self.batchers:
            batcher.start()

    def finish(self) -> list[threading.Thread]:
        """Refuse further jobs; return the writers of all databases."""
        return [writer for batcher in self.batchers for writer in batcher.finish()]

    def submit(self, job: JobT) -> Future[ResultT]:
        """Return the future result of a job; raise `Overloaded` if no database takes its rows."""
        divisions = self.divide(job)
        if len(divisions) == 1 and divisions[0].database >= 0:
            return self._followed(divisions[0], self.batchers[divisions[0].database])
        return self._collected(job, [(each.rows, self._submit(each)) for each in divisions])

    def _collected(
        self, job: JobT, parts: Sequence[tuple[Ints, Future[ResultT]]]
    ) -> Future[ResultT]:
        collected: Collected[JobT, ResultT] = Collected(job, len(parts), self.unite)
        for rows, part in parts:
            part.add_done_callback(partial(collected.add, rows))
        return collected.whole

    def _submit(self, division: Division[JobT], *, again: bool = True) -> Future[ResultT]:
        """Return the future result of the rows of one database; of no database, its failure."""
        if division.database < 0:
            return refused(ShardMoved())
        batcher = self.batchers[division.database]
        try:
            return self._followed(division, batcher) if again else batcher.submit(division.job)
        except Overloaded as error:
            return refused(error)

    def _followed(
        self, division: Division[JobT], batcher: Batcher[JobT, ResultT]
    ) -> Future[ResultT]:
        """Submit rows; if their shard has moved meanwhile, divide and submit the rows again."""
        outcome: Future[ResultT] = Future()

        def settle(done: Future[ResultT]) -> None:
            if done.cancelled():
                return
            if isinstance(done.exception(), ShardMoved):
                again = self.divide(division.job)
                parts = [(each.rows, self._submit(each, again=False)) for each in again]
                self._collected(division.job, parts).add_done_callback(partial(copy_to, outcome))
            else:
                copy_to(outcome, done)

        part = batcher.submit(division.job)
        part.add_done_callback(settle)
        outcome.add_done_callback(lambda whole: whole.cancelled() and part.cancel())
        return outcome


def refused(error: RecrawlError) -> Future[ResultT]:
    """Return a future that has failed."""
    outcome: Future[ResultT] = Future()
    outcome.set_exception(error)
    return outcome


def copy_to(outcome: Future[ResultT], done: Future[ResultT]) -> None:
    """Set the result of a future to that of another one."""
    with suppress(InvalidStateError):  # the caller has gone
        if (error := done.exception()) is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(done.result())


class Collected(Generic[JobT, ResultT]):
    """The results of the divisions of a job, until all are there."""

    def __init__(
        self,
        job: JobT,
        n: int,
        unite: Callable[[JobT, Sequence[tuple[Ints, ResultT | None]]], ResultT],
    ) -> None:
        self.whole: Future[ResultT] = Future()
        self.job = job
        self.n_missing = n
        self.unite = unite
        self.results: list[tuple[Ints, ResultT | None]] = []
        self.error: BaseException | None = None
        self._lock = threading.Lock()

    def add(self, rows: Ints, done: Future[ResultT]) -> None:
        """Add the result of a division; after the last one, settle the whole."""
        error = done.exception()
        with self._lock:
            self.results.append((rows, None if error is not None else done.result()))
            if error is not None and (self.error is None or not isinstance(error, RETRYABLE)):
                self.error = error
            self.n_missing -= 1
            is_last = not self.n_missing
        if is_last:
            with suppress(InvalidStateError):  # the caller has gone
                self._settle()

    def _settle(self) -> None:
        is_fault = self.error is not None and not isinstance(self.error, RETRYABLE)
        nothing = all(result is None for _, result in self.results)
        if self.error is not None and (is_fault or nothing):
            self.whole.set_exception(self.error)
        else:
            self.whole.set_result(self.unite(self.job, self.results))
