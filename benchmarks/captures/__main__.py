"""Play sites with and without captures of the days before, or time an import.

    python -m benchmarks.captures warm --traces FOLDER [--sites …] [--seeds 1] [--ends 0 30 60]
    python -m benchmarks.captures speed [--lines 1000000] [--database-url sqlite:///…]

`warm` prints the staleness of the first month with captures over that without, with equal crawls.
Some months have few changes at all, and their ratio is that of chance; play several `--ends`.
`speed` writes CDXJ lines in the order of their URLs, ten a page, and imports the lines into a new
SQLite file.
"""

import argparse
import json
import logging
import random
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog
from rich.console import Console
from rich.table import Table

from benchmarks.captures.warm import Line, Trial, site_lines
from service.runtime.bootstrap import opened
from service.runtime.settings import Settings
from service.transfer.capture_import import CaptureCounts, Teaching, import_captures

A_PAGE = 10
"""Captures of each page."""
SITES = ("oi-wiki", "powershell-docs", "scoop-extras", "ota-contrib", "data-feeds")


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.captures", description=__doc__.splitlines()[0]
    )
    options.add_argument("trial", choices=["warm", "speed"])
    options.add_argument("--traces", type=Path, help="folder of traces")
    options.add_argument("--sites", nargs="+", default=SITES, help="names of traces")
    options.add_argument("--seeds", type=int, nargs="+", default=[1])
    ends = "ends of the months that are played, days before that of the recording"
    options.add_argument("--ends", type=int, nargs="+", default=[0], help=ends)
    for name, value in Trial._field_defaults.items():
        flag = f"--{name.replace('_', '-')}"
        options.add_argument(flag, type=float, default=value, help=f"as in `Trial` ({value:g})")
    options.add_argument("--bulk", action="store_true", help="count bulk revisions")
    options.add_argument("--lines", type=int, default=1_000_000)
    options.add_argument("--database-url", help="an empty database; default: a new SQLite file")
    options.add_argument("--json", type=Path, default=Path("bench-out/captures.json"))
    return options


def warm(options: argparse.Namespace) -> Iterator[Line]:
    """Yield the lines of `site_lines`."""
    trial = Trial(*(getattr(options, name) for name in Trial._fields))
    seeds, ends = options.seeds, options.ends
    yield from site_lines(options.traces, options.sites, seeds, ends, trial, bulk=options.bulk)


def write_lines(path: Path, n: int) -> None:
    """Write CDXJ as an index of an archive has it."""
    draw = random.Random(1)
    with path.open("w", encoding="utf-8") as file:
        for page in range(n // A_PAGE):
            host, name = f"site{page // 1_000}", f"docs/{page % 1_000:04}/page-{page}.html"
            digest = draw.getrandbits(80)
            for turn in range(A_PAGE):
                digest += draw.random() < 0.3
                item = {
                    "url": f"https://www.{host}.example/{name}",
                    "mime": "text/html",
                    "mime-detected": "text/html",
                    "status": "200",
                    "digest": f"{digest:032X}",
                    "length": str(draw.randrange(9_000, 99_000)),
                    "offset": str(draw.randrange(1 << 30)),
                    "filename": f"crawl-data/CC-MAIN-2025-{turn:02}/segments/1/warc/1.warc.gz",
                }
                at = f"2025{1 + turn:02}{draw.randrange(1, 28):02}{draw.randrange(24):02}1530"
                file.write(f"example,{host})/{name} {at} {json.dumps(item)}\n")


def speed(options: argparse.Namespace) -> Iterator[Line]:
    """Yield the time of an import."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "captures.cdxj"
        write_lines(path, options.lines)
        url = options.database_url or f"sqlite:///{folder}/recrawl.db"
        base = opened(Settings(database_url=url))
        teaching = Teaching(base.store, base.rules, base.store.clock, have_copies=False)
        begun, used, counts, read_s = time.perf_counter(), time.process_time(), CaptureCounts(), 0.0
        for step in import_captures({path: "cdxj"}, base.store.clock(), teaching):
            counts = counts.plus(step.counts)
            if step.after is None:
                read_s = time.perf_counter() - begun
        seconds = time.perf_counter() - begun
        base.store.close()
        yield {
            "captures": counts.distinct,
            "pages": counts.taught,
            "read_s": read_s,
            "seconds": seconds,
            "cpu_s": time.process_time() - used,
            "a_second": counts.distinct / seconds,
            "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }


def main() -> None:
    """Run a trial and print its lines as a table."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    options = parser().parse_args()
    table, lines = None, []
    for line in {"warm": warm, "speed": speed}[options.trial](options):
        lines.append(line)
        table = table or Table(*line)
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in line.values()))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(lines, indent=1) + "\n", "utf-8")
    if table is not None:
        Console(width=160).print(table)


if __name__ == "__main__":
    main()
