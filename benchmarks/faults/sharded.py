"""A deployment over three databases whose shards move from one to another all the time."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import psycopg

from benchmarks.faults.postgres import Cluster
from benchmarks.http.processes import Failed

LOGICAL = 64
NAMES = ("one", "two", "three")
SPANS = ("0-20", "21-42", "43-63")
CLOSED_S, GRACE_S = 10.0, 0.5
"""Maximum time for which a shard is closed, and time for which its old rows stay, seconds."""
ENDS_WITHIN_S = 120.0
"""Time within which the last move must complete after the last fault, seconds."""
STARTS_WITHIN_S = 20.0
"""Time within which a command writes its first line, seconds."""
SHARDS_OF_PAGES = "SELECT DISTINCT host_id >> 42 FROM hosts"


def create(servers: Sequence[Cluster], ports: Sequence[int], folder: Path) -> Path:
    """Write the map of databases, each reached through a port; join them, and return the file."""
    tables = "".join(
        f'[[databases]]\nname = "{name}"\nurl = "{server.url(port)}"\nshards = "{span}"\n'
        for name, server, port, span in zip(NAMES, servers, ports, SPANS, strict=True)
    )
    file = folder / "cluster.toml"
    file.write_text(f"logical = {LOGICAL}\n{tables}")
    for command in ("migrate",), ("shards", "add"):
        ran = run(file, *command)
        if ran.returncode:
            raise Failed(f"{' '.join(command)}: {ran.stderr}")
    return file


def environment(file: Path) -> dict[str, str]:
    """Return the environment of a command over several databases."""
    others = {name: v for name, v in os.environ.items() if not name.startswith("RECRAWL_")}
    return others | {"RECRAWL_CLUSTER": str(file)}


def run(file: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "service", *command],
        env=environment(file),
        capture_output=True,
        text=True,
        check=False,
    )


def shards_of_pages(urls: Sequence[str]) -> list[int]:
    """Return the logical shards that have hosts."""
    shards: set[int] = set()
    for url in urls:
        with psycopg.connect(url) as driver:
            shards |= {int(shard) for (shard,) in driver.execute(SHARDS_OF_PAGES).fetchall()}
    return sorted(shards)


class Mover:
    """A thread that moves shards, one after the other; its command may be killed at any time."""

    def __init__(self, file: Path, shards: Sequence[int], seed: int) -> None:
        self.file = file
        self.shards = shards
        self.draw = Random(seed)
        self.ends = threading.Event()
        self.process: subprocess.Popen[bytes] | None = None
        self.n_moves = self.n_killed = self.n_stopped = 0
        self.log = file.parent / "mover.log"
        self.thread = threading.Thread(target=self._run, name="mover", daemon=True)

    def start(self) -> None:
        """Begin to move shards."""
        self.thread.start()

    def _run(self) -> None:
        while not self.ends.is_set():
            shard, to = self.draw.choice(self.shards), self.draw.choice(NAMES)
            while not self._moved(shard, to):
                pass

    def _moved(self, shard: int, to: str) -> bool:
        """Run the command once; return whether the move is complete."""
        options = ["--to", to, "--closed-s", str(CLOSED_S), "--grace-s", str(GRACE_S)]
        with self.log.open("ab") as log:
            start = log.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "service", "shards", "move", str(shard), *options],
                env=environment(self.file),
                stdout=log,
                stderr=log,
            )
            status = self.process.wait()
        said = self.log.read_bytes()[start:].decode(errors="replace")
        if status == -signal.SIGKILL:
            self.n_killed += 1
        elif status:
            self.n_stopped += 1
        complete = status == 0 or f"is in {to} already" in " ".join(said.split())
        self.n_moves += status == 0
        return complete

    def harm(self, seconds: float) -> None:
        """Kill the command some seconds after it has begun to move."""
        process, deadline = self.process, time.monotonic() + STARTS_WITHIN_S
        n_bytes = self.log.stat().st_size if self.log.exists() else 0
        while time.monotonic() < deadline and self.log.stat().st_size == n_bytes:
            time.sleep(0.05)
        time.sleep(seconds)
        if process is self.process:
            self.kill()

    def kill(self) -> None:
        """Kill the command."""
        if self.process is not None:
            self.process.kill()

    def finish(self) -> None:
        """Wait for the end of the last move."""
        self.ends.set()
        self.thread.join(ENDS_WITHIN_S)
        if self.thread.is_alive():
            self.kill()
            raise Failed(f"the last move did not complete within {ENDS_WITHIN_S:g} s: {self.log}")

    @property
    def faults(self) -> list[str]:
        """Tracebacks in the log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return [part[-300:] for part in text.split("Traceback (most recent call last)")[1:]]
