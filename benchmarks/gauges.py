"""Measure the gauges of the history on a corpus: CPU seconds, wall seconds, peak memory.

    python -m benchmarks.gauges [--pages 1000000] [--url postgresql://…/postgres | --sqlite]

Most pages have been crawled, an epoch has scheduled all of them. CPU time is that of the process
and of its database sessions.
"""

import argparse
import json
import resource
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from benchmarks import trees
from service.history.gauges import measure
from service.runtime.bootstrap import configure_logging, opened
from service.runtime.settings import read_settings

BLOCK = 50_000


def main() -> None:
    """Fill a database, and measure its gauges three times."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--url", default="postgresql://postgres@127.0.0.1:5432/postgres")
    parser.add_argument("--sqlite", action="store_true")
    arguments = parser.parse_args()
    configure_logging("error")
    with trees.migrated(arguments.url, sqlite=arguments.sqlite) as url:
        _run(url, arguments.pages)


def _run(url: str, n_pages: int) -> None:
    now = [datetime(2026, 5, 1, tzinfo=UTC)]
    base = opened(read_settings(database_url=url), now=lambda: now[0])
    ids = [
        trees.registered(base.store, now[0], range(start, min(start + BLOCK, n_pages)))
        for start in range(0, n_pages, BLOCK)
    ]
    crawls = trees.Crawls(base, np.concatenate(ids), now, np.random.default_rng(1))
    for _ in range(2):
        crawls.record(10_000, n_pages)
    base.runner.run_once()
    now[0] += timedelta(days=1)
    for _ in range(3):
        figures: dict[str, Any] = {"pages": n_pages}
        began, cpu = time.perf_counter(), trees.cpu(base.store)
        gauges = measure(
            base.store, base.plan.estimator, np.arange(1, 501), base.store.clock
        ).gauges[0]
        figures |= {
            "seconds": round(time.perf_counter() - began, 2),
            "cpu_s": round(trees.cpu(base.store) - cpu, 2),
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "fresh_share": gauges.fresh_share,
            "sampled_share": gauges.sampled_share,
        }
        print(json.dumps(figures), flush=True)
    base.store.close()


if __name__ == "__main__":
    main()
