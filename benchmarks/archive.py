"""Archive a realistic log and feed, read both from the archive, and compare encodings.

    python -m benchmarks.archive [--entries 2000000] [--days 2] [--changes 300000]
        [--stores postgres sqlite] [--postgres URL] [--json FILE]

A page is crawled about every five days at any microsecond of the day; one entry in twenty is a
ping. The rate counts the CPU time of this process and of Postgres, whose parallel workers are off,
because the machine may have other work. The floor reads the same entries in the same order and
drops them. Histories are of pages drawn at random, each opened anew.
"""

import argparse
import io
import json
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from pyarrow import parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.http.processes import cpu_seconds, postgres_database
from benchmarks.http.report import machine, number
from service.archive import parquet
from service.archive.log_archive import LogArchive
from service.model.arrays import NO_TIME
from service.model.changes import ChangeColumns, ChangeKind, FeedPlace
from service.model.columns import LogColumns
from service.storage import Store, migrations, open_store
from service.transfer.archiving import archive_feed, archive_log

FIRST = datetime(2026, 5, 1, tzinfo=UTC)
KEPT = timedelta(days=1)
CRAWLED_EVERY = 5
"""Mean time between two crawls of a page, days."""
OF_COMMIT = 100
"""Changes of a commit of the feed."""
SQLITE_COMMIT = 2_000
"""Entries of a commit on SQLite."""
SPLIT, PLAIN, DELTA = "BYTE_STREAM_SPLIT", "PLAIN", "DELTA_BINARY_PACKED"
ENCODINGS = {
    "plain": (PLAIN, PLAIN, "interval", 1),
    "pages by differences, times split, intervals in days": (DELTA, SPLIT, "interval", 1),
    "the same with intervals in microseconds (ours)": (DELTA, SPLIT, "interval_us", 1),
    "… zstd 3": (DELTA, SPLIT, "interval_us", 3),
    "… times and intervals by differences": (DELTA, DELTA, "interval_us", 1),
}
"""Encoding of pages, of times, column of the intervals, level of zstd."""


def day_of_log(n: int, day: int, rng: np.random.Generator) -> LogColumns:
    """Return the entries of one day, by page and time."""
    begin = np.datetime64(FIRST.replace(tzinfo=None), "us") + np.timedelta64(day, "D")
    pages = np.sort(rng.integers(1, CRAWLED_EVERY * n, n))
    rate = rng.gamma(1.0, 0.2, n) + 0.02
    interval = np.rint(np.abs(rng.normal(1, 0.05, n)) / rate * 86.4e9) / 86_400_000_000
    is_ping, failed = rng.random(n) < 0.05, rng.random(n) < 0.02
    none = is_ping | failed
    status = rng.choice(np.array([200, 304, 404, 503], np.int16), n, p=[0.9, 0.06, 0.03, 0.01])
    changed = rng.random(n) < -np.expm1(-0.1 * interval)
    log = LogColumns(
        page_id=pages,
        observed_at=begin + rng.integers(0, 86_400_000_000, n).astype("m8[us]"),
        kind=is_ping.astype(np.int16),
        changed=np.where(none, -1, changed).astype(np.int16),
        interval=np.where(none, np.nan, interval),
        crawl_rate=np.full(n, np.nan),
        status=np.where(is_ping, -1, status).astype(np.int16),
    )
    return log.take(np.lexsort((log.kind, log.observed_at, log.page_id)))


FILL = """
INSERT INTO {name} (page_id, observed_at, "interval", kind, changed, status)
SELECT page_id, observed_at, CASE WHEN NOT is_none THEN days END, CAST(is_ping AS integer),
    CASE WHEN NOT is_none THEN CAST(random() < 1 - exp(-0.1 * days) AS integer) END,
    CASE WHEN is_ping THEN NULL WHEN s < 0.9 THEN 200 WHEN s < 0.96 THEN 304
        WHEN s < 0.99 THEN 404 ELSE 503 END
FROM (
    SELECT 1 + CAST(floor(random() * {pages}) AS bigint) AS page_id,
        CAST('{begin}' AS timestamptz) + (i + random()) * interval '1 day' / {n} AS observed_at,
        round(
            abs(1 + 0.05 * sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()))
            / (0.02 - 0.2 * ln(1 - random())) * 86.4e9
        ) / CAST(86.4e9 AS float8) AS days,
        k < 0.05 AS is_ping, k < 0.07 AS is_none, random() AS s
    FROM (SELECT i, random() AS k FROM generate_series(0, {n} - 1) AS i OFFSET 0) AS rows
    OFFSET 0
) AS entries
"""
"""Statement that writes the entries of `day_of_log`, in the order of time."""


def fill_postgres(url: str, entries: int, days: int) -> None:
    """Write the log day by day; an index that is built at the end saves most of the time."""
    n = entries // days
    with psycopg.connect(url, autocommit=True) as connection:
        for day in range(days):
            begin, end = (FIRST + timedelta(days=day + i) for i in (0, 1))
            name = f"observations_{begin:%Y_%m_%d}"
            within = f"FOR VALUES FROM ('{begin}') TO ('{end}')"
            for statement in (
                f"ALTER TABLE observations DETACH PARTITION {name}",
                f"DROP INDEX {name}_page_id_idx",
                FILL.format(name=name, pages=CRAWLED_EVERY * n, begin=begin, n=n),
                f"CREATE INDEX ON {name} (page_id)",
                f"ALTER TABLE observations ATTACH PARTITION {name} {within}",
            ):
                connection.execute(statement)


def fill(store: Store, entries: int, days: int) -> None:
    """Append the log in the order of time."""
    rng = np.random.default_rng(1)
    for day in range(days):
        log = day_of_log(entries // days, day, rng)
        log = log.take(np.argsort(log.observed_at, kind="stable"))
        for start in range(0, len(log), SQLITE_COMMIT):
            with store.begin() as tx:
                tx.append_log(log.take(slice(start, start + SQLITE_COMMIT)))


def cpu(url: str) -> float:
    """Return the CPU seconds so far of this process and of the sessions of a database."""
    if url.startswith("sqlite"):
        return time.process_time()
    with psycopg.connect(url) as connection:
        query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        pids = [pid for (pid,) in connection.execute(query)]
    return time.process_time() + sum(map(cpu_seconds, pids))


def measure(url: str, folder: Path, entries: int, days: int) -> dict[str, Any]:
    """Return the figures of one store."""
    last = FIRST + timedelta(days=days + 2)
    archive = LogArchive(str(folder / "archive"))
    with closing(open_store(url, 2, clock=lambda: last, archive=archive)) as store:
        store.prepare()
        with store.lead() as lead:
            lead.housekeep(FIRST - KEPT, FIRST)
        if store.embedded:
            fill(store, entries, days)
        else:
            fill_postgres(url, entries, days)
        with store.archiving() as lead:
            lead.seal_log(last - KEPT)
            began = cpu(url)
            with lead.begin(write=False) as tx:
                n_read = sum(len(b) for p in tx.log_parts(last - KEPT) for b in tx.read_part(p))
            floor_s = cpu(url) - began
        assert n_read == entries
        began, at = cpu(url), time.monotonic()
        files = [file for step in archive_log(store, KEPT) for file in step.files]
        archived_s, wall_s = cpu(url) - began, time.monotonic() - at
        assert sum(file.n_rows for file in files) == entries
        pages = np.random.default_rng(2).integers(1, CRAWLED_EVERY * entries // days, 20)
        began = time.process_time()
        with store.begin(write=False) as tx:
            for page in pages.tolist():
                tx.page_history(page, 1_000)
        history_ms = (time.process_time() - began) / len(pages) / days * 1000
    return {
        "entries a CPU second": entries / archived_s,
        "floor: read and dropped": entries / floor_s,
        "entries a second of this run": entries / wall_s,
        "bytes an entry": sum(file.n_bytes for file in files) / entries,
        "files": len(files),
        "history, CPU ms a day": history_ms,
        "peak memory of this process, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


def measure_feed(url: str, folder: Path, changes: int) -> dict[str, Any]:
    """Return the figures of the feed: commits of 100 changes, as in the figures of record 18."""
    rng, archive = np.random.default_rng(3), LogArchive(str(folder / "feed"))
    with closing(open_store(url, 2, archive=archive)) as store:
        store.prepare()
        for _ in range(changes // OF_COMMIT + 1):  # the newest commit stays
            at = np.datetime64("now", "us") + rng.integers(0, 60_000_000, OF_COMMIT).view("m8[us]")
            found = ChangeColumns(
                page_id=np.sort(rng.choice(1_000_000, OF_COMMIT, replace=False)) + 1,
                observed_at=at,
                changed_after=at - rng.integers(3_600, 30 * 86_400, OF_COMMIT).view("m8[s]"),
                kind=np.full(OF_COMMIT, ChangeKind.changed, np.int16),
                digest=rng.integers(-(2**63), 2**63 - 1, OF_COMMIT),
                last_modified=np.full(OF_COMMIT, NO_TIME),
                moved_to=np.zeros(OF_COMMIT, np.int64),
            )
            with store.begin() as tx:
                tx.append_changes(found)
        store.clock = lambda: datetime.now(UTC) + timedelta(days=3)
        began = cpu(url)
        files = [file for step in archive_feed(store, KEPT) for file in step.files]
        archived_s, n_rows = cpu(url) - began, sum(file.n_rows for file in files)
        assert n_rows >= changes // OF_COMMIT * OF_COMMIT
        place, read_ms = FeedPlace(files[0].first), []
        with store.begin(write=False) as tx:
            for _ in range(min(20, n_rows // 1_000)):
                began = time.process_time()
                place = tx.changes(place, 1_000).after
                read_ms.append((time.process_time() - began) * 1000)
    return {
        "changes a CPU second": n_rows / archived_s,
        "bytes a change": sum(file.n_bytes for file in files) / n_rows,
        "1,000 changes of a file, CPU ms": float(np.median(read_ms)),
    }


def encoded_sizes(n: int) -> dict[str, float]:
    """Return the bytes an entry of each encoding."""
    table = parquet.encode(day_of_log(n, 0, np.random.default_rng(1)))
    log = parquet.decode(table)
    sizes = {}
    for name, (pages, times, intervals, level) in ENCODINGS.items():
        chosen = table
        if intervals == "interval":
            index = table.schema.get_field_index("interval")
            days = parquet._numbers(log.interval)  # noqa: SLF001
            chosen = table.set_column(index, "interval", days).drop_columns("interval_us")
        sink = io.BytesIO()
        pq.write_table(
            chosen,
            sink,
            compression="zstd",
            compression_level=level,
            row_group_size=parquet.ROWS_OF_GROUP,
            use_dictionary=["kind", "status"],
            column_encoding={"page_id": pages, "observed_at": times, intervals: times},
            write_statistics=["page_id"],
        )
        sizes[name] = len(sink.getvalue()) / n
    return sizes


@contextmanager
def database(store: str, server: str, folder: Path) -> Iterator[str]:
    """Create a database of its own, migrated."""
    if store == "sqlite":
        yield f"sqlite:///{folder / 'archive.db'}"
        return
    with postgres_database(server, f"recrawl_archive_{os.getpid()}") as url:
        with psycopg.connect(url, autocommit=True) as connection:
            name = connection.info.dbname
            connection.execute(f"ALTER DATABASE {name} SET max_parallel_workers_per_gather = 0")
        with closing(open_store(url, 2)) as opened:
            migrations.upgrade(opened.engine)  # type: ignore[attr-defined]
        yield url


def main() -> None:
    """Measure, print and write."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.archive", description=(__doc__ or "").splitlines()[0]
    )
    options.add_argument("--entries", type=int, default=2_000_000)
    options.add_argument("--days", type=int, default=2)
    options.add_argument("--changes", type=int, default=300_000)
    options.add_argument("--stores", nargs="+", default=["postgres", "sqlite"])
    options.add_argument("--postgres", default="postgresql://postgres@127.0.0.1:5432/postgres")
    options.add_argument("--json", type=Path, default=Path("bench-out/archive.json"))
    chosen = options.parse_args()
    figures: dict[str, dict[str, Any]] = {}
    for store in chosen.stores:
        with (
            tempfile.TemporaryDirectory() as name,
            database(store, chosen.postgres, Path(name)) as url,
        ):
            figures[store] = measure(url, Path(name), chosen.entries, chosen.days)
            figures[f"feed, {store}"] = measure_feed(url, Path(name), chosen.changes)
    figures["bytes an entry"] = encoded_sizes(min(chosen.entries // chosen.days, 2_000_000))
    table = Table(box=None, pad_edge=False)
    for column in ("", "", ""):
        table.add_column(column)
    for group, rows in figures.items():
        for name, value in rows.items():
            table.add_row(group, name, number(value))
    Console().print(table)
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
