"""Benchmark the speed and memory of the allocation, and the estimators.

    python -m benchmarks.core [--pages 10000 1000000 20000000] [--repeat 5] [--json FILE]

Pages have log-normal importance and change rate; 4 % are complete; bandwidth is 0.2 a page.
With hosts there is one host for every 20 pages, in random order or sorted. Exponential caps bind
about a quarter of the hosts. A row has these columns:

- median and least seconds of a whole `allocate_harmonic`
- number of passes
- least seconds of one pass: bandwidth and derivative at a multiplier
- that time over the least time of np.sum over the same two arrays on the same threads
- peak memory beyond inputs and results, as a share of the inputs

K19's Algorithm 3 as published runs for the sizes at which it ends.
A second table has the estimators' updates and the fit of the prior (`estimators`).
Times depend on other load of the machine: the column `sum` shows the speed of memory at the time.
"""

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.core import estimators
from recrawl_lab.reference import lambdacrawl
from service.core.allocation.blocks import over_parts
from service.core.allocation.harmonic import allocate_harmonic
from service.core.allocation.problem import check_hosts, check_pages
from service.core.allocation.sweeps import HostSweeps, Sweeps

SIZES = (10_000, 100_000, 1_000_000, 20_000_000)
PUBLISHED_UP_TO = 1_000_000
PAGES_PER_HOST = 20
TARGETS = {
    ("none", 1_000_000): 0.040,
    ("none", 20_000_000): 0.6,
    ("sorted", 20_000_000): 2.0,
    ("random", 20_000_000): 2.0,
}


class Workload(NamedTuple):
    """Arguments of `allocate_harmonic`."""

    pages: tuple[Any, ...]
    limits: dict[str, Any]

    def n_bytes(self) -> int:
        columns = [*self.pages[:3], *self.limits.values()]
        return sum(column.nbytes for column in columns)


def workload(n: int, hosts: str) -> Workload:
    rng = np.random.default_rng(20190619)
    importance = np.exp(rng.normal(np.log(10), 1.5, n))
    change_rate = np.exp(rng.normal(np.log(0.3), 1.2, n))
    pages = importance, change_rate, rng.random(n) < 0.04, 0.2 * n
    if hosts == "none":
        return Workload(pages, {})
    n_hosts = max(1, n // PAGES_PER_HOST)
    host = rng.integers(0, n_hosts, n, dtype=np.int32)
    if hosts == "sorted":
        host.sort()
    return Workload(pages, {"host": host, "host_bandwidth": rng.exponential(16.0, n_hosts)})


def seconds(function: Callable[[], Any], repeat: int) -> list[float]:
    """Return the times of repeated calls after a first call that is not counted.

    The result of a call is freed before the next call. Because a virtual machine provides new
    memory slowly, the first touch of a page would cost far more than the work on it.
    """
    function()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return sorted(times)


def extra_memory(work: Workload) -> float:
    """Return the peak memory of a solve without its results, as a share of the inputs."""
    tracemalloc.start()
    allocation = allocate_harmonic(*work.pages, **work.limits)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    results = allocation.crawl_rate.nbytes + allocation.crawl_probability.nbytes
    if allocation.host_multiplier is not None:
        results += allocation.host_multiplier.nbytes
    return (peak - results) / work.n_bytes()


def measure(n: int, hosts: str, repeat: int) -> dict[str, Any]:
    work = workload(n, hosts)
    solve = seconds(lambda: allocate_harmonic(*work.pages, **work.limits), repeat)
    solution = allocate_harmonic(*work.pages, **work.limits)
    pages = check_pages(*work.pages[:3])
    tree = check_hosts(n, work.limits.get("host"), work.limits.get("host_bandwidth"), None, None)
    s = np.array([1 / solution.multiplier])
    importance, change_rate = work.pages[:2]
    read = seconds(
        lambda: over_parts(lambda part: (importance[part].sum(), change_rate[part].sum()), n),
        3 * repeat,
    )
    passes = Sweeps(pages)
    if tree is not None:
        scratch = np.empty(n), np.empty(n)
        passes = HostSweeps(pages, tree.of_page, tree.bandwidth.size, scratch)
    a_pass = seconds(lambda: passes.take(s), 3 * repeat)
    return {
        "pages": n,
        "hosts": hosts,
        "median_s": solve[len(solve) // 2],
        "least_s": solve[0],
        "target_s": TARGETS.get((hosts, n)),
        "passes": solution.passes,
        "pass_ms": a_pass[0] * 1e3,
        "sum_ms": read[0] * 1e3,
        "pass / sum": a_pass[0] / read[0],
        "extra memory": extra_memory(work),
        "kkt_residual": solution.kkt_residual,
    }


def published(n: int) -> dict[str, Any]:
    """Time K19's Algorithm 3 to a tolerance of 1e-8 of the bandwidth."""
    work = workload(n, "none")
    start = time.perf_counter()
    lambdacrawl.mixed(*work.pages)
    elapsed = time.perf_counter() - start
    return {"pages": n, "hosts": "none (K19)", "median_s": elapsed}


def run(sizes: list[int], repeat: int) -> list[dict[str, Any]]:
    rows = [published(n) for n in sizes if n <= PUBLISHED_UP_TO]
    every = ((hosts, n) for hosts in ("none", "sorted", "random") for n in sizes)
    return rows + [measure(n, hosts, repeat) for hosts, n in every]


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="allocate_harmonic")
    for column in rows[-1]:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(_text(row.get(column)) for column in rows[-1]))
    Console(width=160).print(table)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return (
        f"{value:.3g}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else value
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--pages", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = run(options.pages, options.repeat)
    show(rows)
    timed = estimators.timings()
    estimators.show_timings(Console(width=160), timed)
    if options.json:
        figures = {"allocate_harmonic": rows, "estimators": timed}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
