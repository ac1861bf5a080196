"""Databases, servers and groups of client processes that end when their block does."""

import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Self

import httpx
import psycopg

READY_WITHIN_S = 240.0
ENDS_WITHIN_S = 30.0
TICKS = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A row could not be measured; its message appears in the table."""


class Serving(NamedTuple):
    """A server with the process that runs epochs: a worker, or the server itself."""

    base: str
    port: int
    server: int
    worker: int

    def pids(self) -> set[int]:
        return {self.server, self.worker}


@contextmanager
def serving(
    url: str, folder: Path, *, new: bool = False, port: int = 0, **settings: Any
) -> Iterator[Serving]:
    """Run the service as its users do, with its output in a file in the folder.

    A new database is migrated first and has no worker yet.
    """
    others = {name: value for name, value in os.environ.items() if not name.startswith("RECRAWL_")}
    scheme, _, path = url.partition("://")
    place = {"RECRAWL_CLUSTER": path} if scheme == "cluster" else {"RECRAWL_DATABASE_URL": url}
    environment = others | {
        **place,
        "RECRAWL_LOG_LEVEL": "warning",
        "RECRAWL_EPOCH_INTERVAL_S": "86400",
        **{f"RECRAWL_{name}".upper(): str(value) for name, value in settings.items()},
    }
    command = [sys.executable, "-m", "service"]
    port = port or free_port()
    log = folder / "service.log"
    started: list[subprocess.Popen[bytes]] = []
    with log.open("ab") as messages:

        def start(*arguments: str) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [*command, *arguments], env=environment, stdout=messages, stderr=messages
            )

        if new and start("migrate").wait(READY_WITHIN_S):
            raise Failed(log.read_text())
        try:
            started.append(start("serve", "--port", str(port)))
            if not url.startswith("sqlite") and not new:
                started.append(start("worker"))
            base = f"http://127.0.0.1:{port}"
            _wait_until_ready(base, started[0], log)
            yield Serving(base, port, started[0].pid, started[-1].pid)
        finally:
            for process in reversed(started):
                process.terminate()
            for process in started:
                _end(process)


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def _wait_until_ready(base: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    with httpx.Client(base_url=base) as client:
        while time.monotonic() < deadline and server.poll() is None:
            try:
                client.get("/readyz").raise_for_status()
            except httpx.HTTPError:
                time.sleep(0.05)
            else:
                return
    raise Failed(f"the server did not start: {log.read_text()}")


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def postgres_database(server: str, name: str, template: str | None = None) -> Iterator[str]:
    """Create a database, empty or from a template, and drop it after the block."""
    like = f" TEMPLATE {template}" if template else ""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}{like}")
    try:
        yield f"{server.rpartition('/')[0]}/{name}"
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far, seconds; 0 for a process that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def megabytes(pid: int, field: str) -> float:
    """Return VmRSS or VmHWM of a process, MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(rf"{field}:\s+(\d+) kB", status)
    return int(match[1]) / 1024 if match else float("nan")


def reset_peak(pid: int) -> None:
    """Reset VmHWM to the current size."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


class Usage(NamedTuple):
    """CPU seconds of the service and of Postgres so far, and the number of WAL fsyncs so far."""

    at: float
    service: float
    postgres: dict[int, float]
    fsyncs: int

    @classmethod
    def now(cls, service: Serving, url: str) -> "Usage":
        used = sum(cpu_seconds(pid) for pid in service.pids())
        if not url.startswith("postgresql"):
            return cls(time.monotonic(), used, {}, 0)
        with psycopg.connect(url) as connection:
            pids = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                "AND (datname = current_database() OR backend_type <> 'client backend')"
            ).fetchall()
            fsyncs = connection.execute(
                "SELECT (to_jsonb(w) ->> 'wal_sync')::bigint FROM pg_stat_wal AS w"
            ).fetchone()
        postgres = {pid: cpu_seconds(pid) for (pid,) in pids}
        return cls(time.monotonic(), used, postgres, (fsyncs and fsyncs[0]) or 0)

    def since(self, before: "Usage") -> dict[str, float]:
        """Return the mean number of cores used, and fsyncs a second."""
        seconds = self.at - before.at
        postgres = sum(now - before.postgres.get(p, 0.0) for p, now in self.postgres.items())
        return {
            "service": (self.service - before.service) / seconds,
            "postgres": postgres / seconds,
            "fsyncs": (self.fsyncs - before.fsyncs) / seconds,
        }


class Group:
    """Processes that call one function, each with its arguments, and start together.

    The last argument of the function is `ready`. The function calls `ready` after its preparation;
    `ready` returns a function that returns whether to continue.
    """

    def __init__(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> None:
        fork = multiprocessing.get_context("forkserver")
        fork.set_forkserver_preload(["benchmarks.http.rows", "benchmarks.http.report"])
        self._go = fork.Event()
        self._pipes: list[Connection] = []
        self._processes = []
        for some in arguments:
            here, there = fork.Pipe()
            process = fork.Process(
                target=_child, args=(function, some, there, self._go), daemon=True
            )
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
            process.join()

    def go(self) -> float:
        """Start all processes when each is ready; return the instant.

        Earlier writes are flushed to disk first, so that they do not slow this round.
        """
        for pipe in self._pipes:
            _receive(pipe)
        os.sync()
        self._go.set()
        return time.monotonic()

    def stop(self) -> None:
        """End the work of all processes."""
        self._go.clear()

    def results(self) -> list[Any]:
        """Return the results of all processes, after they have ended."""
        return [_receive(pipe) for pipe in self._pipes]


def together(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Run a group to its end and return the results."""
    with Group(function, arguments) as group:
        group.go()
        return group.results()


def _receive(pipe: Connection) -> Any:
    try:
        failure, result = pipe.recv()
    except EOFError:
        raise Failed("a client process ended without a result") from None
    if failure:
        raise Failed(failure)
    return result


def _child(
    function: Callable[..., Any], arguments: tuple[Any, ...], pipe: Connection, go: Any
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children

    def ready() -> Callable[[], bool]:
        pipe.send(("", None))
        go.wait()
        going: Callable[[], bool] = go.is_set
        return going

    try:
        pipe.send(("", function(*arguments, ready)))
    except Failed as failure:
        pipe.send((str(failure), None))
    except Exception:  # noqa: BLE001 - the parent raises any exception again
        pipe.send((traceback.format_exc(), None))
