"""What crawls and pings make of a page's state, rule by rule."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from store_cases import (
    CERTIFICATE,
    DAY,
    MICROSECOND,
    T0,
    crawl_columns,
    instants,
    log_columns,
    page_columns,
    page_of,
    ping_columns,
    publish,
    register,
    same,
    save,
    schedule_columns,
    states_of,
    urls,
)

from service.arrays import instant
from service.core.estimators import (
    LLN,
    Gamma,
    LogNormal,
    from_columns,
    of_sections,
    to_columns,
)
from service.core.prior import Prior
from service.domain import Kind, Observability, PingReason, Timing, Verdict
from service.estimates import width
from service.ingest import InForce, Named, Rules, ping, record, resolve, rules_in_force
from service.rebuild import rebuild
from service.sections import SECTIONS
from service.storage.memory import MemoryStore

HOUR = timedelta(hours=1)
ACCEPTED, DUPLICATE, LATE, UNKNOWN, _ = (int(v) for v in Verdict)


def rules(estimator=None, timing=Timing.periodic, seed=1):
    return Rules(estimator or Gamma(), timing, np.random.default_rng(seed))


@pytest.fixture
def memory():
    return MemoryStore(2)


@pytest.fixture
def page(memory):
    """The id of one incomplete page."""
    return int(register(memory, 1)[0])


def crawl(store, page_id, at, by=None, **told):
    """Record one crawl; gives its verdict."""
    with store.begin() as tx:
        return int(record(tx, crawl_columns([page_id], at, **told), by or rules()).verdict[0])


def announce(store, page_id, at, by=None):
    """Record one ping; gives whether and why to crawl now."""
    with store.begin() as tx:
        answer = ping(tx, ping_columns([page_id], at), by or rules())
        return bool(answer.crawl[0]), answer.reason[0]


def log(store, page_id):
    with store.begin(write=False) as tx:
        return tx.page_log(page_id, 100)


def estimate(store, page_id):
    return page_of(store, page_id).estimate


def counts(store, page_id):
    found = page_of(store, page_id)
    return found.n_observations, found.n_changes


@pytest.mark.parametrize("estimator", [Gamma(), LLN()], ids=lambda e: e.name)
@pytest.mark.parametrize("observability", Observability)
def test_a_batch_does_what_its_items_do_one_by_one(estimator, observability):
    rng = np.random.default_rng(3)
    at = rng.permutation(np.arange(-20, 180))
    told = {
        "changed": rng.integers(-1, 2, 200), "digest": rng.integers(0, 3, 200),
        "status": rng.choice([-1, 200, 304, 404, 500], 200),
        "last_modified": instants([T0 + int(h) * HOUR for h in at - rng.integers(-1, 30, 200)]),
    }  # fmt: skip
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
        stores.append(replace(states_of(store, page_id), gap=np.zeros(2)))
    same(*stores)


# -- crawls


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


def test_a_change_whose_date_the_site_tells_is_one_change_and_the_quiet_days_since(memory, page):
    crawl(memory, page, T0)
    crawl(memory, page, T0 + 10 * DAY, changed=1, last_modified=instants([T0 + 7 * DAY]))
    assert estimate(memory, page) == pytest.approx((1.0, 3.0), rel=1e-14)
    assert counts(memory, page) == (1, 1)


@pytest.mark.parametrize(
    "date",
    [
        T0 - MICROSECOND, datetime(1, 1, 1, tzinfo=UTC), T0 + 10 * DAY - timedelta(seconds=60),
        T0 + 10 * DAY, T0 + 11 * DAY, datetime(9999, 12, 31, tzinfo=UTC),
    ],
)  # fmt: skip
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
    gap = np.zeros(3)
    same(replace(a, estimate=b.estimate, gap=gap), replace(b, gap=gap))
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
    [(5, 5, False), (5, 6, True), (-(2**63), 2**63 - 1, True), (5, 0, None), (0, 5, None)],
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
    assert page_of(memory, page).gone
    assert log(memory, page)[0].changed is True
    assert counts(memory, page) == (1, 1)


def test_a_page_that_stays_away_is_unchanged(memory, page):
    crawl(memory, page, T0, digest=5)
    crawl(memory, page, T0 + HOUR, status=404)
    crawl(memory, page, T0 + 2 * HOUR, status=410)
    assert log(memory, page)[0].changed is False
    assert counts(memory, page) == (2, 1)


@pytest.mark.parametrize("back", [{"digest": 5}, {"changed": 0}, {"status": 200, "digest": 9}])
def test_a_page_that_comes_back_has_changed(memory, page, back):
    crawl(memory, page, T0, digest=5)
    crawl(memory, page, T0 + HOUR, status=404)
    crawl(memory, page, T0 + 2 * HOUR, **back)
    assert not page_of(memory, page).gone
    assert log(memory, page)[0].changed is True
    assert counts(memory, page) == (2, 2)


def test_a_page_gone_from_the_first_crawl_on_is_compared_from_there(memory, page):
    crawl(memory, page, T0, status=404)
    assert page_of(memory, page).gone
    assert counts(memory, page) == (0, 0)
    crawl(memory, page, T0 + HOUR, status=404)
    crawl(memory, page, T0 + 2 * HOUR, digest=5)
    assert [e.changed for e in log(memory, page)] == [True, False, None]


def test_an_outage_does_not_bring_a_gone_page_back(memory, page):
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
    gap = states_of(memory, ids).gap
    assert (gap.min() >= 0, gap.max() < 1) == (True, True)
    assert np.quantile(gap, [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.04)
    with memory.begin() as tx:
        record(tx, crawl_columns(ids, T0 + DAY), rules())
    gap = states_of(memory, ids).gap
    assert (gap.min() >= 0.95, gap.max() <= 1.05) == (True, True)
    assert gap.mean() == pytest.approx(1.0, abs=0.005)


def test_poisson_gaps_are_exponential(memory):
    ids = np.sort(register(memory, 4_000))
    for at in (T0, T0 + DAY):  # the first one too: an exponential has no memory
        with memory.begin() as tx:
            record(tx, crawl_columns(ids, at), rules(timing=Timing.poisson))
        gap = states_of(memory, ids).gap
        expected = -np.log1p(-np.array([0.1, 0.5, 0.9]))
        assert np.quantile(gap, [0.1, 0.5, 0.9]) == pytest.approx(expected, rel=0.15)


# -- failures, pages that are gone, redirects


def test_failures_in_a_row_are_counted_until_the_page_answers(memory, page):
    counted = []
    told = [{"status": 503}, {"status": 0}, {"status": 429}, {"digest": 5}, {"status": 400}]
    for hour, what in enumerate(told):
        crawl(memory, page, T0 + hour * HOUR, **what)
        counted.append(page_of(memory, page).n_failures)
    assert counted == [1, 2, 3, 0, 1]


def test_a_page_that_fails_is_tried_again_after_delays_that_double_up_to_its_interval(memory, page):
    publish(memory, schedule_columns([page], crawl_rate=1.0))
    crawl(memory, page, T0, digest=5)
    waits, at = [], T0 + DAY
    for _ in range(7):
        crawl(memory, page, at, status=503)
        waits.append((page_of(memory, page).next_crawl_at - at) / HOUR)
        at += 2 * DAY
    assert waits[:5] == [1, 2, 4, 8, 16]
    assert waits[5:] == pytest.approx([24, 24], rel=0.05)
    crawl(memory, page, at, digest=5)
    assert page_of(memory, page).next_crawl_at - at == pytest.approx(DAY, rel=0.05)


def test_a_page_whose_first_crawl_fails_is_tried_again_after_an_hour_too(memory):
    ids = np.sort(register(memory, 200))
    publish(memory, schedule_columns(ids, crawl_rate=1.0))
    with memory.begin() as tx:
        record(tx, crawl_columns(ids, T0, status=0), rules())
    assert {page_of(memory, i).next_crawl_at for i in ids} == {T0 + HOUR}


def test_a_gone_page_is_checked_after_1_2_4_8_and_16_days_and_then_retired(memory, page):
    publish(memory, schedule_columns([page], crawl_rate=24.0))
    crawl(memory, page, T0, digest=5)
    at, waits = T0 + DAY, []
    while at is not None:
        last = at
        assert not page_of(memory, page).retired
        crawl(memory, page, at, status=404)
        at = page_of(memory, page).next_crawl_at
        waits.append(at and (at - last) // DAY)
    assert waits == [1, 2, 4, 8, 16, None]
    found = page_of(memory, page)
    assert (found.gone, found.n_failures, found.retired) == (True, 6, True)
    assert counts(memory, page) == (6, 1)


@pytest.mark.parametrize("told", [{"status": 503}, {"status": 302, "redirects_to": -1}])
def test_a_crawl_that_says_nothing_of_a_gone_page_leaves_its_checks_as_they_are(memory, page, told):
    for day in range(3):
        crawl(memory, page, T0 + day * DAY, status=404)
    crawl(memory, page, T0 + 9 * DAY, **told)
    found = page_of(memory, page)
    assert (found.gone, found.n_failures) == (True, 3)
    assert found.next_crawl_at == T0 + 13 * DAY


def test_a_retired_page_that_comes_back_has_changed_and_is_crawled_as_ever(memory, page):
    publish(memory, schedule_columns([page], crawl_rate=1.0))
    crawl(memory, page, T0, digest=5)
    for day in range(1, 8):
        crawl(memory, page, T0 + day * DAY, status=410)
    assert page_of(memory, page).retired
    crawl(memory, page, T0 + 60 * DAY, digest=5)
    found = page_of(memory, page)
    assert (found.gone, found.n_failures, found.retired) == (False, 0, False)
    assert log(memory, page)[0].changed is True
    assert found.next_crawl_at - (T0 + 60 * DAY) == pytest.approx(DAY, rel=0.05)


def retire(store, page_id, at):
    for minutes in range(-6, 0):
        crawl(store, page_id, at + minutes * timedelta(minutes=1), status=404)


@pytest.mark.parametrize("observability", Observability)
def test_a_ping_has_a_retired_page_crawled_once(memory, observability):
    (page_id,) = register(memory, 1, observability=observability)
    retire(memory, page_id, T0)
    assert page_of(memory, page_id).retired
    at = T0 + 17 * DAY
    assert announce(memory, page_id, at) == (True, "may_be_back")
    assert page_of(memory, page_id).next_crawl_at == at
    crawl(memory, page_id, at + HOUR, status=404)
    assert page_of(memory, page_id).retired


def test_of_a_site_that_goes_on_listing_what_is_gone_a_retired_page_is_crawled_twice_a_month(
    memory,
):
    (page_id,) = register(memory, 1, observability=Observability.auto)
    retire(memory, page_id, T0)
    n_crawls = 0
    for day in range(160):
        at = T0 + day * DAY
        announce(memory, page_id, at)
        due = page_of(memory, page_id).next_crawl_at
        if due is not None and due <= at:
            n_crawls += 1
            crawl(memory, page_id, at + HOUR, status=404)
    assert 8 <= n_crawls <= 10


def test_a_check_that_was_asked_for_and_got_no_answer_is_tried_again_after_16_days(memory, page):
    retire(memory, page, T0)
    with memory.begin() as tx:
        assert tx.wake(np.array([page]), T0 + DAY).tolist() == [page]
    crawl(memory, page, T0 + 2 * DAY, status=503)
    assert page_of(memory, page).next_crawl_at == T0 + 18 * DAY
    crawl(memory, page, T0 + 18 * DAY, status=404)
    assert page_of(memory, page).retired


@pytest.mark.parametrize("status", [301, 308])
def test_a_page_that_has_moved_for_good_is_gone_and_names_its_target(memory, status):
    one, other = np.sort(register(memory, 2)).tolist()
    crawl(memory, one, T0, digest=5)
    crawl(memory, one, T0 + DAY, status=status, digest=6, changed=0, redirects_to=other)
    found = page_of(memory, one)
    assert (found.gone, found.n_failures, found.redirects_to) == (True, 1, other)
    assert log(memory, one)[0].changed is True
    crawl(memory, one, T0 + 2 * DAY, status=404)
    assert page_of(memory, one).redirects_to is None
    assert page_of(memory, one).n_failures == 2


@pytest.mark.parametrize("status", [300, 302, 303, 305, 307])
def test_a_redirect_for_now_is_neither_evidence_nor_failure(memory, status):
    one, other = np.sort(register(memory, 2)).tolist()
    crawl(memory, one, T0, digest=5)
    crawl(memory, one, T0 + HOUR, status=503)
    crawl(memory, one, T0 + DAY, status=status, digest=6, changed=1, redirects_to=other)
    found = page_of(memory, one)
    assert (found.gone, found.n_failures, found.redirects_to) == (False, 0, other)
    assert (found.last_crawl_at, found.last_observed_at) == (T0 + DAY, T0)
    assert log(memory, one)[0].changed is None
    assert states_of(memory, [one]).digest.tolist() == [5]
    crawl(memory, one, T0 + 2 * DAY, digest=5)
    assert (counts(memory, one), log(memory, one)[0].interval) == ((1, 0), 2.0)
    assert page_of(memory, one).redirects_to is None


def test_a_redirect_to_where_nobody_registered_names_no_target_but_moves_the_page(memory, page):
    crawl(memory, page, T0, status=301, redirects_to=-1)
    found = page_of(memory, page)
    assert (found.gone, found.redirects_to) == (True, None)


def test_a_crawl_that_a_ping_asked_for_is_done_when_it_redirects_and_not_when_it_fails(memory):
    (page_id,) = register(memory, 1, observability=Observability.complete)
    crawl(memory, page_id, T0, digest=1)
    announce(memory, page_id, T0 + HOUR)
    crawl(memory, page_id, T0 + 2 * HOUR, status=500)
    assert page_of(memory, page_id).next_crawl_at == T0 + 3 * HOUR
    crawl(memory, page_id, T0 + 3 * HOUR, status=500)
    assert page_of(memory, page_id).next_crawl_at == T0 + 5 * HOUR
    crawl(memory, page_id, T0 + 5 * HOUR, status=302, redirects_to=-1)
    assert page_of(memory, page_id).next_crawl_at is None


@pytest.mark.parametrize("register_new", [True, False])
def test_targets_of_redirects_are_resolved_with_the_pages(store, register_new):
    one, other = register(store, 2)
    with store.begin() as tx:
        named = Named(
            page_id=np.array([one, 0, 0, one]),
            row=np.array([-1, 0, 1, -1]),
            pages=page_columns([urls(2)[1], "https://new.example/", urls(2)[0]]),
            target=np.array([1, 0, -1, 2]),
        )
        page_id, redirects_to, new = resolve(tx, named, T0 + DAY, register=register_new)
        (added,) = tx.page_ids(page_columns(["https://new.example/"]).key).tolist()
    assert page_id.tolist() == [one, other, added, one]
    assert redirects_to.tolist() == [added if register_new else -1, 0, 0, 0]
    assert new.tolist() == ([added] if register_new else [])


def test_an_item_whose_url_is_of_another_page_than_its_lease_says_nothing_and_registers_none(store):
    one, other = register(store, 2)
    with store.begin() as tx:
        named = Named(
            page_id=np.array([0, 0, 0, 0, one]),
            row=np.array([0, 1, 2, 1, -1]),
            pages=page_columns([*urls(2), "https://new.example/", "https://far.example/"]),
            target=np.array([-1, 3, 3, -1, -1]),
        )
        leased = np.array([one, one, one, 0, one])
        found = resolve(tx, named, T0 + DAY, register=True, leased=leased)
        assert tx.page_ids(named.pages.key).tolist() == [one, other, 0, 0]
        crawls = replace(
            crawl_columns(found.page_id, [T0, T0, T0, T0 + DAY, T0 + DAY], digest=1),
            redirects_to=found.redirects_to,
        )
        made = record(tx, crawls, rules())
    assert found.page_id.tolist() == [one, -1, -1, other, one]
    assert (found.redirects_to.tolist(), found.new.tolist()) == ([0] * 5, [])
    taken, not_taken = Verdict.accepted, Verdict.elsewhere
    assert made.verdict.tolist() == [taken, not_taken, not_taken, taken, taken]
    assert page_of(store, other).last_crawl_at == T0 + DAY


def test_a_ping_soon_after_a_crawl_is_dropped_where_that_is_set(memory):
    (page_id,) = register(memory, 1, observability=Observability.complete)
    minute = timedelta(minutes=1)
    by = replace(rules(), ping_delay_s=60)
    crawl(memory, page_id, T0, digest=1)
    before = states_of(memory, [page_id])
    assert announce(memory, page_id, T0 + minute, by) == (False, "crawled_since")
    same(states_of(memory, [page_id]), before)
    assert len(log(memory, page_id)) == 1
    assert announce(memory, page_id, T0 + minute + MICROSECOND, by) == (True, "unscheduled")
    assert announce(memory, page_id, T0 - HOUR, by) == (False, "not_newer")
    assert page_of(memory, page_id).n_pings == 1


# -- pings


@pytest.fixture
def complete(memory):
    """The id of a complete page that was crawled and is scheduled at probability 1/3."""
    (page_id,) = register(memory, 1, observability=Observability.complete)
    crawl(memory, page_id, T0, digest=1)
    publish(memory, schedule_columns([page_id], crawl_rate=0.0, crawl_probability=1 / 3))
    return int(page_id)


def test_a_ping_of_a_page_never_crawled_asks_for_a_crawl_whoever_sends_it(memory):
    for page_id in register(memory, 3, observability=[0, 1, 2]).tolist():
        assert announce(memory, page_id, T0) == (True, PingReason.never_crawled)
        assert states_of(memory, [page_id]).wanted_at == instant(T0)


@pytest.mark.parametrize("observability", [Observability.incomplete, Observability.auto])
def test_pings_of_pages_that_are_not_complete_are_counted_and_not_trusted(memory, observability):
    (page,) = register(memory, 1, observability=observability)
    crawl(memory, page, T0)
    assert announce(memory, page, T0 + HOUR) == (False, PingReason.not_trusted)
    found = page_of(memory, page)
    assert (found.n_pings, found.last_ping_at) == (1, T0 + HOUR)
    assert np.isnat(states_of(memory, [page]).wanted_at).all()


def test_a_change_that_was_crawled_since_needs_no_crawl(memory, complete):
    assert announce(memory, complete, T0 - HOUR) == (False, PingReason.crawled_since)
    assert announce(memory, complete, T0) == (False, PingReason.crawled_since)
    assert states_of(memory, [complete]).ping_credit.tolist() == [0.0]
    assert page_of(memory, complete).n_pings == 1, "one is from before the page was known"


def test_a_complete_page_without_a_schedule_is_crawled_at_every_ping(memory):
    (page,) = register(memory, 1, observability=Observability.complete)
    crawl(memory, page, T0)
    for hours in (1, 2):
        assert announce(memory, page, T0 + hours * HOUR) == (True, PingReason.unscheduled)


def test_at_a_probability_of_a_third_every_third_ping_is_crawled(memory, complete):
    answers = [announce(memory, complete, T0 + i * HOUR) for i in range(1, 301)]
    assert [crawl for crawl, _ in answers] == [False, False, True] * 100
    assert [reason for _, reason in answers[:3]] == ["saving", "saving", "credit"]
    assert page_of(memory, complete).n_pings == 300


def test_three_pings_in_one_batch_are_as_three_batches(memory, complete):
    with memory.begin() as tx:
        at = [T0 + hours * HOUR for hours in (3, 1, 2)]
        answer = ping(tx, ping_columns([complete] * 3, at), rules())
    assert answer.crawl.tolist() == [True, False, False]
    assert answer.reason.tolist() == ["credit", "saving", "saving"]
    assert states_of(memory, [complete]).wanted_at == instant(T0 + 3 * HOUR)


@pytest.mark.parametrize(("probability", "crawls"), [(0.0, 0), (1.0, 12), (0.25, 3)])
def test_pings_are_crawled_as_often_as_the_schedule_says(memory, complete, probability, crawls):
    publish(memory, schedule_columns([complete], crawl_probability=probability))
    assert sum(announce(memory, complete, T0 + i * HOUR)[0] for i in range(1, 13)) == crawls


def test_a_ping_that_is_not_newer_changes_nothing(memory, complete):
    announce(memory, complete, T0 + 2 * HOUR)
    before = states_of(memory, [complete])
    with memory.begin() as tx:
        at = [T0 + 2 * HOUR, T0 + HOUR]
        answer = ping(tx, ping_columns([complete] * 2, at), rules())
    assert answer.verdict.tolist() == [DUPLICATE, LATE]
    assert answer.reason.tolist() == [PingReason.not_newer] * 2
    assert not answer.crawl.any()
    same(states_of(memory, [complete]), before)
    assert len(log(memory, complete)) == 2


def test_a_ping_of_an_unknown_page_says_so(memory, complete):
    with memory.begin() as tx:
        answer = ping(tx, ping_columns([4711, complete, 0], [T0 + HOUR] * 3), rules())
    assert answer.verdict.tolist() == [UNKNOWN, ACCEPTED, UNKNOWN]
    assert answer.reason.tolist() == ["unknown_page", "saving", "unknown_page"]
    assert not answer.crawl.any()


def test_a_wish_stays_until_a_crawl_that_answered_and_saw_the_change(memory, complete):
    publish(memory, schedule_columns([complete], crawl_rate=0.0, crawl_probability=1.0))

    def due():
        return page_of(memory, complete).next_crawl_at

    announce(memory, complete, T0 + 2 * HOUR)
    assert due() == T0 + 2 * HOUR
    announce(memory, complete, T0 + 5 * HOUR)
    assert due() == T0 + 2 * HOUR  # the oldest wish stands
    crawl(memory, complete, T0 + HOUR, digest=2)  # before the change
    assert due() == T0 + 2 * HOUR
    crawl(memory, complete, T0 + 6 * HOUR, status=503)
    assert due() == T0 + 7 * HOUR  # not at once: the host has just failed
    crawl(memory, complete, T0 + 6.5 * HOUR, digest=2)
    assert due() is None
    announce(memory, complete, T0 + 8 * HOUR)
    assert due() == T0 + 8 * HOUR


def test_a_crawl_of_the_very_instant_of_the_wish_fulfils_it(memory):
    (page,) = register(memory, 1)
    announce(memory, page, T0)
    crawl(memory, page, T0, digest=1)
    assert np.isnat(states_of(memory, [page]).wanted_at).all()


def test_news_from_before_the_counting_began_is_not_counted(memory):
    page = int(register(memory, 1, observability=int(Observability.auto))[0])
    for at in (T0 - 9 * DAY, T0 - MICROSECOND, T0, T0 + HOUR):
        announce(memory, page, at)
    found = page_of(memory, page)
    assert (found.n_pings, found.last_ping_at) == (2, T0 + HOUR)
    assert len(log(memory, page)) == 4


def test_poisson_pings_are_drawn_independently(memory):
    n = 1_000
    ids = np.sort(register(memory, n, observability=Observability.complete))
    by = rules(timing=Timing.poisson)
    with memory.begin() as tx:
        record(tx, crawl_columns(ids, T0), by)
    probability = np.linspace(0, 1, n)
    publish(memory, schedule_columns(ids, crawl_probability=probability))
    with memory.begin() as tx:
        answer = ping(tx, ping_columns(ids, T0 + HOUR), rules(timing=Timing.poisson, seed=9))
    drawn = np.random.default_rng(9).random(n) < probability
    assert answer.crawl.tolist() == drawn.tolist()
    assert not states_of(memory, ids).ping_credit.any()


def test_pings_are_logged_and_say_nothing_of_change_rates(memory, complete):
    announce(memory, complete, T0 + HOUR)
    entry = log(memory, complete)[0]
    assert (entry.kind, entry.observed_at) == (Kind.ping, T0 + HOUR)
    assert entry.changed is entry.interval is entry.status is None


def test_crawls_and_pings_do_not_share_a_clock(memory, complete):
    announce(memory, complete, T0 + 9 * HOUR)
    assert crawl(memory, complete, T0 + HOUR, digest=2) == ACCEPTED
    assert announce(memory, complete, T0 + 10 * HOUR)[1] == PingReason.saving


# -- priors, names and rebuilding


def test_learning_stands_on_the_prior_of_the_epoch_in_force(memory, page):
    fitted = {"a": 2.0, "b": 4.0}
    publish(memory, schedule_columns([page]), certificate=replace(CERTIFICATE, prior=fitted))
    with memory.begin() as tx:
        assert rules_in_force(tx, rules()).estimator.prior == Prior(**fitted)
        by = rules(Gamma(half_life_days=7.0))
        assert rules_in_force(tx, by).estimator == Gamma(Prior(**fitted), 7.0)
        assert rules_in_force(tx, by).rng is by.rng


def test_the_prior_follows_the_epochs_and_each_of_them_is_read_once(memory, page, monkeypatch):
    in_force = InForce(rules())
    with memory.begin() as tx:
        assert in_force.of(tx) is in_force.rules
    for a in (2.0, 3.0):
        fitted = replace(CERTIFICATE, prior={"a": a, "b": 4.0})
        publish(memory, schedule_columns([page]), certificate=fitted)
        with memory.begin() as tx:
            assert in_force.of(tx).estimator.prior == Prior(a, 4.0)
        with memory.begin() as tx, monkeypatch.context() as patched:
            patched.setattr(tx, "epoch", None)
            assert in_force.of(tx).estimator.prior == Prior(a, 4.0)


def test_learning_stands_on_the_corpus_and_what_is_told_of_a_page_on_its_section(memory, page):
    """Were it the section's, what a page shows would depend on what was believed of siblings."""
    fitted = {"a": 2.0, "b": 4.0, "within": 3.0, "between": 1.0}
    rate = np.full(SECTIONS, 0.25, np.float32)
    certificate = replace(CERTIFICATE, prior=fitted)
    publish(memory, schedule_columns([page]), certificate=certificate, section_rate=rate)
    with memory.begin() as tx:
        known = rules_in_force(tx, rules()).estimator
    state = known.update(known.init(), 10.0, changed=True)
    assert state == Gamma(Prior(2.0, 4.0)).update(known.init(), 10.0, changed=True)
    np.testing.assert_allclose(of_sections(known, np.array([7])).prior.b, [12.0])


def test_without_an_epoch_learning_stands_on_the_prior_it_was_given(memory):
    by = rules(Gamma(Prior(3.0, 4.0)))
    with memory.begin() as tx:
        assert rules_in_force(tx, by) is by
        tx.start_epoch(T0)
        assert rules_in_force(tx, by) is by


def test_an_epoch_of_an_estimator_without_a_prior_leaves_the_prior_alone(memory, page):
    """After a change of estimator and `recrawl rebuild`, the old epoch is still in force."""
    publish(memory, schedule_columns([page]), certificate=replace(CERTIFICATE, prior={}))
    by = rules(Gamma(Prior(3.0, 4.0)))
    with memory.begin() as tx:
        assert rules_in_force(tx, by).estimator.prior == Prior(3.0, 4.0)


def test_an_estimator_without_a_prior_takes_none(memory, page):
    publish(memory, schedule_columns([page]))
    by = rules(LLN(), Timing.poisson)
    with memory.begin() as tx:
        assert rules_in_force(tx, by) is by


@pytest.mark.parametrize("allowed", [True, False])
def test_urls_are_resolved_and_registered_only_if_allowed(store, allowed):
    known = register(store, 2)
    with store.begin() as tx:
        named = Named(
            page_id=np.array([77, 0, 0, 0, 0]),
            row=np.array([-1, 2, 0, 2, 1]),
            pages=page_columns([urls(2)[1], urls(2)[0], "https://new.example/"]),
        )
        found = resolve(tx, named, T0 + DAY, register=allowed).page_id
        (new,) = tx.page_ids(page_columns(["https://new.example/"]).key)
    assert (new > 0) is np.bool_(allowed)
    assert found.tolist() == [77, new, known[1], new, known[0]]


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
                tx.append_log(log_columns(ids, at[k], changed=changed[k], interval=interval[k],
                                          crawl_rate=rates[k]))  # fmt: skip
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
