"""What every store promises of change hours of URL groups."""

from datetime import timedelta

import numpy as np
import pytest
from support.store_cases import T0, page_columns, publish, same, schedule_columns

from service.core.change_hours.evidence import WIDTH
from service.core.change_hours.profile import TERMS
from service.core.change_hours.screens import NUMBERS
from service.leases.host_settings import change_host
from service.leases.politeness import Politeness
from service.model.arrays import instant
from service.model.columns import ChangeHours, GroupHours, GroupScreens
from service.storage.epochs.contract import Learnt
from service.storage.epochs.group_hours import RECORD_KEPT, SCREEN_KEPT

DAY = timedelta(days=1)


def short(numbers):
    """Return numbers of four bytes, so that each store keeps every digit."""
    return np.asarray(numbers).astype(np.float32).astype(np.float64)


def records(host_id, url_group, seen_at=T0, weight=0.5, seed=1, **changes):
    rng, n = np.random.default_rng(seed), len(url_group)
    profile = short(rng.normal(size=(n, 1 + TERMS)))
    profile[:, 0] = weight
    values = {
        "host_id": np.broadcast_to(np.asarray(host_id, np.int64), n).copy(),
        "url_group": np.asarray(url_group, np.int32),
        "seen_at": np.full(n, instant(seen_at)),
        "page_id": np.ones(n, np.int64),
        "in_force": np.ones(n, np.bool_),
        "has_own": np.zeros(n, np.bool_),
        "certain": short(rng.random(n)),
        "evidence": short(rng.normal(0.0, 1e4, (n, WIDTH))),
        "profile": profile,
    }
    return GroupHours(**(values | changes))


def screens(host_id, url_group, seen_at=T0, seed=1):
    rng, n = np.random.default_rng(seed), len(url_group)
    return GroupScreens(
        host_id=np.broadcast_to(np.asarray(host_id, np.int64), n).copy(),
        url_group=np.asarray(url_group, np.int32),
        seen_at=np.full(n, instant(seen_at)),
        numbers=short(rng.normal(size=(n, NUMBERS))),
    )


def hosts(store, n):
    with store.begin() as tx:
        tx.register(page_columns([f"https://h{i}.example/a/b" for i in range(n)]), T0)
        return np.sort(tx.load_columns().host_id)


def teach(store, host_id, some=None, few=None, at=T0):
    """Publish an epoch in which these hosts and groups have learnt."""
    n = len(host_id)
    hours = ChangeHours(
        host_id=np.asarray(host_id, np.int64),
        learnt_at=np.full(n, instant(at)),
        evidence=np.zeros((n, WIDTH)),
        profile=np.zeros((n, 1 + TERMS)),
    )
    nothing = Learnt()
    learnt = Learnt({}, hours, some or nothing.group_hours, few or nothing.group_screens)
    with store.begin(write=False) as tx:
        page_id = tx.load_columns().page_id
    epoch = publish(store, schedule_columns(page_id))
    with store.begin() as tx:
        tx.save_learnt(epoch, learnt)


def read(store, host_id):
    with store.begin(write=False) as tx:
        return tx.group_hours(np.asarray(host_id)), tx.group_screens(np.asarray(host_id))


def test_a_store_without_groups_has_empty_columns(store):
    host_id = hosts(store, 2)
    some, few = read(store, host_id)
    assert (some.evidence.shape, some.profile.shape) == ((0, WIDTH), (0, 1 + TERMS))
    assert few.numbers.shape == (0, NUMBERS)
    assert some.url_group.dtype == few.url_group.dtype == np.int32
    none, nothing = read(store, host_id[:0])
    assert len(none) == len(nothing) == 0
    with store.begin(write=False) as tx:
        assert tx.group_profiles().profile.shape == (0, 1 + TERMS)
        assert len(tx.hours_of_group(int(host_id[0]), 5)) == 0
        assert len(tx.own_group_hours(int(host_id[0]), 9)) == 0


def test_groups_come_back_by_host_and_url_group(store):
    a, b, c = hosts(store, 3)
    most = (1 << 20) - 1
    some, few = records([a, a, c], [0, most, 4]), screens([a, b], [7, most])
    teach(store, [a, b, c], some, few)
    same(read(store, [c, b, a])[0], some)
    same(read(store, [c, b, a])[1], few)
    same(read(store, [c])[0], some.take(slice(2, 3)))
    with store.begin(write=False) as tx:
        same(tx.hours_of_group(int(a), most), some.take(slice(1, 2)))
        assert len(tx.hours_of_group(int(a), 7)) == 0, "a screen is no evidence"


def test_groups_that_learn_again_replace_their_rows_and_others_keep_theirs(store):
    a, b = hosts(store, 2)
    teach(store, [a, b], records([a, a], [1, 2]), screens(b, [3, 4]))
    teach(store, [a], records([a], [2], seed=2))
    teach(store, [b], None, screens(b, [3], seed=2))
    some, few = read(store, [a, b])
    expected = [records([a, a], [1, 2]).take(slice(1)), records([a], [2], seed=2)]
    same(some, GroupHours.concatenate(expected))
    assert few.url_group.tolist() == [3, 4]
    np.testing.assert_array_equal(few.numbers[:1], screens(b, [3], seed=2).numbers)


def test_a_group_that_gets_evidence_loses_its_screen(store):
    (a,) = hosts(store, 1)
    teach(store, [a], None, screens(a, [3, 4]))
    teach(store, [a], records(a, [3]))
    some, few = read(store, [a])
    assert (some.url_group.tolist(), few.url_group.tolist()) == ([3], [4])


def test_groups_without_crawls_are_forgotten_when_their_host_learns(store):
    a, b = hosts(store, 2)
    teach(store, [a, b], records([a, b], [1, 1]), screens([a, b], [2, 2]))
    later = T0 + SCREEN_KEPT + DAY
    teach(store, [a], records([a], [5], later), at=later)
    some, few = read(store, [a, b])
    assert (some.url_group.tolist(), few.host_id.tolist()) == ([1, 5, 1], [b])
    late = T0 + RECORD_KEPT + DAY
    teach(store, [a], at=late)
    assert read(store, [a, b])[0].host_id.tolist() == [a, b]
    assert read(store, [a])[0].url_group.tolist() == [5]


def test_an_epoch_reads_the_groups_in_force_flat_or_not(store):
    a, b = hosts(store, 2)
    some = records(
        [a, a, b], [1, 2, 3], weight=[0.0, 0.5, 0.75], in_force=np.array([True, False, True])
    )
    teach(store, [a, b], some, screens(b, [9]))
    with store.begin(write=False) as tx:
        profiles = tx.group_profiles()
    assert list(zip(profiles.host_id, profiles.url_group, strict=True)) == [(a, 1), (b, 3)]
    np.testing.assert_array_equal(profiles.profile, some.profile[[0, 2]])
    np.testing.assert_array_equal(profiles.certain, some.certain[[0, 2]])
    assert np.isnan(profiles.delay_s).all()


def test_groups_come_with_the_delay_of_their_host(sql_store):
    host_id = hosts(sql_store, 2)
    teach(sql_store, host_id, records(host_id, [1, 1]))
    with sql_store.begin() as tx:
        change_host(tx, "h1.example", {"min_delay_s": 30.0}, T0, Politeness())
    with sql_store.begin(write=False) as tx:
        np.testing.assert_array_equal(tx.group_profiles().delay_s, [np.nan, 30.0])


def test_groups_with_hours_of_their_own_are_shown_by_the_url_of_a_page(store):
    (a,) = hosts(store, 1)
    own = np.array([True, False, True, True])
    with store.begin(write=False) as tx:
        page_id = int(tx.load_columns().page_id[0])
    pages = np.array([page_id, page_id, page_id + 77, page_id])
    teach(store, [a], records(a, [1, 2, 3, 4], has_own=own, page_id=pages))
    with store.begin(write=False) as tx:
        assert tx.own_group_hours(int(a), 9).url_group.tolist() == [1, 3, 4]
        assert tx.own_group_hours(int(a), 2).url_group.tolist() == [1, 3]
        assert tx.urls_of_pages(pages[:1]) == {page_id: "https://h0.example/a/b"}
        assert tx.urls_of_pages(pages[:0]) == {}


def test_a_lesson_without_hosts_changes_nothing(store):
    (a,) = hosts(store, 1)
    some = records(a, [1])
    teach(store, [a], some)
    teach(store, [], at=T0 + 400 * DAY)
    same(read(store, [a])[0], some)


def test_the_groups_of_a_deleted_host_are_deleted(sql_store):
    (a,) = hosts(sql_store, 1)
    teach(sql_store, [a], records(a, [1]), screens(a, [2]))
    with sql_store.begin() as tx:
        tx.delete_many(tx.load_columns().page_id)
        tx.delete_host(tx.host("h0.example"))
        assert tx.scalar("SELECT count(*) FROM group_hours") == 0


@pytest.mark.dear
def test_many_groups_are_written_and_read_in_parts(sql_store, monkeypatch):
    for module in ("epochs.group_hours", "epochs.postgres"):
        monkeypatch.setattr(f"service.storage.{module}.HOSTS_TOGETHER", 3)
    monkeypatch.setattr("service.storage.epochs.postgres.SCREENS_TOGETHER", 4)
    host_id = hosts(sql_store, 8)
    some, few = records(np.repeat(host_id, 2), [1, 2] * 8), screens(host_id, [7] * 8)
    teach(sql_store, host_id, some, few)
    same(read(sql_store, host_id)[0], some)
    same(read(sql_store, host_id)[1], few)


def test_the_numbers_of_a_group_take_a_kilobyte(sql_store):
    (a,) = hosts(sql_store, 1)
    n = 300
    teach(sql_store, [a], records(a, np.arange(n)))
    numbers = "sum(8 + 4 + 8 + 8 + 2 + length(evidence) + length(profile))"
    with sql_store.begin(write=False) as tx:
        assert tx.scalar(f"SELECT {numbers} FROM group_hours") <= 1000 * n
