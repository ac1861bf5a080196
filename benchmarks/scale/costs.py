"""The constants of the model, each with its unit and its source.

A file of a benchmark replaces the constants that the benchmark measures.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

MEASURED = "decision 27, 10⁷ pages"
HERE = "benchmarks.scale.measure, 10⁶ pages"


def cost(value: float, unit: str, source: str) -> Any:
    """Return a field of a constant."""
    return field(default=value, metadata={"unit": unit, "source": source})


@dataclass(frozen=True)
class Costs:
    """Costs of a page, an item and a question."""

    load_database: float = cost(1.29, "CPU s of Postgres for 10⁶ pages", MEASURED)
    load_actor: float = cost(0.49, "CPU s of an actor for 10⁶ pages", MEASURED)
    solve_actor: float = cost(1.25, "CPU s of an actor for 10⁶ pages", MEASURED)
    write_database: float = cost(0.21, "CPU s of Postgres for 10⁶ pages", MEASURED)
    write_actor: float = cost(0.16, "CPU s of an actor for 10⁶ pages", MEASURED)
    ask_actor: float = cost(0.00051, "s of the leader for an actor and question", HERE)
    ask_logical: float = cost(1.8e-05, "s for a logical shard and question", HERE)
    questions: float = cost(53.0, "questions of an epoch", HERE)
    commit: float = cost(0.005, "s for a commit", "assumed: a disk that confirms in 5 ms")
    leader_sample: float = cost(10e6, "bytes through the leader, samples", "decision 29")
    leader_logical: float = cost(13000.0, "bytes through the leader for a logical shard", HERE)
    load_bytes: float = cost(126, "bytes of columns for a page", "design of the columns")
    write_bytes: float = cost(15.5, "bytes of a schedule for a page", "decision 27: 31 for two")
    memory: float = cost(450, "bytes of an actor for a page, at most", "decision 11")
    state: float = cost(409, "bytes of a database for a page", "decision 27: 492 less the log")
    log: float = cost(90, "bytes of a database for a log entry", "docs/how-to/small-log.md")
    archive: float = cost(11.1, "bytes of the archive for a log entry", "docs/performance.md")
    report: float = cost(1 / 67_000, "s for a report in batches", "docs/performance.md")
    single: float = cost(1 / 5_700, "s for a report alone", "docs/performance.md")
    lease: float = cost(1 / 11_900, "s for a crawl leased and reported", "docs/performance.md")
    report_bytes: float = cost(250, "bytes of a report, from caller to database", "assumed")

    def with_files(self, paths: list[Path]) -> "Costs":
        """Return the constants with what files of benchmarks measured."""
        costs = self
        for path in paths:
            measured = measured_by(json.loads(path.read_text()))
            if not measured:
                raise ValueError(f"{path} has no figure of the model; give files of --json")
            costs = costs.measured(measured, path.name)
        return costs

    def measured(self, values: Mapping[str, float], source: str) -> "Costs":
        """Return the constants with some replaced, and the source of these."""
        changed = replace(self, **values)
        origins = {**getattr(self, "origins", {}), **dict.fromkeys(values, source)}
        object.__setattr__(changed, "origins", origins)
        return changed

    def rows(self) -> list[tuple[str, float, str, str]]:
        """Return name, value, unit and source of each constant."""
        origins = getattr(self, "origins", {})
        own = [(f.name, f.metadata) for f in fields(self)]
        return [
            (name, getattr(self, name), about["unit"], origins.get(name, about["source"]))
            for name, about in own
        ]


def measured_by(content: Mapping[str, Any]) -> dict[str, float]:
    """Return the constants that the file of a benchmark has; none for another file."""
    readers: tuple[Callable[[Mapping[str, Any]], dict[str, float]], ...]
    readers = (_of_rows, _of_epoch)
    return {name: value for read in readers for name, value in read(content).items()}


RATES = {
    ("observations", "obs/s"): "report",
    ("single", "obs/s"): "single",
    ("batches", "crawls/s"): "lease",
}
"""Constant of each row, by its name and unit, of benchmarks.http and benchmarks.leases."""


def _of_rows(content: Mapping[str, Any]) -> dict[str, float]:
    """Read a file of `benchmarks.http` or `benchmarks.leases`."""
    rows = [row for row in content.get("rows", []) if row["store"] == "postgres"]
    return {
        RATES[row["row"], row["unit"]]: 1 / row["value"]
        for row in rows
        if (row["row"], row["unit"]) in RATES and not row["failure"]
    }


def _of_epoch(content: Mapping[str, Any]) -> dict[str, float]:
    """Read a file of `benchmarks.scale.measure`."""
    return {str(name): float(value) for name, value in content.get("costs", {}).items()}
