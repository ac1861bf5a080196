"""Leases: the most overdue first, once at a time, politely, whatever comes between."""

from collections import Counter
from datetime import timedelta

import numpy as np
import pytest
from support.crawl_cases import (
    HOUR,
    POLITE,
    RUDE,
    RULES,
    SECOND,
    TTL,
    UNTIL,
    add,
    commit_reports,
    ids,
    next_ready_at,
    queue,
    release,
    report,
    rng,
    take,
)
from support.store_cases import (
    DAY,
    EXTREME,
    T0,
    instants,
    page_columns,
    ping_columns,
    publish,
    register,
    save,
    schedule_columns,
    urls,
)

from service.ingest import record
from service.leases import lease
from service.leases import queue as due_queue
from service.leases.dealt import WorkerRequest
from service.leases.queue import fill_queue, queue_due
from service.model.domain import ItemVerdict, Observability, PagePatch
from service.model.outcomes import Outcome
from service.storage.queue.columns import ALL_PAGES


@pytest.mark.dear
def test_new_pages_are_due_at_once(queue_store):
    a, b, c = add(queue_store)
    batch = take(queue_store, T0)
    assert sorted(ids(batch)) == sorted([a, b, c])
    assert {crawl.url for crawl in batch} == set(urls(3))
    assert {crawl.host for crawl in batch} == {"example.org"}
    assert len({crawl.token for crawl in batch}) == 3
    assert take(queue_store, T0) == []


def test_requested_pages_come_in_the_order_of_their_requests(queue_store):
    page_id = np.array(add(queue_store, 5))
    save(queue_store, page_id, last_crawl_at=T0)
    asked = page_id[[3, 0, 4, 1, 2]]
    for minute, page in enumerate(asked):
        save(queue_store, [page], requested_at=T0 + HOUR + minute * 60 * SECOND)
    queue(queue_store, page_id, T0 + 2 * HOUR)
    crawled = [ids(take(queue_store, T0 + 2 * HOUR, count=1)) for _ in asked]
    assert [page for (page,) in crawled] == asked.tolist()


@pytest.mark.dear
@pytest.mark.parametrize("count", [1, 2])
def test_pages_that_are_requested_again_and_again_take_turns(queue_store, count):
    page_id = np.array(add(queue_store, 6))
    with queue_store.begin() as tx:
        for page in page_id.tolist():
            tx.change_page(page, PagePatch(observability=Observability.complete), T0)
    crawls: Counter[int] = Counter()
    for hour in range(1, 25):
        now = T0 + hour * HOUR
        with queue_store.begin() as tx:
            record.ping(tx, ping_columns(page_id, instants([now] * len(page_id))), RULES)
            queue_due(tx, page_id, now)
        taken = take(queue_store, now, count=count)
        report(queue_store, taken, now + SECOND)
        crawls.update(ids(taken))
    assert set(crawls.values()) == {24 * count // 6}


def test_a_page_without_any_answer_is_tried_again_at_a_rate_of_0(queue_store):
    page_id = np.array(add(queue_store, 2))
    with queue_store.begin() as tx:
        for page in page_id.tolist():
            tx.change_page(page, PagePatch(observability=Observability.complete), T0)
    publish(queue_store, schedule_columns(page_id, crawl_rate=0.0))
    (first, second) = take(queue_store, T0)
    report(queue_store, [first], T0 + SECOND, status=503)
    report(queue_store, [second], T0 + SECOND, status=200, changed=1)
    queue(queue_store, page_id, T0 + 30 * DAY)
    assert ids(take(queue_store, T0 + HOUR)) == []
    (again,) = take(queue_store, T0 + HOUR + SECOND)
    assert again.page_id == first.page_id
    report(queue_store, [again], T0 + HOUR + 2 * SECOND, status=200, changed=1)
    queue(queue_store, page_id, T0 + 30 * DAY)
    assert ids(take(queue_store, T0 + 30 * DAY)) == []


def test_one_request_finds_the_due_page_behind_many_that_are_due_no_more(queue_store):
    crawled = add(queue_store, 400)
    (due,) = {*add(queue_store, 401, T0 + HOUR)} - {*crawled}
    save(queue_store, crawled, last_crawl_at=T0 + HOUR)  # without leases
    assert ids(take(queue_store, T0 + 2 * HOUR, count=1, polite=POLITE)) == [due]


def test_nothing_is_due_in_an_empty_store(queue_store):
    assert take(queue_store, T0) == []
    assert next_ready_at(queue_store) is None


def test_the_most_overdue_come_first(queue_store):
    page_id = register(queue_store, 40)
    draw = np.random.default_rng(3)
    rate, age = np.exp(draw.normal(0, 2, 40)), draw.uniform(0, 20, 40)
    publish(queue_store, schedule_columns(np.sort(page_id), crawl_rate=rate))
    crawled = [T0 - timedelta(days=float(days)) for days in age]
    save(queue_store, np.sort(page_id), last_crawl_at=crawled, interval_factor=1.0)
    queue(queue_store, page_id, T0)
    overdue = dict(zip(np.sort(page_id).tolist(), (age * rate).tolist(), strict=True))
    due = sorted((page for page in overdue if overdue[page] >= 1), key=lambda p: -overdue[p])
    first, rest = take(queue_store, T0, 7), take(queue_store, T0, 100)
    assert ids(first) == due[:7]
    assert ids(rest) == due[7:]
    for crawl in first + rest:
        assert crawl.overdue == pytest.approx(overdue[crawl.page_id], rel=2e-7)


def test_a_retry_is_as_overdue_as_its_wait_is_exceeded(queue_store):
    """Twelve days are six intervals of a page, three waits of another, and one and a half here."""
    living, refused, gone = page_id = np.sort(register(queue_store, 3))
    publish(queue_store, schedule_columns(page_id, crawl_rate=[0.5, 0.0, 0.0]))
    save(queue_store, page_id, last_crawl_at=T0 - 12 * DAY, interval_factor=1.0)
    save(queue_store, [refused], n_failures=4, outcome=Outcome.refused)
    save(queue_store, [gone], n_failures=4, gone=True, outcome=Outcome.absent)
    queue(queue_store, page_id.tolist(), T0)
    batch = take(queue_store, T0, 1) + take(queue_store, T0, 10)
    assert ids(batch) == [living, gone, refused]
    assert [crawl.overdue for crawl in batch] == pytest.approx([6.0, 3.0, 1.5])


def test_a_page_whose_siblings_have_changed_comes_before_one_of_the_same_rate(queue_store):
    page_id = np.sort(register(queue_store, 4))
    publish(queue_store, schedule_columns(page_id, crawl_rate=0.5, urgency=[1.0, 4.0, 0.5, 2.0]))
    save(queue_store, page_id, last_crawl_at=T0 - 3 * DAY, interval_factor=1.0)
    queue(queue_store, page_id.tolist(), T0)
    batch = take(queue_store, T0, 10)
    assert ids(batch) == page_id[[1, 3, 0]].tolist()
    assert [crawl.overdue for crawl in batch] == pytest.approx([6.0, 3.0, 1.5])


@pytest.mark.parametrize("urgency", [0.6, 1000.0])
def test_rates_of_any_size_go_through_the_queue(queue_store, urgency):
    page_id = np.sort(register(queue_store, len(EXTREME)))
    save(queue_store, page_id, last_crawl_at=T0, interval_factor=1.0)
    publish(queue_store, schedule_columns(page_id, EXTREME, EXTREME, urgency=urgency))
    late = T0 + 36_500 * DAY
    queue(queue_store, page_id.tolist(), late)
    queue(queue_store, page_id.tolist(), late)
    batch = take(queue_store, late)
    scheduled = [page for page, rate in zip(page_id, EXTREME, strict=True) if rate]
    assert ids(batch) == scheduled[::-1]
    assert report(queue_store, batch, late) == [True] * len(batch)


def test_a_page_is_leased_once_at_a_time_and_again_when_its_lease_has_ended(queue_store):
    (page,) = add(queue_store, 1)
    (first,) = take(queue_store, T0)
    assert take(queue_store, T0 + TTL - SECOND) == []
    assert take(queue_store, T0 + TTL + HOUR - SECOND) == []
    (second,) = take(queue_store, T0 + TTL + HOUR)
    assert first.page_id == second.page_id == page
    assert first.token != second.token


def test_a_report_ends_the_lease_and_the_page_is_due_again_by_its_rate(queue_store):
    (page,) = register(queue_store, 1).tolist()
    publish(queue_store, schedule_columns(np.array([page]), crawl_rate=2.0))
    queue(queue_store, [page], T0)
    batch = take(queue_store, T0)
    assert report(queue_store, batch, T0 + SECOND) == [True]
    save(queue_store, [page], interval_factor=1.0)
    queue(queue_store, [page], T0)
    due = T0 + SECOND + DAY / 2
    assert take(queue_store, due - SECOND) == []
    assert ids(take(queue_store, due)) == [page]


def test_a_late_report_is_evidence_but_touches_no_newer_lease(queue_store):
    (page,) = add(queue_store, 1)
    old = take(queue_store, T0)
    later = T0 + TTL + HOUR
    new = take(queue_store, later)
    assert report(queue_store, old, T0 + SECOND, now=later + SECOND) == [False]
    with queue_store.begin() as tx:
        assert tx.page(page).last_crawl_at == T0 + SECOND
    assert take(queue_store, later + SECOND) == []
    assert report(queue_store, new, later + 2 * SECOND) == [True]


def test_a_late_report_of_a_page_that_nobody_leased_again_ends_its_lease(queue_store):
    add(queue_store, 1)
    batch = take(queue_store, T0)
    assert report(queue_store, batch, T0 + SECOND, now=T0 + HOUR) == [True]
    assert take(queue_store, T0 + HOUR) == []  # no epoch has given it a rate


def test_a_worker_whose_clock_is_slow_moves_its_page_on_all_the_same(queue_store):
    (page,) = add(queue_store, 1)
    publish(queue_store, schedule_columns([page], crawl_rate=[24.0]))
    commit_reports(queue_store, take(queue_store, T0), T0, T0, digest=1)
    later = T0 + 2 * HOUR
    done = commit_reports(
        queue_store, take(queue_store, later), T0 - HOUR, later + 5 * SECOND, digest=2
    )
    assert done.lease_ended.all()
    assert done.verdict.tolist() == [ItemVerdict.accepted]
    with queue_store.begin(write=False) as tx:
        seen = tx.page(page)
    assert seen.last_crawl_at == later  # when it was leased
    assert seen.n_changes == 1
    assert take(queue_store, later + HOUR / 2) == []


@pytest.mark.dear
def test_a_slow_clock_makes_no_page_due_again_at_once(queue_store):
    """Each crawl is dated after the one before, and still before its lease."""
    (page,) = add(queue_store, 1)
    publish(queue_store, schedule_columns([page], crawl_rate=[24.0]))
    now, n_crawls = T0, 0
    while now < T0 + DAY:
        for crawl in take(queue_store, now):
            n_crawls += 1
            done = commit_reports(
                queue_store, [crawl], now - 2 * HOUR, now + SECOND, digest=n_crawls
            )
            assert done.verdict.tolist() == [ItemVerdict.accepted]
        now += HOUR / 12
    assert 20 <= n_crawls <= 26


def test_a_crawl_of_a_moment_before_its_lease_is_known_again(queue_store):
    (page,) = add(queue_store, 1)
    batch = take(queue_store, T0)
    for verdict in (ItemVerdict.accepted, ItemVerdict.duplicate):
        done = commit_reports(queue_store, batch, T0 - SECOND / 2, T0 + SECOND / 4, digest=1)
        assert done.verdict.tolist() == [verdict]
        with queue_store.begin(write=False) as tx:
            assert tx.page(page).last_crawl_at == T0


def test_a_crawl_that_another_has_overtaken_keeps_its_own_time(queue_store):
    (page,) = add(queue_store, 1)
    batch = take(queue_store, T0)
    save(queue_store, np.array([page]), last_crawl_at=[T0 + 2 * SECOND])
    done = commit_reports(queue_store, batch, T0 + SECOND, T0 + 3 * SECOND, digest=1)
    assert done.verdict.tolist() == [ItemVerdict.late]
    done = commit_reports(queue_store, batch, T0 - HOUR, T0 + 4 * SECOND, digest=1)
    assert done.verdict.tolist() == [ItemVerdict.late]  # no lease runs any more


def test_a_report_sent_twice_ends_one_lease(queue_store):
    add(queue_store, 1)
    batch = take(queue_store, T0)
    assert report(queue_store, batch, T0 + SECOND) == [True]
    assert report(queue_store, batch, T0 + SECOND) == [False]


def test_a_released_page_is_due_again_at_once(queue_store):
    page_id = add(queue_store, 2)
    batch = take(queue_store, T0)
    assert release(queue_store, batch[:1], T0) == [True]
    assert ids(take(queue_store, T0)) == ids(batch[:1])
    assert release(queue_store, batch[:1], T0) == [False]
    assert len(page_id) == 2


def test_an_extended_lease_lasts(queue_store):
    add(queue_store, 1)
    (crawl,) = take(queue_store, T0)
    later = T0 + 2 * TTL
    with queue_store.begin() as tx:
        assert tx.extend_lease(crawl.page_id, crawl.token, T0, later)
        assert not tx.extend_lease(crawl.page_id, crawl.token + 1, T0, later)
    assert take(queue_store, T0 + TTL) == []
    with queue_store.begin() as tx:
        assert not tx.extend_lease(crawl.page_id, crawl.token, later, later + TTL)
    assert take(queue_store, later) == []
    assert len(take(queue_store, later + HOUR)) == 1


def test_a_lease_runs_on_across_a_publish_and_a_fill(queue_store):
    page_id = add(queue_store, 3)
    batch = take(queue_store, T0, 1)
    publish(queue_store, schedule_columns(np.sort(page_id)), T0 + SECOND)
    fill_queue(queue_store, T0 + UNTIL)
    rest = take(queue_store, T0 + 2 * SECOND)
    assert sorted(ids(batch + rest)) == sorted(page_id)
    assert report(queue_store, batch, T0 + 3 * SECOND) == [True]


def test_filling_queues_what_is_due_soon_and_drops_what_is_not(queue_store):
    page_id = register(queue_store, 4)
    publish(queue_store, schedule_columns(np.sort(page_id), crawl_rate=[1.0, 1.0, 0.1, 0.0]))
    save(
        queue_store, np.sort(page_id), last_crawl_at=[T0 - 2 * DAY, T0, T0, T0], interval_factor=1.0
    )
    fill_queue(queue_store, T0 + 2 * DAY)
    first = take(queue_store, T0)
    assert ids(first) == [page_id.min()]
    assert next_ready_at(queue_store) is not None
    assert ids(take(queue_store, T0 + DAY)) == sorted(page_id.tolist())[:2]
    assert take(queue_store, T0 + 20 * DAY, ttl=TTL) != []


def test_filling_that_is_stopped_ends_after_a_block_and_is_done_by_the_next(
    queue_store, monkeypatch
):
    monkeypatch.setattr(due_queue, "BLOCK", 2)
    page_id = register(queue_store, 5)
    publish(queue_store, schedule_columns(np.sort(page_id)))
    asked = iter([False, True])
    fill_queue(queue_store, T0 + UNTIL, lambda: next(asked))
    with queue_store.begin(write=False) as tx:
        assert tx.filled().epoch == 0
    assert ids(take(queue_store, T0)) == np.sort(page_id)[:2].tolist()
    fill_queue(queue_store, T0 + UNTIL)
    with queue_store.begin(write=False) as tx:
        assert tx.filled().epoch == tx.number_in_force() == 1
    assert sorted(ids(take(queue_store, T0))) == np.sort(page_id)[2:].tolist()


def test_a_page_crawled_without_a_lease_is_not_handed_out_before_it_is_due(queue_store):
    (page,) = register(queue_store, 1).tolist()
    publish(queue_store, schedule_columns(np.array([page]), crawl_rate=1.0))
    queue(queue_store, [page], T0)
    save(queue_store, [page], last_crawl_at=T0, interval_factor=1.0)
    assert take(queue_store, T0) == []
    assert next_ready_at(queue_store) == T0 + DAY
    assert ids(take(queue_store, T0 + DAY)) == [page]


def test_a_deleted_page_is_not_handed_out(queue_store):
    a, b = add(queue_store, 2)
    with queue_store.begin() as tx:
        tx.delete_page(a)
    assert ids(take(queue_store, T0)) == [b]


def test_a_page_deleted_while_leased_stays_deleted(queue_store):
    (page,) = add(queue_store, 1)
    batch = take(queue_store, T0)
    with queue_store.begin() as tx:
        tx.delete_page(page)
    assert report(queue_store, batch, T0 + SECOND) == [True], "the lease has outlived the page"
    assert report(queue_store, batch, T0 + SECOND) == [False]
    fill_queue(queue_store, T0 + UNTIL)
    assert take(queue_store, T0 + DAY) == []


def test_a_ping_comes_before_all_that_is_overdue(queue_store):
    page_id = np.sort(register(queue_store, 3))
    publish(queue_store, schedule_columns(page_id, crawl_rate=[50.0, 0.1, 50.0]))
    save(queue_store, page_id, last_crawl_at=T0 - DAY, interval_factor=1.0)
    save(queue_store, page_id[1:2], requested_at=T0)
    queue(queue_store, page_id, T0)
    assert ids(take(queue_store, T0, 1)) == [page_id[1]]


def test_what_a_ping_asks_for_comes_before_any_backlog(queue_store):
    """However many pages of its host, and hosts, have waited for longer."""
    (requested,) = add(queue_store, 1, host="busy.example")
    with queue_store.begin() as tx:
        tx.change_page(requested, PagePatch(observability=Observability.complete), T0)
    report(queue_store, take(queue_store, T0), T0)
    add(queue_store, 300, host="busy.example", now=T0 + SECOND)
    for n in range(30):
        add(queue_store, 2, host=f"h{n}.example", now=T0 + SECOND)
    now = T0 + HOUR
    with queue_store.begin() as tx:
        pings = ping_columns(np.array([requested]), instants([now]))
        assert record.ping(tx, pings, RULES).crawl.all()
        queue_due(tx, pings.page_id, now + UNTIL)
    (first,) = take(queue_store, now, 1)
    assert first.page_id == requested
    report(queue_store, [first], now + SECOND)
    assert requested not in ids(take(queue_store, now + 2 * SECOND, 400))


def test_only_the_hosts_asked_for(queue_store):
    for host in ("a.example", "b.example", "c.example"):
        add(queue_store, 2, host=host)
    batch = take(queue_store, T0, hosts=("a.example", "c.example"))
    assert sorted(crawl.host for crawl in batch) == ["a.example"] * 2 + ["c.example"] * 2
    assert take(queue_store, T0, hosts=("nowhere.example",)) == []


def test_the_answer_to_nobody_says_when_to_come_back(queue_store):
    add(queue_store, 2)
    batch = take(queue_store, T0, polite=POLITE)
    report(queue_store, batch, T0, polite=POLITE)
    assert take(queue_store, T0, polite=POLITE) == []
    assert next_ready_at(queue_store) == T0 + SECOND
    assert next_ready_at(queue_store, ("example.org",)) == T0 + SECOND
    assert next_ready_at(queue_store, ("b.example",)) is None


def test_workers_that_ask_together_are_dealt_the_pages_in_turns(queue_store):
    add(queue_store, 6)
    asks = [WorkerRequest(name, 3, TTL) for name in ("a", "b")]
    queue_store.clock = lambda: T0
    with queue_store.begin() as tx:
        dealt = lease.lease(tx, asks, ALL_PAGES, RUDE, rng())
    assert np.bincount(dealt.to).tolist() == [3, 3]
    assert len({*dealt.leased.pages.page_id.tolist()}) == 6
    assert {*dealt.leased.leases.worker[dealt.to == 0]} == {"a"}


def test_more_hosts_than_are_looked_at_at_once_are_all_served(queue_store):
    n = 3 * lease.HOST_QUEUES
    with queue_store.begin() as tx:
        columns = page_columns([f"https://h{i}.example/" for i in range(n)])
        page_id = tx.register(columns, T0).page_id
    queue(queue_store, page_id, T0)
    save(queue_store, np.sort(page_id)[: n - 5], last_crawl_at=T0, interval_factor=1.0)
    assert sorted(ids(take(queue_store, T0, 5))) == sorted(page_id.tolist())[-5:]


def test_shards_share_the_hosts_out_and_each_keeps_its_own(queue_store):
    for i in range(9):
        add(queue_store, 2, host=f"h{i}.example")
    shards = [take(queue_store, T0, 5, slice=i, slices=3) for i in range(3)]
    more = [take(queue_store, T0, 5, slice=i, slices=3) for i in range(3)]
    hosts = [{crawl.host for crawl in [*a, *b]} for a, b in zip(shards, more, strict=True)]
    n_leased = [len(a + b) for a, b in zip(shards, more, strict=True)]
    assert n_leased == [2 * len(own) for own in hosts]
    assert len(set().union(*hosts)) == 9
    if len(queue_store.parts) == 1:
        assert n_leased == [6, 6, 6]
    assert sum(map(len, hosts)) == len(set().union(*hosts)) == 9


def test_a_report_twice_in_a_batch_ends_one_lease(queue_store):
    add(queue_store, 2)
    a, b = take(queue_store, T0)
    assert report(queue_store, [a, b, a], T0) == [True, True, False]
