"""Measure whole epochs over one database: by one process, and by actors for parts by hosts.

    python -m benchmarks.scale.one --postgres URL [--pages 1000000] [--rounds 3] [--keep NAME]

COPY fills the database: hosts of very different sizes, each page with two crawls. An epoch loads,
computes and writes, with the default plan. The server at the URL must be on this machine and serve
nobody else, because all its processes are counted. With `--keep` the database stays, and the next
run with this name uses it again.

- cpu: CPU seconds of all processes and of Postgres, and over those of one process
- seconds: wall clock, over that of one process, and of each stage
- MB: bytes of all questions and answers
- bytes a page: peak of the fullest process, less its memory before the first load, over its pages
"""

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.sql import SQL, Identifier
from rich.console import Console
from rich.table import Table

from benchmarks.http.processes import postgres_database
from benchmarks.scale.hosts import sizes
from benchmarks.scale.whole import Watched, cpu_of_tree, epochs, postmaster
from recrawl_cluster.epochs.actors import LOCAL, Actors
from recrawl_cluster.epochs.databases import for_processes
from recrawl_cluster.epochs.hosts import ByHosts, host_sources
from service.core.estimators import make_estimator
from service.epochs.parts import in_this_process
from service.epochs.plan import Plan
from service.estimation.estimates import width
from service.model.arrays import INSTANT
from service.model.domain import Observability
from service.model.urls import URL_GROUPS
from service.runtime.bootstrap import configure_logging
from service.storage import migrations
from service.storage.postgres.binary import copy_blocks
from service.storage.stores.postgres import PostgresStore

PLAN = Plan(make_estimator("bursty", half_life_days=180.0), host_delay_s=1.0)
TAIL, LARGEST = 0.8, 0.1
"""Tail of the sizes of hosts, and the largest host in all pages."""
TOGETHER = 1_000
"""Pages of a host that are registered one after the other."""
BLOCK = 100_000
STAGES = ("load", "estimate", "allocate", "publish")


def host_of_pages(rng: np.random.Generator, n: int) -> NDArray[np.int64]:
    """Return the (n,) hosts of pages in the order of their registration, numbered from 1."""
    each = sizes(rng, n // 5 + 1, TAIL, max(LARGEST * n, 2.0)).astype(np.int64)
    host = np.repeat(np.arange(len(each)), each)
    host = host[:n] if len(host) >= n else np.resize(host, n)
    # hosts grow side by side, some pages at a time
    pieces = host * n + np.arange(n) // TOGETHER
    _, piece = np.unique(pieces, return_inverse=True)
    order = np.argsort(rng.random(piece.max() + 1)[piece], kind="stable")
    return np.unique(host[order], return_inverse=True)[1] + 1


def fill(connection: psycopg.Connection, n: int, now: np.datetime64) -> None:
    """Fill an empty database with pages that have two crawls each."""
    rng = np.random.default_rng(1)
    host = host_of_pages(rng, n)
    connection.execute(
        "INSERT INTO hosts (host) SELECT 'host' || n || '.example' FROM generate_series(1, %s) n",
        [int(host.max())],
    )
    for first in range(0, n, BLOCK):
        some = slice(first, min(first + BLOCK, n))
        page_id, of = np.arange(some.start, some.stop) + 1, host[some]
        urls = [
            f"https://host{h:08d}.example/page/{i:09d}/of/this/long/path"
            for i, h in zip(page_id.tolist(), of.tolist(), strict=True)
        ]
        columns = {
            "page_id": page_id,
            "key": np.column_stack((page_id, of)).astype("<i8").view("V16")[:, 0],
            "host_id": of,
            "importance": np.exp(rng.normal(0, 1.5, len(of))).round(4),
            "created_at": np.full(len(of), now - np.timedelta64(40, "D")),
            "url": np.array(urls, "S").view(f"V{len(urls[0])}"),
        }
        copied(connection, "pages", columns)
        copied(connection, "page_states", states(rng, page_id, of, now))
    connection.execute("SELECT setval(pg_get_serial_sequence('pages', 'page_id'), %s)", [n])
    connection.commit()
    connection.autocommit = True
    connection.execute("VACUUM (ANALYZE) pages, page_states, hosts")


def states(
    rng: np.random.Generator,
    page_id: NDArray[np.int64],
    host: NDArray[np.int64],
    now: np.datetime64,
) -> dict[str, NDArray]:
    """Return the states of pages after two crawls."""
    n = len(page_id)
    age, interval = rng.exponential(3.0, n), rng.exponential(3.0, n) + 0.01
    days = interval * 10.0
    changes = rng.poisson(rng.gamma(0.5, 0.1, n) * days).astype(np.float64)
    crawled = (now - (age * 86_400e6).astype("m8[us]")).astype(INSTANT)
    return {
        "page_id": page_id,
        "host_id": host,
        "last_crawl_at": crawled,
        "digest": rng.integers(1, 1 << 62, n),
        "pings_since": np.full(n, now - np.timedelta64(40, "D")),
        "n_observations": np.full(n, 10, np.int32),
        "n_changes": np.minimum(changes, 10).astype(np.int32),
        "interval_factor": rng.uniform(0.95, 1.05, n).astype(np.float32),
        "last_interval": (interval * np.where(changes > 2, 1, -1)).astype(np.float32),
        "observability": np.full(n, Observability.auto, np.int16),
        "gone": np.zeros(n, np.bool_),
        "estimate": np.column_stack((changes, days, np.zeros(n))),
        "url_group": ((host * 2_654_435_761 + rng.integers(0, 8, n)) % URL_GROUPS).astype("i4"),
    }


def copied(connection: psycopg.Connection, table: str, columns: dict[str, NDArray]) -> None:
    """Copy rows into a table."""
    statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
    with connection.cursor().copy(statement) as copy:
        for block in copy_blocks([list(columns.values())]):
            copy.write(block)


@contextmanager
def database(server: str, keep: str | None, n: int) -> Iterator[PostgresStore]:
    """Open a filled database, which stays if it is to be kept."""
    name = keep or f"recrawl_one_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        if keep and not found.fetchone():
            connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
    url = f"{server.rpartition('/')[0]}/{name}"
    with nullcontext(url) if keep else postgres_database(server, name):
        with closing(PostgresStore(url, width(PLAN.estimator))) as store:
            migrations.upgrade(store.engine)
        with psycopg.connect(url) as connection:
            (has_pages,) = connection.execute("SELECT EXISTS (SELECT FROM pages)").fetchone() or ()
            if not has_pages:
                (now,) = connection.execute("SELECT now() AT TIME ZONE 'UTC'").fetchone() or ()
                fill(connection, n, np.datetime64(now, "us"))
        with closing(PostgresStore(url, width(PLAN.estimator))) as store:
            yield store


def main() -> None:
    """Measure, print and write."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--postgres", required=True)
    options.add_argument("--pages", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--keep", help="name of a database that stays")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    configure_logging("error")
    server = postmaster(chosen.postgres)
    actors = Actors(for_processes, LOCAL)
    runners = {
        "one process": Watched(in_this_process, None),
        "actors by hosts": Watched(ByHosts(actors).opened, actors),
    }
    results = {}
    with database(chosen.postgres, chosen.keep, chosen.pages) as store:
        with store.lead() as lead:
            parts = len(host_sources(store, lead, len(os.sched_getaffinity(0))))
        for name, watched in runners.items():
            cpu = lambda: cpu_of_tree(os.getpid()) + cpu_of_tree(server)  # noqa: E731
            rounds = epochs(store, watched, cpu, chosen.rounds, PLAN)
            middle = {key: float(np.median([one[key] for one in rounds])) for key in rounds[0]}
            own = chosen.pages / (1 if watched.pool is None else parts)
            results[name] = {**middle, "bytes_a_page": middle["grown"] * 2**20 / own}
        actors.close()
    show(Console(), results)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(results, indent=2) + "\n")


def show(console: Console, results: dict[str, dict[str, float]]) -> None:
    """Print the figures."""
    one = results["one process"]
    table = Table(
        *("row", "cpu s", "over one", "seconds", "over one", *STAGES, "MB", "bytes a page"),
        box=None,
    )
    for name, row in results.items():
        numbers = [row["cpu"], row["cpu"] / one["cpu"], row["seconds"]]
        numbers += [row["seconds"] / one["seconds"], *(row[stage] for stage in STAGES)]
        numbers += [row["megabytes"], row["bytes_a_page"]]
        table.add_row(name, *(f"{number:.3g}" for number in numbers))
    console.print(table)


if __name__ == "__main__":
    main()
