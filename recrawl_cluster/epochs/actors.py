"""EpochParts as actors of Dask distributed, on any number of machines.

Plain futures would not do, because Dask moves them and computes them again from another snapshot.
An actor stays with its worker and is lost with it: Dask restarts no actor. A worker that was
stopped shows only by the time that its answer takes. A dead scheduler loses all parts.
"""

import logging
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NamedTuple

import dask
import structlog
from distributed import Client, LocalCluster
from distributed.security import Security
from typing_extensions import override

from service.epochs.inputs import Task
from service.epochs.part import EpochPart, PartSource
from service.epochs.parts import EpochParts
from service.model.errors import PartLost, RecrawlError
from service.storage import Lead, Store

LOCAL = "local"
"""Address that stands for workers of this machine, which this process starts."""
SILENCE_S = 900.0
"""Maximum time for the answer to a question, seconds; reading the pages takes longest."""
CONNECTS_WITHIN_S = 30.0
"""Maximum time to reach the scheduler, and to place an actor, seconds."""
NANNY = "distributed.nanny.pre-spawn-environ"
QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
}
"""Settings of Dask for idle processes. With Dask's own, a scheduler with four workers takes 0.11
CPU seconds each second, with these 0.02."""
ENVIRONMENT = {
    "MALLOC_TRIM_THRESHOLD_": str(128 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_ARENA_MAX": "1",
    "DASK_LOGGING": str({"distributed.worker": "critical"}),
    **{
        f"DASK_{name.upper().replace('.', '__').replace('-', '_')}": str(value)
        for name, value in QUIET.items()
    },
}
"""Environment of workers. With Dask's own, which returns each freed 64 KiB to the kernel, arrays
cost three times the CPU seconds; it also limits numpy to one thread, which changes bits. A limit of
trimming alone keeps glibc from raising that of mmap by itself, so that each array above 128 KiB
would be mapped anew: twice the CPU seconds. A worker logs no traceback when its scheduler is lost,
because the leader logs the loss."""

Sources = Callable[[Any], Sequence[PartSource]]
"""Function that returns the sources of the parts of a store, for other processes."""

log = structlog.get_logger()


class Failure:
    """An error of a part, as another process can receive it."""

    def __init__(self, error: Exception) -> None:
        self.error = error if travels(error) else RecrawlError(f"{type(error).__name__}: {error}")


def travels(error: Exception) -> bool:
    """Return whether another process receives an error as it is."""
    try:
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - written here
    except Exception:  # noqa: BLE001 - an error may have any constructor
        return False
    return type(copy) is type(error)


class PartActor:
    """A part in a worker; questions and answers are pickled, so that their size is known."""

    pid = 0
    """Process of the worker; proxies know attributes of the class alone."""

    def __init__(self, source: PartSource, task: Task) -> None:
        self.part = EpochPart(source, task)
        self.pid = os.getpid()

    def answer(self, message: bytes) -> bytes:
        """Return the answer to a question, or its error."""
        question, arguments = pickle.loads(message)  # noqa: S301 - of the leader
        try:
            result = getattr(self.part, question)(*arguments)
        except Exception as error:  # noqa: BLE001 - the leader raises it
            result = Failure(error)
        return pickle.dumps(result, pickle.HIGHEST_PROTOCOL)


class Certificates(NamedTuple):
    """Files for TLS between this process, the scheduler and the workers, in PEM."""

    ca: str
    cert: str
    key: str


class Actors:
    """Actors for the parts of a store; `opened` is a runner of epochs."""

    def __init__(
        self,
        sources: Sources,
        address: str,
        silence_s: float = SILENCE_S,
        certificates: Certificates | None = None,
    ) -> None:
        self.sources, self.address, self.silence_s = sources, address, silence_s
        self.certificates = certificates
        """None: those of Dask's own settings."""
        self.cluster: LocalCluster | None = None
        self.client: Client | None = None
        self.closed = False
        self.n_bytes = 0
        """Bytes of all questions and answers."""

    def connected(self, n_parts: int) -> Client:
        """Return a client whose scheduler answers; raise `PartLost` if none does."""
        every = tuple(range(n_parts))
        if self.closed:  # an epoch that still runs must not start workers anew
            raise PartLost(every, "the processes of epochs have ended with the service")
        if self.client is not None and self.client.status == "running":
            return self.client
        self._disconnect()
        # without a scheduler Dask writes a traceback, and the epoch one line about the lost parts
        for name in ("distributed.client", "distributed.batched"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            if self.address == LOCAL:
                self.cluster = local_cluster(n_parts)
            self.client = Client(
                self.cluster or self.address,
                direct_to_workers=True,
                timeout=CONNECTS_WITHIN_S,
                security=self.security(),
            )
        except Exception as error:  # Dask raises many kinds
            raise PartLost(
                every,
                f"no Dask scheduler answers at {self.address} ({error}); see that it runs, and "
                "that RECRAWL_DASK and its certificates are right",
            ) from error
        return self.client

    def security(self) -> Security | None:
        """Return the TLS of connections; None: Dask's own settings."""
        if self.certificates is None:
            return None
        ca, cert, key = self.certificates
        return Security(
            tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, require_encryption=True
        )

    def n_workers(self) -> int:
        """Return the number of workers that the scheduler has; raise `PartLost`."""
        client = self.connected(1)
        try:
            client.wait_for_workers(1, timeout=CONNECTS_WITHIN_S)
            return len(client.scheduler_info(n_workers=-1)["workers"])
        except Exception as error:  # Dask raises many kinds
            raise PartLost((0,), f"no Dask worker is ready: {error!r}") from error

    def opened(
        self,
        store: Store,
        lead: Lead,  # noqa: ARG002 - for other runners
        task: Task,
    ) -> AbstractContextManager[EpochParts]:
        """Place an actor for each part of an epoch of a store (`placed`)."""
        return self.placed(self.sources(store), task)

    @contextmanager
    def placed(self, sources: Sequence[PartSource], task: Task) -> Iterator[EpochParts]:
        """Place an actor for each source; the actors end with the epoch."""
        parts = InActors(self, sources, task)
        try:
            yield parts
        finally:
            parts.actors = {}  # the last reference ends an actor

    def close(self) -> None:
        """End the workers that this process has started; an epoch that runs loses its parts."""
        self.closed = True
        self._disconnect()

    def _disconnect(self) -> None:
        for part in (self.client, self.cluster):
            if part is not None:
                with suppress(Exception):  # of a scheduler that has gone
                    part.close(timeout=CONNECTS_WITHIN_S)
        self.client = self.cluster = None


def local_cluster(n_workers: int) -> LocalCluster:
    """Return workers of this machine, each a process with one thread."""
    with dask.config.set({NANNY: ENVIRONMENT, **QUIET}):
        return LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address=None,
            # the scheduler serves HTTP all the same, by default to everybody and at one port
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        )


class InActors(EpochParts):
    """The parts of one epoch as actors."""

    def __init__(self, pool: Actors, sources: Sequence[PartSource], task: Task) -> None:
        self.pool, self.sources, self.task = pool, sources, task
        self.n_parts = len(sources)
        self.actors: dict[int, Any] = {}

    def place(self, which: Sequence[int]) -> None:
        """Place actors on the workers with the fewest; raise `PartLost`."""
        client = self.pool.connected(self.n_parts)
        for n in which:
            self.actors.pop(n, None)
        try:
            client.wait_for_workers(1, timeout=CONNECTS_WITHIN_S)  # a nanny may restart one
            addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
            busy = [actor._address for actor in self.actors.values()]  # noqa: SLF001 - no other way
            for n in which:
                worker = min(addresses, key=busy.count)
                placed = client.submit(
                    PartActor,
                    self.sources[n],
                    self.task,
                    actor=True,
                    pure=False,
                    workers=[worker],
                    allow_other_workers=True,
                )
                self.actors[n] = placed.result(timeout=CONNECTS_WITHIN_S)
                busy.append(self.actors[n]._address)  # noqa: SLF001
        except Exception as error:
            lost = tuple(n for n in which if n not in self.actors)
            raise PartLost(lost, f"no worker takes the parts {lost}: {error!r}") from error

    @override
    def ask(self, question: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        if missing := [n for n in range(self.n_parts) if n not in self.actors]:
            self.place(missing)
        messages = [pickle.dumps((question, own), pickle.HIGHEST_PROTOCOL) for own in arguments]
        futures: dict[int, Any] = {}
        lost: dict[int, str] = {}
        answers: list[Any] = []
        for n, message in enumerate(messages):
            with losing(n, lost):
                futures[n] = self.actors[n].answer(message)
        for n, future in futures.items():
            with losing(n, lost):
                own = future.result(timeout=self.pool.silence_s)
                self.pool.n_bytes += len(own) + len(messages[n])
                answers.append(pickle.loads(own))  # noqa: S301 - of our own worker
        if lost:
            for n in lost:
                self.actors.pop(n, None)
            raise PartLost(tuple(sorted(lost)), "; ".join(lost.values()))
        for each in answers:
            if isinstance(each, Failure):
                raise each.error
        return answers

    @override
    def renew(self, which: Sequence[int]) -> None:
        self.place(which)


@contextmanager
def losing(n: int, lost: dict[int, str]) -> Iterator[None]:
    """Count any error as the loss of a part: an actor returns its own errors as answers."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - Dask raises many kinds
        lost[n] = f"part {n}: {error!r}"[:200]
