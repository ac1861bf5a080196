"""Options of the commands that measure over HTTP, and the way from options to a report."""

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
"""Exceptions that fail a row but not the run."""


def options(name: str, doc: str, rows: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of `python -m benchmarks.NAME`, to which the command adds own options."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=doc.splitlines()[0]
    )
    parser.add_argument(
        "--rows",
        nargs="+",
        choices=rows,
        default=[*rows],
        metavar="ROW",
        help=f"rows to measure, of {' '.join(rows)} (default: all)",
    )
    parser.add_argument(
        "--stores", nargs="+", choices=["postgres", "sqlite"], default=["postgres", "sqlite"]
    )
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument(
        "--clients", type=int, default=8, help="number of clients that send batches or lease crawls"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to check that the benchmark runs"
    )
    parser.add_argument(
        "--postgres",
        default="postgresql://postgres@127.0.0.1:5432/postgres",
        help="URL of a superuser, who can create and drop databases",
    )
    parser.add_argument("--folder", type=Path, help="folder for SQLite's files")
    parser.add_argument("--json", type=Path, default=Path(f"bench-out/{name}.json"))
    return parser


Measured = Callable[[str, argparse.Namespace, Console], list[Figure]]
"""Function that returns the figures of one store."""


def run(parser: argparse.ArgumentParser, quick: dict[str, Any], measured: Measured) -> None:
    """Measure each store and report; exit with status 1 when a row failed."""
    if parser.parse_args().quick:
        parser.set_defaults(**quick)
    arguments = parser.parse_args()
    arguments.pid = os.getpid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clean up, as on Ctrl-C
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    figures: list[Figure] = []
    try:
        for store in arguments.stores:
            figures += measured(store, arguments, console)
    except psycopg.OperationalError as error:
        sys.exit(f"Postgres: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    report.show(figures, console)
    report.write(figures, arguments, arguments.json)
    sys.exit(any(figure.failure for figure in figures))


def tell(figures: list[Figure], console: Console) -> list[Figure]:
    """Print figures as they come, and return them."""
    for figure in figures:
        console.print("  ".join(cell for cell in report.cells(figure) if cell))
    return figures
