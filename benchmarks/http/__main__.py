"""Measure the data path over HTTP beside its floors, as a table and as JSON.

    python -m benchmarks.http [--rows observations schedule …] [--stores postgres] [--quick]

A real server process (and a worker on Postgres) runs on a database of its own. Real client
processes use keep-alive sockets. All processes share the cores of this machine. The pages are
made by `data`: one million by default, each with a state, a log entry and a 60-byte URL.

A row is measured in rounds of some seconds; the service and its floor take turns, and medians are
compared. A rejected item or an answer other than 200 fails the row. Rates count answered
items, which are durable: commits are synchronous on both databases, for the floors too.

A floor is the database's own time for the same rows. It runs on a copy of the same database, for
random pages, with clients that cost nearly no CPU:

- observations: `UPDATE … FROM unnest` of the columns a crawl changes and COPY into the log, one
  commit per 1,000 rows, on one connection per client. By url, the floor also looks up the keys. A
  second floor, in the notes, also reads and locks the states first, as the service must. On SQLite
  one connection does the same by `executemany`, as there is one writer.
- one observation each: one statement updates a row and appends one, which is one commit, on one
  connection per client. The service may be faster because it commits in groups.
- new pages: COPY into `pages` and as many states, one commit a batch.
- schedule: the same three tables joined, fetched as Python rows and encoded by msgspec.
- export: COPY of the same rows (SQLite: fetched), not encoded.
- epoch: COPY out of the columns it loads, then COPY into a new table and its index, a row a page.
  The service packs columns and blocks, so it may be faster.

The ratio is service over floor: more is better for rates, less is better for seconds. Cores used
(by the service, Postgres and the clients) and fsyncs show the bottleneck of a row.
"""

import argparse
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.http.command import FAILURES, options, run, tell
from benchmarks.http.rows import ROWS, Figure, prepared

QUICK = {
    "pages": 5_000,
    "seconds": 0.2,
    "rounds": 1,
    "clients": 2,
    "singles": 2,
    "readers": 2,
}
"""Small sizes for a check that the benchmark runs; the figures mean nothing."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    parser = options("http", __doc__, [*ROWS])
    parser.add_argument(
        "--singles", type=int, default=32, help="number of clients that post single observations"
    )
    parser.add_argument(
        "--readers", type=int, default=4, help="number of clients that read the schedule"
    )
    return parser


def measured(store: str, arguments: argparse.Namespace, console: Console) -> list[Figure]:
    """Measure the rows of one store and return the figures."""
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory(prefix="recrawl-bench-", dir=arguments.folder) as folder,
        prepared(store, arguments.pages, arguments, Path(folder), console.print) as bench,
    ):
        for name in [name for name in ROWS if name in arguments.rows]:
            try:
                bench.settle()
                measurements = ROWS[name](bench)
            except FAILURES as failure:
                measurements = [bench.figure(name, name, "", [], failure=str(failure))]
            figures.extend(tell(measurements, console))
    return figures


if __name__ == "__main__":
    run(parser(), QUICK, measured)
