"""A rebuild from the log gives the states that the evidence gave."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from support.ingest_cases import HOUR, rules
from support.store_cases import (
    T0,
    crawl_columns,
    instants,
    log_columns,
    ping_columns,
    publish,
    register,
    same,
    save,
    schedule_columns,
    states_of,
)

from recrawl_lab.memory.store import MemoryStore
from service.core.estimators.base import from_columns, to_columns
from service.core.estimators.lln import LLN
from service.estimation.estimates import width
from service.estimation.rules import Rules
from service.ingest.rebuild import _pings_before, rebuild
from service.ingest.record import ping, record
from service.model.domain import Timing


@pytest.mark.parametrize("block", [1, 2, 1000])
def test_rebuilding_from_the_log_gives_the_states_again(store, block):
    rng = np.random.default_rng(block)
    ids = register(store, 5, observability=[0, 0, 0, 1, 0])
    for i in range(3):
        publish(store, schedule_columns(np.sort(ids), crawl_rate=rng.random(5)))
        with store.begin() as tx:
            n = 30
            at = [T0 + (100 * i + int(h)) * HOUR for h in rng.permutation(n)]
            status = rng.choice([-1, 200, 304, 404, 503], n)
            given = crawl_columns(
                rng.choice(ids[:4], n), at, digest=rng.integers(0, 3, n), status=status
            )
            record(tx, given, rules())
            ping(tx, ping_columns(rng.choice(ids, n), at), rules())
    before = states_of(store, np.sort(ids))
    assert np.count_nonzero(before.estimate.any(axis=1)) == 3
    save(store, ids, estimate=99.0)
    assert sum(rebuild(store, rules(), block=block)) == 5
    after = states_of(store, np.sort(ids))
    np.testing.assert_allclose(after.estimate, before.estimate, rtol=1e-12)
    same(replace(after, estimate=before.estimate), before)
    with store.begin(write=False) as tx:
        assert tx.estimator() == "gamma"


def test_rebuilding_gives_what_pings_told_in_the_order_of_time_have_taught(store):
    rng = np.random.default_rng(5)
    ids = np.sort(register(store, 4, observability=2))
    for i in range(120):
        at = T0 + i * 7 * HOUR
        page = rng.choice(ids, 1)
        with store.begin() as tx:
            if rng.random() < 0.5:
                ping(tx, ping_columns(page, [at]), rules())
            else:
                record(tx, crawl_columns(page, [at], changed=int(rng.integers(2))), rules())
    before = states_of(store, ids)
    assert before.real_pings.all()
    assert before.trust.any()
    save(store, ids, estimate=99.0, real_pings=7.0, false_pings=7.0, trust=1.0)
    assert sum(rebuild(store, rules(), block=3)) == 4
    after = states_of(store, ids)
    for name in ("estimate", "real_pings", "false_pings", "trust"):
        np.testing.assert_allclose(getattr(after, name), getattr(before, name), rtol=1e-9)


def test_rebuilding_for_an_estimator_that_needs_rates_takes_them_from_the_intervals():
    n_pages, n_crawls, change_rate, crawl_rate = 40, 200, 0.5, 2.0
    store = MemoryStore(width(LLN()))
    ids = np.sort(register(store, n_pages))
    rng = np.random.default_rng(5)
    interval = rng.exponential(1 / crawl_rate, (n_crawls, n_pages))
    changed = rng.random((n_crawls, n_pages)) < -np.expm1(-change_rate * interval)
    at = instants(T0) + (np.cumsum(interval, axis=0) * 86_400e6).astype("m8[us]")

    def rebuilt(rates):
        with store.begin() as tx:
            tx.housekeep(datetime.max.replace(tzinfo=UTC), T0)
            for k in range(n_crawls):
                tx.append_log(
                    log_columns(
                        ids, at[k], changed=changed[k], interval=interval[k], crawl_rate=rates[k]
                    )
                )
        list(rebuild(store, Rules(LLN(), Timing.poisson, rng)))
        return from_columns(LLN(), states_of(store, ids).estimate)

    told = np.full((n_crawls, n_pages), crawl_rate)
    exact = rebuilt(told)
    learnt = LLN().init(n_pages)
    for k in range(n_crawls):
        learnt = LLN().update(learnt, interval[k], changed[k], told[k])
    np.testing.assert_array_equal(to_columns(exact), to_columns(learnt))
    told[:, ::2] = np.nan
    missing = LLN().change_rate(rebuilt(told))
    np.testing.assert_array_equal(missing[1::2], LLN().change_rate(exact)[1::2])
    np.testing.assert_allclose(missing[::2], LLN().change_rate(exact)[::2], rtol=0.3)
    assert abs(np.mean(missing[::2] / change_rate) - 1) < 0.1
    assert (missing[::2] != LLN().change_rate(exact)[::2]).all()


def test_rebuilding_an_empty_store_records_the_estimator(store):
    assert list(rebuild(store, rules())) == []
    with store.begin(write=False) as tx:
        assert tx.estimator() == "gamma"


def test_rebuilding_learns_crawls_before_the_first_ping_first(store):
    ids = register(store, 1, observability=2)

    def crawl(days, changed):
        with store.begin() as tx:
            record(tx, crawl_columns(ids, [T0 + 24 * days * HOUR], changed=changed), rules())

    for days in range(0, 100, 10):
        crawl(days, 1)
    with store.begin() as tx:
        ping(tx, ping_columns(ids, [T0 + 24 * 95 * HOUR]), rules())
    for days in range(100, 200, 10):
        crawl(days, 0)
    before = states_of(store, ids)
    assert sum(rebuild(store, rules())) == 1
    np.testing.assert_allclose(states_of(store, ids).estimate, before.estimate, rtol=1e-9)


def test_pings_of_many_pages_and_many_years_are_counted_within_their_intervals():
    n = 20_000
    years = np.array([np.datetime64(f"{year}-01-01", "us") for year in (1995, 2005, 2015, 2026)])
    log = log_columns(
        np.repeat(np.arange(1, n + 1), 4),
        np.tile(years, n),
        kind=np.tile([0, 1, 1, 0], n),
        interval=np.tile([np.nan, np.nan, np.nan, 31 * 365.25], n),
    )
    recent, within = _pings_before(log, np.full(4 * n, years[2]))
    assert np.array_equal(recent, np.tile([0, 0, 0, 1], n))
    assert np.array_equal(within[3::4], np.full(n, 2))
