"""Import a data set in the layout of PoliteCrawling and run an epoch, as a table and as JSON.

    python -m benchmarks.polite [--pages 18500000] [--folder FOLDER]

The benchmark runs `recrawl import FOLDER` into a new Postgres database, then a worker until its
first epoch is published, each as a process of its own. The data set is synthetic (`data`): about
73 crawls a page, 1.7 kB of text. A folder named by --folder keeps the data set for the next run.
The paper's 18.5 million pages take 33 GB of files and 15 GB of database.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks.http.processes import cpu_seconds, megabytes, postgres_database
from benchmarks.http.report import machine, number
from benchmarks.polite.data import write_tables
from recrawl_lab.datasets.polite import HISTORIES, TABLES, find_table

DATABASE = f"recrawl_polite_{os.getpid()}"


class Run(NamedTuple):
    """Measurements of one command."""

    what: str
    seconds: float
    cpu_seconds: float
    peak_mb: float
    rows: int
    """Number of pages."""

    @property
    def rate(self) -> float:
        """Return rows a second."""
        return self.rows / self.seconds


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.polite", description=__doc__.splitlines()[0]
    )
    options.add_argument("--pages", type=int, default=100_000)
    options.add_argument("--folder", type=Path, help="folder of the data set, created if missing")
    options.add_argument(
        "--postgres",
        default="postgresql://postgres@127.0.0.1:5432/postgres",
        help="URL of a superuser, who can create and drop a database",
    )
    options.add_argument("--json", type=Path, default=Path("bench-out/polite.json"))
    return options


def main() -> None:
    """Measure, print and write the results."""
    arguments = parser().parse_args()
    with data_set(arguments.folder, arguments.pages) as folder:
        n_bytes = sum(find_table(folder, name).stat().st_size for name in TABLES)
        with postgres_database(arguments.postgres, DATABASE) as url:
            runs = [imported(folder, url, arguments.pages), scheduled(url, arguments.pages)]
            with psycopg.connect(url) as connection:
                sizes = connection.execute(SIZES).fetchall()
    show(runs, dict(sizes), n_bytes, arguments.pages)
    figures = {
        "machine": machine(),
        "pages": arguments.pages,
        "bytes_read": n_bytes,
        "database_bytes": dict(sizes),
        "runs": [run._asdict() | {"rate": run.rate} for run in runs],
    }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


SIZES = """
SELECT relname, sum(pg_total_relation_size(oid))::bigint FROM (
    SELECT oid, CASE WHEN relname ~ '^schedule_' THEN 'schedule' ELSE relname END AS relname
    FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
) AS tables GROUP BY relname HAVING sum(pg_total_relation_size(oid)) > 1e6 ORDER BY 2 DESC
"""


@contextmanager
def data_set(folder: Path | None, n_pages: int) -> Iterator[Path]:
    """Create the files unless they exist, and yield their folder."""
    with tempfile.TemporaryDirectory(prefix="recrawl-bench-") as passing:
        place = folder or Path(passing)
        place.mkdir(parents=True, exist_ok=True)
        if not (place / f"{HISTORIES}.txt").exists():
            write_tables(place, n_pages)
        yield place


def environment(url: str) -> dict[str, str]:
    """Return the environment of a command without the caller's settings."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("RECRAWL_")}
    return others | {"RECRAWL_DATABASE_URL": url, "RECRAWL_EPOCH_INTERVAL_S": "86400"}


def imported(folder: Path, url: str, n_pages: int) -> Run:
    """Run `recrawl migrate` and `recrawl import`; exit with a message if a line was skipped."""
    command = [sys.executable, "-m", "service"]
    subprocess.run([*command, "migrate"], env=environment(url), check=True)
    began = (datetime.now(UTC) - timedelta(weeks=40)).strftime("%Y-%m-%d")
    start = time.monotonic()
    with subprocess.Popen(
        [*command, "import", str(folder), "--began", began], env=environment(url)
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"the import ended with status {process.returncode}")
    seconds = time.monotonic() - start
    return Run("import", seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, n_pages)


def scheduled(url: str, n_pages: int) -> Run:
    """Run a worker until its first epoch has ended, and return the measurements."""
    start = time.monotonic()
    with (
        subprocess.Popen(
            [sys.executable, "-m", "service", "worker"], env=environment(url)
        ) as worker,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        try:
            while not (ended := connection.execute(ENDED).fetchone()) and worker.poll() is None:
                time.sleep(0.5)
            seconds = time.monotonic() - start
            peak, used = megabytes(worker.pid, "VmHWM"), cpu_seconds(worker.pid)
        finally:
            worker.kill()  # it would next queue nearly every page as due
    if ended is None or ended[0] != "published":
        sys.exit(f"no epoch was published: {ended}")
    return Run("epoch", seconds, used, peak, n_pages)


ENDED = "SELECT status, reason FROM epochs WHERE status IN ('published', 'failed')"


def show(runs: list[Run], sizes: dict[str, int], n_bytes: int, n_pages: int) -> None:
    """Print the table of commands and the sizes of the tables."""
    table = Table(box=None, pad_edge=False)
    for name in ("", "seconds", "of CPU", "pages/s", "peak MB"):
        table.add_column(name, justify="right" if name else "left")
    for run in runs:
        figures = (run.seconds, run.cpu_seconds, run.rate, run.peak_mb)
        table.add_row(run.what, *map(number, figures))
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    console.print(table)
    each = ", ".join(f"{name} {size / n_pages:.0f}" for name, size in sizes.items())
    console.print(f"{n_bytes / 1e9:.1f} GB read, {sum(sizes.values()) / n_pages:.0f} bytes a page")
    console.print(f"of which {each}")


if __name__ == "__main__":
    main()
