"""Compare the CPU time of ingest in two checkouts, as ratios of interleaved rounds.

    python -m benchmarks.trees BEFORE AFTER [--url postgresql://… | --sqlite] [--sizes 1 50 1000]

A size is the number of crawls of a commit; a negative size is the number of pages of a lease.

Each checkout runs in its own process on its own database with its own virtual environment, and
records the same crawls of the same pages: half without a lease, all with digests. The processes
take turns; nothing else is measured at the same time. CPU time is that of the process and of its
database session. The ratio is AFTER over BEFORE; below 1.02 is the aim of the history.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PAGES = 100_000
"""Registered pages of 500 hosts."""
ITEMS = 40_000
"""Crawls of a round, at most `COMMITS` commits."""
COMMITS = 400


def main() -> None:
    """Run the comparison, or the part of one checkout."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trees", nargs="*", type=Path)
    parser.add_argument("--url", default="postgresql://postgres@127.0.0.1:5432/postgres")
    parser.add_argument("--sqlite", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="*", default=[1, 50, 1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--child", default="")
    arguments = parser.parse_args()
    if arguments.child:
        serve(arguments.child)
        return
    names = [f"recrawl_trees_{uuid.uuid4().hex[:8]}" for _ in arguments.trees]
    with tempfile.TemporaryDirectory() as folder:
        urls = [f"sqlite:///{folder}/{name}.db" for name in names]
        if not arguments.sqlite:
            urls = [created(arguments.url, name) for name in names]
        children = [started(tree, url) for tree, url in zip(arguments.trees, urls, strict=True)]
        try:
            for size in arguments.sizes:
                print(json.dumps(compared(children, size, arguments.rounds)), flush=True)
        finally:
            for child in children:
                child.stdin.close()
                child.wait()
            if not arguments.sqlite:
                for name in names:
                    execute(arguments.url, f"DROP DATABASE {name} WITH (FORCE)")


def created(url: str, name: str) -> str:
    """Return the address of a new database."""
    execute(url, f"CREATE DATABASE {name}")
    execute(url, f"ALTER DATABASE {name} SET synchronous_commit = off")
    return f"{url.rpartition('/')[0]}/{name}"


@contextmanager
def migrated(url: str, *, sqlite: bool) -> Iterator[str]:
    """Create a database on a Postgres server, or a file of SQLite, for the time of the block."""
    if sqlite:
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/benchmark.db"
        return
    from sqlalchemy import NullPool, create_engine, make_url

    from service.storage import migrations

    name = f"recrawl_benchmark_{uuid.uuid4().hex[:8]}"
    own = created(url, name)
    try:
        driver = make_url(own).set(drivername="postgresql+psycopg")
        migrations.upgrade(create_engine(driver, poolclass=NullPool))
        yield own
    finally:
        execute(url, f"DROP DATABASE {name} WITH (FORCE)")


def execute(url: str, statement: str) -> None:
    """Run one statement on a Postgres server."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def started(tree: Path, url: str) -> Any:
    """Return the process of one checkout, when it is ready."""
    command = [str(tree / ".venv/bin/python"), "-P", str(Path(__file__).resolve()), "--child", url]
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(
        command, cwd=tree, env=environment, text=True, stdin=-1, stdout=-1, stderr=sys.stderr
    )
    assert child.stdout.readline() == "ready\n", "the child did not start"
    return child


def compared(children: list[Any], size: int, rounds: int) -> dict[str, Any]:
    """Return the medians of both checkouts and of the ratios of their rounds."""
    seconds: list[list[float]] = [[] for _ in children]
    for number in range(rounds + 1):
        order = range(len(children)) if number % 2 else reversed(range(len(children)))
        for i in order:
            children[i].stdin.write(f"{size}\n")
            children[i].stdin.flush()
            answer = float(children[i].stdout.readline())
            if number:  # the first round warms up
                seconds[i].append(answer)
    before, after = seconds
    ratios = [b / a for a, b in zip(before, after, strict=True)]
    return {
        "size": size,
        "us_per_crawl": [round(1e6 * statistics.median(each), 2) for each in seconds],
        "ratio": round(statistics.median(after) / statistics.median(before), 4),
        "ratio_of_least": round(min(after) / min(before), 4),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def serve(url: str) -> None:
    """Register pages, then record crawls at each line of standard input."""
    from datetime import UTC, datetime, timedelta

    import numpy as np

    from service.runtime.bootstrap import configure_logging, opened
    from service.runtime.settings import read_settings

    if url.startswith("postgresql"):
        from sqlalchemy import NullPool, create_engine, make_url

        from service.storage import migrations

        driver = make_url(url).set(drivername="postgresql+psycopg")
        migrations.upgrade(create_engine(driver, poolclass=NullPool))
    configure_logging("error")
    now = [datetime(2026, 5, 1, tzinfo=UTC)]
    rng = np.random.default_rng(7)
    base = opened(read_settings(database_url=url), now=lambda: now[0], rng=rng)
    store = base.store
    page_id = registered(store, now[0])
    crawls = Crawls(base, page_id, now, rng)
    for _ in range(3):
        crawls.record(PAGES // 10, PAGES)
    base.runner.run_once()
    now[0] += timedelta(days=1)
    print("ready", flush=True)
    for line in sys.stdin:
        size = int(line)
        n = min(ITEMS, abs(size) * COMMITS)
        began = cpu(store)
        if size > 0:
            crawls.record(size, n)
        else:
            n = crawls.lease(-size, COMMITS)
        if hasattr(store, "counter"):
            store.counter.write()  # otherwise a timer writes while the other checkout runs
        print((cpu(store) - began) / n, flush=True)


def registered(store: Any, now: Any, numbers: range = range(PAGES)) -> Any:
    """Return the ids of new pages."""
    import numpy as np

    from service.model.arrays import KEY
    from service.model.columns import PageColumns
    from service.model.urls import key_of

    urls = [f"https://h{i % 500}.example/{i % 7}/{i}" for i in numbers]
    none = np.full(len(urls), np.nan)
    pages = PageColumns(
        key=np.frombuffer(b"".join(map(key_of, urls)), KEY),
        url=np.array(urls, object),
        host=np.array([f"h{i % 500}.example" for i in numbers], object),
        importance=none,
        observability=np.full(len(urls), -1, np.int16),
        min_crawl_rate=none,
        max_crawl_rate=none,
    )
    with store.begin() as tx:
        return tx.register(pages, now).page_id


class Crawls:
    """Crawls of random pages, in commits of one size."""

    def __init__(self, base: Any, page_id: Any, now: list[Any], rng: Any) -> None:
        from service.batching.reports import Recorder
        from service.estimation.estimates import InForce
        from service.leases.politeness import Politeness
        from service.leases.settle import LeaseSettler

        self.store, self.polite = base.store, Politeness()
        settler = LeaseSettler(self.polite, base.runner.ahead, rng)
        self.recorder = Recorder(base.store, InForce(base.rules), settler)
        self.page_id, self.now, self.rng = page_id, now, rng

    def lease(self, count: int, n_commits: int) -> int:
        """Lease pages in commits, and return their number."""
        from datetime import timedelta

        from service.batching.lease_requests import LeaseFilter, LeaseRequest, lease_all
        from service.leases.lease import WorkerRequest

        wish = WorkerRequest("worker", count, timedelta(seconds=5))
        n = 0
        for _ in range(n_commits):
            self.now[0] += timedelta(seconds=10)
            jobs = [LeaseRequest(wish, LeaseFilter())]
            n += sum(len(d.to) for d in lease_all(self.store, self.polite, self.rng, jobs))
        return n

    def record(self, size: int, n: int) -> None:
        """Record n crawls in commits of some size."""
        from datetime import timedelta

        for _ in range(n // size):
            self.now[0] += timedelta(seconds=1)
            pages = self.rng.choice(self.page_id, size, replace=False)
            self.commit(pages, self.rng.integers(1, 4, size))

    def commit(self, pages: Any, digest: Any) -> None:
        """Record the crawls of some pages now, in one commit."""
        import numpy as np

        from service.batching.reports import Report
        from service.ingest.record import PageNames
        from service.model.arrays import NO_TIME, instant
        from service.model.columns import CrawlColumns, PageColumns

        size = len(pages)
        none, zero = np.full(size, -1, np.int16), np.zeros(size, np.int64)
        columns = CrawlColumns(
            page_id=pages,
            observed_at=np.full(size, instant(self.now[0])),
            changed=none,
            digest=digest,
            status=np.full(size, 200, np.int16),
            leased_page_id=zero,
            token=zero,
            retry_after_s=np.full(size, np.nan),
            redirects_to=zero,
            last_modified=np.full(size, NO_TIME),
        )
        names = PageNames(pages, none.astype(np.int64), PageColumns.empty())
        self.recorder.flush_crawls([Report(columns, names, False, self.now[0])])


def cpu(store: Any) -> float:
    """Return the CPU seconds of this process and of its database sessions."""
    total = time.process_time()
    if not store.embedded:
        import psycopg

        plain = store.url.replace("postgresql+psycopg", "postgresql")
        with psycopg.connect(plain) as connection:
            rows = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            ).fetchall()
        for (pid,) in rows:
            total += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    return total


if __name__ == "__main__":
    main()
