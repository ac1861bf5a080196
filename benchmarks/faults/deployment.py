"""The deployment under test: replicas and workers, restarted when they end, and clients."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import httpx
from typing_extensions import override

from benchmarks.faults import replica
from benchmarks.faults.clients import Task
from benchmarks.faults.roles import work
from benchmarks.http.processes import Failed, free_port
from recrawl_cluster.epochs.actors import ENVIRONMENT

READY_WITHIN_S = 240.0
ENDS_WITHIN_S = 10.0
"""Maximum time from SIGTERM to the end of a process, seconds; container runtimes kill later."""
STARTS_WITHIN_S = 20.0
"""Maximum time that a start takes, seconds; an end after it counts as unexpected."""
POLL_S = 0.05


@dataclass
class Service:
    """One process of the service, which is restarted whenever it ends."""

    name: str
    command: Sequence[str]
    settings: dict[str, str]
    folder: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    n_starts: int = 0
    faults: list[str] = field(default_factory=list)
    """Ends without a nemesis as their cause."""

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def clock(self) -> Path:
        return self.folder / f"{self.name}.clock"

    def start(self) -> None:
        others = {name: v for name, v in os.environ.items() if not name.startswith("RECRAWL_")}
        if self.n_starts == 0:
            replica.step(self.clock, 0.0)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *self.program(), *self.command],
                env=others | self.settings,
                stdout=log,
                stderr=log,
            )
        self.started_at = time.monotonic()
        self.n_starts += 1

    def program(self) -> list[str]:
        """Return the module that runs, with its first arguments."""
        return ["benchmarks.faults.replica", str(self.clock)]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the current process."""
        if self.process is not None:
            self.process.send_signal(number)

    def keep_alive(self) -> None:
        """Restart the process if it has ended, and record an end without a cause."""
        if self.process is None or (status := self.process.poll()) is None:
            return
        lived_s = time.monotonic() - self.started_at
        refused_to_start = status in (2, 3) and lived_s < STARTS_WITHIN_S
        if status != -signal.SIGKILL and not refused_to_start:
            self.faults.append(f"{self.name} ended with status {status} after {lived_s:.0f} s")
        self.start()

    def terminate(self) -> None:
        """Send SIGTERM to the process, as an operator does."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)

    def await_end(self, deadline: float) -> None:
        """Wait for the end of the process, and record a process that misses the deadline."""
        if self.process is None:
            return
        try:
            self.process.wait(max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            self.faults.append(f"{self.name} was still running {ENDS_WITHIN_S:g} s after SIGTERM")
            self.process.kill()
            self.process.wait()


class DaskProcess(Service):
    """A scheduler or a worker of Dask; a worker ends by itself with its scheduler."""

    @override
    def program(self) -> list[str]:
        return ["dask"]


def dask(folder: Path, n_workers: int) -> tuple[list[Service], list[Service]]:
    """Return a scheduler of Dask and its workers, not yet started."""
    (port,) = free_ports(1)
    own = ["--host", "127.0.0.1", "--no-dashboard"]
    one = DaskProcess("scheduler", ["scheduler", "--port", str(port), *own], {}, folder, port)
    command = ["worker", f"tcp://127.0.0.1:{port}", *own, "--no-nanny", "--nthreads", "1"]
    command += ["--memory-limit", "0", "--local-directory", str(folder)]
    settings = dict(ENVIRONMENT)
    workers = [DaskProcess(f"dask-{n}", command, settings, folder) for n in range(n_workers)]
    return [one], [*workers]


@dataclass
class Clients:
    """Client processes; a killed client is replaced by another of its kind."""

    task: Callable[[str], Task] = field(init=False)
    """Function from a client's name to its task."""
    running: dict[str, BaseProcess] = field(default_factory=dict)
    n_started: int = 0

    def start(self, kind: str) -> None:
        fork = multiprocessing.get_context("forkserver")
        fork.set_forkserver_preload(["benchmarks.faults.roles"])
        name = f"{kind}-{self.n_started}"
        process = fork.Process(target=work, args=(kind, self.task(name)), daemon=True)
        process.start()
        self.running[name] = process
        self.n_started += 1

    def of(self, kind: str) -> list[str]:
        """Return the names of the clients of a kind."""
        return [name for name in self.running if name.startswith(f"{kind}-")]

    def kill(self, name: str) -> None:
        """End a client without warning, as a power cut does."""
        process = self.running.pop(name)
        process.kill()
        process.join()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a client."""
        process = self.running[name]
        if process.pid is not None:
            os.kill(process.pid, number)

    def end(self) -> None:
        for name in [*self.running]:
            self.kill(name)


class Supervisor:
    """A thread that restarts services, as a container runtime does with `restart: always`."""

    def __init__(self, services: Sequence[Service]) -> None:
        self.services = services
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Start all services and keep them running."""
        for service in self.services:
            service.start()
        self.thread.start()

    def _run(self) -> None:
        while not self.stopped.wait(POLL_S):
            for service in self.services:
                service.keep_alive()

    def end(self) -> None:
        """End all services."""
        self.stopped.set()
        if self.thread.is_alive():
            self.thread.join()
        for service in self.services:
            service.terminate()
        deadline = time.monotonic() + ENDS_WITHIN_S
        for service in self.services:
            service.await_end(deadline)


def settings_of(url: str, **more: str) -> dict[str, str]:
    """Return the environment variables for a process of the service."""
    scheme, _, path = url.partition("://")
    place = {"RECRAWL_CLUSTER": path} if scheme == "cluster" else {"RECRAWL_DATABASE_URL": url}
    return place | {f"RECRAWL_{k}".upper(): v for k, v in more.items()}


def migrate(url: str) -> None:
    """Create the tables."""
    ran = subprocess.run(
        [sys.executable, "-m", "service", "migrate"],
        env=os.environ | settings_of(url),
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise Failed(f"migrate: {ran.stderr}")


def await_ready(services: Sequence[Service]) -> None:
    """Wait until every replica is ready."""
    deadline = time.monotonic() + READY_WITHIN_S
    for service in services:
        while not ready(service):
            if time.monotonic() > deadline:
                raise Failed(f"{service.name} is not ready: {service.log.read_text()[-2000:]}")
            time.sleep(POLL_S)


def ready(service: Service) -> bool:
    """Return whether a replica is ready."""
    with suppress(httpx.HTTPError):
        return httpx.get(f"http://127.0.0.1:{service.port}/readyz", timeout=5).status_code == 200
    return False


def free_ports(n: int) -> list[int]:
    """Return different ports that were free a moment ago."""
    ports: set[int] = set()
    while len(ports) < n:
        ports.add(free_port())
    return sorted(ports)
