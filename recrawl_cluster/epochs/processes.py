"""Shards in processes of this machine. They stay from epoch to epoch.

A process that has ended, or that does not answer in time, loses its shard. It is then ended and
replaced.
"""

import multiprocessing
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from typing_extensions import override

from service.epochs.shard import Shard, ShardSource, Task
from service.epochs.shards import Shards
from service.model.errors import RecrawlError, ShardLost
from service.storage import Lead, Store

SILENCE_S = 900.0
"""Maximum time for the answer to a question, seconds; reading the pages takes longest."""
ENDS_WITHIN_S = 5.0
"""Maximum time for a process to end, seconds."""
OPEN, CLOSE = "open", "close"
"""Messages that open a shard in a process, and free its memory."""

Sources = Callable[[Any], Sequence[ShardSource]]
"""Function that returns the sources of the shards of a store."""

SPAWN = multiprocessing.get_context("spawn")  # a fork would share connections and threads


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
    """Answer the questions of a leader until it closes the connection.

    Signals that end a service may come to all of its processes. The leader ends this one.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    shard: Shard | None = None
    with suppress(EOFError, OSError):
        while True:
            question, arguments = connection.recv()
            if question in (OPEN, CLOSE):
                shard = None  # first, because two shards would take twice the memory
                shard = Shard(*arguments) if question == OPEN else None
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
    """Processes for the shards of a store; `opened` is a runner of epochs."""

    def __init__(self, sources: Sources, silence_s: float = SILENCE_S) -> None:
        self.sources, self.silence_s = sources, silence_s
        self.workers: list[ShardProcess] = []
        self.closed = False

    @contextmanager
    def opened(self, store: Store, lead: Lead, task: Task) -> Iterator[Shards]:  # noqa: ARG002
        """Open a shard of an epoch in each process; its memory is freed after the epoch."""
        sources = self.sources(store)
        for worker in self.workers[len(sources) :]:
            worker.end()
        self.workers = self.workers[: len(sources)]
        while len(self.workers) < len(sources):
            self.workers.append(ShardProcess())
        shards = InProcesses(self, sources, task)
        try:
            shards.open(range(len(sources)))
            yield shards
        finally:
            for worker in self.workers:
                with suppress(OSError):
                    worker.send(pickle.dumps((CLOSE, ())))

    def close(self) -> None:
        """End all processes; an epoch that runs loses its shards."""
        self.closed = True
        for worker in self.workers:
            worker.end()


class InProcesses(Shards):
    """The shards of one epoch in processes."""

    def __init__(self, pool: Processes, sources: Sequence[ShardSource], task: Task) -> None:
        self.pool, self.sources, self.task = pool, sources, task
        self.n_shards = len(sources)

    def open(self, which: Sequence[int]) -> None:
        """Open a shard in some processes; a process that has ended is replaced."""
        if self.pool.closed:
            raise ShardLost(tuple(which), "the processes of epochs have ended with the service")
        for n in which:
            message = pickle.dumps((OPEN, (self.sources[n], self.task)))
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
