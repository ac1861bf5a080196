"""The probability that a copy is stale, against formulas, simulation and the log."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from support.store_cases import (
    CERTIFICATE,
    DAY,
    T0,
    crawl_columns,
    ping_columns,
    publish,
    register,
    save,
    schedule_columns,
)

from service.core.estimators.bursty import Bursty
from service.core.estimators.gamma import Gamma
from service.core.estimators.mle import MLE
from service.core.ping_feeds import PingFeeds
from service.core.prior import Prior
from service.core.siblings import AGES, age_bin
from service.epochs.plan import Plan
from service.epochs.run import run_epoch
from service.estimation.estimates import estimate_rates
from service.estimation.freshness import read_freshness, unregistered
from service.estimation.page_estimate import of_page
from service.estimation.rules import Rules
from service.ingest.record import ping, record
from service.model.arrays import NO_TIME, instant
from service.model.domain import Observability, Timing
from service.model.freshness import FreshnessColumns
from service.model.urls import url_groups

GAMMA = Gamma(Prior(a=0.5, b=15.0))
RULES = Rules(GAMMA, Timing.periodic, np.random.default_rng(1))
NOW = T0 + 20 * DAY


def crawl(store, page_id, *changes):
    """Record crawls at T0, T0 + 2 days, …; the first shows no change."""
    for i, changed in enumerate((False, *changes)):
        at = np.repeat(instant(T0 + 2 * i * DAY), len(page_id))
        with store.begin() as tx:
            record(tx, crawl_columns(page_id, at, changed=int(changed)), RULES)


def fresh(store, page_id, *fetched_at, now=NOW, estimator=GAMMA, **options):
    """Return the verdicts about copies of one page."""
    with store.begin(write=False) as tx:
        one = tx.freshness_columns(np.asarray([page_id]))
        pages = FreshnessColumns.concatenate([one] * len(fetched_at))
        at = np.array([NO_TIME if f is None else instant(f) for f in fetched_at], "M8[us]")
        return read_freshness(tx, pages, at, estimator, instant(now), **options)


def unchanged(store, page_id, days):
    """Return P(no change) by the posterior predictive distribution, written out."""
    with store.begin() as tx:
        changes, exposure = tx.lock_states(np.asarray([page_id])).estimate[0]
    a, b = 0.5 + changes, 15.0 + exposure
    return (b / (b + days)) ** a


def quiet(store, page_id, days):
    """Return P(no change since the last crawl): one page in twenty changes like any page."""
    return 0.95 * unchanged(store, page_id, days) + 0.05 * (15.0 / (15.0 + days)) ** 0.5


def test_a_copy_of_the_last_crawl_is_fresh_by_the_posterior_predictive(store):
    (page_id,) = register(store, 1)
    crawl(store, [page_id], True, False, True)  # the last crawl is on day 6
    verdict = fresh(store, page_id, None, T0 + 6 * DAY, T0 + 13 * DAY)
    p = quiet(store, page_id, np.array([14.0, 14.0, 7.0]))
    np.testing.assert_allclose(verdict.stale, 1 - p, rtol=1e-12)
    with store.begin() as tx:
        state = tx.lock_states(np.array([page_id])).estimate[0]
    rate = 0.95 * (0.5 + state[0]) / (15.0 + state[1]) + 0.05 * 0.5 / 15.0
    np.testing.assert_allclose(verdict.expected_changes, rate * np.array([14, 14, 7.0]))


def test_a_copy_older_than_crawls_without_change_is_what_they_saw(store):
    (page_id,) = register(store, 1)
    crawl(store, [page_id], True, False, False)  # the change was before day 2
    verdict = fresh(store, page_id, None, T0 + 5 * DAY, T0 + 3 * DAY, T0 + 2 * DAY)
    np.testing.assert_allclose(verdict.stale, verdict.stale[0], rtol=1e-9)


def test_a_copy_from_before_a_change_that_crawls_saw_is_stale(store):
    (page_id,) = register(store, 1)
    crawl(store, [page_id], False, False, True, False, True)  # in days 4 to 6 and 8 to 10
    verdict = fresh(store, page_id, T0 + DAY, T0 + 3 * DAY, T0 + 7 * DAY)
    np.testing.assert_array_equal(verdict.stale, 1.0)
    later = fresh(store, page_id, None).expected_changes[0]
    np.testing.assert_allclose(verdict.expected_changes - later, [2, 2, 1])


@pytest.mark.dear
def test_a_copy_from_within_the_interval_of_a_change_is_stale_as_simulation_shows(store):
    (page_id,) = register(store, 1)
    # so much evidence that the rate is certain: 0.6 a day
    with store.begin() as tx:
        states = tx.lock_states(np.array([page_id]))
        states.estimate[:] = [[600_000.0, 1_000_000.0]]
        tx.save_states(states)
    save(
        store,
        [page_id],
        last_crawl_at=T0 + 4 * DAY,
        last_observed_at=T0 + 4 * DAY,
        last_interval=4.0,
        n_observations=9,
        n_changes=1,
    )
    rng = np.random.default_rng(3)
    n, span = 400_000, 5.0  # four days up to the crawl, one since
    times = np.cumsum(rng.exponential(1 / 0.6, (n, 16)), axis=1)
    as_any = rng.random(n) < 0.05  # from the crawl on, with a rate of the prior
    other = rng.exponential(1.0, n) / rng.gamma(0.5, 1 / 15.0, n)
    times[as_any[:, np.newaxis] & (times > 4)] = np.inf
    times[:, -1] = np.where(as_any, 4 + other, times[:, -1])
    changed = (times < 4).any(axis=1)
    for copy in (1.0, 2.5, 3.9):
        inside = ((times > copy) & (times < span)).any(axis=1)[changed].mean()
        verdict = fresh(store, page_id, T0 + copy * DAY, now=T0 + span * DAY)
        assert verdict.stale[0] == pytest.approx(inside, abs=0.005)


def test_time_before_the_first_crawl_and_before_the_log_is_unwatched(store):
    (page_id,) = register(store, 1)
    crawl(store, [page_id])
    verdict = fresh(store, page_id, T0, T0 - 10 * DAY)
    since, before = quiet(store, page_id, 20.0), unchanged(store, page_id, 10.0)
    np.testing.assert_allclose(1 - verdict.stale, [since, since * before], rtol=1e-9)
    crawl(store, [page_id], True, False, False, False)
    cut = {"log_since": instant(T0 + 5 * DAY)}
    inside, before = fresh(store, page_id, T0 + 5 * DAY, T0 + 4 * DAY, **cut).stale
    p = unchanged(store, page_id, 1.0)
    assert 1 - before == pytest.approx((1 - inside) * p, rel=1e-6)


def test_a_page_without_a_copy_has_no_verdict(store):
    (page_id,) = register(store, 1)
    verdict = fresh(store, page_id, None, NOW - DAY)
    assert np.isnan(verdict.stale[0])
    assert np.isnan(verdict.expected_changes[0])
    assert verdict.stale[1] == pytest.approx(1 - (15 / 16) ** 0.5)


def test_a_page_that_is_not_registered_is_judged_by_its_group(store):
    urls = np.array(["https://a.example/fast/1", "https://a.example/slow/1"], object)
    rates = np.full(1 << 20, 0.1, np.float32)
    fast, slow = url_groups(urls)
    rates[fast], rates[slow] = 2.0, 0.01
    estimator = GAMMA.with_corpus(
        {"a": 0.5, "b": 15.0, "within_shape": 50.0, "between_shape": 1.0}, rates
    )
    with store.begin(write=False) as tx:
        pages = unregistered(urls, 2, np.zeros(len(urls), np.int64))
        at = np.array([instant(NOW - DAY)] * 2)
        stale = read_freshness(tx, pages, at, estimator, instant(NOW)).stale
    p = 0.95 * (50 / (50 + np.array([2.0, 0.01]))) ** 50 + 0.05 * (15 / 16) ** 0.5
    np.testing.assert_allclose(stale, 1 - p, rtol=1e-6)


def test_of_a_complete_page_pings_decide(store):
    ids = register(store, 2, observability=Observability.complete)
    crawl(store, ids)
    with store.begin() as tx:
        ping(tx, ping_columns(ids[:1], instant(T0 + DAY)), RULES)
    assert fresh(store, ids[0], None, T0 + 2 * DAY).stale.tolist() == [1.0, 0.0]
    assert fresh(store, ids[1], None).stale.tolist() == [0.0]


def test_siblings_that_changed_make_a_copy_older(store):
    (page_id,) = register(store, 1)
    crawl(store, [page_id], True)  # the last crawl is on day 2
    plain = fresh(store, page_id, None).stale[0]
    certificate = replace(CERTIFICATE, budget_factor=0.5)
    schedule = schedule_columns(np.array([page_id]), urgency=2.0)  # four times the changes expected
    publish(store, schedule, now=T0 + 12 * DAY, certificate=certificate)
    stretched, later = fresh(store, page_id, None, T0 + 13 * DAY).stale
    p = quiet(store, page_id, np.array([18.0, 18.0 + 3.0 * 10.0, 7.0]))
    np.testing.assert_allclose([plain, stretched, later], 1 - p, rtol=1e-6)


def test_all_pages_that_changed_make_a_copy_older(store):
    (page_id,) = register(store, 1)
    crawl(store, [page_id], True)  # the last crawl is on day 2, ten days before the epoch
    ratios = np.ones(AGES)
    ratios[age_bin(np.array([10.0]))] = 4.0
    certificate = replace(CERTIFICATE, observed_ratios=tuple(ratios.tolist()))
    schedule = schedule_columns(np.array([page_id]))
    publish(store, schedule, now=T0 + 12 * DAY, certificate=certificate)
    stretched, shortly, later = fresh(store, page_id, None, T0 + 11 * DAY, T0 + 13 * DAY).stale
    p = quiet(store, page_id, np.array([18.0 + 3.0 * 10.0, 9.0, 7.0]))
    np.testing.assert_allclose([stretched, shortly, later], 1 - p, rtol=1e-6)


def test_a_bound_of_the_crawl_rate_limits_the_urgency_and_not_the_verdict(store):
    (page_id,) = register(store, 1)
    crawl(store, [page_id], True)  # the last crawl is on day 2
    certificate = replace(CERTIFICATE, budget_factor=0.5)
    # four times the changes expected; a bound keeps the urgency at 0.6
    for limited in ({"urgency": 0.6}, {"urgency": 1.0}, {"shift": -90, "carried": 0}):
        own = limited | {"observed_ratio": 4.0}
        schedule = schedule_columns(np.array([page_id]), **own)
        publish(store, schedule, now=T0 + 12 * DAY, certificate=certificate)
        p = quiet(store, page_id, 18.0 + 3.0 * 10.0)
        assert fresh(store, page_id, None).stale[0] == pytest.approx(1 - p, rel=1e-6)


def announced(store, n, *, crawled=20.0):
    """Register pages whose pings, once in 8 days, were right until day 40 and then ended."""
    ids = np.sort(register(store, n))
    save(
        store,
        ids,
        n_pings=5,
        recent_pings=0.5,
        last_ping_at=T0 + 40 * DAY,
        last_crawl_at=T0 + crawled * 2 * DAY,
        last_observed_at=T0 + crawled * 2 * DAY,
        last_interval=8.0,
        n_observations=9,
        n_changes=5,
        real_pings=5.0,
        trust=5.0,
    )
    with store.begin() as tx:
        states = tx.lock_states(ids)
        states.pings_since[:] = instant(T0)
        states.estimate[:] = [[0.0, 30.0]]
        tx.restore_states(states)
    return ids


def test_a_page_of_a_silent_feed_has_one_verdict_alone_and_among_its_siblings(store):
    ids = announced(store, 20)
    rules = RULES.of(None)
    plan, clock = Plan(GAMMA, bandwidth=5.0), lambda: T0 + 46 * DAY
    run_epoch(store, plan, clock)
    now = instant(T0 + 46 * DAY)
    with store.begin(write=False) as tx:
        pages = tx.freshness_columns(ids)
        at = np.repeat(NO_TIME, len(ids))
        among = read_freshness(tx, pages, at, rules.estimator, now).stale
        alone = read_freshness(tx, pages.take([7]), at[:1], rules.estimator, now).stale
        told = of_page(tx, tx.page(int(ids[7])), rules.estimator, now).change_rate
        whole = estimate_rates(tx.load_columns(), rules.estimator, now).change_rate
    assert alone[0] == among[7]
    assert told == pytest.approx(whole[7])
    # without the siblings' silence, the pings would be taken as complete
    with store.begin(write=False) as tx:
        believed = read_freshness(tx, pages, at, rules.estimator, now, feeds=PingFeeds.none()).stale
    assert among[7] > believed[7] + 0.3


def test_a_ping_after_the_epoch_breaks_the_silence_of_its_page(store):
    ids = announced(store, 20)
    run_epoch(store, Plan(GAMMA, bandwidth=5.0), lambda: T0 + 46 * DAY)
    with store.begin() as tx:
        ping(tx, ping_columns(ids[:1], instant(T0 + 46 * DAY)), RULES)
    with store.begin(write=False) as tx:
        pages, at = tx.freshness_columns(ids), np.repeat(NO_TIME, len(ids))
        stale = read_freshness(tx, pages, at, GAMMA, instant(T0 + 46 * DAY)).stale
    assert stale[0] > 0.9, "its ping announced a change"
    assert (stale[1:] == stale[1]).all()


def test_a_shift_by_change_hours_is_no_sign_of_changes(sql_store):
    (page_id,) = register(sql_store, 1)
    crawl(sql_store, [page_id], True)
    plain = fresh(sql_store, page_id, None).stale[0]
    schedule = schedule_columns(np.array([page_id]), urgency=2.0, shift=-90, carried=0)
    publish(sql_store, schedule, now=T0 + 12 * DAY)
    assert fresh(sql_store, page_id, None).stale[0] == pytest.approx(plain, rel=1e-9)


@pytest.mark.parametrize("estimator", [Bursty(), MLE()])
def test_every_estimator_has_verdicts_that_grow_with_time(sql_store, estimator):
    ids = np.sort(register(sql_store, 2))
    at = np.repeat(instant(T0), 2)
    with sql_store.begin() as tx:
        for day, changed in enumerate((0, 1, 0, 1)):
            crawls = crawl_columns(ids, at + np.timedelta64(day, "D"), changed=changed)
            record(tx, crawls, RULES)
        pages = tx.freshness_columns(ids)
        if estimator.needs_history is False:
            pages = replace(pages, estimate=np.tile([2.0, 3.0, 1.0], (2, 1)))
        copies = np.repeat(instant(T0 + 3 * DAY), 2)
        stale = [
            read_freshness(tx, pages, copies, estimator, instant(T0 + 3 * DAY + span)).stale
            for span in (timedelta(0), timedelta(hours=6), DAY, 30 * DAY)
        ]
    assert (np.diff(stale, axis=0) > 0).all()
    assert stale[0].tolist() == [0.0, 0.0]
