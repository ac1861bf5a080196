"""Leases of hosts: delays, concurrency, pauses and groups, whatever is reported."""

from dataclasses import replace
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
    Crawl,
    add,
    commit_reports,
    next_ready_at,
    report,
    rng,
    take,
)
from support.store_cases import (
    DAY,
    T0,
    crawl_columns,
    page_columns,
)

from service.batching.reports import CrawlReport, Recorder
from service.estimation.rules import InForce
from service.ingest.page_names import PageNames
from service.leases.host_settings import change_group, change_host
from service.leases.politeness import Politeness
from service.leases.queue import fill_queue
from service.leases.settle import LeaseSettler


def test_the_delay_of_a_host_counts_from_a_report_that_a_slow_clock_dates(queue_store):
    add(queue_store, 2)
    (first,) = take(queue_store, T0, 1, polite=POLITE)
    reported_at = T0 + 30 * SECOND
    report(queue_store, [first], T0 - HOUR, now=reported_at, polite=POLITE)
    assert take(queue_store, reported_at + SECOND / 2, 1, polite=POLITE) == []
    assert len(take(queue_store, reported_at + SECOND, 1, polite=POLITE)) == 1


def test_a_host_that_asks_a_worker_with_a_slow_clock_to_wait_is_waited_for(queue_store):
    add(queue_store, 3)
    crawls = take(queue_store, T0, 1)
    report(queue_store, crawls, T0 - HOUR, T0 + SECOND, status=429, retry_after_s=600)
    assert take(queue_store, T0 + 599 * SECOND) == []
    assert len(take(queue_store, T0 + 600 * SECOND)) == 3


def test_a_host_is_crawled_once_a_delay(queue_store):
    add(queue_store, 3, host="a.example")
    add(queue_store, 2, host="b.example")
    first = take(queue_store, T0, polite=POLITE)
    assert sorted(crawl.host for crawl in first) == ["a.example", "b.example"]
    assert report(queue_store, first, T0, polite=POLITE) == [True, True]
    assert take(queue_store, T0 + SECOND / 2, polite=POLITE) == []
    second = take(queue_store, T0 + SECOND, polite=POLITE)
    assert sorted(crawl.host for crawl in second) == ["a.example", "b.example"]


def test_the_delay_counts_from_the_report_where_one_crawl_at_a_time_may_run(queue_store):
    add(queue_store, 2)
    first = take(queue_store, T0, polite=POLITE)
    assert take(queue_store, T0 + 10 * SECOND, polite=POLITE) == []
    report(queue_store, first, T0 + 20 * SECOND, polite=POLITE)
    assert take(queue_store, T0 + 20 * SECOND, polite=POLITE) == []
    assert len(take(queue_store, T0 + 21 * SECOND, polite=POLITE)) == 1


def test_so_many_leases_of_a_host_run_at_a_time(queue_store):
    add(queue_store, 5)
    polite = Politeness(delay_s=0, concurrency=2)
    first = take(queue_store, T0, polite=polite)
    assert len(first) == 2
    assert take(queue_store, T0, polite=polite) == []
    report(queue_store, first[:1], T0 + SECOND, polite=polite)
    assert len(take(queue_store, T0 + SECOND, polite=polite)) == 1
    assert len(take(queue_store, T0 + TTL, polite=polite)) == 1


@pytest.mark.parametrize("own", [{"min_delay_s": 1.0}, {"robots_delay_s": 1.0}])
def test_a_host_keeps_its_own_delay_where_others_have_none(queue_store, own):
    add(queue_store, 2)
    with queue_store.begin() as tx:
        change_host(tx, "example.org", own, T0, RUDE)
    first = take(queue_store, T0)
    assert report(queue_store, first, T0 + 5 * SECOND) == [True]
    assert take(queue_store, T0 + 5 * SECOND) == []
    assert len(take(queue_store, T0 + 6 * SECOND)) == 1


def test_a_first_delay_holds_from_its_report_while_a_crawl_runs(queue_store):
    add(queue_store, 4)
    first = take(queue_store, T0, count=2)
    assert len(first) == 2
    with queue_store.begin() as tx:
        change_host(tx, "example.org", {"robots_delay_s": 5.0}, T0 + SECOND, RUDE)
    assert take(queue_store, T0 + 6 * SECOND - SECOND / 100) == []
    assert len(take(queue_store, T0 + 6 * SECOND)) == 1


def test_a_host_that_was_full_is_open_after_a_report_where_others_are_never_full(queue_store):
    add(queue_store, 2)
    with queue_store.begin() as tx:
        change_host(tx, "example.org", {"max_concurrency": 1}, T0, RUDE)
    first = take(queue_store, T0)
    assert take(queue_store, T0) == []
    assert report(queue_store, first, T0) == [True]
    assert len(take(queue_store, T0)) == 1


def test_a_good_answer_forgives_failures_where_no_host_waits(queue_store):
    add(queue_store, 5)
    crawls = take(queue_store, T0, 4)
    for crawl, status in zip(crawls, (500, 500, 200, 500), strict=True):
        assert report(queue_store, [crawl], T0, status=status) == [True]
    assert len(take(queue_store, T0)) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_a_host_that_asks_for_it_is_left_alone_as_long_as_it_asks(queue_store, status):
    add(queue_store, 2)
    add(queue_store, 1, host="b.example")
    crawls = take(queue_store, T0, 1)
    other = take(queue_store, T0, hosts=("b.example",))
    assert len(other) == 1 or crawls[0].host == "b.example"
    here = [crawl for crawl in crawls + other if crawl.host == "example.org"]
    here = here or take(queue_store, T0, 1, hosts=("example.org",))
    report(queue_store, here, T0, status=status, retry_after_s=1000)
    assert take(queue_store, T0 + 999 * SECOND, hosts=("example.org",)) == []
    assert len(take(queue_store, T0 + 1000 * SECOND, hosts=("example.org",), ttl=DAY)) >= 1


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_host_that_asks_for_it_is_left_alone_though_it_answered_others(
    queue_store, status, order
):
    """Crawls at the same time, reported in one batch or several."""
    add(queue_store, 3)
    crawls = take(queue_store, T0, 2)
    asks, answers = crawls[order[0]], crawls[order[1]]
    done = commit_reports(
        queue_store,
        [asks, answers],
        [T0, T0 + SECOND],
        T0 + SECOND,
        status=np.array([status, 200], np.int16),
        retry_after_s=np.array([1000.0, np.nan]),
    )
    assert done.lease_ended.tolist() == [True, True]
    assert take(queue_store, T0 + 999 * SECOND) == []
    assert len(take(queue_store, T0 + 1000 * SECOND, 1)) == 1


def test_pauses_double_with_trouble_and_one_answer_forgives(queue_store):
    add(queue_store, 12)
    now, pauses = T0, []
    for _ in range(4):
        crawls = take(queue_store, now, 1)
        report(queue_store, crawls, now, status=503)
        opens = next_ready_at(queue_store)
        pauses.append((opens - now).total_seconds())
        assert take(queue_store, opens - SECOND / 1000, 1) == []
        now = opens
    for doubled, pause in enumerate(pauses):
        assert 30 * 2**doubled <= pause <= 90 * 2**doubled
    report(queue_store, take(queue_store, now, 1), now)
    report(queue_store, take(queue_store, now, 1), now, status=503)
    assert (next_ready_at(queue_store) - now).total_seconds() <= 90


def test_trouble_that_was_reported_before_is_not_heard_again(queue_store):
    add(queue_store, 3)
    crawls = take(queue_store, T0, 1)
    assert report(queue_store, crawls, T0, status=503) == [True]
    opens = next_ready_at(queue_store)
    again = [crawls[0]._replace(token=token) for token in (crawls[0].token, 1, 0)]
    for crawl in again:  # as before, under a token made up, without a lease
        assert report(queue_store, [crawl], T0, T0 + SECOND, status=503) == [False]
        assert report(queue_store, [crawl], T0 - DAY, T0 + SECOND, status=429) == [False]
    assert report(queue_store, again, T0, T0 + SECOND) == [False] * 3
    assert next_ready_at(queue_store) == opens
    with queue_store.begin(write=False) as tx:
        assert tx.host("example.org").host_queue.n_failures == 1


def test_a_pause_counts_from_the_crawl(queue_store):
    """A failure of long ago, told today, holds nobody up."""
    one, two = add(queue_store, 2)
    old = [Crawl(one, "", "example.org", 0, 0.0)]
    report(queue_store, old, T0 - DAY, T0, status=503, retry_after_s=3600)
    assert len(take(queue_store, T0, 1)) == 1
    report(
        queue_store, [old[0]._replace(page_id=two)], T0, T0 + SECOND, status=503, retry_after_s=3600
    )
    assert next_ready_at(queue_store) == T0 + 3600 * SECOND


def test_the_third_timeout_in_a_row_makes_a_host_pause(queue_store):
    add(queue_store, 5)
    for _ in range(2):
        report(queue_store, take(queue_store, T0, 1), T0, status=0)
    crawls = take(queue_store, T0, 1)
    assert len(crawls) == 1
    report(queue_store, crawls, T0, status=0)
    assert take(queue_store, T0 + 29 * SECOND, 1) == []
    assert len(take(queue_store, T0 + 90 * SECOND, 1)) == 1


def test_trouble_after_a_day_without_any_is_the_first(queue_store):
    add(queue_store, 40)

    def pause(at):
        """Trouble of one crawl; gives how long nothing is leased after it."""
        report(queue_store, take(queue_store, at, 1), at, status=503)
        return (next_ready_at(queue_store) - at).total_seconds()

    pauses, at = [], T0
    for _ in range(6):
        pauses.append(pause(at))
        at += timedelta(seconds=pauses[-1])
    assert pauses[-1] > 5 * pauses[0]
    assert pause(at + 25 * HOUR) <= 90


def test_three_timeouts_in_one_batch_make_a_host_pause_and_more_do_so_no_longer(queue_store):
    add(queue_store, 40)
    report(queue_store, take(queue_store, T0, 2), T0, T0, status=0)
    crawls = take(queue_store, T0, 20)
    assert len(crawls) == 20, "two are no trouble yet"
    report(queue_store, crawls, T0, T0, status=0)
    assert take(queue_store, T0 + 29 * SECOND) == []
    assert len(take(queue_store, T0 + 90 * SECOND, 5)) == 5, "as long as after the third alone"


def test_a_group_of_hosts_is_one_host_queue(queue_store):
    add(queue_store, 2, host="c.example")
    add(queue_store, 2, host="d.example")
    with queue_store.begin() as tx:
        change_group(tx, "cdn", {}, ["c.example", "d.example"], T0, POLITE)
    fill_queue(queue_store, T0 + UNTIL)
    assert len(take(queue_store, T0, polite=POLITE)) == 1


ONE_AT_A_TIME = Politeness(delay_s=0, concurrency=1)


def test_a_lease_made_shorter_frees_its_host_queue_when_it_ends(queue_store):
    add(queue_store, 2)
    (crawl,) = take(queue_store, T0, polite=ONE_AT_A_TIME)
    with queue_store.begin() as tx:
        assert tx.extend_lease(crawl.page_id, crawl.token, T0, T0 + SECOND)
    assert next_ready_at(queue_store) == T0 + SECOND
    assert len(take(queue_store, T0 + SECOND, polite=ONE_AT_A_TIME)) == 1


def test_a_deleted_page_frees_its_host_queue_when_its_lease_ends(queue_store):
    add(queue_store, 2)
    (crawl,) = take(queue_store, T0, polite=ONE_AT_A_TIME)
    with queue_store.begin() as tx:
        tx.delete_page(crawl.page_id)
    assert take(queue_store, T0 + TTL - SECOND, polite=ONE_AT_A_TIME) == []
    (other,) = take(queue_store, T0 + TTL, polite=ONE_AT_A_TIME)
    assert other.page_id != crawl.page_id


def test_a_crawl_at_the_last_instant_of_its_lease_is_a_delay_before_the_next(queue_store):
    add(queue_store, 2)
    take(queue_store, T0, polite=POLITE)
    assert next_ready_at(queue_store) == T0 + TTL + SECOND
    assert take(queue_store, T0 + TTL + SECOND - SECOND / 1000, polite=POLITE) == []
    assert len(take(queue_store, T0 + TTL + SECOND, polite=POLITE)) == 1


def test_reports_that_share_a_commit_hold_their_hosts_from_when_they_were_seen(queue_store):
    add(queue_store, 2)
    (leased,) = take(queue_store, T0, polite=POLITE)
    (other,) = add(queue_store, 1, host="b.example")
    seen = T0 + SECOND / 2
    crawled = [crawl_columns(np.array([p]), at) for p, at in ((other, T0), (leased.page_id, seen))]
    token = {"leased_page_id": np.array([leased.page_id]), "token": np.array([leased.token])}
    named = [PageNames(of.page_id, np.array([-1]), page_columns([])) for of in crawled]
    jobs = [
        CrawlReport(crawled[0], named[0], False, T0),
        CrawlReport(replace(crawled[1], **token), named[1], False, seen),
    ]
    queue_store.clock = lambda: seen
    settler = LeaseSettler(POLITE, UNTIL, rng())
    Recorder(queue_store, InForce(RULES), settler).flush_crawls(jobs)
    assert next_ready_at(queue_store, ("example.org",)) == seen + SECOND


@pytest.mark.parametrize("status", [429, 503, 0])
@pytest.mark.parametrize("together", [True, False])
def test_crawls_in_flight_that_meet_one_incident_are_one_pause(queue_store, status, together):
    add(queue_store, 40)
    crawls = take(queue_store, T0, 12)
    retry_after_s = 1 if status == 429 else np.nan
    batches = [crawls] if together else [[crawl] for crawl in crawls]
    for second, batch in enumerate(batches, start=1):
        at = T0 + second * SECOND / 12
        report(queue_store, batch, at, status=status, retry_after_s=retry_after_s)
    opens = next_ready_at(queue_store)
    assert 29 <= (opens - T0).total_seconds() <= 92
    report(queue_store, take(queue_store, opens, 1), opens, status=429)
    again = (next_ready_at(queue_store) - opens).total_seconds()
    assert again <= (180 if status else 740), "the next incident pauses for longer"
    assert again >= 60


@pytest.mark.parametrize("status", [200, 302, 403, 404, 500, 400])
def test_a_host_that_asks_for_a_time_is_left_alone_whatever_else_it_says(queue_store, status):
    add(queue_store, 3)
    retry_after_s = 700
    report(queue_store, take(queue_store, T0, 1), T0, status=status, changed=-1, retry_after_s=700)
    opens = T0 + retry_after_s * SECOND
    assert take(queue_store, opens - SECOND, 1) == []
    assert len(take(queue_store, opens, 1)) == 1


def test_content_asks_for_no_time(queue_store):
    add(queue_store, 3)
    report(queue_store, take(queue_store, T0, 1), T0, status=200, retry_after_s=700)
    assert len(take(queue_store, T0 + SECOND, 1)) == 1


def test_a_crawl_without_a_lease_asks_for_a_time_too(queue_store):
    (one, *_) = add(queue_store, 3)
    crawl = Crawl(one, "", "example.org", 0, 0.0)
    report(queue_store, [crawl], T0, status=403, changed=-1, retry_after_s=700)
    assert take(queue_store, T0 + 699 * SECOND, 1) == []
    assert len(take(queue_store, T0 + 700 * SECOND, 1)) == 1
