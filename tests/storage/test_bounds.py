"""Every column that holds fewer numbers than the code can count, at its bound."""

from dataclasses import replace

import numpy as np
import pytest
import sqlalchemy as sa
import sqlalchemy.dialects.postgresql
from support.crawl_cases import RUDE, SECOND, queue, report, take
from support.store_cases import (
    DAY,
    T0,
    page_of,
    ping_columns,
    publish,
    register,
    save,
    schedule_columns,
    states_of,
)

from service.core.estimators.gamma import Gamma
from service.estimation.rules import Rules
from service.ingest import record
from service.model.arrays import instant
from service.model.domain import Timing
from service.storage import Brought
from service.storage.tables import metadata
from service.transfer.lines import StateLine, parse
from service.transfer.lines import states_of as parsed_states

SHORT, LONG = 2**15 - 1, 2**31 - 1
HUGE, TINY = 3.4e38, 1.2e-38

COUNTED = {
    "host_queues.n_failures": SHORT,
    "page_states.n_failures": SHORT,
    "page_states.n_targets": SHORT,
    "page_states.n_observations": LONG,
    "page_states.n_changes": LONG,
    "page_states.n_pings": LONG,
    "page_states.pings_since_crawl": LONG,
}
"""Counters, which start these tests at the largest number that their column holds."""

MEASURED = {
    "page_states.interval_factor",
    "page_states.last_interval",
    "page_states.last_age",
    "page_states.retry_rate",
    "schedule.change_rate",
    "schedule.crawl_rate",
    "schedule.observed_ratio",
    "schedule.urgency",
}
"""Numbers kept in four bytes on Postgres."""

BOUNDED = {
    "host_queues.max_concurrency": "requests may ask for 10,000 at most",
    "page_states.observability": "one of three codes",
    "page_states.outcome": "one of nine codes",
    "page_states.hops": "five redirects are followed at most",
    "due_pages.ending": "one of four codes",
    "crawl_days.day": "days since 1970",
    "allotments.on_day": "days since 1970",
    "pace.pace_id": "always 1",
    "due_pages.n_unfinished": "the service counts to 1,000",
    "deleted_hosts.n_failures": "a copy of that of the host queue",
    "host_incidents.kind": "one of four codes",
    "page_states.url_group": "a hash of 31 bits",
    "group_hours.url_group": "a hash of 31 bits",
    "host_queues.paused_status": "an HTTP status has three digits",
    "host_queues.n_latencies": "counted to 1,000 at most",
    "observations.stretch": "months since 1970",
    "observations.kind": "one of two codes",
    "observations.changed": "one of three codes",
    "observations.status": "a larger one counts as 999, and robots.txt has 1,000",
    "epochs.passes": "a solver makes hundreds at most",
    "url_groups.shard": "1,023 at most",
    "schedule.epoch": "68 years of one epoch a second",
    "url_levels.rule": "there are two rules",
    "lease_filters.slice": "requests may ask for slice 9,999 at most",
    "lease_filters.slices": "requests may ask for 10,000 at most",
    "lease_filters.n_hosts": "requests may name 100 at most",
    "webhooks.max_items": "requests may ask for 1,000 at most",
    "webhooks.most": "max_items at most",
    "webhooks.n_sent": "max_items at most",
    "webhooks.item": "a place among the changes of one commit",
    "webhooks.to_item": "a place among the changes of one commit",
    "webhooks.n_attempts": "a webhook is disabled after three days of failures",
    "webhook_deliveries.n_items": "max_items at most",
    "webhook_deliveries.status": "an HTTP status has three digits",
}
"""Columns that no input can fill, and why."""


def test_every_short_column_is_accounted_for():
    dialect = sa.dialects.postgresql.dialect()
    short = {
        f"{table.name}.{column.name}"
        for table in metadata.sorted_tables
        for column in table.columns
        if column.type.compile(dialect).removesuffix("[]") in ("SMALLINT", "INTEGER", "REAL")
    }
    assert short == {*COUNTED, *MEASURED, *BOUNDED}


def set_to_bounds(store, page_id):
    """Count as far as the columns go."""
    for part in store.parts:
        with part.begin() as tx:
            for place, bound in COUNTED.items():
                table, _, column = place.partition(".")
                tx.run(f"UPDATE {table} SET {column} = {bound}")
    return states_of(store, page_id)


@pytest.mark.parametrize("status", [0, 200, 404, 429, 503])
def test_a_crawl_of_a_host_in_endless_trouble_is_kept(queue_store, status):
    pages = np.sort(register(queue_store, 2))
    queue(queue_store, pages, T0)
    set_to_bounds(queue_store, pages)
    crawled = take(queue_store, T0 + SECOND, polite=RUDE)
    for at in (T0 + SECOND, T0 + 2 * SECOND):
        report(queue_store, crawled, at, status=status, changed=1)
    after = states_of(queue_store, pages)
    assert (after.last_crawl_at == instant(T0 + 2 * SECOND)).all()
    assert (after.n_observations <= LONG).all()
    assert (after.n_failures <= 1_000).all()


def test_pings_beyond_counting_are_kept(queue_store):
    pages = np.sort(register(queue_store, 2))
    save(queue_store, pages, last_crawl_at=T0, last_observed_at=T0)
    set_to_bounds(queue_store, pages)
    at = np.full(2, instant(T0 + SECOND))
    rules = Rules(Gamma(), Timing.periodic, np.random.default_rng(1))
    with queue_store.begin() as tx:
        answered = record.ping(tx, ping_columns(pages, at), rules)
    assert answered.verdict.tolist() == [0, 0]
    assert states_of(queue_store, pages).n_pings.tolist() == [LONG, LONG]


@pytest.mark.parametrize("size", [HUGE, TINY, 1e300, 1e-300, 0.0])
def test_measures_of_any_size_are_published_and_read(queue_store, size):
    pages = np.sort(register(queue_store, 2))
    scheduled = schedule_columns(
        pages,
        change_rate=size,
        crawl_rate=size,
        urgency=np.clip(size, 1e-6, 1e3),
        observed_ratio=size,
    )
    publish(queue_store, scheduled)
    assert page_of(queue_store, pages[0]).crawl_rate >= 0


@pytest.mark.sampled(8)
@pytest.mark.parametrize("interval_factor", [HUGE, 1e300, 1e-300, 0.0])
@pytest.mark.parametrize("interval", [1e7, -1e7, 1e-300, 0.0])
def test_states_of_any_size_are_refused_or_kept(queue_store, interval_factor, interval):
    line = {
        "url": "https://a.example/",
        "created_at": T0,
        "estimator": "gamma",
        "estimate": [1.0, 1.0],
        "interval_factor": interval_factor,
        "last_interval": interval,
        "retry_rate": interval_factor,
        "n_observations": LONG,
        "n_changes": LONG,
        "n_pings": LONG,
        "pings_since_crawl": LONG,
        "pings_since": T0,
        "last_crawl_at": T0,
    }
    parsed = parse([line], StateLine)
    if parsed.rejected:
        assert "interval_factor" in parsed.rejected[0][1]
        return
    states = parsed_states(parsed.lines)
    with queue_store.begin() as tx:
        brought = Brought(states, np.array([instant(T0)]), np.full(1, np.datetime64("NaT", "us")))
        page_id = tx.register(parsed.pages, T0, brought).page_id
        locked = tx.lock_states(page_id)
        tx.restore_states(replace(states, page_id=page_id, observability=locked.observability))
    assert page_of(queue_store, page_id[0]).n_observations == LONG
    queue(queue_store, page_id, T0 + DAY)
