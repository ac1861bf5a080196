"""Real processes of the service, polled until ready, ended by their own process id."""

import itertools
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from support.live_server import PATIENCE_S, until

ENDS_WITHIN_S = 30.0
"""Maximum time from SIGTERM to the end of a process, seconds: far less than its long waits."""
ROOT = Path(__file__).parents[2]


def environment(**settings: Any) -> dict[str, str]:
    """Return this process's variables with these settings of the service and no others."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RECRAWL_")}
    return kept | {f"RECRAWL_{name}".upper(): str(value) for name, value in settings.items()}


def command(*arguments: str, clock: Path | None = None) -> list[str]:
    """Return the command line of a command of the service, with a clock that a file steps."""
    stepped = ["benchmarks.faults.replica", str(clock)]
    return [sys.executable, "-m", *(stepped if clock else ["service"]), *arguments]


def run(directory: Path, *arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command(*arguments),
        env=environment(**settings),
        cwd=directory,
        text=True,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )


@dataclass
class Running:
    """One process of the service; its standard error goes to a file."""

    popen: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """End the process without warning, as a power cut does."""
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait(ENDS_WITHIN_S)

    def terminate(self) -> int:
        """Send SIGTERM and return the exit status."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(ENDS_WITHIN_S)

    def ended(self) -> bool:
        return self.popen.poll() is not None


@dataclass
class Serving(Running):
    """A server and a client of it."""

    client: httpx.Client

    def ready(self) -> bool:
        assert not self.ended(), self.log.read_text()
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def post(self, path: str, items: list[dict[str, Any]]) -> dict[str, Any]:
        response = self.client.post(path, json=items)
        assert response.status_code == 200, response.text
        return response.json()


@contextmanager
def started(
    directory: Path,
    *arguments: str,
    n_descriptors: int | None = None,
    clock: Path | None = None,
    **settings: Any,
) -> Iterator[Running]:
    """Start a command, and end its process after the block."""
    limit = ["sh", "-c", f'ulimit -n {n_descriptors}; exec "$0" "$@"'] if n_descriptors else []
    n_logs = len(list(directory.glob("*.log")))
    log = directory / f"{arguments[0]}-{n_logs}.log"
    with log.open("wb") as errors:
        popen = subprocess.Popen(
            [*limit, *command(*arguments, clock=clock)],
            env=environment(**settings) | {"PYTHONPATH": str(ROOT)},
            cwd=directory,
            stdout=errors,
            stderr=errors,
        )
    try:
        yield Running(popen, log)
    finally:
        if popen.poll() is None:
            popen.kill()
        popen.wait()


@contextmanager
def running_python(directory: Path, *arguments: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run Python until the block ends, then ask it to end; its output goes to output.txt."""
    with (directory / "output.txt").open("wb") as out:
        popen = subprocess.Popen(
            [sys.executable, "-u", *map(str, arguments)],
            cwd=directory,
            stdout=out,
            stderr=out,
            env=environment(),
        )
    try:
        yield popen
        popen.send_signal(signal.SIGINT)
        popen.wait(PATIENCE_S)
    finally:
        popen.kill()
        popen.wait()


def ports_of_a_worker() -> Iterator[int]:
    """Yield ports that the system hands to nobody, and no other worker of this run takes."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    n = 1_000
    first = 20_000 + n * (worker % 12)
    for k in itertools.count(random.randrange(n)):
        yield first + k % n


PORTS = ports_of_a_worker()


def free_port() -> int:
    """Return a port that is free, and stays so for whoever does not ask here."""
    for port in PORTS:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError


@contextmanager
def serving(
    directory: Path, *, wait: bool = True, port: int | None = None, **settings: Any
) -> Iterator[Serving]:
    """Start a server, on a free port, and wait until it is ready."""
    port = port or free_port()
    with (
        started(directory, "serve", "--port", str(port), **settings) as running,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client,
    ):
        server = Serving(running.popen, running.log, client)
        if wait:
            until(server.ready, "the server is ready")
        yield server
