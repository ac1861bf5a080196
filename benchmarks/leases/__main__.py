"""Measure leases over HTTP: rates of real workers on this machine, as a table and as JSON.

    python -m benchmarks.leases [--rows batches single …] [--stores postgres] [--quick]

A real server process (and a worker on Postgres) runs on a database of its own. Real client
processes use keep-alive sockets. All processes share the cores of this machine. Half of the pages
are due, and pages due soon are queued too. A worker takes crawls and reports them at once under
their leases; a crawl counts when an answer confirms the end of its lease. Commits are synchronous.

- batches: 100 crawls a request, then their reports, no politeness
- single: one crawl a request, then its report, no politeness; on Postgres beside the floor, two
  commits of bare SQL a crawl (see `floor`)
- together: like single, with the report of the last crawl in the request for the next one
- polite: like batches, with the default delay of a second from one crawl of a host to the next
- empty: all hosts wait for their delay while workers ask for crawls
"""

import argparse
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.http.command import FAILURES, options, run, tell
from benchmarks.http.rows import Figure
from benchmarks.leases.rows import measure

ROWS = ("batches", "single", "together", "polite", "empty")
QUICK = {
    "pages": 10_000,
    "hosts": 1_000,
    "waiting_hosts": 200,
    "seconds": 0.2,
    "rounds": 1,
    "clients": 2,
}
"""Small sizes for a check that the benchmark runs; the figures mean nothing."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    parser = options("leases", __doc__, ROWS)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument(
        "--waiting-hosts", type=int, default=100_000, help="number of hosts for the row empty"
    )
    return parser


def measured(store: str, arguments: argparse.Namespace, console: Console) -> list[Figure]:
    """Measure the rows of one store and return the figures."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="recrawl-bench-", dir=arguments.folder) as folder:
        for row in measure(store, arguments, Path(folder), console.print):
            try:
                measurements = row()
            except FAILURES as failure:
                measurements = [Figure(store, "failed", "failed", "", [], failure=str(failure))]
            figures += tell(measurements, console)
    return figures


if __name__ == "__main__":
    run(parser(), QUICK, measured)
