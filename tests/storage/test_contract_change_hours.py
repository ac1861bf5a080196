"""What every store promises of change hours, and of the crawls that an epoch shifted."""

from datetime import timedelta

import numpy as np
import pytest
from support.store_cases import (
    CERTIFICATE,
    T0,
    page_columns,
    publish,
    read_schedule,
    register,
    same,
    schedule_columns,
)

from service.core.change_hours.evidence import WIDTH
from service.core.change_hours.profile import TERMS
from service.leases.host_settings import change_group, change_host
from service.leases.politeness import Politeness
from service.model.arrays import instant
from service.model.columns import NOT_SHIFTED, ChangeHours, ShiftColumns

HOUR = timedelta(hours=1)
MOST, LEAST = 32_767, -32_767


def hours_of_hosts(host_id, weight=0.5, learnt_at=T0, seed=1):
    """Return evidence of hosts in numbers of four bytes, so that each store keeps every digit."""
    rng, n = np.random.default_rng(seed), len(host_id)
    profile = rng.normal(size=(n, 1 + TERMS)).astype(np.float32).astype(np.float64)
    profile[:, 0] = weight
    return ChangeHours(
        host_id=np.asarray(host_id, np.int64),
        learnt_at=np.full(n, instant(learnt_at)),
        evidence=rng.normal(0.0, 1e4, (n, WIDTH)).astype(np.float32).astype(np.float64),
        profile=profile,
    )


def hosts(store, n):
    """Register a page on each of n hosts; return the ids of the hosts, ascending."""
    with store.begin() as tx:
        tx.register(page_columns([f"https://h{i}.example/" for i in range(n)]), T0)
        return np.sort(tx.load_columns().host_id)


def teach(store, change_hours):
    """Publish an epoch in which these hosts have learnt; return its number."""
    with store.begin(write=False) as tx:
        page_id = tx.load_columns().page_id
    return publish(store, schedule_columns(page_id), change_hours=change_hours)


def test_a_host_without_evidence_has_no_change_hours(store):
    host_id = hosts(store, 3)
    with store.begin(write=False) as tx:
        assert len(tx.host_hours()) == 0
        assert len(tx.change_hours(host_id)) == len(tx.change_hours(host_id[:0])) == 0
        assert tx.change_hours(host_id).evidence.shape == (0, WIDTH)
        assert (
            tx.host_hours().profile.shape
            == tx.change_hours(host_id).profile.shape
            == (0, 1 + TERMS)
        )


def test_the_evidence_of_hosts_comes_back_by_ascending_host(store):
    host_id = hosts(store, 4)
    change_hours = hours_of_hosts(host_id[[0, 1, 3]])
    teach(store, change_hours)
    with store.begin(write=False) as tx:
        same(tx.change_hours(host_id[::-1].copy()), change_hours)
        same(tx.change_hours(host_id[1:2]), change_hours.take(slice(1, 2)))
        assert len(tx.change_hours(host_id[2:3])) == 0


def test_hosts_that_learn_again_replace_their_evidence_and_others_keep_theirs(store):
    host_id = hosts(store, 3)
    first, later = hours_of_hosts(host_id), hours_of_hosts(host_id[1:], learnt_at=T0 + HOUR, seed=2)
    teach(store, first)
    teach(store, later)
    teach(store, None)
    teach(store, hours_of_hosts(host_id[:0]))
    with store.begin(write=False) as tx:
        same(tx.change_hours(host_id), ChangeHours.concatenate([first.take(slice(1)), later]))


def test_an_epoch_reads_the_hosts_with_change_hours_alone(store):
    host_id = hosts(store, 4)
    change_hours = hours_of_hosts(host_id, weight=[0.0, 0.25, 0.0, 1.0])
    teach(store, change_hours)
    with store.begin(write=False) as tx:
        read = tx.host_hours()
    assert read.host_id.tolist() == host_id[[1, 3]].tolist()
    np.testing.assert_array_equal(read.profile, change_hours.profile[[1, 3]])
    assert np.isnan(read.delay_s).all()
    teach(store, hours_of_hosts(host_id, weight=[0.5, 0.0, 0.0, 0.5]))
    with store.begin(write=False) as tx:
        assert tx.host_hours().host_id.tolist() == host_id[[0, 3]].tolist()


def test_hosts_with_change_hours_come_with_the_delay_in_force_of_their_queue(sql_store):
    host_id = hosts(sql_store, 6)
    teach(sql_store, hours_of_hosts(host_id))
    settings = {
        "h1.example": {"min_delay_s": 30.0},
        "h2.example": {"min_delay_s": 5.0, "robots_delay_s": 8.0},
        "h3.example": {"robots_delay_s": 1e9},
        "h4.example": {"min_delay_s": 0.0, "max_concurrency": 4},
    }
    with sql_store.begin() as tx:
        for host, changes in settings.items():
            change_host(tx, host, changes, T0, Politeness())
    with sql_store.begin(write=False) as tx:
        delay_s = tx.host_hours().delay_s
    np.testing.assert_array_equal(delay_s, [np.nan, 30.0, 8.0, 86_400.0, 0.0, np.nan])


def test_a_host_in_a_group_has_the_delay_of_its_group(sql_store):
    teach(sql_store, hours_of_hosts(hosts(sql_store, 3)))
    with sql_store.begin() as tx:
        change_host(tx, "h1.example", {"min_delay_s": 99.0}, T0, Politeness())
        change_host(tx, "h1.example", {"group": "farm"}, T0, Politeness())
        change_host(tx, "h2.example", {"group": "farm"}, T0, Politeness())
        change_group(tx, "farm", {"min_delay_s": 12.0}, None, T0, Politeness())
    with sql_store.begin(write=False) as tx:
        np.testing.assert_array_equal(tx.host_hours().delay_s, [np.nan, 12.0, 12.0])


def test_hosts_beyond_what_one_statement_reads_or_writes_keep_their_evidence(
    sql_store, monkeypatch
):
    for module in ("epochs.change_hours", "epochs.postgres"):
        monkeypatch.setattr(f"service.storage.{module}.HOSTS_TOGETHER", 7)
    host_id = hosts(sql_store, 30)
    change_hours = hours_of_hosts(host_id[:23], weight=np.arange(23) % 2)
    teach(sql_store, change_hours)
    with sql_store.begin(write=False) as tx:
        same(tx.change_hours(host_id), change_hours)
        assert tx.host_hours().host_id.tolist() == host_id[1:23:2].tolist()


def test_the_evidence_of_a_host_takes_a_kilobyte(sql_store):
    host_id = hosts(sql_store, 200)
    teach(sql_store, hours_of_hosts(host_id))
    if sql_store.engine.dialect.name == "postgresql":
        size = "SELECT pg_relation_size('change_hours')"
    else:
        size = "SELECT sum(pgsize) FROM dbstat WHERE name = 'change_hours'"
    with sql_store.begin(write=False) as tx:
        assert tx.scalar(size) / len(host_id) <= 1.5 * 1024


# -- shifted crawls


def test_an_epoch_keeps_the_shifts_of_its_crawls(store):
    ids = np.sort(register(store, 5))
    shift = np.array([NOT_SHIFTED, 0, MOST, LEAST, NOT_SHIFTED])
    carried = np.array([NOT_SHIFTED, -90, LEAST, MOST, NOT_SHIFTED])
    epoch = publish(store, schedule_columns(ids, shift=shift, carried=carried))
    with store.begin(write=False) as tx:
        moved = tx.shifts(epoch)
        assert len(tx.shifts(epoch + 1)) == 0
    assert moved.page_id.tolist() == ids[1:4].tolist()
    assert moved.shift.tolist() == [0, MOST, LEAST]
    assert moved.carried.tolist() == [-90, LEAST, MOST]
    assert moved.shift.dtype == moved.carried.dtype == np.int16


def test_an_epoch_without_change_hours_has_shifted_nothing(store):
    ids = np.sort(register(store, 3))
    epochs = [publish(store, schedule_columns(ids)), publish(store, schedule_columns(ids[:0]))]
    with store.begin(write=False) as tx:
        for epoch in epochs:
            same(tx.shifts(epoch), ShiftColumns.empty())


def test_each_kept_epoch_has_shifts_of_its_own(store):
    ids = np.sort(register(store, 3))
    moves = [NOT_SHIFTED, -60]
    publish(store, schedule_columns(ids, shift=30, carried=30))
    epochs = [publish(store, schedule_columns(ids, shift=m, carried=m)) for m in moves]
    with store.begin(write=False) as tx:
        read = [tx.shifts(epoch).shift.tolist() for epoch in epochs]
    assert read == [[], [-60] * 3]


@pytest.mark.parametrize("probability", [0.0, 0.5])
def test_shifts_leave_the_other_numbers_of_a_schedule_alone(store, probability):
    ids = np.sort(register(store, 4))
    plain = schedule_columns(ids, 0.25, 0.5, probability * (ids % 2), 2.0)
    moved = schedule_columns(
        ids, 0.25, 0.5, probability * (ids % 2), 2.0, np.where(ids % 3, 5, NOT_SHIFTED), 0
    )
    rows = [read_schedule(store, publish(store, schedule)) for schedule in (plain, moved)]
    assert rows[0] == rows[1]


def test_shifts_survive_the_blocks_in_which_a_schedule_is_written(sql_store, monkeypatch):
    monkeypatch.setattr("service.storage.stores.sqlite.BLOCK", 3)
    ids = np.sort(register(sql_store, 11))
    shift = np.where(ids == ids[7], 45, NOT_SHIFTED)
    schedule = schedule_columns(ids, shift=shift, carried=shift)
    with sql_store.lead() as lead:
        with lead.begin() as tx:
            epoch = tx.start_epoch(T0).epoch
        lead.write_schedule(epoch, schedule)
        with lead.begin() as tx:
            tx.publish(epoch, CERTIFICATE, T0)
    with sql_store.begin(write=False) as tx:
        assert tx.shifts(epoch).page_id.tolist() == [ids[7]]
