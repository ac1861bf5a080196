"""What every store promises of pages and transactions (see `service.storage.stores.contract`)."""

from dataclasses import fields, replace

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
from service.model.arrays import UNSPECIFIED, instant
from service.model.columns import EpochColumns, LogColumns, PageColumns, PageStates
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


@pytest.mark.sampled(3)
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
        recent_pings=1.75,
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
    told = {
        "n_pings": 7,
        "recent_pings": 1.75,
        "real_pings": 0.5,
        "false_pings": 0.25,
        "trust": -1.5,
    }
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


def test_the_estimator_is_remembered(store):
    with store.begin() as tx:
        assert tx.estimator() is None
        tx.set_estimator("gamma")
        tx.set_estimator("lln")
    with store.begin(write=False) as tx:
        assert tx.estimator() == "lln"
