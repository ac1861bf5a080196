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
from service.model.errors import OUTAGES, Overloaded, ShardMoved

RETRYABLE = (*OUTAGES, Overloaded)
"""Errors that lose the rows of one database; the caller sends them again."""

Parts = Sequence[tuple[Ints, ResultT | None]]
"""Rows of each database with their result; None: lost."""


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
        unite: Callable[[Parts[ResultT]], ResultT],
    ) -> None:
        self.batchers = batchers
        self.divide = divide
        self.unite = unite

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
            return self._followed(divisions[0])
        return self._collected(divisions, self._followed)

    def _collected(
        self,
        divisions: Sequence[Division[JobT]],
        submit: Callable[[Division[JobT]], Future[ResultT]],
    ) -> Future[ResultT]:
        """Submit the divisions of a job; a division of no database, or of a full one, fails."""
        collected = Collected(len(divisions), self.unite)
        for division in divisions:
            part = self._part(division, submit)
            part.add_done_callback(partial(collected.add, division.rows))
        return collected.whole

    @staticmethod
    def _part(
        division: Division[JobT], submit: Callable[[Division[JobT]], Future[ResultT]]
    ) -> Future[ResultT]:
        if division.database < 0:
            return failed(ShardMoved())
        try:
            return submit(division)
        except Overloaded as error:
            return failed(error)

    def _submitted(self, division: Division[JobT]) -> Future[ResultT]:
        return self.batchers[division.database].submit(division.job)

    def _followed(self, division: Division[JobT]) -> Future[ResultT]:
        """Submit rows; if their shard has moved meanwhile, divide and submit the rows again."""
        outcome: Future[ResultT] = Future()

        def settle(done: Future[ResultT]) -> None:
            if done.cancelled():
                return
            if not isinstance(done.exception(), ShardMoved):
                copy_to(outcome, done)
                return
            try:
                again = self._collected(self.divide(division.job), self._submitted)
            except Exception as error:  # noqa: BLE001 - a callback that raises settles no future
                again = failed(error)
            again.add_done_callback(partial(copy_to, outcome))

        part = self._submitted(division)
        part.add_done_callback(settle)
        outcome.add_done_callback(lambda whole: whole.cancelled() and part.cancel())
        return outcome


def failed(error: Exception) -> Future[ResultT]:
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


class Collected(Generic[ResultT]):
    """The results of the divisions of a job, until all are there."""

    def __init__(self, n: int, unite: Callable[[Parts[ResultT]], ResultT]) -> None:
        self.whole: Future[ResultT] = Future()
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
            return
        try:
            whole = self.unite(self.results)
        except Exception as error:  # noqa: BLE001 - a callback that raises settles no future
            self.whole.set_exception(error)
        else:
            self.whole.set_result(whole)
