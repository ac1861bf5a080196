"""The data path over HTTP beside its floors: one table, and JSON.

    python -m benchmarks.http [--rows observations schedule …] [--stores postgres] [--quick]

What runs: a real server process (and a worker on Postgres) on a database of its own, real client
processes on keep-alive sockets, all on the cores of this machine, which they share. The pages are
made by `data`: one million by default, each with a state, a log entry and a 60-byte URL.

A row is measured in rounds of some seconds; the service and its floor take turns, and medians are
compared. An item that is not accepted, an answer that is not 200, fails the row. Rates are of
what was answered, thus durable: commits are synchronous on both databases, the floors' too.

Floors are what the database alone does for the same rows, on a copy of the same database, of
random pages, by clients that cost next to nothing:

- observations: `UPDATE … FROM unnest` of the columns a crawl changes and COPY into the log, one
  commit per 1,000 rows, from as many connections as there are clients; by url with the look-up of
  the keys. A second one also reads and locks the states first (in the notes: the service must).
  SQLite: the same by `executemany` from one connection, as there is one writer.
- one observation each: one statement updates a row and appends one, which is one commit, from as
  many connections as there are clients. The service may be faster: it commits in groups.
- new pages: COPY into `pages` and as many states, one commit a batch.
- schedule: the same three tables joined, fetched as Python rows and encoded by msgspec.
- export: COPY of the same rows (SQLite: fetched), not encoded.
- epoch: COPY out of the columns it loads, then COPY into a new table and its index.

For rates the ratio is service over floor, more is better; for seconds it is so too, less is
better. Cores used (by the service, by Postgres, by the clients) and fsyncs tell what limits a row.
"""

import argparse
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.http.command import FAILURES, options, run, tell
from benchmarks.http.rows import OWN, ROWS, Bench, Figure, Row, prepared

QUICK = {
    "pages": 5_000,
    "small_pages": 2_000,
    "seconds": 0.2,
    "rounds": 1,
    "busy_seconds": 5.0,
    "clients": 2,
    "singles": 2,
    "readers": 2,
}
"""A sanity run: its figures mean nothing."""


def parser() -> argparse.ArgumentParser:
    """Give the options."""
    given = options("http", __doc__, [*ROWS, *OWN], left_out=["huge"])
    given.add_argument("--small-pages", type=int, default=20_000, help="of the row sizes")
    given.add_argument("--huge-pages", type=int, default=10_000_000, help="of the row huge")
    given.add_argument("--singles", type=int, default=32, help="clients of single posts")
    given.add_argument("--readers", type=int, default=4, help="clients of schedule pages")
    given.add_argument(
        "--busy-seconds",
        type=float,
        default=20.0,
        help="that requests are prepared for, beside an epoch",
    )
    return given


def measured(store: str, given: argparse.Namespace, console: Console) -> list[Figure]:
    """Measure the rows of one store."""
    figures: list[Figure] = []

    def add(bench: Bench, name: str, row: Row) -> None:
        try:
            bench.settle()
            found = row(bench)
        except FAILURES as failure:
            found = [bench.figure(name, name, "", [], failure=str(failure))]
        figures.extend(tell(found, console))

    sizes = {"sizes": given.small_pages, "huge": given.huge_pages}
    with tempfile.TemporaryDirectory(prefix="recrawl-bench-", dir=given.folder) as folder:
        place = Path(folder)
        shared = [name for name in ROWS if name in given.rows]
        if shared:
            with prepared(store, given.pages, given, place, console.print) as bench:
                for name in shared:
                    add(bench, name, ROWS[name])
        for name in [name for name in OWN if name in given.rows]:
            with prepared(store, sizes[name], given, place, console.print) as bench:
                add(bench, name, OWN[name])
    return figures


if __name__ == "__main__":
    run(parser(), QUICK, measured)
