"""What the commands that measure over HTTP share: options, and the way from them to a report."""

import argparse
import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import psycopg
from rich.console import Console

from benchmarks.http import report
from benchmarks.http.processes import Failed
from benchmarks.http.rows import Figure

FAILURES = (Failed, httpx.HTTPError, psycopg.Error, sqlite3.Error)
"""What fails a row, not the run."""


def options(
    name: str, doc: str, rows: Sequence[str], left_out: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """Give the options of `python -m benchmarks.NAME`, to which it adds its own."""
    given = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=doc.splitlines()[0]
    )
    default = [row for row in rows if row not in left_out]
    default_rows = f"all but {' '.join(left_out)}" if left_out else "all"
    given.add_argument(
        "--rows",
        nargs="+",
        choices=rows,
        default=default,
        metavar="ROW",
        help=f"of {' '.join(rows)} (default: {default_rows})",
    )
    given.add_argument(
        "--stores", nargs="+", choices=["postgres", "sqlite"], default=["postgres", "sqlite"]
    )
    given.add_argument("--pages", type=int, default=1_000_000)
    given.add_argument("--clients", type=int, default=8, help="that send batches or lease crawls")
    given.add_argument("--seconds", type=float, default=5.0, help="of a round")
    given.add_argument("--rounds", type=int, default=3)
    given.add_argument("--quick", action="store_true", help="small sizes: does it run?")
    given.add_argument(
        "--postgres",
        default="postgresql://postgres@127.0.0.1:5432/postgres",
        help="a superuser's URL; databases are made and dropped",
    )
    given.add_argument("--folder", type=Path, help="where SQLite's files are made")
    given.add_argument("--json", type=Path, default=Path(f"bench-out/{name}.json"))
    return given


Measured = Callable[[str, argparse.Namespace, Console], list[Figure]]
"""Gives the figures of one store."""


def run(parser: argparse.ArgumentParser, quick: dict[str, Any], measured: Measured) -> None:
    """Measure each store and report; the status is 1 when a row failed."""
    if parser.parse_args().quick:
        parser.set_defaults(**quick)
    given = parser.parse_args()
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


def tell(found: list[Figure], console: Console) -> list[Figure]:
    """Print figures as they come, and give them on."""
    for figure in found:
        console.print("  ".join(cell for cell in report.cells(figure) if cell))
    return found
