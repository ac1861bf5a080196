"""What every store promises of pages and transactions (see `service.storage.contract`)."""

from dataclasses import fields, replace
from datetime import UTC, datetime

import numpy as np
import pytest
from support.store_cases import (
    CERTIFICATE,
    DAY,
    EVERYTHING,
    T0,
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

from service.leases.due import next_crawl_at
from service.model.arrays import INSTANT, UNSPECIFIED, instant
from service.model.columns import EpochColumns, EvidenceColumns, LogColumns, PageColumns, PageStates
from service.model.domain import Observability, PagePatch
from service.model.errors import PageNotFound


def test_a_new_page_has_the_defaults(store):
    (page_id,) = register(store, 1)
    page = page_of(store, page_id)
    assert (page.url, page.host) == ("https://example.org/0", "example.org")
    assert (page.importance, page.observability) == (1.0, Observability.auto)
    assert (page.min_crawl_rate, page.max_crawl_rate) == (None, None)
    assert page.created_at == page.pings_since == T0
    assert page.last_crawl_at is page.last_observed_at is page.last_ping_at is None
    assert (page.gone, page.n_observations, page.n_changes, page.n_pings) == (False, 0, 0, 0)
    assert page.estimate == (0.0, 0.0)
    assert page.change_rate is page.crawl_rate is page.crawl_probability is None
    assert next_crawl_at(page) == T0
    assert type(page.page_id) is int
    assert type(page.observability) is Observability


def test_a_new_page_takes_what_the_caller_says(store):
    (page_id,) = register(
        store,
        1,
        importance=2.5,
        observability=Observability.auto,
        min_crawl_rate=0.125,
        max_crawl_rate=24.0,
    )
    page = page_of(store, page_id)
    assert (page.importance, page.observability) == (2.5, Observability.auto)
    assert (page.min_crawl_rate, page.max_crawl_rate) == (0.125, 24.0)


def test_registering_again_gives_the_same_ids_and_creates_nothing(store):
    with store.begin() as tx:
        first = tx.register(page_columns(urls(3)), T0)
        second = tx.register(page_columns(urls(5)[::-1]), T0 + DAY)
        third = tx.register(page_columns(urls(3)), T0 + DAY)
    assert first.created.tolist() == [True] * 3
    assert second.created.tolist() == [True, True, False, False, False]
    assert not third.created.any()
    assert second.page_id[2:].tolist() == first.page_id[::-1].tolist()
    assert third.page_id.tolist() == first.page_id.tolist()
    assert len(set(second.page_id.tolist())) == 5
    assert first.page_id.dtype == np.int64
    assert first.created.dtype == np.bool_


@pytest.mark.parametrize("n_new", [99, 100, 101, 250])
def test_known_pages_behind_many_new_ones_stay_the_pages_they_are(store, n_new):
    known = register(store, 150, host="known.example", importance=2.0)
    given = [*urls(n_new), *urls(150, "known.example")[::-1], *urls(20, "other.example")]
    with store.begin() as tx:
        registered = tx.register(page_columns(given), T0 + DAY)
        again = tx.register(page_columns(given, importance=5.0), T0 + DAY)
    there, created = slice(n_new, n_new + 150), np.ones(len(given), np.bool_)
    created[there] = False
    assert registered.created.tolist() == created.tolist()
    assert registered.page_id[there].tolist() == known[::-1].tolist()
    assert not again.created.any()
    assert again.page_id.tolist() == registered.page_id.tolist()
    assert len(set(registered.page_id.tolist())) == len(given)
    assert [page_of(store, i).created_at for i in known[:2]] == [T0] * 2
    for place in (0, n_new - 1, n_new, n_new + 149, n_new + 150, len(given) - 1):
        page = page_of(store, registered.page_id[place])
        assert (page.url, page.importance) == (given[place], 5.0)
    with store.begin(write=False) as tx:
        stored, states = tx.read_pages(0, 1_000)
    assert sorted(stored.page_id.tolist()) == sorted(registered.page_id.tolist())
    assert states.page_id.tolist() == stored.page_id.tolist()


def test_registering_a_known_page_keeps_what_was_not_said(store):
    said = {"importance": 3.0, "observability": 2, "min_crawl_rate": 0.5, "max_crawl_rate": 2.0}
    (page_id,) = register(store, 1, **said)
    before = page_of(store, page_id)
    register(store, 1, now=T0 + DAY)
    assert page_of(store, page_id) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("importance", 7.0),
        ("observability", Observability.auto),
        ("min_crawl_rate", 0.0),
        ("min_crawl_rate", 0.25),
        ("max_crawl_rate", 5.0),
    ],
)
def test_registering_a_known_page_changes_only_what_was_said(store, name, value):
    said = {"importance": 3.0, "observability": 2, "min_crawl_rate": 0.5, "max_crawl_rate": 2.0}
    (page_id,) = register(store, 1, **said)
    before = page_of(store, page_id)
    register(store, 1, now=T0 + DAY, **{name: value})
    assert page_of(store, page_id) == replace(before, **{name: value})


def test_bounds_can_be_given_to_a_page_that_had_none(store):
    (page_id,) = register(store, 1)
    register(store, 1, min_crawl_rate=0.0, max_crawl_rate=1e-3)
    page = page_of(store, page_id)
    assert (page.min_crawl_rate, page.max_crawl_rate) == (0.0, 1e-3)


def test_new_and_known_pages_may_come_in_one_batch_each_with_its_own_words(store):
    register(store, 2, importance=5.0)
    with store.begin() as tx:
        given = page_columns(
            ["https://example.org/1", "https://example.org/9", "https://example.org/0"],
            importance=[np.nan, 9.0, 1.5],
            observability=[2, UNSPECIFIED, UNSPECIFIED],
        )
        registered = tx.register(given, T0)
        found = [tx.page(int(i)) for i in registered.page_id]
    assert registered.created.tolist() == [False, True, False]
    assert [p.importance for p in found] == [5.0, 9.0, 1.5]
    assert [int(p.observability) for p in found] == [2, 2, 2]


def test_becoming_complete_by_registration_starts_a_new_count_of_pings(store):
    ids = register(store, 3, observability=[0, 1, 2])
    save(store, ids, n_pings=5, ping_credit=0.75, last_ping_at=T0)
    register(store, 3, now=T0 + DAY, observability=Observability.complete)
    pages = [page_of(store, i) for i in ids]
    assert [p.n_pings for p in pages] == [0, 5, 0]
    assert [p.pings_since for p in pages] == [T0 + DAY, T0, T0 + DAY]
    assert states_of(store, ids).ping_credit.tolist() == [0, 0.75, 0]
    assert all(p.last_ping_at == T0 for p in pages)


def test_becoming_complete_by_a_patch_starts_a_new_count_of_pings(store):
    ids = register(store, 3, observability=[0, 1, 2])
    save(store, ids, n_pings=5, ping_credit=0.75)
    with store.begin() as tx:
        for page_id in ids.tolist():
            tx.change_page(page_id, PagePatch(observability=Observability.complete), T0 + DAY)
    pages = [page_of(store, i) for i in ids]
    assert [p.n_pings for p in pages] == [0, 5, 0]
    assert [p.pings_since for p in pages] == [T0 + DAY, T0, T0 + DAY]
    assert states_of(store, ids).ping_credit.tolist() == [0, 0.75, 0]


def test_ceasing_to_be_complete_keeps_the_count_of_pings(store):
    (page_id,) = register(store, 1, observability=Observability.complete)
    save(store, [page_id], n_pings=5)
    register(store, 1, now=T0 + DAY, observability=Observability.auto)
    page = page_of(store, page_id)
    assert (page.n_pings, page.pings_since) == (5, T0)


def test_a_patch_changes_what_it_names_and_nothing_else(store):
    one, other = register(store, 2, min_crawl_rate=0.5, max_crawl_rate=2.0)
    before, bystander = page_of(store, one), page_of(store, other)
    patch = PagePatch(importance=0.5, max_crawl_rate=8.0, cleared=frozenset({"min_crawl_rate"}))
    with store.begin() as tx:
        tx.change_page(int(one), patch, T0 + DAY)
    changed = replace(before, importance=0.5, max_crawl_rate=8.0, min_crawl_rate=None)
    assert page_of(store, one) == changed
    assert page_of(store, other) == bystander


def test_an_empty_patch_changes_nothing(store):
    (page_id,) = register(store, 1)
    before = page_of(store, page_id)
    with store.begin() as tx:
        tx.change_page(int(page_id), PagePatch(), T0 + DAY)
    assert page_of(store, page_id) == before


@pytest.mark.parametrize("page_id", [0, -1, 4711, 2**62])
def test_a_page_that_does_not_exist_is_not_found(store, page_id):
    register(store, 1)
    with store.begin() as tx:
        with pytest.raises(PageNotFound):
            tx.page(page_id)
        with pytest.raises(PageNotFound):
            tx.change_page(page_id, PagePatch(importance=2.0), T0)
        with pytest.raises(PageNotFound):
            tx.change_page(page_id, PagePatch(observability=Observability.complete), T0)
        with pytest.raises(PageNotFound):
            tx.delete_page(page_id)
        assert tx.page_log(page_id, 5) == []
        assert len(tx.lock_states(np.array([page_id]))) == 0


def test_a_deleted_page_leaves_nothing_behind(store):
    ids = register(store, 3)
    gone, rest = int(ids[1]), np.sort(ids[[0, 2]])
    with store.begin() as tx:
        tx.append_log(log_columns(ids, T0))
    epoch = publish(store, schedule_columns(ids))
    with store.begin() as tx:
        tx.delete_page(gone)
    with store.begin() as tx:
        with pytest.raises(PageNotFound):
            tx.page(gone)
        with pytest.raises(PageNotFound):
            tx.delete_page(gone)
        assert tx.page_ids(page_columns(urls(3)).key).tolist() == [ids[0], 0, ids[2]]
        assert tx.page_log(gone, 5) == []
        assert tx.log_of(ids).page_id.tolist() == rest.tolist()
        assert tx.lock_states(ids).page_id.tolist() == rest.tolist()
        assert tx.load_columns().page_id.tolist() == rest.tolist()
        assert tx.next_page_ids(0, 10).tolist() == rest.tolist()
        assert tx.schedule(epoch, 0, 9, EVERYTHING).pages.page_id.tolist() == rest.tolist()


def test_the_id_of_a_deleted_page_is_never_used_again(store):
    ids = register(store, 3)
    with store.begin() as tx:
        tx.delete_page(int(ids.max()))
    with store.begin() as tx:
        again = tx.register(page_columns(urls(3)), T0 + DAY)
    assert again.created.tolist() == (ids == ids.max()).tolist()
    (new,) = again.page_id[again.created]
    assert new > ids.max()
    assert page_of(store, new).created_at == T0 + DAY


def test_a_page_registered_again_after_its_deletion_starts_anew(store):
    (old,) = register(store, 1, importance=9.0, observability=1)
    save(store, [old], n_pings=7, digest=5, last_crawl_at=T0, estimate=3.5)
    with store.begin() as tx:
        tx.append_log(log_columns([old], T0))
        tx.delete_page(int(old))
        (new,) = tx.register(page_columns(urls(1)), T0 + DAY).page_id
        fresh = tx.page(int(new))
        assert tx.page_log(int(new), 5) == []
    assert (fresh.importance, fresh.observability) == (1.0, 2)
    assert (fresh.n_pings, fresh.last_crawl_at, fresh.estimate) == (0, None, (0.0, 0.0))


def test_keys_nobody_registered_have_the_id_zero(store):
    ids = register(store, 2)
    with store.begin(write=False) as tx:
        asked = page_columns(["https://nobody/", *urls(2)[::-1], "https://example.org/0"])
        assert tx.page_ids(asked.key).tolist() == [0, ids[1], ids[0], ids[0]]


def test_keys_are_compared_in_all_their_bytes(store):
    base = bytes(range(1, 17))
    keys = [base, base[:15] + b"\x00", b"\x00" + base[1:], bytes(16), b"\xff" * 16]
    given = page_columns(urls(len(keys)))
    key = np.array([np.void(k) for k in keys], "V16")
    with store.begin() as tx:
        ids = tx.register(replace(given, key=key), T0).page_id
        assert len(set(ids.tolist())) == len(keys)
        assert tx.page_ids(key[::-1]).tolist() == ids[::-1].tolist()


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


def _do_everything_then_fail(tx, ids):
    tx.register(page_columns(urls(40), importance=4.0, observability=1), T0 + DAY)
    tx.change_page(int(ids[0]), PagePatch(importance=8.0), T0)
    locked = tx.lock_states(ids)
    tx.save_states(replace(locked, n_pings=locked.n_pings + 5, estimate=locked.estimate + 1))
    tx.save_states(replace(locked, n_pings=locked.n_pings + 9, digest=locked.digest + 9))
    tx.append_log(log_columns(ids, T0 + DAY))
    tx.delete_page(int(ids[1]))
    tx.append_log(log_columns(ids[:1], T0 + 2 * DAY))
    tx.housekeep(T0 + 300 * DAY, T0 + 300 * DAY)
    tx.register(page_columns(urls(3)), T0 + DAY)
    tx.set_estimator("lln")
    tx.request_epoch(T0)
    started = tx.start_epoch(T0)
    tx.write_schedule(started.epoch, schedule_columns(ids[:1], 9.0, 9.0))
    tx.publish(started.epoch, CERTIFICATE, T0)
    tx.request_epoch(T0)
    tx.fail_epoch(tx.start_epoch(T0).epoch, "no", T0)
    raise ZeroDivisionError


def test_an_exception_rolls_back_everything_of_its_transaction(store):
    ids = register(store, 3)
    epoch = publish(store, schedule_columns(ids))
    with store.begin() as tx:
        tx.append_log(log_columns(ids, T0))
    states = states_of(store, ids)
    with store.begin(write=False) as tx:
        before = (
            tx.load_columns(),
            tx.log_of(ids),
            [tx.page(int(i)) for i in ids],
            tx.epochs(None, 9),
        )
    rows = read_schedule(store, epoch)

    with pytest.raises(ZeroDivisionError), store.lead() as lead, lead.begin() as tx:
        _do_everything_then_fail(tx, ids)

    with store.begin(write=False) as tx:
        columns, log, pages, epochs = before
        same(tx.load_columns(), columns)
        same(tx.log_of(ids), log)
        assert [tx.page(int(i)) for i in ids] == pages
        assert tx.epochs(None, 9) == epochs
        assert tx.estimator() is None
        assert not tx.page_ids(page_columns(urls(40)[3:]).key).any()
    same(states_of(store, ids), states)
    assert read_schedule(store, epoch) == rows
    with store.begin() as tx:  # and the store goes on as if nothing had happened
        again = tx.register(page_columns(urls(5)), T0)
        assert again.created.tolist() == [False] * 3 + [True] * 2
        assert [tx.page(int(i)).url for i in again.page_id] == urls(5)
        assert tx.page(int(again.page_id[4])).importance == 1.0
    assert publish(store, schedule_columns(ids)) > epoch


def test_what_a_transaction_wrote_it_reads(store):
    with store.begin() as tx:
        ids = tx.register(page_columns(urls(2)), T0).page_id
        tx.append_log(log_columns(ids, T0, changed=1))
        locked = tx.lock_states(ids)
        tx.save_states(replace(locked, n_pings=locked.n_pings + 3))
        assert tx.lock_states(ids).n_pings.tolist() == [3, 3]
        assert len(tx.log_of(ids)) == 2
        assert tx.page(int(ids[0])).n_pings == 3


def test_empty_batches_are_nothing(store):
    ids = register(store, 1)
    nothing = np.zeros(0, np.int64)
    with store.begin() as tx:
        registered = tx.register(PageColumns.empty(), T0)
        assert (len(registered.page_id), len(registered.created)) == (0, 0)
        assert registered.page_id.dtype == np.int64
        assert registered.created.dtype == np.bool_
        assert len(tx.page_ids(PageColumns.empty().key)) == 0
        states = tx.lock_states(nothing)
        same(states, PageStates.empty(estimate=(2,)))
        tx.save_states(states)
        tx.append_log(LogColumns.empty())
        same(tx.log_of(nothing), LogColumns.empty())
        same(tx.log_of(ids), LogColumns.empty())


def test_an_empty_store_gives_empty_columns_and_takes_an_empty_schedule(store):
    with store.begin() as tx:
        same(tx.load_columns(), EpochColumns.empty(estimate=(2,)))
        assert tx.next_page_ids(0, 5).tolist() == []
        assert tx.next_page_ids(0, 5).dtype == np.int64
        assert tx.epoch_in_force() is tx.newest_epoch() is None
        assert tx.epochs(None, 5) == []
    epoch = publish(store, schedule_columns(np.zeros(0, np.int64)))
    assert read_schedule(store, epoch) == []


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


@pytest.mark.parametrize("n", [1, 300, 70_000])
def test_an_epoch_reads_what_few_pages_have_of_just_those_pages(store, n):
    """Bounds and pings, in all combinations and in none; the last number spans two blocks."""
    rng = np.random.default_rng(n)
    few = rng.random((4, n)) < (0.5 if n < 1000 else 0.01)
    low, high = np.where(few[0], rng.random(n), np.nan), np.where(few[1], 1.5, np.nan)
    ids = register(
        store,
        n,
        min_crawl_rate=low,
        max_crawl_rate=high,
        observability=np.where(few[2], Observability.complete, Observability.auto),
    )
    pinged = np.flatnonzero(few[3])
    save(
        store,
        np.sort(ids[pinged]),
        n_pings=7,
        last_ping_at=T0,
        real_pings=0.5,
        false_pings=0.25,
        trust=-1.5,
        gone=True,
    )
    with store.begin(write=False) as tx:
        columns = tx.load_columns()
    order = np.argsort(ids)
    assert (columns.page_id == ids[order]).all()
    heard, complete = few[3][order], few[2][order]
    least = np.where(heard, np.nan, low[order])  # what is gone has none
    np.testing.assert_array_equal(columns.min_crawl_rate, least)
    np.testing.assert_array_equal(columns.max_crawl_rate, high[order])
    assert (columns.observability == np.where(complete, 1, 2)).all()
    told = {"n_pings": 7, "real_pings": 0.5, "false_pings": 0.25, "trust": -1.5}
    for name, value in told.items():
        assert (getattr(columns, name) == np.where(heard, value, 0)).all(), name
    assert (np.isnat(columns.last_ping_at) == ~heard).all()
    assert (columns.last_ping_at[heard] == instant(T0)).all()
    assert (columns.pings_since[heard | complete] == instant(T0)).all()
    assert (columns.importance == np.where(heard, 0.0, 1.0)).all()
    kept = {f.name: getattr(EpochColumns.empty(), f.name).dtype for f in fields(EpochColumns)}
    assert {name: getattr(columns, name).dtype for name in kept} == kept


def test_page_ids_are_walked_in_order(store):
    ids = np.sort(register(store, 5))
    with store.begin(write=False) as tx:
        assert tx.next_page_ids(0, 2).tolist() == ids[:2].tolist()
        assert tx.next_page_ids(int(ids[1]), 10).tolist() == ids[2:].tolist()
        assert tx.next_page_ids(int(ids[4]), 10).tolist() == []


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
        plain = tx.lock_states(ids)
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


def test_the_estimator_is_remembered(store):
    with store.begin() as tx:
        assert tx.estimator() is None
        tx.set_estimator("gamma")
        tx.set_estimator("lln")
    with store.begin(write=False) as tx:
        assert tx.estimator() == "lln"


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
