"""Ingest over HTTP and epochs, beside their floors: raw SQL on the same rows in the same run.

    python -m benchmarks.http [--pages 100000] [--clients 4] [--json bench-out/http.json]

Starts a real server process on Postgres and on SQLite, fills it, and posts batches of 1,000
observations by page_id from client processes. The floor is the bare write of the same rows:
on Postgres `UPDATE … FROM unnest` of 1,000 states plus their insertion into a log, one commit
a batch, from one connection per client; on SQLite the same by executemany on one connection.
"""

import argparse
import json
import multiprocessing
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import msgspec
import numpy as np
import psycopg
from rich.console import Console
from rich.table import Table

START = datetime(2020, 1, 1, tzinfo=UTC)
BATCH = 1_000


def main() -> None:
    """Measure each database and write the results down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--postgres", default="postgresql://postgres@127.0.0.1:5432/postgres")
    parser.add_argument("--json", type=Path, default=Path("bench-out/http.json"))
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        sqlite = f"sqlite:///{folder}/recrawl.db"
        rows += measure("sqlite", sqlite, given, lambda: sqlite_floor(folder, given.pages))
    with postgres_database(given.postgres) as url:
        rows += measure("postgres", url, given, lambda: postgres_floor(url, given))
    report(rows, given)


def measure(
    name: str, url: str, given: argparse.Namespace, floor: Callable[[], float]
) -> list[dict[str, object]]:
    """Fill a database over HTTP, run epochs, then post observations."""
    with running(url) as base:
        registered = fill(base, given.pages)
        epochs = [run_epoch(base) for _ in range(given.rounds)]
        floors = [floor() for _ in range(given.rounds)]
        rates = [ingest(base, given, turn) for turn in range(given.rounds)]
        epochs += [run_epoch(base) for _ in range(given.rounds)]
    rate, bare = statistics.median(rates), statistics.median(floors)
    epoch = statistics.median(e["total"] for e in epochs)
    return [
        row(name, "POST /pages, new, batches of 5,000", registered, "pages/s", None),
        row(name, f"POST /observations, batches of {BATCH}", rate, "obs/s", bare),
        row(name, f"epoch of {given.pages:,} pages", epoch, "s", None),
    ]


def row(name: str, what: str, value: float, unit: str, floor: float | None) -> dict[str, object]:
    """Give one line of the table."""
    ratio = None if floor is None else value / floor
    return {"store": name, "what": what, "value": value, "unit": unit, "floor": floor,
            "ratio": ratio}  # fmt: skip


@contextmanager
def running(url: str) -> Iterator[str]:
    """Run a server (and on Postgres a worker) as their users do; gives the base URL."""
    environment = {**os.environ, "RECRAWL_DATABASE_URL": url, "RECRAWL_LOG_LEVEL": "warning",
                   "RECRAWL_EPOCH_INTERVAL_S": "86400"}  # fmt: skip
    command = [sys.executable, "-m", "service"]
    subprocess.run([*command, "migrate"], env=environment, check=True, stdout=subprocess.DEVNULL)
    port = 18_000 + os.getpid() % 1_000
    started = [subprocess.Popen([*command, "serve", "--port", str(port)], env=environment)]
    if url.startswith("postgresql"):
        started.append(subprocess.Popen([*command, "worker"], env=environment))
    base = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(base)
        yield base
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)


def wait_until_ready(base: str) -> None:
    """Ask until the server answers, for at most 20 s."""
    for _ in range(200):
        try:
            httpx.get(f"{base}/readyz").raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the server did not start")


def fill(base: str, n_pages: int) -> float:
    """Register the pages; gives pages per second."""
    started = time.perf_counter()
    with httpx.Client(base_url=base, timeout=60) as client:
        for first in range(0, n_pages, 5_000):
            items = [
                {"url": f"https://host{i % 1000}.example/path/to/a/page/number/{i}"}
                for i in range(first, min(first + 5_000, n_pages))
            ]
            client.post("/pages", json=items).raise_for_status()
    return n_pages / (time.perf_counter() - started)


def run_epoch(base: str) -> dict[str, float]:
    """Ask for an epoch and wait for it; gives its seconds per stage and in all."""
    with httpx.Client(base_url=base, timeout=60) as client:
        epoch = client.post("/epochs").json()["epoch"]
        while (answer := client.get(f"/epochs/{epoch}").json())["status"] != "published":
            if answer["status"] == "failed":
                raise SystemExit(answer["reason"])
            time.sleep(0.02)
    span = [datetime.fromisoformat(answer[name]) for name in ("started_at", "finished_at")]
    return {**answer["seconds"], "total": (span[1] - span[0]).total_seconds()}


def ingest(base: str, given: argparse.Namespace, turn: int) -> float:
    """Post from several processes for some seconds; gives observations per second."""
    with multiprocessing.get_context("spawn").Pool(given.clients) as pool:
        tasks = [
            (base, given.pages, given.seconds, client, given.clients, turn)
            for client in range(given.clients)
        ]
        return sum(pool.starmap(post_observations, tasks))


def post_observations(
    base: str, n_pages: int, seconds: float, client: int, n_clients: int, turn: int
) -> float:
    """One client: batches over its own share of the pages, prepared before the clock starts."""
    rng = np.random.default_rng(client)
    ids = np.arange(1 + client, n_pages + 1, n_clients)
    bodies = []
    for k in range(60):
        at = (START + timedelta(days=200 * turn + k, seconds=client)).isoformat()
        chosen = rng.choice(ids, BATCH, replace=False)
        changed = rng.random(BATCH) < 0.3
        bodies.append(
            msgspec.json.encode(
                [
                    {"page_id": int(page), "observed_at": at, "changed": bool(c)}
                    for page, c in zip(chosen, changed, strict=True)
                ]
            )
        )
    sent, started = 0, time.perf_counter()
    with httpx.Client(base_url=base, timeout=60) as http:
        for body in bodies:
            answer = http.post(
                "/observations", content=body, headers={"Content-Type": "application/json"}
            )
            if answer.status_code != httpx.codes.OK:
                raise RuntimeError(answer.text)  # one that travels between processes
            sent += answer.json()["accepted"]
            if time.perf_counter() - started > seconds:
                break
    return sent / (time.perf_counter() - started)


@contextmanager
def postgres_database(server: str) -> Iterator[str]:
    """Create a database for this run and drop it afterwards."""
    name = f"recrawl_bench_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    try:
        yield f"{server.rpartition('/')[0]}/{name}"
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def postgres_floor(url: str, given: argparse.Namespace) -> float:
    """Write bare rows from as many connections as there are clients; gives rows per second."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS bare_states, bare_log")
        connection.execute(
            "CREATE TABLE bare_states (page_id bigint PRIMARY KEY, at timestamptz, a float8, "
            "b float8, n bigint) WITH (fillfactor = 70)"
        )
        connection.execute("CREATE TABLE bare_log (page_id bigint, at timestamptz, changed bool)")
        connection.execute(
            "INSERT INTO bare_states SELECT i, now(), 0, 0, 0 FROM generate_series(1, %s) AS i",
            [given.pages],
        )
    with multiprocessing.get_context("spawn").Pool(given.clients) as pool:
        tasks = [(url, given.pages, given.seconds, c, given.clients) for c in range(given.clients)]
        return sum(pool.starmap(write_bare_rows, tasks))


def write_bare_rows(url: str, n_pages: int, seconds: float, client: int, n_clients: int) -> float:
    """One connection: update 1,000 states and append 1,000 log entries a commit."""
    rng = np.random.default_rng(client)
    ids = np.arange(1 + client, n_pages + 1, n_clients)
    written, started = 0, time.perf_counter()
    with psycopg.connect(url) as connection:
        while time.perf_counter() - started < min(seconds, 4.0):
            chosen = np.sort(rng.choice(ids, BATCH, replace=False)).tolist()
            values = [1.0] * BATCH
            connection.execute(
                "UPDATE bare_states AS s SET at = now(), a = g.a, b = g.a, n = n + 1 "
                "FROM unnest(%b::bigint[], %b::float8[]) AS g (id, a) WHERE s.page_id = g.id",
                [chosen, values],
            )
            connection.execute(
                "INSERT INTO bare_log SELECT id, now(), true FROM unnest(%b::bigint[]) AS g (id)",
                [chosen],
            )
            connection.commit()
            written += BATCH
    return written / (time.perf_counter() - started)


def sqlite_floor(folder: str, n_pages: int) -> float:
    """Write the same bare rows to a SQLite file; gives rows per second."""
    path = Path(folder) / "bare.db"
    path.unlink(missing_ok=True)
    rng = np.random.default_rng(0)
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE states (page_id INTEGER PRIMARY KEY, at, a, b, n)")
        connection.execute("CREATE TABLE log (page_id, at, changed)")
        rows = ((i, 0, 0.0, 0.0, 0) for i in range(1, n_pages + 1))
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO states VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
        written, started = 0, time.perf_counter()
        while time.perf_counter() - started < 3.0:
            chosen = rng.choice(n_pages, BATCH, replace=False).tolist()
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "UPDATE states SET at = ?, a = ?, b = ?, n = n + 1 WHERE page_id = ?",
                [(written, 1.0, 1.0, i) for i in chosen],
            )
            connection.executemany("INSERT INTO log VALUES (?, ?, 1)", [(i, 0) for i in chosen])
            connection.execute("COMMIT")
            written += BATCH
        seconds = time.perf_counter() - started
    connection.close()
    return written / seconds


def report(rows: list[dict[str, object]], given: argparse.Namespace) -> None:
    """Print the table and write the JSON."""
    table = Table("store", "what", "median", "floor", "ratio")
    for r in rows:
        value, floor, ratio = float(str(r["value"])), r["floor"], r["ratio"]
        table.add_row(
            str(r["store"]),
            str(r["what"]),
            f"{value:,.2f} {r['unit']}" if r["unit"] == "s" else f"{value:,.0f} {r['unit']}",
            "" if floor is None else f"{float(str(floor)):,.0f}",
            "" if ratio is None else f"{float(str(ratio)):.2f}",
        )
    Console().print(table)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    given.json.parent.mkdir(parents=True, exist_ok=True)
    arguments = {name: str(value) for name, value in vars(given).items() if name != "postgres"}
    written = {"machine": machine, "arguments": arguments, "rows": rows}
    given.json.write_text(json.dumps(written, indent=2))


if __name__ == "__main__":
    main()
