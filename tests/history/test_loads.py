"""Hosts in the order of a load: the order of one measurement, whatever is written meanwhile."""

from datetime import timedelta

import numpy as np
import pytest
from support.live_server import Clock
from support.store_cases import publish, register, schedule_columns

from service.core.estimators.gamma import Gamma
from service.history import loads as module
from service.history.gauges import measure
from service.history.loads import LoadPlace, hosts_by_load
from service.history.steps import LOADS_KEPT, HistoryKeeper
from service.leases.host_settings import change_host
from service.leases.politeness import Politeness
from service.model.host_loads import HostLoads, MeasuredLoads, packed_loads, unpacked_loads

GAMMA = Gamma()
NONE = np.zeros(0, np.int64)
PAGES = {"few.example": 1, "many.example": 5, "some.example": 3, "more.example": 3}


@pytest.fixture
def clock(sql_store):
    sql_store.clock = Clock()
    return sql_store.clock


@pytest.fixture
def measured(sql_store, clock):
    """Hosts with pages, and the loads that were measured and saved."""
    ids = {host: register(sql_store, n, host=host) for host, n in PAGES.items()}
    every = np.sort(np.concatenate(list(ids.values())))
    publish(sql_store, schedule_columns(every))
    loads = measure(sql_store, GAMMA, NONE, clock).loads
    with sql_store.begin() as tx:
        tx.save_host_loads(loads, clock() - LOADS_KEPT)
    return ids


def part(store, order, place, limit, blocked_at=None, measured_at=None):
    load, down = order.removeprefix("-"), order.startswith("-")
    with store.begin(write=False) as tx:
        loads = tx.host_loads(measured_at)
        return hosts_by_load(tx, loads, load, place, limit, blocked_at, down=down)


def walk(store, order, limit=2, blocked_at=None, between=lambda: None):
    """Return the names of all parts; `between` runs after each part."""
    with store.begin(write=False) as tx:
        measured_at = tx.host_loads().measured_at
    place, names = LoadPlace(), []
    while place is not None:
        hosts, place = part(store, order, place, limit, blocked_at, measured_at)
        assert len(hosts) <= limit
        names += [host.host.removesuffix(".example") for host in hosts]
        between()
    return names


def test_loads_survive_packing(clock):
    rng = np.random.default_rng(1)
    loads = HostLoads.of(rng.integers(1, 50, 300) << 42, rng.random(300) < 0.3, rng.random(300))
    back = unpacked_loads(clock(), packed_loads(MeasuredLoads(clock(), 0.25, loads)))
    assert (back.measured_at, back.sampled_share) == (clock(), 0.25)
    for name, column in loads.arrays().items():
        np.testing.assert_allclose(back.loads.arrays()[name], column, rtol=1e-7)


def test_hosts_are_listed_by_their_number_of_pages(sql_store, measured):
    for limit in (1, 2, 3, 9):
        assert walk(sql_store, "-n_pages", limit) == ["many", "some", "more", "few"]
        assert walk(sql_store, "n_pages", limit) == ["few", "some", "more", "many"]
        assert walk(sql_store, "-asked_rate", limit) == ["many", "some", "more", "few"]


def test_the_loads_are_sums_over_the_pages_of_each_host(sql_store, measured):
    with sql_store.begin(write=False) as tx:
        loads = tx.host_loads().loads
        names = tx.host_names(loads.host_id)
    n_pages = {names[i]: n for i, n in zip(loads.host_id.tolist(), loads.n_pages, strict=True)}
    assert n_pages == PAGES
    assert (loads.n_overdue <= loads.n_pages).all()
    assert loads.asked_rate.sum() == pytest.approx(loads.n_pages.sum() * loads.asked_rate[0])


def test_hosts_without_a_measurement_come_last_and_none_is_missed(sql_store, measured):
    for name in ("new", "newer", "newest"):
        register(sql_store, 9, host=f"{name}.example")
    for limit in (1, 2, 5, 99):
        names = walk(sql_store, "-n_pages", limit)
        assert names[:4] == ["many", "some", "more", "few"]
        assert sorted(names[4:]) == ["new", "newer", "newest"]


def test_an_order_does_not_move_while_loads_and_hosts_change(sql_store, clock, measured):
    """Each part is followed by pages of the last host, a new measurement and a deletion."""
    ends = []

    def change():
        register(sql_store, 20, host="few.example")
        clock.advance(minutes=5)
        loads = measure(sql_store, GAMMA, NONE, clock).loads
        with sql_store.begin() as tx:
            tx.save_host_loads(loads, clock() - LOADS_KEPT)
            if not ends:
                tx.delete_many(measured["more.example"])
                tx.hold_hosts()
                tx.delete_host(tx.host("more.example"))
        ends.append(clock())

    assert walk(sql_store, "-n_pages", 1, between=change) == ["many", "some", "few"]
    assert walk(sql_store, "-n_pages") == ["few", "many", "some"]


def test_blocked_hosts_are_listed_by_load_those_that_were_not_measured_last(
    sql_store, clock, measured, monkeypatch
):
    monkeypatch.setattr(module, "MOST_SCANNED", 2)
    register(sql_store, 1, host="new.example")
    later = clock() + timedelta(hours=1)
    with sql_store.begin() as tx:
        for host in ("few.example", "some.example", "new.example"):
            change_host(tx, host, {"blocked_until": later}, clock(), Politeness())
    assert walk(sql_store, "-n_pages", 9, blocked_at=clock()) == ["some", "few", "new"]
    assert walk(sql_store, "-n_pages", 9, blocked_at=later) == []
    assert walk(sql_store, "-n_pages", 1, blocked_at=clock()) == ["some", "few", "new"]


def test_without_a_measurement_hosts_come_in_the_order_of_registration(sql_store, clock):
    for host in PAGES:
        register(sql_store, 1, host=host)
    found = []
    place = LoadPlace()
    while place is not None:
        hosts, place = part(sql_store, "-n_pages", place, 3)
        found += [host.host for host in hosts]
    assert sorted(found) == sorted(PAGES)


def test_a_measurement_is_kept_for_an_hour(sql_store, clock, measured):
    with sql_store.begin(write=False) as tx:
        first = tx.host_loads().measured_at
    for minutes, kept in ((59, True), (2, False)):
        clock.advance(minutes=minutes)
        loads = measure(sql_store, GAMMA, NONE, clock).loads
        with sql_store.begin() as tx:
            tx.save_host_loads(loads, clock() - LOADS_KEPT)
            assert (tx.host_loads(first) is not None) == kept


def test_loads_of_few_pages_are_measured_after_each_epoch(sql_store, clock):
    keeper = HistoryKeeper(sql_store, GAMMA, None, clock)
    keeper.keep()
    ids = register(sql_store, 3, host="a.example")
    keeper.keep()
    with sql_store.begin(write=False) as tx:
        assert not len(tx.host_loads().loads)
    publish(sql_store, schedule_columns(ids))
    clock.advance(seconds=20)
    keeper.keep()
    with sql_store.begin(write=False) as tx:
        assert tx.host_loads().loads.n_pages.tolist() == [3]
        measured_at = tx.host_loads().measured_at
    clock.advance(seconds=20)
    keeper.keep()
    with sql_store.begin(write=False) as tx:
        assert tx.host_loads().measured_at == measured_at
