"""Crawls in vain count as crawls of their page's plan."""

from dataclasses import replace

import numpy as np
import pytest
from support.ingest_cases import crawl
from support.store_cases import (
    DAY,
    T0,
    due_of,
    publish,
    register,
    save,
    schedule_columns,
    states_of,
)

from service.ingest.overdrawn import MOST, overdrawn
from service.model.arrays import NO_TIME, instant
from service.model.outcomes import Outcome

RATE = 0.5
"""Planned crawls a day."""
FAILURES = ({"status": 0}, {"status": 503}, {"status": 404})


@pytest.fixture
def page(sql_store):
    (page_id,) = register(sql_store, 1)
    publish(sql_store, schedule_columns([page_id], crawl_rate=RATE))
    crawl(sql_store, page_id, T0, digest=5)
    return page_id


def crawls_a_day(store, page_id, days, in_vain):
    """Crawl a page at its due times; return the crawls a day, of which `in_vain` has failures."""
    n, at, end = 0, due_of(store, page_id), T0 + days * DAY
    while at < end:
        crawl(store, page_id, at, **(in_vain(n) or {"digest": 5}))
        n, at = n + 1, due_of(store, page_id)
    return n / days


@pytest.mark.dear
@pytest.mark.parametrize("found", FAILURES, ids=str)
def test_a_page_that_fails_half_the_time_takes_no_more_crawls_than_one_that_answers(
    sql_store, page, found
):
    rng = np.random.default_rng(4)
    fails = rng.random(1000) < 0.5
    # a second absence in a row would make the page gone
    at_random = found["status"] != 404
    n = crawls_a_day(
        sql_store, page, 80, lambda n: found if (fails[n] if at_random else n % 2) else None
    )
    assert n < 1.2 * RATE


def test_a_page_that_always_answers_keeps_its_plan(sql_store, page):
    assert crawls_a_day(sql_store, page, 40, lambda _: None) == pytest.approx(RATE, rel=0.1)


def test_a_long_outage_has_paid_for_its_own_crawls(sql_store, page):
    at = T0
    for _ in range(8):
        at = due_of(sql_store, page)
        crawl(sql_store, page, at, status=0)
    at += 30 * DAY
    crawl(sql_store, page, at, digest=5)
    assert (due_of(sql_store, page) - at) / DAY == pytest.approx(1 / RATE, rel=0.06)


def states(store, n, **fields):
    """States of n pages whose last crawls were in vain."""
    ids = np.sort(register(store, n))
    failed = {"n_failures": 1, "retry_rate": RATE, "outcome": Outcome.failed}
    save(store, ids, **(failed | {"last_observed_at": T0 - 2 * DAY, "last_crawl_at": T0} | fields))
    return states_of(store, ids)


def after(store, hours=0, **fields):
    one = states(store, 1, **fields)
    newest = np.array([instant(T0) + np.timedelta64(round(hours * 3600), "s")])
    return overdrawn(one, newest)[0]


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({}, 1.0),
        ({"hours": 1}, 1 - 1 / 48),
        ({"hours": 48}, 0.0),
        ({"n_failures": 2, "hours": 2}, 2 - 3 / 48),
        ({"n_failures": 3, "hours": 4}, MOST),
        ({"n_failures": 6, "hours": 100}, 6 - 100 / 48 * (2 - 1 / 32)),
        ({"n_failures": 9, "hours": 1000}, 0.0),
        ({"outcome": Outcome.absent}, 1.0),
        ({"outcome": Outcome.refused}, 0.0),
        ({"outcome": Outcome.elsewhere}, 0.0),
        ({"outcome": Outcome.empty}, 0.0),
        ({"outcome": Outcome.doubtful}, 0.0),
        ({"gone": True, "outcome": Outcome.absent}, 0.0),
        ({"retry_rate": 0.0}, 0.0),
        ({"last_observed_at": NO_TIME}, 0.0),
        ({"n_failures": 0, "outcome": Outcome.content}, 0.0),
    ],
    ids=str,
)
def test_each_crawl_in_vain_makes_the_next_interval_longer(sql_store, fields, more):
    assert after(sql_store, **fields) == pytest.approx(more)


def test_without_content_nothing_is_paid_yet(sql_store):
    assert overdrawn(states(sql_store, 2), np.full(2, NO_TIME)).tolist() == [0.0, 0.0]
    both = states(sql_store, 2)
    both = replace(both, n_failures=np.array([0, 1]))
    newest = np.full(2, instant(T0))
    assert overdrawn(both, newest).tolist() == [0.0, 1.0]
