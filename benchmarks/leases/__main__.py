"""Leases over HTTP: what workers get from a service on this machine, as a table and as JSON.

    python -m benchmarks.leases [--rows batches single …] [--stores postgres] [--quick]

What runs: a real server process (and a worker on Postgres) on a database of its own, real client
processes on keep-alive sockets, all on the cores of this machine, which they share. Half of the
pages are due, and what falls due soon is queued too. A worker takes crawls and reports them at once
under their leases; a crawl counts when the answer says that its lease has ended. Commits are
synchronous.

- batches: 100 crawls a request, then their reports, no politeness
- single: one crawl a request, then its report, no politeness; on Postgres beside the floor, two
  commits of bare SQL a crawl (see `floor`)
- polite: as batches, with the default delay of a second from one crawl of a host to the next
- empty: all hosts wait for their delay, workers ask nevertheless

    python -m benchmarks.leases --kill [--workers 8] [--kill-seconds 60]

kills workers and servers at random instead (see `kill`): rates beside the schedule, hosts crawled
within their delay, pages leased twice at a time, reports that were lost, pages unaccounted for.
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

ROWS = ("batches", "single", "polite", "empty")
QUICK = {
    "pages": 10_000,
    "hosts": 1_000,
    "waiting_hosts": 200,
    "seconds": 0.2,
    "rounds": 1,
    "clients": 2,
}
"""A sanity run: its figures mean nothing."""


def parser() -> argparse.ArgumentParser:
    """Give the options."""
    given = options("leases", __doc__, ROWS)
    given.add_argument("--hosts", type=int, default=10_000)
    given.add_argument("--waiting-hosts", type=int, default=100_000, help="of the row empty")
    given.add_argument("--kill", action="store_true", help="kill workers and servers instead")
    given.add_argument("--kill-seconds", type=float, default=60.0)
    given.add_argument("--workers", type=int, default=8, help="that are killed and replaced")
    given.add_argument("--kill-hosts", type=int, default=40, help="of six pages each")
    given.add_argument(
        "--period",
        type=float,
        default=5.0,
        help="seconds between crawls; of others twice and four times",
    )
    given.add_argument(
        "--late",
        type=float,
        default=1.0,
        help="seconds a page may be late in the end",
    )
    given.add_argument("--seed", type=int, default=1, help="of who is killed when")
    return given


def measured(store: str, given: argparse.Namespace, console: Console) -> list[Figure]:
    """Measure the rows of one store."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="recrawl-bench-", dir=given.folder) as folder:
        place = Path(folder)
        kill = partial(killed, store, given, place)
        for row in [kill] if given.kill else measure(store, given, place, console.print):
            try:
                found = row()
            except FAILURES as failure:
                found = [Figure(store, "failed", "failed", "", [], failure=str(failure))]
            figures += tell(found, console)
    return figures


if __name__ == "__main__":
    run(parser(), QUICK, measured)
