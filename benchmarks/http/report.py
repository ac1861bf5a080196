"""The table on the terminal, and JSON with every round and the machine."""

import json
import os
import platform
import sqlite3
import subprocess
import tempfile
import time
from argparse import Namespace
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.http.rows import Figure

PACKAGES = ("numpy", "psycopg", "sqlalchemy", "fastapi", "uvicorn", "msgspec", "recrawl")


def show(figures: list[Figure], console: Console) -> None:
    """Print the table of figures."""
    table = Table(box=None, pad_edge=False)
    table.add_column("store")
    table.add_column("row", max_width=52)
    for name in ("median", "floor", "ratio", "target"):
        table.add_column(name, justify="right")
    table.add_column("cores used; and")
    for figure in figures:
        table.add_row(*cells(figure))
    console.print(table)


def cells(figure: Figure) -> tuple[str, ...]:
    """Return the cells of one row."""
    reason = figure.failure.strip().rpartition("\n")[2]
    floor = sorted(figure.floor)[len(figure.floor) // 2] if figure.floor else None
    style = {None: "", True: "green", False: "bold red"}[figure.met]
    value = "failed" if figure.failure else f"{number(figure.value)} {figure.unit}"
    target = ""
    if figure.target is not None:
        target = f"{'≤' if figure.at_most else '≥'} {number(figure.target)}"
        target += f", ratio ≥ {figure.ratio_target:g}" if figure.ratio_target else ""
    return (
        figure.store,
        figure.what,
        f"[{style}]{value}[/]" if style else value,
        "" if floor is None else number(floor),
        "" if figure.ratio is None else f"{figure.ratio:.2f}",
        target,
        "; ".join(part for part in (used(figure.details), figure.note, reason) if part),
    )


def used(details: dict[str, Any]) -> str:
    """Return the cores that the row used, which show its bottleneck."""
    parts = [
        f"{name} {details[name]:.2f}"
        for name in ("service", "postgres", "clients")
        if details.get(name)
    ]
    if details.get("fsyncs"):
        parts.append(f"{details['fsyncs']:.0f} fsyncs/s")
    return ", ".join(parts)


def number(value: float) -> str:
    """Return a number with three digits, or with all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write(figures: list[Figure], options: Namespace, path: Path) -> None:
    """Write all rounds as JSON."""
    rows = [asdict(f) | {"value": f.value, "ratio": f.ratio, "met": f.met} for f in figures]
    arguments = {k: v for k, v in vars(options).items() if k not in ("postgres", "json", "folder")}
    written = {"machine": machine(), "arguments": arguments, "rows": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(written, indent=1, default=str) + "\n")


def machine() -> dict[str, Any]:
    """Return a description of the machine."""
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "cpu": cpu[0].partition(": ")[2] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 2**30, 1),
        "system": platform.platform(),
        "load": os.getloadavg(),
        "fsync_ms": fsync_ms(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "packages": {name: version(name) for name in PACKAGES},
        "commit": commit.stdout.strip(),
    }


def fsync_ms(repeat: int = 50) -> float:
    """Return the median time to write 8 kB durably to disk, ms."""
    times = []
    with tempfile.TemporaryFile() as file:
        for _ in range(repeat):
            file.write(bytes(8192))
            file.flush()
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begun)
    return round(sorted(times)[repeat // 2] * 1e3, 3)
