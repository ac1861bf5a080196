"""Measure the gauges of the history on a corpus: CPU seconds, wall seconds, peak memory.

    python -m benchmarks.gauges [--pages 1000000] [--url postgresql://…/postgres | --sqlite]

Most pages have been crawled, an epoch has scheduled all of them. CPU time is that of the process
and of its database sessions.
"""

import argparse
import json
import resource
import tempfile
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from sqlalchemy import NullPool, create_engine, make_url

from benchmarks import trees
from service.history.gauges import measure
from service.runtime.bootstrap import configure_logging, opened
from service.runtime.settings import read_settings
from service.storage import migrations

BLOCK = 50_000


def main() -> None:
    """Fill a database, and measure its gauges three times."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--url", default="postgresql://postgres@127.0.0.1:5432/postgres")
    parser.add_argument("--sqlite", action="store_true")
    arguments = parser.parse_args()
    configure_logging("error")
    with tempfile.TemporaryDirectory() as folder:
        if arguments.sqlite:
            _run(f"sqlite:///{folder}/gauges.db", arguments.pages)
            return
        name = f"recrawl_gauges_{uuid.uuid4().hex[:8]}"
        url = trees.created(arguments.url, name)
        driver = make_url(url).set(drivername="postgresql+psycopg")
        migrations.upgrade(create_engine(driver, poolclass=NullPool))
        try:
            _run(url, arguments.pages)
        finally:
            trees.execute(arguments.url, f"DROP DATABASE {name} WITH (FORCE)")


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
