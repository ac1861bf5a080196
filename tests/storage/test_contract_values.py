"""What every store promises of values: they come back as they went, to the last bit."""

from dataclasses import fields, replace
from datetime import UTC, datetime

import numpy as np
import pytest
from support.store_cases import (
    CERTIFICATE,
    DAY,
    T0,
    instants,
    log_columns,
    page_columns,
    page_of,
    publish,
    read_schedule,
    register,
    same,
    save,
    schedule_columns,
    states_of,
    urls,
)

from service.model.arrays import INSTANT, instant
from service.model.columns import EvidenceColumns, LogColumns, PageStates
from service.model.domain import Kind


def test_unicode_and_very_long_urls_come_back_as_they_went(store):
    texts = [
        "https://bücher.example/straße?q=東京#x",
        "https://example.org/" + "é" * 300,
        "https://example.org/?q='%22;DROP TABLE pages;--\\{}%00",
        "https://example.org/" + "a" * 2000,
    ]
    given = page_columns(texts)
    raw = [
        "http://x/" + text
        for text in ("\U0001f600", "naïve \\u202e", "tab\tquote'\"\\", "{1,2}NULL")
    ]
    free = replace(page_columns(urls(4, "raw.example")), url=np.array(raw, object))
    with store.begin() as tx:
        for columns in (given, free):
            ids = tx.register(columns, T0).page_id
            assert [tx.page(int(i)).url for i in ids] == columns.url.tolist()
            assert [tx.page(int(i)).host for i in ids] == columns.host.tolist()


@pytest.mark.parametrize("importance", [5e-324, 1e-300, 1 / 3, 1e15, 1.7976931348623157e308])
def test_extreme_importances_come_back_to_the_last_bit(store, importance):
    (page_id,) = register(store, 1, importance=importance)
    assert page_of(store, page_id).importance == importance
    with store.begin() as tx:
        assert tx.load_columns().importance.tolist() == [importance]


@pytest.mark.parametrize("digest", [5, -5, 2**63 - 1])
def test_copies_share_their_importance_in_an_epoch_unless_they_have_changed(store, digest):
    ids = np.sort(register(store, 60, importance=2.0))
    changes = (np.arange(50) >= 40).astype(np.int64)
    save(store, ids[:50], digest=digest, n_changes=changes)
    with store.begin() as tx:
        importance = tx.load_columns().importance
    assert importance.tolist() == pytest.approx([2 / 41] * 40 + [0.1] * 10 + [2] * 10)


@pytest.mark.dear
def test_ten_thousand_pages_go_in_and_out_at_once(store):
    n = 10_000
    importance = np.arange(1.0, n + 1)
    ids = register(store, n, importance=importance)
    rng = np.random.default_rng(3)
    digest, estimate = rng.integers(1, 2**62, n), rng.random((n, 2))
    save(store, ids, digest=digest, estimate=estimate, n_pings=np.arange(n))
    states = states_of(store, np.sort(ids))
    order = np.argsort(ids)
    assert (states.page_id == ids[order]).all()
    assert (states.digest == digest).all()
    assert (states.estimate == estimate).all()
    with store.begin() as tx:
        tx.append_log(log_columns(ids, T0))
        columns = tx.load_columns()
        assert len(tx.log_of(ids)) == n
    assert (columns.page_id == ids[order]).all()
    assert (columns.importance == importance[order]).all()
    epoch = publish(store, schedule_columns(columns.page_id, crawl_rate=importance))
    rows = read_schedule(store, epoch, limit=n)
    assert [row.crawl_rate for row in rows] == importance.tolist()
    again = register(store, n)
    assert (again == ids).all()


def test_states_come_by_ascending_id_and_unknown_ids_are_left_out(store):
    ids = np.sort(register(store, 4))
    asked = np.array([-5, 0, ids[0], ids[2], ids[3], ids[3] + 1, 2**40])
    assert states_of(store, asked).page_id.tolist() == [ids[0], ids[2], ids[3]]


INSTANTS = [
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1900, 2, 28, 1, 2, 3, 4, tzinfo=UTC),
    datetime(2000, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2026, 5, 1, 12, 0, 0, 123_457, tzinfo=UTC),
    datetime(9999, 12, 31, 22, 59, 59, 999_999, tzinfo=UTC),
]


@pytest.mark.parametrize("at", INSTANTS, ids=str)
def test_instants_are_exact_to_the_microsecond(store, at):
    (page_id,) = register(store, 1, now=at)
    save(
        store,
        [page_id],
        last_crawl_at=at,
        last_observed_at=at,
        last_ping_at=at,
        requested_at=at,
        n_pings=1,
    )
    states = states_of(store, [page_id])
    for name in (
        "last_crawl_at",
        "last_observed_at",
        "last_ping_at",
        "requested_at",
        "pings_since",
    ):
        column = getattr(states, name)
        assert column.dtype == INSTANT
        assert column.tolist() == [instant(at).item()], name
    page = page_of(store, page_id)
    for value in (page.created_at, page.last_crawl_at, page.last_ping_at, page.pings_since):
        assert value == at
        assert value.tzinfo is UTC
    with store.begin() as tx:
        tx.append_log(log_columns([page_id], at))
        assert tx.log_of(np.array([page_id])).observed_at.tolist() == [instant(at).item()]
        assert tx.page_log(int(page_id), 1)[0].observed_at == at
        assert tx.load_columns().pings_since.tolist() == [instant(at).item()]


def test_an_answer_at_the_last_crawl_before_it_or_never_comes_back(store):
    ids = np.sort(register(store, 4))
    for page_id, crawled, answered in (
        (ids[1], T0 + DAY, T0 + DAY),
        (ids[2], T0 + DAY, T0),
        (ids[3], T0 + DAY, np.datetime64("NaT")),
    ):
        save(store, [page_id], last_crawl_at=crawled, last_observed_at=answered)
    expected = [None, T0 + DAY, T0, None]
    assert [page_of(store, page_id).last_observed_at for page_id in ids] == expected
    assert page_of(store, ids[3]).last_crawl_at == T0 + DAY
    with store.begin(write=False) as tx:
        columns = tx.load_columns(), tx.freshness_columns(ids), tx.read_pages(0, 10)[1]
    for read in (*columns, states_of(store, ids)):
        at = [
            None if value is None else value.replace(tzinfo=UTC)
            for value in read.last_observed_at.tolist()
        ]
        assert at == expected


def test_none_values_come_back_as_none_and_zero_as_zero(store):
    ids = np.sort(register(store, 2))
    full = {
        "last_crawl_at": T0,
        "last_observed_at": T0,
        "last_ping_at": T0,
        "requested_at": T0,
        "digest": -1,
        "gone": True,
        "n_observations": 1,
        "n_changes": 2,
        "n_pings": 3,
        "ping_credit": 0.5,
        "interval_factor": 1.25,
        "last_interval": -2.75,
        "estimate": [[1.0, 2.0]],
    }
    save(store, ids, **full)
    none = {
        name: [None]
        for name in ("last_crawl_at", "last_observed_at", "last_ping_at", "requested_at")
    }
    save(store, ids[1:], digest=0, gone=False, ping_credit=0.0, **none)
    states = states_of(store, ids)
    for name in none:
        assert np.isnat(getattr(states, name)).tolist() == [False, True], name
    assert states.digest.tolist() == [-1, 0]
    assert states.gone.tolist() == [True, False]
    assert states.ping_credit.tolist() == [0.5, 0.0]
    assert states.last_interval.tolist() == [-2.75, -2.75]
    assert np.isnan(states.crawl_rate).all()
    assert np.isnan(states.crawl_probability).all()
    assert states.n_observations.tolist() == [1, 1]
    page = page_of(store, ids[1])
    assert page.last_crawl_at is page.last_observed_at is page.last_ping_at is None
    assert (page.n_observations, page.n_changes, page.n_pings) == (1, 2, 3)


@pytest.mark.parametrize("digest", [-(2**63), -(2**63) + 1, -1, 1, 2**63 - 1])
def test_digests_reach_to_the_ends_of_64_bits(store, digest):
    (page_id,) = register(store, 1)
    save(store, [page_id], digest=digest)
    assert states_of(store, [page_id]).digest.tolist() == [digest]


def test_numbers_of_a_state_come_back_to_the_last_bit(store):
    extremes = [0.0, 5e-324, 1 / 3, np.pi, 1e-300, 1.7976931348623157e308, np.inf, 2.0**53 + 2]
    ids = np.sort(register(store, len(extremes)))
    estimate = np.column_stack([extremes, np.negative(extremes)])
    save(store, ids, trust=extremes, ping_credit=extremes, estimate=estimate)
    states = states_of(store, ids)
    assert states.trust.tobytes() == states.ping_credit.tobytes() == np.array(extremes).tobytes()
    assert states.estimate.tobytes() == estimate.tobytes()  # -0.0 too
    with store.begin() as tx:
        assert tx.load_columns().estimate.tobytes() == estimate.tobytes()


def test_minus_zero_equals_zero_whatever_the_store_makes_of_its_sign(store):
    (page_id,) = register(store, 1)
    save(store, [page_id], ping_credit=-0.0)
    assert states_of(store, [page_id]).ping_credit.tolist() == [0.0]


def test_a_state_is_saved_without_what_is_not_its_own(store):
    (page_id,) = register(store, 1, observability=2)
    publish(store, schedule_columns([page_id], 0.5, 0.25, 0.75))
    save(
        store,
        [page_id],
        observability=1,
        crawl_rate=9.0,
        crawl_probability=9.0,
        pings_since=T0 + DAY,
        n_pings=1,
    )
    states = states_of(store, [page_id])
    assert states.observability.tolist() == [2]
    assert (states.crawl_rate.tolist(), states.crawl_probability.tolist()) == ([0.25], [0.75])
    assert states.pings_since.tolist() == [instant(T0).item()]
    assert states.n_pings.tolist() == [1]


def test_saving_touches_only_the_pages_given(store):
    ids = np.sort(register(store, 3))
    before = states_of(store, ids)
    save(store, ids[1:2], n_pings=4, estimate=1.5)
    after = states_of(store, ids)
    same(after.take(np.array([0, 2])), before.take(np.array([0, 2])))
    assert after.n_pings.tolist() == [0, 4, 0]


def test_columns_are_values(store):
    ids = np.sort(register(store, 2, importance=[1.0, 2.0]))
    epoch = publish(store, schedule_columns(ids))
    with store.begin() as tx:
        states = tx.lock_states(ids)
        columns = tx.load_columns()
        states.estimate[:] = 99.0
        states.n_pings[:] = 99
        columns.importance[:] = 99.0
    with store.begin() as tx:
        assert tx.lock_states(ids).n_pings.tolist() == [0, 0]
        assert tx.lock_states(ids).estimate.tolist() == [[0.0, 0.0]] * 2
        assert sorted(tx.load_columns().importance.tolist()) == [1.0, 2.0]
        given = log_columns(ids, T0, interval=1.0)
        tx.append_log(given)
        given.interval[:] = 99.0
        assert tx.log_of(ids).interval.tolist() == [1.0, 1.0]
        epoch_read = tx.epoch(epoch)
        epoch_read.certificate.prior["a"] = 99.0
        assert tx.epoch(epoch).certificate == CERTIFICATE


def test_a_schedule_is_a_value(store):
    ids = np.sort(register(store, 2))
    given = schedule_columns(ids, crawl_rate=1.0)
    with store.lead() as lead, lead.begin() as tx:
        epoch = tx.start_epoch(T0).epoch
        tx.write_schedule(epoch, given)
        given.crawl_rate[:] = 99.0
        tx.publish(epoch, CERTIFICATE, T0)
    assert [row.crawl_rate for row in read_schedule(store, epoch)] == [1.0, 1.0]


def test_states_can_be_written_to_by_the_caller(store):
    ids = np.sort(register(store, 2))
    with store.begin() as tx:
        states = tx.lock_states(ids)
        for field in fields(PageStates):
            column = getattr(states, field.name)
            column[:1] = column[1:]


def test_what_pings_left_is_cleared_of_one_page_beside_others_that_never_had_any(store):
    ids = np.sort(register(store, 3))
    pinged = np.array([False, True, False])
    with store.begin() as tx:
        plain = tx.lock_states(ids, scheduled=True)
        requested_at = np.where(pinged, instant(T0), plain.requested_at)
        tx.save_states(
            replace(plain, n_pings=pinged * 4, trust=pinged * 1.5, requested_at=requested_at)
        )
    with store.begin() as tx:
        states = tx.lock_states(ids)
        assert (states.n_pings.tolist(), states.trust.tolist()) == ([0, 4, 0], [0, 1.5, 0])
        assert np.isnat(states.requested_at).tolist() == [True, False, True]
        tx.save_states(plain)
    same(states_of(store, ids), plain)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("n_pings", [[0, 0, 0, 0], [0, 0, 3, 3], [3, 3, 3, 3]])
@pytest.mark.parametrize("ages", [[np.nan] * 4, [np.nan, 0.25, np.nan, 1000.5], [0.0, 1, 2, 3]])
def test_ages_that_sites_reported_come_back_beside_pages_with_and_without_pings(
    store, ages, n_pings
):
    ids = np.sort(register(store, 4))
    save(store, ids, last_age=ages, n_pings=n_pings)
    states = states_of(store, ids)
    np.testing.assert_array_equal(states.last_age, ages)
    assert states.n_pings.tolist() == n_pings
    with store.begin() as tx:
        loaded = tx.load_columns()
        tx.save_states(replace(tx.lock_states(ids), last_age=np.full(4, np.nan)))
    np.testing.assert_array_equal(loaded.last_age, ages)
    assert loaded.n_pings.tolist() == n_pings
    assert np.isnan(states_of(store, ids).last_age).all()


@pytest.mark.parametrize("n_failures", [[0, 0, 0, 0], [0, 1, 0, 3], [1, 2, 3, 9]])
def test_an_epoch_reads_the_last_crawls_that_had_no_content(store, n_failures):
    ids = np.sort(register(store, 4))
    crawled = [T0 + i * DAY for i in range(4)]
    answered = [T0 - DAY, T0, None, None]
    save(store, ids, last_crawl_at=crawled, last_observed_at=answered, n_failures=n_failures)
    with store.begin(write=False) as tx:
        loaded = tx.load_columns()
    failed = [at if n else None for at, n in zip(crawled, n_failures, strict=True)]
    np.testing.assert_array_equal(loaded.last_failure_at, instants(failed))


def test_a_new_page_has_no_reported_age(store):
    ids = np.sort(register(store, 2))
    assert np.isnan(states_of(store, ids).last_age).all()
    with store.begin(write=False) as tx:
        assert np.isnan(tx.load_columns().last_age).all()
        assert np.isnan(tx.read_pages(0, 9)[1].last_age).all()


def test_the_log_of_a_page_is_newest_first(store):
    one, other = np.sort(register(store, 2))
    with store.begin() as tx:
        times = [T0 + DAY, T0 + 9 * DAY, T0 - DAY]
        told = {"changed": [1, 0, -1], "interval": [0.5, 1.0, np.nan], "status": [200, 304, -1]}
        tx.append_log(log_columns([one, other, one], times, **told))
        tx.append_log(log_columns([one, one], [T0, T0 + DAY], kind=[0, 1], status=[0, -1]))
    with store.begin(write=False) as tx:
        entries = tx.page_log(int(one), 10)
        assert [(e.observed_at, int(e.kind)) for e in entries] == [
            (T0 + DAY, 1),
            (T0 + DAY, 0),
            (T0, 0),
            (T0 - DAY, 0),
        ]
        assert [e.changed for e in entries] == [None, True, None, None]
        assert [e.interval for e in entries] == [None, 0.5, None, None]
        assert [e.status for e in entries] == [None, 200, 0, None]
        assert tx.page_log(int(one), 2) == entries[:2]
        assert tx.page_log(int(one), 0) == []
        assert tx.page_log(int(one), 1, kind=Kind.crawl) == entries[1:2]
        at = entries[1].observed_at, entries[1].kind
        assert tx.page_log(int(one), 9, at, Kind.crawl) == entries[2:]
        assert tx.page_log(int(one), 9, kind=Kind.ping) == entries[:1]
        assert [e.changed for e in tx.page_log(int(other), 9)] == [False]


def test_the_log_of_pages_is_ordered_by_page_and_time(store):
    ids = np.sort(register(store, 3))
    one, two, three = ids.tolist()
    with store.begin() as tx:
        tx.append_log(
            log_columns(
                [two, one, two, three, one],
                [T0 + DAY, T0 + DAY, T0, T0, T0 + DAY],
                kind=[0, 1, 1, 0, 0],
                changed=[1, -1, -1, 0, 1],
                interval=[1.5, np.nan, np.nan, 5e-324, 2.0],
                crawl_rate=[np.nan, 0.0, 1e-300, 2.0, 3.0],
                status=[404, -1, -1, 0, 599],
            )
        )
        log = tx.log_of(np.array([one, two]))
        everything = tx.log_of(np.array([one, two, three, three + 1]))
    assert log.page_id.tolist() == [one, one, two, two]
    assert log.kind.tolist() == [0, 1, 1, 0]
    assert log.changed.tolist() == [1, -1, -1, 1]
    assert log.status.tolist() == [599, -1, -1, 404]
    np.testing.assert_array_equal(log.interval, [2.0, np.nan, np.nan, 1.5])
    np.testing.assert_array_equal(log.crawl_rate, [3.0, 0.0, 1e-300, np.nan])
    assert everything.page_id.tolist() == [one, one, two, two, three]
    assert everything.interval[-1] == 5e-324
    for field in fields(LogColumns):
        assert getattr(log, field.name).dtype == getattr(LogColumns.empty(), field.name).dtype


def test_evidence_is_what_the_log_says_of_intervals(store):
    ids = np.sort(register(store, 40))
    rng = np.random.default_rng(7)
    n = 400
    minutes = rng.permutation(n)  # some of them late, as they came
    changed = rng.integers(0, 2, n)
    told = rng.random(n) < 0.8
    with store.begin() as tx:
        for part in np.array_split(np.arange(n), 5):
            tx.append_log(
                log_columns(
                    rng.choice(ids, len(part)),
                    [T0 + minute * DAY / 1440 for minute in minutes[part].tolist()],
                    changed=np.where(told, changed, -1)[part],
                    interval=np.where(told, minutes / 7.0, np.nan)[part],
                )
            )
        asked = np.append(ids[::3], ids[-1] + 1)
        log, evidence = tx.log_of(asked), tx.evidence_of(asked)
        nothing = tx.evidence_of(ids[:0])
    expected = log.take(~np.isnan(log.interval))
    assert 50 < len(expected) < len(log)
    for field in fields(EvidenceColumns):
        np.testing.assert_array_equal(getattr(evidence, field.name), getattr(expected, field.name))
        assert getattr(evidence, field.name).dtype == getattr(expected, field.name).dtype
    same(nothing, EvidenceColumns.empty())


def test_a_gap_comes_back_in_at_least_seven_digits(store):
    gaps = [0.0, 1e-9, 1 / 3, np.pi, 40.0]
    ids = np.sort(register(store, len(gaps)))
    save(store, ids, interval_factor=gaps)
    np.testing.assert_allclose(states_of(store, ids).interval_factor, gaps, rtol=6e-8)


def test_states_may_be_saved_again_and_together_with_what_was_locked_before(store):
    ids = np.sort(register(store, 4))
    save(store, ids, trust=3.0)
    with store.begin() as tx:
        first = tx.lock_states(ids[:3])
        first = replace(first, trust=np.zeros(3))
        tx.save_states(replace(first, n_changes=first.n_changes + 1))
        other = tx.lock_states(ids[3:])
        tx.save_states(replace(other, trust=np.zeros(1)))
        tx.lock_states(ids[3:])
        tx.save_states(replace(first, n_changes=first.n_changes + 2))
        tx.save_states(replace(first.take(np.array([1])), n_changes=np.array([7])))
    assert states_of(store, ids).n_changes.tolist() == [2, 7, 2, 0]
    assert states_of(store, ids).trust.tolist() == [0, 0, 0, 0]


def test_pages_with_and_without_pings_are_saved_alike(store):
    ids = np.sort(register(store, 3))
    brought = {
        "n_pings": 2,
        "recent_pings": 1.75,
        "pings_since_crawl": 1,
        "ping_credit": 0.5,
        "real_pings": 1.5,
        "false_pings": -0.5,
        "trust": 3.0,
        "last_ping_at": T0,
        "requested_at": T0,
        "n_failures": 3,
        "redirects_to": ids[0],
    }
    for name, value in brought.items():
        before = states_of(store, ids)
        with store.begin() as tx:
            states = tx.lock_states(ids)
            given = getattr(states, name).copy()
            given[1] = instant(value) if given.dtype.kind == "M" else value
            tx.save_states(replace(states, **{name: given}))
        after = states_of(store, ids)
        same(replace(after, **{name: getattr(before, name)}), before)
        assert getattr(after, name)[1] == given[1]
        save(store, ids, **{name: [None] if given.dtype.kind == "M" else 0})
        same(states_of(store, ids), before)
