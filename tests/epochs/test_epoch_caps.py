"""Caps on the crawls a day of hosts and of groups of hosts enter the optimum of every epoch."""

from dataclasses import replace

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.store_cases import DAY, T0, read_schedule, register, save

from recrawl_lab.memory.store import MemoryStore
from service.core.allocation import ALLOCATORS
from service.core.allocation.harmonic import allocate_harmonic
from service.core.estimators.gamma import Gamma
from service.core.pings import recent_days
from service.epochs.plan import Plan
from service.epochs.run import run_epoch
from service.leases.host_settings import change_group, change_host
from service.leases.politeness import Politeness
from service.model.columns import CapColumns
from service.model.domain import EpochStatus, Observability, PagePatch

RECENT = 60 / 31 * recent_days(31.0)
"""Recent pings of 60 in 30 days, at a rate of 60 / 31 a day."""

HOSTS = ("a.example", "b.example", "c.example", "d.example")
PLAN = Plan(Gamma(), bandwidth=20.0)
NAN = float("nan")


def now():
    return T0 + 30 * DAY


@pytest.fixture
def ids(store):
    """Twenty pages on each of four hosts, of which something is known; every tenth is complete."""
    rng = np.random.default_rng(5)
    of_host = []
    for host in HOSTS:
        page_id = register(store, 20, host=host, importance=rng.pareto(1.5, 20) + 0.1)
        days = rng.uniform(5, 50, 20)
        changes = rng.poisson(rng.gamma(0.5, 0.4, 20) * days)
        save(store, page_id, estimate=np.column_stack([changes, days]))
        register(store, 2, host=host, observability=Observability.complete)
        save(store, page_id[:2], n_pings=rng.integers(1, 50, 2))
        of_host.append(page_id)
    return dict(zip(HOSTS, of_host, strict=True))


def cap(store, hosts=(), groups=(), members=()):
    """Set caps of hosts and groups, whatever the store."""
    hosts, groups, members = dict(hosts), dict(groups), dict(members)
    if store.has_queue:
        with store.begin() as tx:
            for name, of_group in members.items():
                change_group(tx, name, {"max_crawl_rate": groups[name]}, of_group, T0, Politeness())
            for host, most in hosts.items():
                change_host(tx, host, {"max_crawl_rate": most}, T0, Politeness())
        return
    group_of = {host: group for group, of_group in members.items() for host in of_group}
    capped = [host for host in HOSTS if host in hosts or host in group_of]
    store.caps = CapColumns(
        host_id=np.array([store.host_ids[host] for host in capped]),
        host=np.array(capped, object),
        max_crawl_rate=np.array([hosts.get(host, NAN) for host in capped]),
        group_id=np.array(
            [1 + [*groups].index(group_of[h]) if h in group_of else 0 for h in capped]
        ),
        group=np.array([group_of.get(host, "") for host in capped], object),
        group_max_crawl_rate=np.array([groups.get(group_of.get(h), NAN) for h in capped]),
    )


def spent(store, epoch, ids):
    """Give the crawls a day of each host, on the clock and on pings."""
    rows = {row.page_id: row for row in read_schedule(store, epoch.epoch)}
    return {
        host: sum(
            row.crawl_rate + row.crawl_probability * row.change_rate
            for row in (rows[page] for page in page_id.tolist())
        )
        for host, page_id in ids.items()
    }


def run(store, ids, plan=PLAN):
    epoch = run_epoch(store, plan, now)
    assert epoch.status is EpochStatus.published, epoch.reason
    return epoch, spent(store, epoch, ids)


def test_a_host_is_crawled_no_more_than_its_cap_and_others_get_the_rest(store, ids):
    _, free = run(store, ids)
    assert sum(free.values()) == pytest.approx(20, rel=1e-6)
    cap(store, {"a.example": free["a.example"] / 2, "b.example": 1e6})
    epoch, capped = run(store, ids)
    assert capped["a.example"] == pytest.approx(free["a.example"] / 2, rel=1e-6)
    assert all(capped[host] > free[host] for host in HOSTS[1:])
    assert sum(capped.values()) == pytest.approx(20, rel=1e-6)
    assert epoch.certificate.bandwidth_used == pytest.approx(20, rel=1e-6)
    assert epoch.certificate.kkt_residual < 1e-9


def test_hosts_of_a_group_share_its_cap(store, ids):
    _, free = run(store, ids)
    together = free["b.example"] + free["c.example"]
    cap(
        store,
        {"c.example": 0.1, "d.example": 1e6},
        {"shared": together / 3},
        {"shared": ["b.example", "c.example"]},
    )
    epoch, capped = run(store, ids)
    assert capped["c.example"] == pytest.approx(0.1, rel=1e-6)
    assert capped["b.example"] == pytest.approx(together / 3 - 0.1, rel=1e-6)
    assert all(capped[host] > free[host] for host in ("a.example", "d.example"))
    assert sum(capped.values()) == pytest.approx(20, rel=1e-6)
    assert epoch.certificate.kkt_residual < 1e-9


def test_capped_epochs_repeat_themselves_from_a_warm_start(store, ids):
    cap(store, {"a.example": 0.5}, {"shared": 1.0}, {"shared": ["b.example"]})
    (_, cold), (epoch, warm) = run(store, ids), run(store, ids)
    assert warm == pytest.approx(cold, rel=1e-4)
    assert epoch.certificate.kkt_residual < 1e-9


def test_caps_that_leave_bandwidth_over_leave_it_unspent(store, ids):
    cap(store, dict.fromkeys(HOSTS, 1.5))
    epoch, capped = run(store, ids)
    assert capped == pytest.approx(dict.fromkeys(HOSTS, 1.5), rel=1e-6)
    assert epoch.certificate.bandwidth_used == pytest.approx(6, rel=1e-6)


def test_a_host_is_planned_no_more_than_its_delay_permits(store, ids):
    _, free = run(store, ids)
    at_delay = sorted(free.values())[2]
    _, slow = run(store, ids, replace(PLAN, host_delay_s=86_400 / at_delay))
    assert max(slow.values()) <= at_delay * (1 + 1e-3)
    assert sum(slow.values()) == pytest.approx(min(20, 4 * at_delay), rel=1e-3)


def test_minimum_rates_beat_the_cap_of_their_host_and_group_and_it_is_told(store, ids):
    register(store, 20, host="a.example", min_crawl_rate=0.3)
    register(store, 20, host="b.example", min_crawl_rate=0.1)
    cap(store, {"a.example": 2.0}, {"shared": 1.0}, {"shared": ["b.example"]})
    with capture_logs() as logs:
        _, capped = run(store, ids)
    assert capped["a.example"] == pytest.approx(20 * 0.3, rel=1e-6)
    assert capped["b.example"] == pytest.approx(20 * 0.1, rel=1e-6)
    assert sum(capped.values()) == pytest.approx(20, rel=1e-6)
    told = {(line.get("host"), line.get("group")) for line in logs if "cap" in line["event"]}
    assert told == {("a.example", None), (None, "shared")}


def test_audits_of_pings_stay_within_the_cap(store, ids):
    pinged = ids["a.example"][2:]
    save(
        store,
        pinged,
        n_pings=60,
        recent_pings=RECENT,
        real_pings=40.0,
        false_pings=5.0,
        last_ping_at=now(),
    )
    _, free = run(store, ids)
    cap(store, {"a.example": free["a.example"] / 3})
    epoch = run_epoch(store, PLAN, now)
    rows = {row.page_id: row for row in read_schedule(store, epoch.epoch)}
    on_the_clock = sum(rows[page].crawl_rate for page in pinged.tolist())
    followed = sum(rows[page].crawl_probability * 60 / 31 for page in pinged.tolist())
    others = spent(store, epoch, {"a": ids["a.example"][:2]})["a"]
    assert on_the_clock > 0
    assert on_the_clock + followed + others <= free["a.example"] / 3 * (1 + 1e-9)


def test_audits_of_pings_stay_within_the_maximum_of_their_page(store, ids):
    pinged = ids["a.example"][2:]
    save(
        store,
        pinged,
        n_pings=60,
        recent_pings=RECENT,
        real_pings=40.0,
        false_pings=5.0,
        last_ping_at=now(),
    )

    def crawls():
        epoch = run_epoch(store, PLAN, now)
        rows = {row.page_id: row for row in read_schedule(store, epoch.epoch)}
        of_pages = [rows[page] for page in pinged.tolist()]
        followed = np.array([row.crawl_probability for row in of_pages]) * 60 / 31
        return np.array([row.crawl_rate for row in of_pages]), followed

    free = np.add(*crawls())
    with store.begin() as tx:
        for page, rate in zip(pinged.tolist(), free.tolist(), strict=True):
            tx.change_page(page, PagePatch(max_crawl_rate=0.5 * rate), T0)
    on_the_clock, followed = crawls()
    assert (on_the_clock > 0).any()
    assert (followed > 0).any()
    assert (on_the_clock + followed <= 0.5 * free * (1 + 1e-6)).all()


@pytest.mark.parametrize("objective", [name for name in ALLOCATORS if name != "harmonic"])
def test_objectives_that_keep_no_caps_say_so(objective):
    store = MemoryStore(2)
    register(store, 3, host="a.example")
    plan = replace(PLAN, objective=objective)
    with capture_logs() as logs:
        run_epoch(store, plan, now)
    assert not [line for line in logs if line["log_level"] == "warning"]
    cap(store, {"a.example": 0.5})
    with capture_logs() as logs:
        epoch = run_epoch(store, plan, now)
    assert epoch.status is EpochStatus.published
    (told,) = [line for line in logs if line["log_level"] == "warning"]
    assert told["objective"] == objective
    assert told["event"] == "this objective ignores caps of hosts"


def test_a_capped_epoch_is_the_solvers_optimum():
    store = MemoryStore(2)
    page_id = np.concatenate([register(store, 3, host=host) for host in HOSTS])
    estimate = np.random.default_rng(2).uniform(1, 20, (12, 2))
    save(store, page_id, estimate=estimate)
    cap(store, {"a.example": 0.2, "c.example": 0.7})
    epoch = run_epoch(store, PLAN, now)
    rows = read_schedule(store, epoch.epoch)
    expected = allocate_harmonic(
        np.ones(12),
        [row.change_rate for row in rows],
        np.zeros(12, np.bool_),
        20.0,
        host=np.repeat([0, 1, 2, 3], 3),
        host_bandwidth=[0.2, np.inf, 0.7, np.inf],
    )
    np.testing.assert_allclose([row.crawl_rate for row in rows], expected.crawl_rate, rtol=1e-9)
