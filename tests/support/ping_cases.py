"""Pages for tests of pings that are false now and then, and that miss changes."""

import numpy as np

from support.ingest_cases import crawl
from support.store_cases import DAY, T0, publish, register, save, schedule_columns

AUDITS = 0.01
"""Crawl rate of a page with pings, 1/day."""


def noisy(store, n=1, probability=0.5, crawl_rate=AUDITS, host="example.org", **evidence):
    """Auto pages crawled at T0, whose pings announce three of four changes, two of three truly."""
    ids = np.sort(register(store, n, T0 - 100 * DAY, host))
    for page_id in ids:
        crawl(store, int(page_id), T0, digest=1)
    values = {
        "estimate": [[4.0, 60.0]],
        "real_pings": 20.0,
        "false_pings": 10.0,
        "n_pings": 30,
        "recent_pings": 3.0,
        "last_ping_at": T0 - DAY,
        "interval_factor": 1.0,
    }
    save(store, ids, **(values | evidence))
    publish(store, schedule_columns(ids, crawl_rate=crawl_rate, crawl_probability=probability))
    return ids if n > 1 else int(ids[0])
