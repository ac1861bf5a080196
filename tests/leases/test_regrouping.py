"""Hosts that join and leave groups while crawls of theirs are queued, leased and reported."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
import pytest
from support.crawl_cases import TTL, queue, release, report, take
from support.store_cases import DAY, T0, register

from service.leases.host_settings import change_group, change_host
from service.leases.politeness import Politeness

HOSTS = ("a.example", "b.example", "c.example")
ONE = Politeness(delay_s=0, concurrency=1)


def group(store, *members, now=T0):
    with store.begin() as tx:
        change_group(tx, "shared", {}, members, now, ONE)


def test_hosts_that_come_to_share_a_server_are_crawled_one_at_a_time(sql_store):
    for host in HOSTS:
        queue(sql_store, register(sql_store, 4, host=host), T0)
    assert len(take(sql_store, T0, polite=ONE)) == 3
    group(sql_store, *HOSTS)
    assert take(sql_store, T0, polite=ONE) == []
    assert len(take(sql_store, T0 + TTL, polite=ONE)) == 1
    group(sql_store, now=T0 + TTL)
    assert len(take(sql_store, T0 + TTL, polite=ONE)) == 2


SECOND = timedelta(seconds=1)
MINUTE = Politeness(delay_s=60, concurrency=1)


def host(store, name, now=T0, **settings):
    with store.begin() as tx:
        change_host(tx, name, settings, now, MINUTE)


def crawled(store, name="a.example"):
    """A crawl of a host that has more to crawl, done at once."""
    queue(store, register(store, 3, host=name), T0)
    (crawl,) = take(store, T0, 1, MINUTE, [name])
    assert report(store, [crawl], T0, polite=MINUTE) == [True]


@pytest.mark.parametrize("join", ["host", "group"])
def test_a_host_that_joins_or_leaves_a_group_keeps_its_delay(sql_store, join):
    crawled(sql_store)
    if join == "host":
        host(sql_store, "a.example", group="shared")
    else:
        group(sql_store, "a.example")
    assert take(sql_store, T0 + 59 * SECOND, 1, MINUTE) == []
    (crawl,) = take(sql_store, T0 + 60 * SECOND, 1, MINUTE)
    report(sql_store, [crawl], T0 + 60 * SECOND, polite=MINUTE)
    if join == "host":
        host(sql_store, "a.example", group=None)
    else:
        group(sql_store)
    assert take(sql_store, T0 + 119 * SECOND, 1, MINUTE) == []
    assert len(take(sql_store, T0 + 120 * SECOND, 1, MINUTE)) == 1


def test_a_host_that_joins_a_group_is_left_alone_as_long_as_it_asked(sql_store):
    queue(sql_store, register(sql_store, 3, host="a.example"), T0)
    given = take(sql_store, T0, 1, ONE)
    report(sql_store, given, T0, status=429, retry_after_s=3600, polite=ONE)
    group(sql_store, "a.example")
    assert take(sql_store, T0 + 3599 * SECOND, 1, ONE) == []
    assert len(take(sql_store, T0 + 3600 * SECOND, 1, ONE)) == 1


@pytest.mark.sampled(4)
@pytest.mark.parametrize("host_queue", ["host", "group"])
@pytest.mark.parametrize(
    ("was", "settings", "becomes"),
    [
        (3600.0, {"min_delay_s": 10.0}, 10),
        (3600.0, {"min_delay_s": None}, 60),
        (1.0, {"min_delay_s": 30.0}, 30),
        (None, {"min_delay_s": 5.0}, 5),
        (None, {"min_delay_s": 3600.0}, 3600),
        (5.0, {"min_delay_s": 5.0}, 5),
    ],
)
def test_a_delay_that_changes_counts_from_the_last_crawl(
    sql_store, host_queue, was, settings, becomes
):
    def change(settings):
        with sql_store.begin() as tx:
            if host_queue == "host":
                change_host(tx, "a.example", settings, T0, MINUTE)
            else:
                change_group(tx, "shared", settings, ["a.example"], T0, MINUTE)

    register(sql_store, 1, host="a.example")
    change({"min_delay_s": was})
    crawled(sql_store)
    change(settings)
    assert take(sql_store, T0 + (becomes - 1) * SECOND, 1, MINUTE) == []
    assert len(take(sql_store, T0 + becomes * SECOND, 1, MINUTE)) == 1


@pytest.mark.parametrize("leave", ["host", "group"])
def test_a_group_is_free_when_the_member_with_the_running_lease_leaves(sql_store, leave):
    for name in HOSTS[:2]:
        queue(sql_store, register(sql_store, 2, host=name), T0)
    group(sql_store, *HOSTS[:2])
    (crawl,) = take(sql_store, T0, polite=ONE)
    if leave == "host":
        host(sql_store, crawl.host, group=None)
    else:
        with sql_store.begin() as tx:
            change_group(tx, "other", {}, [crawl.host], T0, ONE)
    (other,) = take(sql_store, T0, polite=ONE)
    assert other.host != crawl.host


def test_groups_whose_other_hosts_are_due_keep_no_host_from_being_found(sql_store):
    """Many host queues are ready, and have nothing for who asks."""
    asked = ["own.example"]
    for n in range(12):
        mine, other = f"h{n}.example", f"other{n}.example"
        register(sql_store, 1, host=mine)
        queue(sql_store, register(sql_store, 2, host=other), T0)
        with sql_store.begin() as tx:
            change_group(tx, f"g{n}", {}, [mine, other], T0, ONE)
        asked.append(mine)
    queue(sql_store, register(sql_store, 1, now=T0 + SECOND, host="own.example"), T0 + SECOND)
    (crawl,) = take(sql_store, T0 + SECOND, 1, ONE, asked)
    assert crawl.host == "own.example"
    assert take(sql_store, T0 + SECOND, 1, ONE, asked) == []


def test_moves_leases_and_queueing_at_once_never_deadlock_and_lose_no_page(sql_store):
    ids = {host: register(sql_store, 40, host=host) for host in HOSTS}
    everything = np.sort(np.concatenate([*ids.values()]))
    queue(sql_store, everything, T0)

    def move(seed):
        choices = np.random.default_rng(seed)
        for _ in range(15):
            group(sql_store, *choices.permutation(HOSTS)[: choices.integers(0, 4)].tolist())

    def requeue(seed):
        choices = np.random.default_rng(seed)
        for _ in range(15):
            queue(sql_store, np.sort(choices.choice(everything, 60, replace=False)), T0)

    def work(seed):
        choices = np.random.default_rng(seed)
        for _ in range(15):
            release(sql_store, take(sql_store, T0, count=7, tokens=choices), T0)

    tasks = [(move, 1), (move, 2), (requeue, 3), (requeue, 4), (work, 5)]
    with ThreadPoolExecutor(len(tasks)) as pool:
        for running in [pool.submit(task, seed) for task, seed in tasks]:
            running.result(timeout=120)
    queue(sql_store, everything, T0)
    given = []
    while part := take(sql_store, T0 + DAY, count=50):  # returned again and again, pages wait
        given += [crawl.page_id for crawl in part]
    assert sorted(given) == everything.tolist()
