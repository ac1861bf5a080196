"""Measure what an epoch's stages cost over shards, against one process over the same pages.

    python -m benchmarks.spread [--pages 1000000] [--shards 64] [--databases 4] [--json FILE]

Each shard makes its columns instead of reading them, and writes no schedule: rows are what the
division itself costs. The floor is one process that has all logical shards.

- cpu: CPU seconds of estimate and allocate, of all processes together, and over the floor
- MB: bytes of all questions and answers
- bytes a page: anonymous memory of the fullest process, less that before it had its columns
"""

import argparse
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import process_time

import numpy as np
from recrawl_cluster.epochs.processes import Processes
from rich.console import Console
from rich.table import Table

from recrawl_cluster.epochs.actors import LOCAL, Actors
from service.core.estimators import make_estimator
from service.epochs.shard import Input, Task, divided
from service.epochs.shards import InProcess, Shards
from service.epochs.solve import Plan
from service.model.arrays import INSTANT, NO_TIME, SHARD_BITS, instant
from service.model.columns import CapColumns, EpochColumns
from service.model.domain import Epoch, Observability
from service.model.urls import URL_GROUPS
from service.runtime.bootstrap import configure_logging

AT = datetime(2026, 5, 31, 12, tzinfo=UTC)
NOW = instant(AT)
PLAN = Plan(make_estimator("bursty", half_life_days=180.0), clocks=False)
A_HOST = 100
"""Pages of a host."""


@dataclass(frozen=True)
class Made:
    """Columns of logical shards, as the database of a shard."""

    shards: tuple[int, ...]
    n_pages: int
    """Pages of each logical shard."""

    def load(self, task: Task) -> dict[int, Input]:
        """Return the input of each logical shard."""
        pages = EpochColumns.concatenate([made(shard, self.n_pages) for shard in self.shards])
        hosts = np.unique(pages.host_id)
        hosts = hosts[hosts % 100 == 0]
        caps = CapColumns(
            host_id=hosts,
            host=np.full(len(hosts), "", object),
            max_crawl_rate=np.full(len(hosts), 2.0),
            group_id=np.zeros(len(hosts), np.int64),
            group=np.full(len(hosts), "", object),
            group_max_crawl_rate=np.full(len(hosts), np.nan),
        )
        return divided(Input(pages, caps, task.plan.estimator, None, None, None))

    def prepare(self, *_: object) -> None:
        """Write nothing."""


def made(shard: int, n: int) -> EpochColumns:
    """Return the pages of a logical shard: hosts, URL groups, bounds and pings."""
    rng = np.random.default_rng(shard)
    first = shard << SHARD_BITS
    host = np.arange(n) // A_HOST + 1
    days = rng.exponential(60, n)
    changes = rng.poisson(rng.gamma(0.5, 0.3, n) * days).astype(np.float64)
    pinged = rng.random(n) < 0.05
    low = np.where(rng.random(n) < 0.01, 0.01, np.nan)
    age = (rng.exponential(3, n) * 86_400e6).astype("m8[us]")
    return EpochColumns(
        page_id=first + 1 + np.arange(n),
        importance=rng.pareto(1.5, n) + 0.1,
        observability=np.full(n, Observability.auto, np.int16),
        host_id=first + host,
        url_group=(shard * URL_GROUPS + host * 7 + rng.integers(0, 3, n)).astype(np.int32),
        last_observed_at=(NOW - age).astype(INSTANT),
        last_interval=rng.exponential(3, n) * rng.choice([-1, 1], n),
        n_observations=rng.poisson(20, n),
        interval_factor=rng.uniform(0.95, 1.05, n),
        estimate=np.column_stack((changes, days, np.zeros(n))),
        min_crawl_rate=low,
        max_crawl_rate=np.full(n, np.nan),
        n_pings=np.where(pinged, 5, 0),
        pings_since=np.full(n, NOW - np.timedelta64(30, "D")),
        last_ping_at=np.where(pinged, NOW - np.timedelta64(5, "h"), NO_TIME).astype(INSTANT),
        real_pings=np.where(pinged, 3.0, 0.0),
        false_pings=np.where(pinged, 1.0, 0.0),
        trust=np.zeros(n),
        last_age=np.full(n, np.nan),
    )


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def anonymous(pid: int) -> int:
    """Return the anonymous memory of a process, bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


@contextmanager
def one(sources: Sequence[Made], task: Task) -> Iterator[tuple[Shards, list[int], object]]:
    """Open all shards in this process."""
    with nullcontext(InProcess(sources, task)) as shards:
        yield shards, [], None


@contextmanager
def processes(sources: Sequence[Made], task: Task) -> Iterator[tuple[Shards, list[int], object]]:
    """Open each shard in a process."""
    pool = Processes(lambda _: sources)
    with pool.opened(None, None, task) as shards:  # type: ignore[arg-type]
        shards.ask_all("learnt")
        yield shards, [worker.process.pid for worker in pool.workers], pool.workers
    pool.close()


@contextmanager
def actors(sources: Sequence[Made], task: Task) -> Iterator[tuple[Shards, list[int], object]]:
    """Open each shard as an actor of Dask."""
    pool = Actors(lambda _: sources, LOCAL)
    with pool.opened(None, None, task) as shards:  # type: ignore[arg-type]
        shards.ask_all("learnt")
        yield shards, [actor.pid for actor in shards.actors.values()], [pool]
    pool.close()


Runner = Callable[[Sequence[Made], Task], object]


def measured(runner: Runner, sources: Sequence[Made], last: Epoch | None) -> dict[str, object]:
    """Return the figures of one epoch."""
    n_pages = max(len(source.shards) * source.n_pages for source in sources)
    with runner(sources, Task(PLAN, last, AT)) as (shards, pids, counted):
        before = [anonymous(pid) for pid in pids or [os.getpid()]]
        sizes = shards.ask_all("load")
        shards.ask("census", [(n > 0,) for n in sizes])
        started = process_time(), [cpu_of(pid) for pid in pids]
        shards.joined("estimate")
        certificate, *_ = shards.joined("allocate")
        used = process_time() - started[0]
        used += sum(cpu_of(pid) - cpu for pid, cpu in zip(pids, started[1], strict=True))
        after = [anonymous(pid) for pid in pids or [os.getpid()]]
        n_bytes = sum(each.n_bytes for each in counted or [])
    grown = max(b - a for a, b in zip(before, after, strict=True))
    return {
        "cpu_s": used,
        "megabytes": n_bytes / 1e6,
        "bytes_a_page": grown / n_pages,
        "multiplier": certificate.multiplier,
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--databases", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    configure_logging("error")
    each = chosen.pages // chosen.shards
    everything = [Made(tuple(range(chosen.shards)), each)]
    spans = np.array_split(np.arange(chosen.shards), chosen.databases)
    spread = [Made(tuple(span.tolist()), each) for span in spans]
    last = None
    rows: dict[str, list[dict[str, object]]] = {}
    cases = {
        "one logical shard": (one, [Made((0,), chosen.pages)]),
        "one process": (one, everything),
        "one process, divided": (one, spread),
        "processes": (processes, spread),
        "actors of Dask": (actors, spread),
    }
    for _ in range(chosen.rounds):
        for name, (runner, sources) in cases.items():
            rows.setdefault(name, []).append(measured(runner, sources, last))
    report(rows, chosen.json)


def report(rows: dict[str, list[dict[str, object]]], path: Path | None) -> None:
    """Print the medians of the rounds, and write them."""
    table = Table("row", "cpu s", "over one process", "MB", "bytes a page", "same bits")
    floor = rows["one process"]
    figures = {}
    for name, rounds in rows.items():
        names = ("cpu_s", "megabytes", "bytes_a_page")
        middle = {key: float(np.median([one[key] for one in rounds])) for key in names}
        ratios = [own["cpu_s"] / other["cpu_s"] for own, other in zip(rounds, floor, strict=True)]
        same = {one["multiplier"] for one in rounds} == {floor[0]["multiplier"]}
        figures[name] = {**middle, "over_one_process": float(np.median(ratios)), "same": same}
        numbers = middle["cpu_s"], np.median(ratios), middle["megabytes"], middle["bytes_a_page"]
        table.add_row(name, *(f"{number:.3g}" for number in numbers), str(same))
    Console().print(table)
    if path is not None:
        path.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
