"""What crawls make of a page's state, rule by rule."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from support.ingest_cases import (
    ACCEPTED,
    DUPLICATE,
    HOUR,
    LATE,
    UNKNOWN,
    counts,
    crawl,
    estimate,
    log,
    rules,
)
from support.store_cases import (
    DAY,
    MICROSECOND,
    T0,
    crawl_columns,
    instants,
    page_of,
    ping_columns,
    publish,
    register,
    same,
    schedule_columns,
    states_of,
)

from recrawl_lab.memory.store import MemoryStore
from service.core.estimators.gamma import Gamma
from service.core.estimators.lln import LLN
from service.core.estimators.lognormal import LogNormal
from service.estimation.estimates import width
from service.ingest.record import ping, record
from service.model.domain import Kind, Observability, Timing


@pytest.mark.dear
@pytest.mark.sampled(2)
@pytest.mark.parametrize("estimator", [Gamma(), LLN()], ids=lambda e: e.name)
@pytest.mark.parametrize("observability", Observability)
def test_a_batch_does_what_its_items_do_one_by_one(estimator, observability):
    rng = np.random.default_rng(3)
    at = rng.permutation(np.arange(-20, 180))
    told = {
        "changed": rng.integers(-1, 2, 200),
        "digest": rng.integers(0, 3, 200),
        "status": rng.choice([-1, 200, 304, 404, 500], 200),
        "last_modified": instants([T0 + int(h) * HOUR for h in at - rng.integers(-1, 30, 200)]),
    }
    stores = []
    for order in (np.argsort(at), [slice(None)]):
        store = MemoryStore(width(estimator))
        page_id = register(store, 2, observability=[observability] * 2)
        publish(store, schedule_columns(page_id, crawl_probability=[0.3, 0.3]))
        with store.begin() as tx:
            first = crawl_columns(page_id, [T0] * 2)
            record(tx, first, rules(estimator))
            ping(tx, ping_columns(page_id, [T0 + 40 * HOUR] * 2), rules(estimator))
            ping(tx, ping_columns(page_id, [T0 + 90 * HOUR] * 2), rules(estimator))
            for i in order:
                moments = np.ravel([T0 + int(hour) * HOUR for hour in np.ravel(at[i])])
                items = {name: np.ravel(column[i]) for name, column in told.items()}
                which = np.where(np.ravel(at[i]) % 3 > 0, *page_id)
                record(tx, crawl_columns(which, list(moments), **items), rules(estimator))
        stores.append(replace(states_of(store, page_id), interval_factor=np.zeros(2)))
    same(*stores)


def test_the_first_crawl_opens_the_first_interval_and_is_no_evidence(memory, page):
    assert crawl(memory, page, T0, changed=1) == ACCEPTED
    found = page_of(memory, page)
    assert found.last_crawl_at == found.last_observed_at == T0
    assert (found.estimate, counts(memory, page)) == ((0.0, 0.0), (0, 0))
    (entry,) = log(memory, page)
    assert (entry.changed, entry.interval, entry.kind) == (None, None, Kind.crawl)


@pytest.mark.parametrize("changed", [0, 1])
def test_the_second_crawl_is_evidence_over_the_interval_between(memory, page, changed):
    crawl(memory, page, T0)
    crawl(memory, page, T0 + 3 * HOUR, changed=changed)
    gamma = Gamma()
    expected = gamma.update(gamma.init(), 0.125, bool(changed))
    assert estimate(memory, page) == pytest.approx(tuple(map(float, expected)), rel=1e-14)
    assert counts(memory, page) == (1, changed)
    entry = log(memory, page)[0]
    assert (entry.changed, entry.interval) == (bool(changed), 0.125)


def last_interval(store, page_id):
    with store.begin() as tx:
        return float(tx.lock_states(np.array([page_id])).last_interval[0])


def test_a_page_keeps_its_last_interval_and_what_it_showed_for_its_siblings(memory, page):
    crawl(memory, page, T0)
    assert last_interval(memory, page) == 0.0
    crawl(memory, page, T0 + 3 * HOUR, changed=0)
    assert last_interval(memory, page) == -0.125
    crawl(memory, page, T0 + 9 * HOUR, changed=1)
    assert last_interval(memory, page) == 0.25
    crawl(memory, page, T0 + 10 * HOUR, status=503)
    assert last_interval(memory, page) == 0.25
    crawl(memory, page, T0 + 11 * HOUR, digest=7)  # there is none to compare with
    assert last_interval(memory, page) == 0.0
    crawl(memory, page, T0 + 12 * HOUR, changed=1)
    assert last_interval(memory, page) == pytest.approx(1 / 24)


def last_age(store, page_id):
    return float(states_of(store, [page_id]).last_age[0])


def test_a_page_keeps_the_age_that_its_site_reported_with_the_newest_answer(memory, page):
    crawl(memory, page, T0, last_modified=T0 - 36 * HOUR)
    assert last_age(memory, page) == 1.5
    crawl(memory, page, T0 + HOUR, status=503)
    assert last_age(memory, page) == 1.5
    crawl(memory, page, T0 + 3 * HOUR, changed=0, last_modified=T0 - 36 * HOUR)
    assert last_age(memory, page) == 1.625
    crawl(memory, page, T0 + 6 * HOUR, changed=1, last_modified=T0 + 6 * HOUR)
    assert np.isnan(last_age(memory, page)), "the request itself has generated that date"
    crawl(memory, page, T0 + 9 * HOUR, status=304, last_modified=T0 + 3 * HOUR)
    assert last_age(memory, page) == 0.25
    crawl(memory, page, T0 + 12 * HOUR, changed=1)
    assert np.isnan(last_age(memory, page))


def test_of_several_crawls_in_one_batch_the_newest_answer_leaves_its_age(memory, page):
    at = [T0, T0 + HOUR, T0 + 2 * HOUR]
    dates = [T0 - 24 * HOUR, T0 - 5 * HOUR, T0 - 23 * HOUR]
    crawls = crawl_columns([page] * 3, at, status=[200, 200, 503], digest=7, last_modified=dates)
    with memory.begin() as tx:
        record(tx, crawls, rules(Gamma()))
    assert last_age(memory, page) == 0.25


def test_a_change_whose_date_the_site_tells_is_one_change_and_the_quiet_days_since(memory, page):
    crawl(memory, page, T0)
    crawl(memory, page, T0 + 10 * DAY, changed=1, last_modified=instants([T0 + 7 * DAY]))
    assert estimate(memory, page) == pytest.approx((1.0, 3.0), rel=1e-14)
    assert counts(memory, page) == (1, 1)


@pytest.mark.parametrize(
    "date",
    [
        T0 - MICROSECOND,
        datetime(1, 1, 1, tzinfo=UTC),
        T0 + 10 * DAY - timedelta(seconds=60),
        T0 + 10 * DAY,
        T0 + 11 * DAY,
        datetime(9999, 12, 31, tzinfo=UTC),
    ],
)
@pytest.mark.parametrize("changed", [0, 1])
def test_a_date_that_cannot_be_true_or_was_made_for_the_crawl_is_not_used(
    memory, page, changed, date
):
    crawl(memory, page, T0)
    crawl(memory, page, T0 + 10 * DAY, changed=changed, last_modified=instants([date]))
    expected = Gamma().update(Gamma().init(), 10.0, bool(changed))
    assert estimate(memory, page) == pytest.approx(tuple(map(float, expected)), rel=1e-14)


def test_an_unchanged_page_is_unchanged_whatever_date_it_has(memory, page):
    crawl(memory, page, T0, last_modified=instants([T0 - DAY]))
    crawl(memory, page, T0 + 10 * DAY, changed=0, last_modified=instants([T0 + 7 * DAY]))
    assert estimate(memory, page) == (0.0, 10.0)


@pytest.mark.parametrize("estimator", [LLN(), LogNormal()], ids=lambda e: e.name)
def test_an_estimator_that_cannot_use_dates_learns_as_without(estimator):
    learnt = []
    for date in (T0 + 7 * DAY, None):
        store = MemoryStore(width(estimator))
        page_id = int(register(store, 1)[0])
        publish(store, schedule_columns([page_id]))
        crawl(store, page_id, T0, by=rules(estimator))
        told = {} if date is None else {"last_modified": instants([date])}
        crawl(store, page_id, T0 + 10 * DAY, by=rules(estimator), changed=1, **told)
        learnt.append(estimate(store, page_id))
    assert learnt[0] == learnt[1]
    assert any(learnt[0])


def test_a_crawl_of_the_same_instant_is_a_duplicate_and_changes_nothing(memory, page):
    crawl(memory, page, T0, digest=5)
    before = states_of(memory, [page])
    assert crawl(memory, page, T0, digest=6, changed=1) == DUPLICATE
    same(states_of(memory, [page]), before)
    assert len(log(memory, page)) == 1


def test_a_crawl_before_the_last_one_is_late_and_changes_nothing(memory, page):
    crawl(memory, page, T0, digest=5)
    before = states_of(memory, [page])
    assert crawl(memory, page, T0 - MICROSECOND, digest=6, changed=1) == LATE
    same(states_of(memory, [page]), before)
    assert len(log(memory, page)) == 1


def test_a_microsecond_later_is_newer(memory, page):
    crawl(memory, page, T0, digest=5)
    assert crawl(memory, page, T0 + MICROSECOND, digest=6) == ACCEPTED
    assert counts(memory, page) == (1, 1)


def test_a_page_nobody_registered_is_unknown_and_does_not_disturb_the_others(memory, page):
    with memory.begin() as tx:
        given = crawl_columns([4711, page, 0, -7], [T0] * 4, changed=1)
        assert record(tx, given, rules()).verdict.tolist() == [UNKNOWN, ACCEPTED, UNKNOWN, UNKNOWN]
        assert tx.load_columns().page_id.tolist() == [page]
    assert len(log(memory, page)) == 1


def test_an_empty_batch_is_nothing(store):
    register(store, 1)
    with store.begin() as tx:
        nothing = np.zeros(0, np.int64)
        assert record(tx, crawl_columns(nothing, []), rules()).verdict.tolist() == []
        assert ping(tx, ping_columns(nothing, []), rules()).reason.tolist() == []
        assert record(tx, crawl_columns([99], T0), rules()).verdict.tolist() == [UNKNOWN]


@pytest.mark.parametrize("seed", range(4))
def test_several_crawls_of_one_page_apply_in_the_order_of_their_time(memory, seed):
    """A batch in any order does what its items do one by one, the oldest first."""
    rng = np.random.default_rng(seed)
    one, other = MemoryStore(2), memory
    ids = register(one, 3)
    assert (register(other, 3) == ids).all()
    n = 40
    at = [T0 + int(minutes) * HOUR for minutes in rng.permutation(n)]
    page_id, digest = rng.choice(ids, n), rng.integers(1, 4, n)
    for i in np.argsort(at):
        crawl(one, page_id[i], at[i], digest=digest[i])
    with other.begin() as tx:
        batch = crawl_columns(page_id, at, digest=digest)
        assert record(tx, batch, rules()).verdict.tolist() == [ACCEPTED] * n
    a, b = states_of(one, ids), states_of(other, ids)
    np.testing.assert_allclose(a.estimate, b.estimate, rtol=1e-13)
    interval_factor = np.zeros(3)
    same(
        replace(a, estimate=b.estimate, interval_factor=interval_factor),
        replace(b, interval_factor=interval_factor),
    )
    for page_id in ids.tolist():
        assert log(one, page_id) == log(other, page_id)


def test_of_two_crawls_of_one_instant_in_one_batch_the_first_counts(memory, page):
    with memory.begin() as tx:
        given = crawl_columns([page] * 3, [T0, T0, T0 - HOUR], digest=[5, 6, 7])
        verdict = record(tx, given, rules()).verdict
    assert verdict.tolist() == [ACCEPTED, DUPLICATE, ACCEPTED]
    assert states_of(memory, [page]).digest.tolist() == [5]


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [(5, 5, False), (5, 6, True), (-(2**63), 2**63 - 1, True), (0, 5, None)],
)
def test_digests_are_compared_where_both_are_there(memory, page, before, after, changed):
    crawl(memory, page, T0, digest=before, status=304 if not before else -1)
    crawl(memory, page, T0 + HOUR, digest=after)
    assert log(memory, page)[0].changed is changed
    assert counts(memory, page) == (int(changed is not None), int(changed or 0))


def test_the_callers_own_judgement_beats_the_digest(memory, page):
    crawl(memory, page, T0, digest=5)
    crawl(memory, page, T0 + HOUR, digest=6, changed=0)
    assert log(memory, page)[0].changed is False
    assert states_of(memory, [page]).digest.tolist() == [6]


def test_a_change_without_a_digest_makes_the_stored_one_void(memory, page):
    crawl(memory, page, T0, digest=5)
    crawl(memory, page, T0 + HOUR, changed=1)
    assert states_of(memory, [page]).digest.tolist() == [0]
    crawl(memory, page, T0 + 2 * HOUR, digest=5)
    assert log(memory, page)[0].changed is None
    assert counts(memory, page) == (1, 1)


@pytest.mark.parametrize("told", [{"changed": 0}, {"status": 304}])
def test_an_unchanged_page_without_a_digest_keeps_the_stored_one(memory, page, told):
    crawl(memory, page, T0, digest=5)
    crawl(memory, page, T0 + HOUR, **told)
    crawl(memory, page, T0 + 2 * HOUR, digest=6)
    assert [e.changed for e in log(memory, page)] == [True, False, None]
    assert counts(memory, page) == (2, 1)


def test_not_modified_is_unchanged_whatever_else_is_told(memory, page):
    crawl(memory, page, T0, digest=5)
    crawl(memory, page, T0 + HOUR, status=304, digest=6)
    assert log(memory, page)[0].changed is False


@pytest.mark.parametrize("status", [500, 503, 599, 0, 400, 403, 429, 100])
def test_a_host_that_did_not_answer_is_no_evidence_but_a_crawl(memory, page, status):
    crawl(memory, page, T0, digest=5)
    crawl(memory, page, T0 + HOUR, status=status, digest=6, changed=1)
    found = page_of(memory, page)
    assert (found.last_crawl_at, found.last_observed_at) == (T0 + HOUR, T0)
    assert states_of(memory, [page]).digest.tolist() == [5]
    assert counts(memory, page) == (0, 0)
    entry = log(memory, page)[0]
    assert (entry.changed, entry.interval, entry.status) == (None, None, status)
    crawl(memory, page, T0 + DAY, digest=6)  # the interval goes on as if it had not been tried
    assert log(memory, page)[0].interval == 1.0
    assert counts(memory, page) == (1, 1)


def test_an_answer_without_content_told_is_no_evidence(memory, page):
    crawl(memory, page, T0, digest=5)
    crawl(memory, page, T0 + HOUR, status=200)
    assert page_of(memory, page).last_observed_at == T0
    crawl(memory, page, T0 + DAY, status=200, digest=5)
    assert log(memory, page)[0].interval == 1.0


@pytest.mark.parametrize("status", [404, 410])
def test_a_page_that_vanishes_has_changed_and_is_gone(memory, page, status):
    crawl(memory, page, T0, digest=5)
    crawl(memory, page, T0 + HOUR, status=status)
    assert not page_of(memory, page).gone
    assert counts(memory, page) == (0, 0)
    crawl(memory, page, T0 + 2 * HOUR, status=status)
    assert page_of(memory, page).gone
    assert log(memory, page)[0].changed is True
    assert counts(memory, page) == (1, 1)


def test_a_page_that_stays_away_is_unchanged(memory, page):
    crawl(memory, page, T0, digest=5)
    crawl(memory, page, T0 + HOUR, status=404)
    crawl(memory, page, T0 + 2 * HOUR, status=410)
    crawl(memory, page, T0 + 3 * HOUR, status=410)
    assert log(memory, page)[0].changed is False
    assert counts(memory, page) == (2, 1)


@pytest.mark.parametrize(
    ("back", "changed"),
    [({"digest": 5}, 0), ({"changed": 0}, 1), ({"status": 200, "digest": 9}, 1)],
)
def test_a_page_that_comes_back_has_changed_unless_its_digest_is_the_old_one(
    memory, page, back, changed
):
    crawl(memory, page, T0, digest=5)
    crawl(memory, page, T0 + HOUR, status=404)
    crawl(memory, page, T0 + 2 * HOUR, status=404)
    crawl(memory, page, T0 + 3 * HOUR, **back)
    assert not page_of(memory, page).gone
    assert log(memory, page)[0].changed is bool(changed)
    assert counts(memory, page) == (2, 1 + changed)


def test_a_page_gone_from_the_first_crawl_on_is_compared_from_there(memory, page):
    crawl(memory, page, T0 - HOUR, status=404)
    crawl(memory, page, T0, status=404)
    assert page_of(memory, page).gone
    assert counts(memory, page) == (0, 0)
    crawl(memory, page, T0 + HOUR, status=404)
    crawl(memory, page, T0 + 2 * HOUR, digest=5)
    assert [e.changed for e in log(memory, page)] == [True, False, None, None]


def test_an_outage_does_not_bring_a_gone_page_back(memory, page):
    crawl(memory, page, T0 - HOUR, status=404)
    crawl(memory, page, T0, status=404)
    crawl(memory, page, T0 + HOUR, status=503)
    assert page_of(memory, page).gone


def test_crawls_of_complete_pages_are_no_evidence_of_their_rate(memory):
    (page,) = register(memory, 1, observability=Observability.complete)
    crawl(memory, page, T0, digest=5)
    crawl(memory, page, T0 + DAY, digest=6)
    assert (estimate(memory, page), counts(memory, page)) == ((0.0, 0.0), (0, 0))
    entry = log(memory, page)[0]
    assert (entry.changed, entry.interval) == (True, None)
    assert states_of(memory, [page]).digest.tolist() == [6]


def test_crawls_of_auto_pages_are_evidence(memory):
    (page,) = register(memory, 1, observability=Observability.auto)
    crawl(memory, page, T0, digest=5)
    crawl(memory, page, T0 + DAY, digest=6)
    assert counts(memory, page) == (1, 1)


def test_the_rate_in_force_is_logged_and_learnt_from():
    lln = LLN()
    memory = MemoryStore(3)
    (page,) = register(memory, 1)
    by = rules(lln, Timing.poisson)
    crawl(memory, page, T0, by, digest=1)
    crawl(memory, page, T0 + DAY, by, digest=2)  # no rate was in force: no evidence for LLN
    publish(memory, schedule_columns([page], crawl_rate=2.5))
    crawl(memory, page, T0 + 2 * DAY, by, digest=3)
    publish(memory, schedule_columns([page], crawl_rate=0.5))
    crawl(memory, page, T0 + 3 * DAY, by, digest=3)
    with memory.begin() as tx:
        rates = tx.log_of(np.array([page])).crawl_rate
    np.testing.assert_array_equal(rates, [np.nan, np.nan, 2.5, 0.5])
    state = lln.init()
    for changed, rate in ((True, 2.5), (False, 0.5)):
        state = lln.update(state, 1.0, changed, rate)
    assert estimate(memory, page) == tuple(map(float, state))


def test_the_gap_before_the_second_crawl_is_a_random_part_of_one_interval(memory):
    ids = np.sort(register(memory, 2_000))
    with memory.begin() as tx:
        record(tx, crawl_columns(ids, T0), rules())
    interval_factor = states_of(memory, ids).interval_factor
    assert (interval_factor.min() >= 0, interval_factor.max() < 1) == (True, True)
    assert np.quantile(interval_factor, [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.04)
    with memory.begin() as tx:
        record(tx, crawl_columns(ids, T0 + DAY), rules())
    interval_factor = states_of(memory, ids).interval_factor
    assert (interval_factor.min() >= 0.95, interval_factor.max() <= 1.05) == (True, True)
    assert interval_factor.mean() == pytest.approx(1.0, abs=0.005)


def test_poisson_gaps_are_exponential(memory):
    ids = np.sort(register(memory, 4_000))
    for at in (T0, T0 + DAY):  # the first one too: an exponential has no memory
        with memory.begin() as tx:
            record(tx, crawl_columns(ids, at), rules(timing=Timing.poisson))
        interval_factor = states_of(memory, ids).interval_factor
        expected = -np.log1p(-np.array([0.1, 0.5, 0.9]))
        assert np.quantile(interval_factor, [0.1, 0.5, 0.9]) == pytest.approx(expected, rel=0.15)


def test_a_batch_that_fails_in_the_middle_leaves_nothing_of_it(store):
    ids = np.sort(register(store, 3))
    with store.begin() as tx:
        record(tx, crawl_columns(ids, T0, digest=1), rules())
    before = states_of(store, ids)

    def breaks(entries):
        raise ZeroDivisionError(len(entries))

    def fail(tx):
        tx.append_log = breaks
        record(tx, crawl_columns(ids, T0 + DAY, digest=2), rules())

    with pytest.raises(ZeroDivisionError), store.begin() as tx:
        fail(tx)
    same(states_of(store, ids), before)
