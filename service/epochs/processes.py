"""Shards in processes of this machine, one for each database. They stay from epoch to epoch.

A process that has ended, or that does not answer in time, loses its shard. It is then ended and
replaced.
"""

import multiprocessing
import pickle
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from typing_extensions import override

from service.archive.log_archive import LogArchive
from service.epochs.shard import Input, Shard, ShardSource, Task, load_divided
from service.epochs.shards import Shards
from service.model.columns import ScheduleColumns
from service.model.errors import RecrawlError, ShardLost
from service.storage import Lead, Store, open_store
from service.storage.epochs import Learnt

SILENCE_S = 900.0
"""Maximum time for the answer to a question, seconds; reading the pages takes longest."""
ENDS_WITHIN_S = 5.0
"""Maximum time for a process to end, seconds."""
OPEN = "open"
"""Message that opens a shard in a process."""

SPAWN = multiprocessing.get_context("spawn")  # a fork would share connections and threads


@dataclass(frozen=True, slots=True)
class Database:
    """The database of a shard, for a process that opens a store of its own."""

    url: str
    width: int
    """Number of columns of the estimator."""
    archive: LogArchive | None = None

    def store(self) -> Store:
        """Return the opened store; the caller closes it."""
        return open_store(self.url, self.width, archive=self.archive)

    def load(self, task: Task) -> dict[int, Input]:
        """Return the input of each logical shard, as of one instant."""
        with closing(self.store()) as store, store.read_whole() as tx:
            return load_divided(tx, task)

    def prepare(self, epoch: int, schedule: ScheduleColumns, learnt: Learnt) -> None:
        """Write the schedule and what the epoch learnt, in place of an earlier attempt."""
        with closing(self.store()) as store, store.begin() as tx:
            tx.withdraw(epoch)
            tx.write_schedule(epoch, schedule)
            tx.save_learnt(epoch, learnt)


class Failure:
    """An error of a shard, as another process can receive it."""

    def __init__(self, error: Exception) -> None:
        self.error = error if travels(error) else RecrawlError(f"{type(error).__name__}: {error}")


def travels(error: Exception) -> bool:
    """Return whether another process receives an error as it is."""
    try:
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - written here
    except Exception:  # noqa: BLE001 - an error may have any constructor
        return False
    return type(copy) is type(error)


def answer(shard: Shard, question: str, arguments: tuple[Any, ...]) -> Any:
    """Return the answer of a shard, or its error."""
    try:
        return getattr(shard, question)(*arguments)
    except Exception as error:  # noqa: BLE001 - the leader raises it
        return Failure(error)


def serve(connection: Connection) -> None:
    """Answer the questions of a leader until it closes the connection."""
    shard: Shard | None = None
    with suppress(EOFError, OSError):
        while True:
            question, arguments = connection.recv()
            if question == OPEN:
                shard = None  # first, because two shards would take twice the memory
                shard = Shard(*arguments)
            elif shard is not None:
                connection.send(answer(shard, question, arguments))


class ShardProcess:
    """A process with a shard."""

    def __init__(self) -> None:
        self.connection, other = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(other,), name="shard", daemon=True)
        self.process.start()
        other.close()
        self.n_bytes = 0
        """Bytes of all questions and answers."""

    def send(self, message: bytes) -> None:
        """Send a question with its arguments; raise `OSError` if the process has ended."""
        self.n_bytes += len(message)
        self.connection.send_bytes(message)

    def receive(self, within_s: float) -> Any:
        """Return an answer; raise `EOFError` or `TimeoutError`."""
        if not self.connection.poll(within_s):
            raise TimeoutError
        message = self.connection.recv_bytes()
        self.n_bytes += len(message)
        return pickle.loads(message)  # noqa: S301 - of our own process

    def end(self) -> None:
        """End the process."""
        self.connection.close()
        self.process.kill()
        self.process.join(ENDS_WITHIN_S)


class Processes:
    """Processes for the shards of some databases; `opened` is a runner of epochs."""

    def __init__(self, sources: Sequence[ShardSource], silence_s: float = SILENCE_S) -> None:
        self.sources, self.silence_s = sources, silence_s
        self.workers: list[ShardProcess] = []

    @contextmanager
    def opened(self, lead: Lead, task: Task) -> Iterator[Shards]:  # noqa: ARG002
        """Open a shard of an epoch in each process."""
        if not self.workers:
            self.workers = [ShardProcess() for _ in self.sources]
        shards = InProcesses(self, task)
        shards.open(range(len(self.workers)))
        yield shards

    def close(self) -> None:
        """End all processes."""
        for worker in self.workers:
            worker.end()
        self.workers = []


class InProcesses(Shards):
    """The shards of one epoch in processes."""

    def __init__(self, pool: Processes, task: Task) -> None:
        self.pool, self.task = pool, task
        self.n_shards = len(pool.workers)

    def open(self, which: Sequence[int]) -> None:
        """Open a shard in some processes; a process that has ended is replaced."""
        for n in which:
            message = pickle.dumps((OPEN, (self.pool.sources[n], self.task)))
            try:
                self.pool.workers[n].send(message)
            except OSError:
                self.pool.workers[n].end()
                self.pool.workers[n] = ShardProcess()
                self.pool.workers[n].send(message)

    @override
    def ask(self, question: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        lost, answers = set(), []
        messages = [pickle.dumps((question, own), pickle.HIGHEST_PROTOCOL) for own in arguments]
        for n, (worker, message) in enumerate(zip(self.pool.workers, messages, strict=True)):
            try:
                worker.send(message)
            except OSError:
                lost.add(n)
        for n, worker in enumerate(self.pool.workers):
            try:  # answers of all, so that none is taken for that to a later question
                answers.append(None if n in lost else worker.receive(self.pool.silence_s))
            except (EOFError, OSError):
                lost.add(n)
        if lost:
            for n in lost:  # an answer that comes late must not be taken for a later one
                self.pool.workers[n].end()
            raise ShardLost(tuple(sorted(lost)))
        for each in answers:
            if isinstance(each, Failure):
                raise each.error
        return answers

    @override
    def renew(self, which: Sequence[int]) -> None:
        self.open(which)
