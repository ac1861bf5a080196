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

With --kill, workers and servers are killed at random instead (see `kill`):

    python -m benchmarks.leases --kill [--workers 8] [--kill-seconds 60]

The table then compares crawl rates with the schedule. It counts hosts crawled within their delay,
pages leased twice at a time, lost reports and pages unaccounted for.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.http.command import FAILURES, options, run, tell
from benchmarks.http.rows import Figure
from benchmarks.leases.kill import killed
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
    parser.add_argument("--kill", action="store_true", help="kill workers and servers instead")
    parser.add_argument("--kill-seconds", type=float, default=60.0)
    parser.add_argument(
        "--workers",
        type=int,
        default=8,
        help="number of workers at a time, which are killed and replaced",
    )
    parser.add_argument(
        "--kill-hosts", type=int, default=40, help="number of hosts, six pages each"
    )
    parser.add_argument(
        "--period",
        type=float,
        default=5.0,
        help="shortest time between crawls of a page; other pages have twice or four times that",
    )
    parser.add_argument(
        "--late",
        type=float,
        default=1.0,
        help="maximum lateness of a page at the end, seconds",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the random kills")
    return parser


def measured(store: str, arguments: argparse.Namespace, console: Console) -> list[Figure]:
    """Measure the rows of one store and return the figures."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="recrawl-bench-", dir=arguments.folder) as folder:
        place = Path(folder)
        kill = partial(killed, store, arguments, place)
        for row in [kill] if arguments.kill else measure(store, arguments, place, console.print):
            try:
                measurements = row()
            except FAILURES as failure:
                measurements = [Figure(store, "failed", "failed", "", [], failure=str(failure))]
            figures += tell(measurements, console)
    return figures


if __name__ == "__main__":
    run(parser(), QUICK, measured)
