"""Move a logical shard of a million pages to another database and back while it is used.

    python -m benchmarks.moves [--pages 1000000] [--moves 1] [--server URL] [--json FILE]

Two databases of one Postgres have 1.2 times so many pages, in three logical shards. A server and
a worker run as their users run them. Clients report batches, take leases and report them, and
report single crawls of the shard that moves, of another shard of its database, and of the other
database. The shard moves to the other database, then back; the command is killed four times in
each move and run again. Then the databases are compared with the clients' acknowledged crawls.

- pages/s: pages copied and compared, while the clients work
- closed: time that the command reports, s
- refused: longest time without an accepted single report of a shard, s
- slowest: longest answer to a single report, s
- memory: highest resident memory of the command, MB
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks.faults.sharded import environment, run
from benchmarks.http.processes import Failed, megabytes, postgres_database, serving
from benchmarks.http.report import machine
from benchmarks.moves.checks import Check, check, contents
from benchmarks.moves.corpus import FAR, LOGICAL, MOVED, NEAR, SPANS, fill, page_ids
from benchmarks.moves.load import Client, Crawler, Reporter, Single, longest_pause, slowest
from service.model.arrays import Ints

SETTINGS = {"epoch_interval_s": "60", "host_delay_s": "0.2"}
CRAWL_RATE = 20.0
"""Crawls of a page a day."""
TARGETS = "two", "one"
GRACE_S = 5.0
KILLED_AT = ("copied", 0.2), ("copied", 0.5), ("catch up", 0.0), ("is in", 0.0)
"""Lines of the command at which it is killed, and the share of the pages that a run has copied."""


@dataclass
class Step:
    """One line of the command."""

    at: float
    text: str


@dataclass
class Move:
    """One move: its lines with their times, and the highest memory of the command."""

    to: str
    began: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    steps: list[Step] = field(default_factory=list)
    n_killed: int = 0
    memory: float = 0.0

    def first(self, text: str) -> float:
        """Return the time of the first line with a text, s since the start."""
        return next((one.at - self.began for one in self.steps if text in one.text), np.nan)

    def last(self, text: str) -> float:
        """Return the time of the last line with a text, s since the start."""
        return max((one.at - self.began for one in self.steps if text in one.text), default=np.nan)

    @property
    def closed_s(self) -> float:
        """Time that the command reports."""
        texts = (one.text for one in self.steps if "it was closed for" in one.text)
        return float(next(texts, "nan s").split()[-2])


def move(file: Path, to: str, kills: Sequence[str], until: float) -> Move:
    """Run the command until the shard has moved or time is up; kill it at each of `kills`."""
    one, left = Move(to), list(kills)
    command = [sys.executable, "-u", "-m", "service", "shards", "move", str(MOVED), "--to", to]
    while not one.ended:
        process = subprocess.Popen(
            [*command, "--grace-s", str(GRACE_S)],
            env=environment(file),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for line in process.stdout or ():
            one.steps.append(Step(time.monotonic(), line.strip()))
            if "copied" not in line:
                print(f"{one.steps[-1].at - one.began:.1f} s: {line}", end="", flush=True)
            one.memory = np.fmax(one.memory, megabytes(process.pid, "VmHWM"))
            is_late = time.monotonic() > until and "copied" in line
            if is_late or (left and left[0] in line):
                process.kill()
                one.n_killed += 1
                left = left[1:]
        if not process.wait() or time.monotonic() > until:
            one.ended = time.monotonic()
        elif process.returncode > 0:
            raise Failed("; ".join(step.text for step in one.steps[-5:]))
    return one


def map_file(folder: Path, urls: Sequence[str]) -> Path:
    """Write the file of the map, migrate the databases, and return the file."""
    tables = "".join(
        f'[[databases]]\nname = "{name}"\nurl = "{url}"\nshards = "{span}"\n'
        for (name, span), url in zip(SPANS.items(), urls, strict=True)
    )
    file = folder / "shards.toml"
    file.write_text(f"logical = {LOGICAL}\n{tables}")
    ran = run(file, "migrate")
    if ran.returncode:
        raise Failed(ran.stderr)
    return file


def clients_of(base: str, ids: dict[int, Ints]) -> dict[str, Client]:
    """Return the clients, not yet started."""
    every = np.concatenate([*ids.values()])
    singles = {"moved": MOVED, "near": NEAR, "far": FAR}
    return {
        "reports": Reporter(base, every, 0.2, 1),
        "leases": Crawler(base, every, 0.2, 2),
        **{name: Single(base, ids[shard], 0.05, shard) for name, shard in singles.items()},
    }


def figures(one: Move, n_pages: int, clients: dict[str, Client]) -> dict[str, float]:
    """Return the figures of one move."""
    copied = one.first("to catch up")
    return {
        "kills": one.n_killed,
        "copy, s": copied,
        "pages/s": n_pages / copied,
        "catch up, s": one.first("closing") - copied,
        "last copy and close, s": one.last("is closed") - one.last("closing"),
        "closed, s": one.closed_s,
        **{
            f"refused {name}, s": longest_pause(clients[name], one.began, one.ended)
            for name in ("moved", "near", "far")
        },
        **{
            f"slowest {name}, s": slowest(clients[name], one.began, one.ended)
            for name in ("near", "far")
        },
        "clean up, s": one.ended - one.began - one.last("the old rows"),
        "whole, s": one.ended - one.began,
        "memory, MB": one.memory,
    }


def measure(
    options: argparse.Namespace, folder: Path
) -> tuple[list[dict[str, float]], list[Check]]:
    """Return the figures of the moves, and the checks after the last."""
    console, n_pages = Console(highlight=False), options.pages
    with ExitStack() as stack:
        urls = [stack.enter_context(database(options, f"moves_{name}")) for name in SPANS]
        file = map_file(folder, urls)
        began = time.monotonic()
        if not options.go_on:
            fill(file, urls, n_pages)
        ids, before = page_ids(urls), contents(urls)
        console.print(f"{before.n_pages:,} pages after {time.monotonic() - began:.0f} s")
        rate = n_pages * CRAWL_RATE
        with serving(f"shards://{file}", folder, bandwidth=rate, **SETTINGS) as service:
            clients = clients_of(service.base, ids)
            for client in clients.values():
                client.start()
            kills = [] if options.go_on else [kill_at(*one, n_pages) for one in KILLED_AT]
            until = began + options.seconds
            moves = [move(file, to, kills, until) for to in TARGETS[: options.moves]]
            for client in clients.values():
                client.finish()
        rows = [figures(one, n_pages, clients) for one in moves]
        n_crawls = sum(len(client.acknowledged) for client in clients.values())
        seconds = moves[-1].ended - moves[0].began
        console.print(f"{n_crawls:,} crawls acknowledged, {n_crawls / seconds:,.0f}/s")
        return rows, [*check(urls, before, [*clients.values()])]


@contextmanager
def database(options: argparse.Namespace, name: str) -> Iterator[str]:
    """Yield the URL of a new database, or of one that an earlier run has left."""
    if options.go_on or options.keep:
        if not options.go_on:
            with psycopg.connect(options.server, autocommit=True) as driver:
                driver.execute(f"CREATE DATABASE {name}")
        yield f"{options.server.rpartition('/')[0]}/{name}"
    else:
        with postgres_database(options.server, name) as url:
            yield url


def kill_at(text: str, share: float, n_pages: int) -> str:
    """Return the beginning of the line at which the command is killed."""
    return f"{text} {int(round(n_pages * share, -4)):,} pages" if share else text


def main() -> None:
    """Measure, print and write."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--pages", type=int, default=1_000_000, help="pages of the moving shard")
    options.add_argument("--server", default="postgresql://postgres@127.0.0.1:5432/postgres")
    options.add_argument("--moves", type=int, choices=(1, 2), default=2, help="1: do not move back")
    options.add_argument("--seconds", type=float, default=1e9, help="end a move that lasts longer")
    options.add_argument("--keep", action="store_true", help="leave the databases")
    options.add_argument("--go-on", action="store_true", help="use databases that were left")
    options.add_argument("--json", type=Path, default=Path("bench-out/moves.json"))
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="recrawl-moves-") as folder:
        rows, checks = measure(chosen, Path(folder))
    console, table = (
        Console(highlight=False),
        Table("", *(f"to {to}" for to in TARGETS[: chosen.moves]), box=None),
    )
    for name in rows[0]:
        table.add_row(name, *(f"{row[name]:,.1f}" for row in rows))
    console.print(table)
    for one in checks:
        console.print(f"{one.name}: {one.checked:,} checked, {one.violations:,} violations")
    content = {"moves": rows, "checks": [one._asdict() for one in checks], "machine": machine()}
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(content, indent=2, default=str) + "\n")
    sys.exit(any(one.violations for one in checks))


if __name__ == "__main__":
    main()
