"""Leases over HTTP: what workers get from a service on this machine, as a table and as JSON.

    python -m benchmarks.leases [--rows batches single …] [--stores postgres] [--quick]

What runs: a real server process (and a worker on Postgres) on a database of its own, real client
processes on keep-alive sockets, all on the cores of this machine, which they share. Half of the
pages are due, and what falls due soon is queued too. A worker takes crawls and reports them at once
under their leases; a crawl counts when the answer says that its lease has ended. Commits are
synchronous.

- batches: 100 crawls a request, then their reports, no politeness
- single: one crawl a request, then its report, no politeness
- polite: as batches, with the default delay of a second from one crawl of a host to the next
- empty: all hosts wait for their delay, workers ask nevertheless

    python -m benchmarks.leases --kill [--workers 8] [--kill-seconds 60]

kills workers and servers at random instead (see `kill`): rates beside the schedule, hosts crawled
within their delay, pages leased twice at a time, reports that were lost, pages unaccounted for.
"""

import argparse
import os
import signal
import sqlite3
import sys
import tempfile
from functools import partial
from pathlib import Path

import httpx
import psycopg
from rich.console import Console

from benchmarks.http import report
from benchmarks.http.processes import Failed
from benchmarks.http.rows import Figure
from benchmarks.leases.kill import killed
from benchmarks.leases.rows import measure

ROWS = ("batches", "single", "polite", "empty")
QUICK = {"pages": 50_000, "hosts": 5_000, "waiting_hosts": 1_000, "seconds": 0.3, "rounds": 1}
"""A sanity run: its figures mean nothing."""


def parser() -> argparse.ArgumentParser:
    """Give the options."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.leases", description=__doc__.splitlines()[0]
    )
    options.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS, metavar="ROW",
                         help=f"of {' '.join(ROWS)} (default: all)")  # fmt: skip
    options.add_argument("--stores", nargs="+", choices=["postgres", "sqlite"],
                         default=["postgres", "sqlite"])  # fmt: skip
    options.add_argument("--pages", type=int, default=1_000_000)
    options.add_argument("--hosts", type=int, default=10_000)
    options.add_argument("--waiting-hosts", type=int, default=100_000, help="of the row empty")
    options.add_argument("--clients", type=int, default=8, help="workers")
    options.add_argument("--seconds", type=float, default=5.0, help="of a round")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--kill", action="store_true", help="kill workers and servers instead")
    options.add_argument("--kill-seconds", type=float, default=60.0)
    options.add_argument("--workers", type=int, default=8, help="that are killed and replaced")
    options.add_argument("--kill-hosts", type=int, default=40, help="of six pages each")
    options.add_argument("--period", type=float, default=5.0,
                         help="seconds between crawls; of others twice and four times")  # fmt: skip
    options.add_argument("--seed", type=int, default=1, help="of who is killed when")
    options.add_argument("--quick", action="store_true", help="small sizes: does it run?")
    options.add_argument("--postgres", default="postgresql://postgres@127.0.0.1:5432/postgres",
                         help="a superuser's URL; databases are made and dropped")  # fmt: skip
    options.add_argument("--folder", type=Path, help="where SQLite's files are made")
    options.add_argument("--json", type=Path, default=Path("bench-out/leases.json"))
    return options


def main() -> None:
    """Measure the rows on each store; the status is 1 when one failed."""
    options = parser()
    if options.parse_args().quick:
        options.set_defaults(**QUICK)
    given = options.parse_args()
    given.pid = os.getpid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clean up, as on Ctrl-C
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    figures: list[Figure] = []
    try:
        for store in given.stores:
            figures += measured(store, given, console)
    except psycopg.OperationalError as error:
        sys.exit(f"Postgres: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    report.show(figures, console)
    report.write(figures, given, given.json)
    sys.exit(any(figure.failure for figure in figures))


def measured(store: str, given: argparse.Namespace, console: Console) -> list[Figure]:
    """Measure the rows of one store."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="recrawl-bench-", dir=given.folder) as folder:
        place = Path(folder)
        kill = partial(killed, store, given, place)
        for row in [kill] if given.kill else measure(store, given, place, console.print):
            try:
                found = row()
            except (Failed, httpx.HTTPError, psycopg.Error, sqlite3.Error) as failure:
                found = [Figure(store, "failed", "failed", "", [], failure=str(failure))]
            for figure in found:
                console.print("  ".join(cell for cell in report.cells(figure) if cell))
            figures += found
    return figures


if __name__ == "__main__":
    main()
