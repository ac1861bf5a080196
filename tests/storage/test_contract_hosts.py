"""What every database promises of hosts and groups (see `service.storage.queue.hosts`)."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from support.store_cases import DAY, T0, publish, register, save, schedule_columns

from service.leases.host_settings import change_group, change_host
from service.leases.politeness import Politeness
from service.model.domain import HostQueue
from service.model.errors import GroupNotFound, HostNotFound
from service.storage.dialect import assignments

HOUR = timedelta(hours=1)
A, B, C = "a.example", "b.example", "c.example"
RUDE = Politeness(delay_s=0, concurrency=0)
NO_HOST_QUEUE = HostQueue(None, None, None, 0, None, None, None, None)


def host_of(store, host=A):
    with store.begin(write=False) as tx:
        return tx.host(host)


def group_of(store, group="shared"):
    with store.begin(write=False) as tx:
        return tx.group(group)


def change(store, host=A, now=T0, **settings):
    with store.begin() as tx:
        change_host(tx, host, settings, now, RUDE)
    return host_of(store, host)


def regroup(store, members=None, group="shared", now=T0, **settings):
    with store.begin() as tx:
        change_group(tx, group, settings, members, now, RUDE)
    return group_of(store, group)


def members_of(store, group="shared", limit=10):
    with store.begin(write=False) as tx:
        return tx.members(tx.group(group).group_id, limit)


def pages_of(store, host=A, now=T0):
    with store.begin(write=False) as tx:
        return tx.host_pages(tx.host(host), now)


def queue(store, page_id, queue_id, next_at=T0, **leased):
    """Put pages into the queue, as leasing does."""
    row = {"queue_id": queue_id, "next_at": next_at, "requested": False, **leased}
    names, places = ", ".join(row), ", ".join(f"%({name})s" for name in row)
    statement = f"INSERT INTO due_pages (page_id, {names}) VALUES (%(page_id)s, {places})"
    with store.begin() as tx:
        for page in page_id.tolist():
            tx.run(statement, page_id=page, **row)


def host_queues_of(store):
    """Tell the host queue of each row of the queue."""
    with store.begin(write=False) as tx:
        return dict(tx.run("SELECT page_id, queue_id FROM due_pages ORDER BY page_id"))


def set_host_queue(store, queue_id, **values):
    statement = f"UPDATE host_queues SET {assignments(values)} WHERE queue_id = %(queue_id)s"
    with store.begin() as tx:
        tx.run(statement, queue_id=queue_id, **values)


def test_a_host_comes_with_its_first_page_and_has_no_settings(sql_store):
    with pytest.raises(HostNotFound, match=A):
        host_of(sql_store)
    register(sql_store, 2, host=A)
    host = host_of(sql_store)
    assert (host.host, host.group, host.max_crawl_rate, host.host_queue) == (
        A,
        None,
        None,
        replace(NO_HOST_QUEUE, queue_id=host.host_id),
    )
    assert (host.min_delay_s, host.robots_delay_s, host.max_concurrency) == (None, None, None)


def test_settings_may_come_before_the_first_page(sql_store):
    host = change(
        sql_store, min_delay_s=2.5, robots_delay_s=10.0, max_concurrency=3, max_crawl_rate=1e-9
    )
    told = (host.min_delay_s, host.robots_delay_s, host.max_concurrency, host.max_crawl_rate)
    assert told == (2.5, 10.0, 3, 1e-9)
    queue = HostQueue(2.5, 10.0, 3, 0, None, None, None, None, queue_id=host.host_id)
    assert host.host_queue == queue
    register(sql_store, 1, host=A)
    assert host_of(sql_store) == host


def test_a_setting_left_out_keeps_its_value_and_none_clears_it(sql_store):
    change(sql_store, min_delay_s=0.0, max_concurrency=3, max_crawl_rate=7.0, group="shared")
    host = change(sql_store, max_crawl_rate=None)
    assert (host.min_delay_s, host.max_concurrency, host.max_crawl_rate) == (0.0, 3, None)
    assert host.group == "shared"
    assert change(sql_store, max_concurrency=None, group=None).max_concurrency is None
    assert host_of(sql_store).group is None


def test_an_exception_undoes_settings_hosts_and_groups(sql_store):
    def fail():
        with sql_store.begin() as tx:
            change_host(tx, A, {"group": "shared", "min_delay_s": 1.0}, T0, RUDE)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(HostNotFound):
        host_of(sql_store)
    with pytest.raises(GroupNotFound, match="shared"):
        group_of(sql_store)


def test_hosts_are_listed_in_the_order_they_came(sql_store):
    for host in (C, A, B):
        change(sql_store, host)
    with sql_store.begin(write=False) as tx:
        first = tx.hosts(0, 2)
        rest = tx.hosts(first[-1].host_id, 2)
        assert [h.host for h in (*first, *rest)] == [C, A, B]
        assert tx.hosts(rest[-1].host_id, 2) == []
        assert first[0] == tx.host(C)


def test_a_host_in_a_group_is_crawled_in_the_host_queue_of_its_group(sql_store):
    change(sql_store, A, min_delay_s=1.0, robots_delay_s=4.0)
    change(sql_store, B, robots_delay_s=9.0)
    group = regroup(sql_store, [A, B, C], min_delay_s=2.0, max_concurrency=5, max_crawl_rate=50.0)
    assert (group.n_members, group.max_crawl_rate) == (3, 50.0)
    queue = HostQueue(2.0, 9.0, 5, 0, None, None, None, None, queue_id=-group.group_id)
    assert group.host_queue == queue
    assert host_of(sql_store, A).host_queue == host_of(sql_store, C).host_queue == group.host_queue
    assert (host_of(sql_store, A).min_delay_s, host_of(sql_store, A).robots_delay_s) == (1.0, 4.0)
    assert members_of(sql_store) == [A, B, C]
    assert members_of(sql_store, limit=2) == [A, B]


def test_the_longest_delay_that_robots_txt_asks_of_a_member_holds_for_its_group(sql_store):
    regroup(sql_store, [A, B])
    assert group_of(sql_store).host_queue.robots_delay_s is None
    assert change(sql_store, A, robots_delay_s=4.0).host_queue.robots_delay_s == 4.0
    assert change(sql_store, B, robots_delay_s=9.0).host_queue.robots_delay_s == 9.0
    assert change(sql_store, B, group=None).host_queue.robots_delay_s == 9.0
    assert group_of(sql_store).host_queue.robots_delay_s == 4.0
    assert change(sql_store, A, robots_delay_s=None).host_queue.robots_delay_s is None


def test_members_are_those_of_the_last_request(sql_store):
    regroup(sql_store, [A, B])
    change(sql_store, C, group="other")
    regroup(sql_store, [B, C])
    assert members_of(sql_store) == [B, C]
    assert (host_of(sql_store, A).group, members_of(sql_store, "other")) == (None, [])
    assert regroup(sql_store, None, min_delay_s=1.0).n_members == 2
    assert regroup(sql_store, []).n_members == 0


def test_queued_crawls_move_with_their_host(sql_store):
    of_a, of_b = register(sql_store, 3, host=A), register(sql_store, 2, host=B)
    a, b = change(sql_store, A).host_id, change(sql_store, B).host_id
    queue(sql_store, of_a, a)
    queue(sql_store, of_b, b)
    set_host_queue(sql_store, a, next_at=T0 + DAY)
    group_id = regroup(sql_store, [A], now=T0 + HOUR).group_id
    assert host_queues_of(sql_store) == dict.fromkeys(of_a.tolist(), -group_id) | dict.fromkeys(
        of_b.tolist(), b
    )
    assert group_of(sql_store).host_queue.next_at == T0 + HOUR
    regroup(sql_store, [A, B])
    assert set(host_queues_of(sql_store).values()) == {-group_id}
    change(sql_store, A, group=None)
    assert host_queues_of(sql_store) == dict.fromkeys(of_a.tolist(), a) | dict.fromkeys(
        of_b.tolist(), -group_id
    )
    assert host_of(sql_store, A).host_queue.next_at == T0


def test_leases_go_on_in_the_new_host_queue(sql_store):
    page_id = register(sql_store, 3, host=A)
    leased = {"token": 7, "leased_at": T0, "expires_at": T0 + HOUR, "worker": "w"}
    queue(sql_store, page_id[:1], change(sql_store).host_id, **leased)
    queue(sql_store, page_id[1:], change(sql_store).host_id)
    change(sql_store, group="shared")
    pages = pages_of(sql_store, now=T0 + HOUR / 2)
    assert (pages.n_pages, pages.n_queued, pages.n_leased) == (3, 2, 1)
    assert pages_of(sql_store, now=T0 + HOUR).n_leased == 0


def test_blocking_a_host_shuts_the_host_queue_it_is_crawled_in(sql_store):
    regroup(sql_store, [A, B])
    until = T0 + DAY
    assert change(sql_store, A, blocked_until=until).host_queue.blocked_until == until
    assert group_of(sql_store).host_queue.blocked_until == until
    assert change(sql_store, B, blocked_until=None).host_queue.blocked_until is None
    assert regroup(sql_store, blocked_until=until).host_queue.blocked_until == until


def test_a_host_queue_is_looked_at_again_when_its_gate_may_open_sooner(sql_store):
    host_id = change(sql_store, blocked_until=T0 + DAY).host_id
    set_host_queue(sql_store, host_id, next_at=T0 + DAY, n_failures=3)
    host_queue = change(sql_store, now=T0 + HOUR, blocked_until=None).host_queue
    assert (host_queue.next_at, host_queue.n_failures) == (T0 + HOUR, 3)
    set_host_queue(sql_store, host_id, next_at=T0)
    assert change(sql_store, now=T0 + HOUR, min_delay_s=0.0).host_queue.next_at == T0
    set_host_queue(sql_store, host_id, next_at=None)
    assert change(sql_store, now=T0 + HOUR, min_delay_s=1.0).host_queue.next_at is None


def test_pages_are_summed_up(sql_store):
    page_id = register(sql_store, 4, host=A)
    register(sql_store, 2, host=B)
    save(sql_store, page_id, n_observations=1, last_observed_at=T0)
    save(
        sql_store,
        page_id[:2],
        n_pings=[10, 30],
        real_pings=[3.0, 5.0],
        false_pings=[1.0, 2.5],
        trust=[1.0, 2.0],
        last_ping_at=[T0, T0 + HOUR],
    )
    publish(
        sql_store,
        schedule_columns(
            page_id,
            change_rate=0.5,
            crawl_rate=[1.0, 2.0, 0.0, 4.0],
            crawl_probability=[0.0, 0.0, 0.5, 0.0],
        ),
    )
    pages = pages_of(sql_store, now=T0 + 9 * DAY)
    assert (pages.n_pages, pages.n_pinged, pages.n_pings) == (4, 2, 40)
    assert pages.crawl_rate == pytest.approx(7.25)
    assert pages.ping_rate == pytest.approx(40 / 10)
    assert (pages.real_pings, pages.false_pings, pages.trust) == (8.0, 3.5, 1.5)
    assert pages.last_ping_at == T0 + HOUR
    silent = pages_of(sql_store, B)
    assert (silent.n_pages, silent.crawl_rate, silent.n_pinged, silent.ping_rate) == (2, 0, 0, 0)
    assert silent.trust is silent.last_ping_at is None
    assert pages_of(sql_store, now=T0 - DAY).ping_rate == pytest.approx(40)


def test_sums_of_huge_and_tiny_rates_are_sums(sql_store):
    page_id = register(sql_store, 4, host=A)
    save(sql_store, page_id, n_observations=1, last_observed_at=T0)
    rates = [3e38, 3e38, 1e-300, 0.0]
    publish(sql_store, schedule_columns(page_id, rates, rates, [0.0, 1.0, 0.5, 0.5]))
    assert pages_of(sql_store).crawl_rate == pytest.approx(9e38)


def test_caps_are_those_of_hosts_and_of_their_groups(sql_store):
    for host in (A, B, C, "d.example"):
        change(sql_store, host)
    change(sql_store, A, max_crawl_rate=3.0)
    change(sql_store, B, group="capped")
    change(sql_store, C, group="free", max_crawl_rate=4.0)
    regroup(sql_store, group="capped", max_crawl_rate=9.0)
    with sql_store.begin(write=False) as tx:
        caps = tx.load_caps()
        assert caps.host_id.tolist() == [tx.host(host).host_id for host in (A, B, C)]
        group_id = tx.group("capped").group_id
    assert (caps.host.tolist(), caps.group.tolist()) == ([A, B, C], ["", "capped", ""])
    np.testing.assert_array_equal(caps.max_crawl_rate, [3.0, np.nan, 4.0])
    assert caps.group_id.tolist() == [0, group_id, 0]
    np.testing.assert_array_equal(caps.group_max_crawl_rate, [np.nan, 9.0, np.nan])


def test_without_caps_there_are_no_rows(store):
    register(store, 3)
    with store.begin(write=False) as tx:
        assert len(tx.load_caps()) == 0


@pytest.mark.dear
@pytest.mark.sampled(1)
def test_a_group_of_any_size_can_be_replaced(sql_store):
    names = [f"{i}.example" for i in range(40_000)]
    with sql_store.begin() as tx:
        change_group(tx, "shared", {}, [], T0, RUDE)
        group_id = tx.group("shared").group_id
        tx.host_ids(names)
        tx.run("UPDATE hosts SET group_id = %(group_id)s", group_id=group_id)
    assert regroup(sql_store, [A]).n_members == 1


def test_names_get_ids_once_in_the_order_in_which_they_are_new(sql_store):
    change(sql_store, B)
    with sql_store.begin() as tx:
        first = tx.host_ids([C, B, A])
        assert first[1] < first[0] < first[2]
        assert tx.host_ids([A, B, C]).tolist() == first[[2, 1, 0]].tolist()
        assert tx.group_id("shared") == tx.group_id("shared") != tx.group_id("other")


def test_host_queues_are_locked_whole_and_made_where_there_are_none(sql_store):
    host = change(sql_store, min_delay_s=2.0, max_concurrency=3, robots_delay_s=4.0)
    with sql_store.begin() as tx:
        group_id = tx.group_id("shared")
        locked = tx.lock_host_queues(np.array([-group_id, host.host_id]))
        assert locked.queue_id.tolist() == [-group_id, host.host_id]
        assert locked.max_concurrency.tolist() == [0, 3]
        np.testing.assert_array_equal(locked.min_delay_s, [np.nan, 2.0])
        assert np.isnat(locked.next_at).all()
        tx.save_settings(replace(locked, queue_id=locked.queue_id[::-1]))
    own = host_of(sql_store)
    assert (own.min_delay_s, own.robots_delay_s, own.max_concurrency) == (None, None, None)
    assert group_of(sql_store).host_queue.max_concurrency == 3


def test_hosts_have_the_host_queue_and_the_robots_delay_of_their_group(sql_store):
    group_id = regroup(sql_store, [A, B]).group_id
    change(sql_store, A, robots_delay_s=4.0)
    change(sql_store, B, robots_delay_s=9.0)
    with sql_store.begin() as tx:
        host_id = np.sort(tx.host_ids([A, B, C]))
        other = tx.group_id("other")
        assert tx.lock_hosts(host_id).tolist() == [-group_id, -group_id, host_id[2]]
        assert tx.member_ids(group_id).tolist() == host_id[:2].tolist()
        group, delay_s = tx.robots_delays(np.array([-other, -group_id]))
        assert (group.tolist(), sorted(delay_s)) == ([-group_id] * 2, [4.0, 9.0])
        assert tx.move_hosts(host_id[1:], np.array([-other, -other])).tolist() == []
        assert tx.lock_hosts(host_id).tolist() == [-group_id, -other, -other]
