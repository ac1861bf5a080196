"""Hosts that join and leave groups while crawls of theirs are queued, leased and reported."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from crawl_cases import TTL, queue, release, take
from store_cases import T0, register

from service.lanes import Politeness

HOSTS = ("a.example", "b.example", "c.example")
ONE = Politeness(delay_s=0, concurrency=1)


def group(store, *members, now=T0):
    with store.begin() as tx:
        tx.change_group("shared", {}, members, now)


def test_hosts_that_come_to_share_a_server_are_crawled_one_at_a_time(sql_store):
    for host in HOSTS:
        queue(sql_store, register(sql_store, 4, host=host), T0)
    assert len(take(sql_store, T0, polite=ONE)) == 3
    group(sql_store, *HOSTS)
    assert take(sql_store, T0, polite=ONE) == []
    assert len(take(sql_store, T0 + TTL, polite=ONE)) == 1
    group(sql_store, now=T0 + TTL)
    assert len(take(sql_store, T0 + TTL, polite=ONE)) == 2


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
    while part := take(sql_store, T0, count=50):
        given += [crawl.page_id for crawl in part]
    assert sorted(given) == everything.tolist()
