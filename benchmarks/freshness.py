"""Measure verdicts about copies of pages: URLs a second, and CPU time a URL.

    python -m benchmarks.freshness [--pages 1000000] [--rounds 20] [--sqlite]

A server on a new database whose pages were crawled twice on average, with an epoch. Each request
asks about 10,000 random copies: half of them of the last crawl, half of days before. The floor is
one statement that reads the state of as many pages by the keys of their URLs. The target is 20,000
URLs a second on Postgres.
"""

import argparse
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import msgspec
import numpy as np
import psycopg
from rich.console import Console
from rich.table import Table
from sqlalchemy import NullPool, create_engine, make_url

from benchmarks import trees
from benchmarks.http.processes import Serving, Usage, cpu_seconds, postgres_database, serving
from benchmarks.leases.data import tidy
from service.model.urls import key_of
from service.runtime.bootstrap import configure_logging, opened
from service.runtime.settings import read_settings
from service.storage import migrations

COPIES = 10_000
BLOCK = 50_000
READ = "SELECT page_states.* FROM pages JOIN page_states USING (page_id) WHERE key"


def fill(url: str, n_pages: int) -> None:
    """Register pages, crawl them and run an epoch."""
    migrated = url.replace("postgresql:", "postgresql+psycopg:")
    migrations.upgrade(create_engine(make_url(migrated), poolclass=NullPool))
    now = [datetime.now(UTC) - timedelta(days=10)]
    base: Any = opened(read_settings(database_url=url), now=lambda: now[0])
    blocks = (range(i, min(i + BLOCK, n_pages)) for i in range(0, n_pages, BLOCK))
    ids = np.concatenate([trees.registered(base.store, now[0], block) for block in blocks])
    crawls = trees.Crawls(base, ids, now, np.random.default_rng(1))
    for _ in range(2):
        crawls.record(min(10_000, n_pages), n_pages)
        now[0] += timedelta(days=2)
    base.runner.run_once()
    base.store.close()
    tidy(url)


def urls_of(n_pages: int, rng: np.random.Generator) -> list[str]:
    """Return the URLs of random pages, as `trees.registered` names them."""
    numbers = rng.choice(n_pages, min(COPIES, n_pages), replace=False).tolist()
    return [f"https://h{i % 500}.example/{i % 7}/{i}" for i in numbers]


def body(urls: list[str], rng: np.random.Generator) -> bytes:
    """Return a request about copies of pages."""
    now, ago = datetime.now(UTC), rng.uniform(0.0, 8.0, len(urls)).tolist()
    items = [
        {"url": url} | ({"fetched_at": now - timedelta(days=ago[k])} if k % 2 else {})
        for k, url in enumerate(urls)
    ]
    return msgspec.json.encode(items)


@contextmanager
def floor(url: str) -> Iterator[Callable[[list[str]], float]]:
    """Yield a function that reads states by one statement and returns its CPU time, seconds."""
    if url.startswith("postgresql"):
        with psycopg.connect(url) as connection:
            backend = connection.info.backend_pid

            def read(urls: list[str]) -> float:
                keys = [key_of(each).hex() for each in urls]
                before = cpu_seconds(backend) + time.process_time()
                rows = connection.execute(f"{READ} = ANY(%s::uuid[])", [keys], binary=True)
                rows.fetchall()
                return cpu_seconds(backend) + time.process_time() - before

            yield read
        return
    file = sqlite3.connect(url.removeprefix("sqlite:///"))

    def read_file(urls: list[str]) -> float:
        keys = [key_of(each) for each in urls]
        before = time.process_time()
        file.execute(f"{READ} IN ({', '.join('?' * len(keys))})", keys).fetchall()
        return time.process_time() - before

    yield read_file
    file.close()


def measure(server: Serving, url: str, n_pages: int, rounds: int) -> list[dict[str, float]]:
    """Return the figures of each round."""
    rng, figures = np.random.default_rng(2), []
    with httpx.Client(base_url=server.base, timeout=120) as client, floor(url) as bare:
        for _ in range(rounds + 1):
            urls = urls_of(n_pages, rng)
            content, before = body(urls, rng), Usage.now(server, url)
            headers = {"Content-Type": "application/json"}
            start = time.perf_counter()
            answer = client.post("/freshness", content=content, headers=headers)
            seconds = time.perf_counter() - start
            after = Usage.now(server, url)
            if answer.raise_for_status().json()["n_rejected"]:
                raise RuntimeError(answer.text[:500])
            cores, span = after.since(before), after.at - before.at
            figures.append(
                {
                    "urls a second": len(urls) / seconds,
                    "service, µs a URL": 1e6 * cores["service"] * span / len(urls),
                    "Postgres, µs a URL": 1e6 * cores["postgres"] * span / len(urls),
                    "floor, µs a URL": 1e6 * bare(urls) / len(urls),
                }
            )
    return figures[1:]


def main() -> None:
    """Fill a database, measure, print and write JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.freshness")
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--sqlite", action="store_true")
    parser.add_argument(
        "--postgres", default="postgresql://postgres@127.0.0.1:5432/postgres", help="a superuser"
    )
    parser.add_argument("--json", type=Path, default=Path("bench-out/freshness.json"))
    options = parser.parse_args()
    configure_logging("error")
    with tempfile.TemporaryDirectory() as folder, place(options, folder) as url:
        fill(url, options.pages)
        with serving(url, Path(folder)) as server:
            figures = measure(server, url, options.pages, options.rounds)
    table = Table("figure", "median", "lowest", "highest", box=None)
    for name in figures[0]:
        values = [each[name] for each in figures]
        table.add_row(name, *(f"{v:,.1f}" for v in (median(values), min(values), max(values))))
    Console(highlight=False).print(table)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_bytes(msgspec.json.encode({"pages": options.pages, "rounds": figures}))


@contextmanager
def place(options: argparse.Namespace, folder: str) -> Iterator[str]:
    """Yield the address of a new database."""
    if options.sqlite:
        yield f"sqlite:///{folder}/freshness.db"
        return
    with postgres_database(options.postgres, f"recrawl_freshness_{os.getpid()}") as url:
        yield url


if __name__ == "__main__":
    main()
