"""Leases that end without a report: counts, waits, what ends them, and who else goes first."""

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.crawl_cases import (
    HOUR,
    RUDE,
    RULES,
    SECOND,
    TTL,
    UNTIL,
    add,
    commit_reports,
    ids,
    queue,
    release,
    report,
    take,
)
from support.store_cases import (
    DAY,
    T0,
    instants,
    page_of,
    ping_columns,
    publish,
    register,
    schedule_columns,
)

from service.ingest import record
from service.ingest.bulk import Recrawl, act_on
from service.leases.host_settings import change_host
from service.leases.listing import Selection, list_pages, shown
from service.leases.politeness import Politeness
from service.leases.queue import fill_queue
from service.leases.returning import return_leases_of
from service.leases.settle import LeaseSettler
from service.leases.unfinished import unfinished_page, wait_days
from service.model.domain import Observability, PagePatch
from service.model.listing import PageFilter
from service.model.unfinished import SET_ASIDE_AFTER, Ending

SETTLER = LeaseSettler(RUDE, UNTIL, RULES.rng)


def unfinished(store, page, now):
    """The count, the ending and the next lease of a page; None: nothing to say."""
    with store.begin(write=False) as tx:
        found = unfinished_page(tx, tx.page(page), now)
    return None if found is None else (found.n, found.ending, found.next_crawl_at)


def expire(store, page, at, ttl=TTL):
    """Lease one page and let the lease expire; return the end of the lease."""
    assert ids(take(store, at, ttl=ttl)) == [page]
    return at + ttl


def selected(store, state, now):
    with store.begin(write=False) as tx:
        return list_pages(tx, 0, 100, Selection(PageFilter(), state), now).pages.page_id.tolist()


# -- the rule


@given(st.integers(1, 40), st.sampled_from(Ending), st.floats(1e-5, 1 / 24))
def test_a_wait_is_a_retry_then_twice_as_long_then_a_day(n, ending, first_days):
    (wait,) = wait_days(np.array([n]), np.array([ending]), np.array([first_days]))
    if n >= SET_ASIDE_AFTER:
        assert wait == 1.0
    elif n == 2:
        assert wait == 2 * first_days
    else:
        assert wait == (0.0 if ending is Ending.returned else first_days)


def test_a_page_whose_leases_expire_waits_longer_and_is_then_tried_daily(queue_store):
    (page,) = add(queue_store, 1)
    now = T0
    for n, wait in ((1, HOUR), (2, 2 * HOUR), (3, DAY), (4, DAY)):
        end = expire(queue_store, page, now)
        assert unfinished(queue_store, page, end - SECOND) == (
            None if n == 1 else (n - 1, Ending.expired, None)
        )
        # shown as one more from the end on, and no other before somebody asks for crawls
        expected = n, Ending.expired, end + wait
        assert unfinished(queue_store, page, end) == expected
        assert take(queue_store, end) == []
        assert unfinished(queue_store, page, end) == expected
        assert take(queue_store, end + wait - SECOND) == []
        now = end + wait


def test_nobody_waits_longer_because_nobody_asked(queue_store):
    """Counted late, an expired lease is no more than one, and its wait began at its end."""
    (page,) = add(queue_store, 1)
    end = expire(queue_store, page, T0)
    assert ids(take(queue_store, end + 30 * DAY)) == [page]
    assert unfinished(queue_store, page, end + 30 * DAY) == (1, Ending.expired, None)


def test_a_page_that_is_crawled_often_waits_its_interval_first(queue_store):
    (page,) = register(queue_store, 1).tolist()
    publish(queue_store, schedule_columns(np.array([page]), crawl_rate=1440.0))
    queue(queue_store, [page], T0)
    end = expire(queue_store, page, T0)
    (_, _, next_at) = unfinished(queue_store, page, end)
    factor = page_of(queue_store, page).interval_factor
    assert next_at == pytest.approx(end + factor * timedelta(minutes=1), abs=SECOND)


def test_a_page_given_back_is_due_at_once_the_first_time(queue_store):
    (page,) = add(queue_store, 1)
    for n, wait in ((1, timedelta(0)), (2, 2 * HOUR), (3, DAY)):
        at = T0 + n * 3 * DAY
        crawls = take(queue_store, at)
        assert release(queue_store, crawls, at + SECOND) == [True]
        assert unfinished(queue_store, page, at + SECOND)[:2] == (n, Ending.returned)
        if wait:
            assert take(queue_store, at + wait) == []
        assert ids(take(queue_store, at + SECOND + wait)) == [page]
        release(queue_store, take(queue_store, at), at)
        if n == 1:
            break


def test_returns_and_expiries_count_together(queue_store):
    (page,) = add(queue_store, 1)
    end = expire(queue_store, page, T0)
    crawls = take(queue_store, end + HOUR)
    release(queue_store, crawls, end + HOUR)
    assert unfinished(queue_store, page, end + HOUR) == (2, Ending.returned, end + 3 * HOUR)
    end = expire(queue_store, page, end + 3 * HOUR)
    assert unfinished(queue_store, page, end) == (3, Ending.expired, end + DAY)


# -- other pages of the host


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_page_that_nobody_reports_holds_up_no_other_of_its_host(queue_store, concurrency):
    polite = Politeness(delay_s=0, concurrency=concurrency)
    pages = add(queue_store, 20)
    poison, now, crawled = set(pages[:concurrency]), T0, []
    for _ in range(60):
        for crawl in take(queue_store, now, count=1, polite=polite):
            crawled.append(crawl.page_id)
            if crawl.page_id not in poison:
                report(queue_store, [crawl], now, polite=polite)
        now += TTL / 4
    assert set(crawled) == set(pages)
    for page in poison:
        assert crawled.count(page) <= SET_ASIDE_AFTER + 1


def test_one_request_counts_what_expired_and_leases_what_is_due(queue_store):
    """Expired leases cost a request no crawl: it gets as many others as it asked for."""
    add(queue_store, 30)
    lost = take(queue_store, T0, count=10)
    found = take(queue_store, T0 + TTL, count=20)
    assert len(found) == 20
    assert not {*ids(lost)} & {*ids(found)}


def test_a_lease_that_expired_a_moment_ago_still_fills_the_place_of_its_host(queue_store):
    """Its worker may have crawled at its end, so the delay counts from there."""
    polite = Politeness(delay_s=30, concurrency=1)
    add(queue_store, 2)
    (first,) = take(queue_store, T0, polite=polite)
    assert take(queue_store, T0 + TTL, polite=polite) == []
    assert take(queue_store, T0 + TTL + 29 * SECOND, polite=polite) == []
    (second,) = take(queue_store, T0 + TTL + 30 * SECOND, polite=polite)
    assert first.page_id != second.page_id


# -- what ends a count


def test_a_report_under_a_lease_ends_the_count(queue_store):
    (page,) = add(queue_store, 1)
    end = expire(queue_store, page, T0)
    crawls = take(queue_store, end + HOUR)
    report(queue_store, crawls, end + HOUR)
    assert unfinished(queue_store, page, end + HOUR) is None


@pytest.mark.parametrize("counted", [False, True])
def test_a_late_report_ends_the_count(queue_store, counted):
    (page,) = add(queue_store, 1)
    crawls = take(queue_store, T0)
    if counted:
        assert take(queue_store, T0 + TTL) == []
    commit_reports(queue_store, crawls, T0 + SECOND, T0 + 2 * TTL, status=200, changed=0)
    assert unfinished(queue_store, page, T0 + 2 * TTL) is None


def test_a_late_report_ends_the_count_under_the_lease_of_another(queue_store):
    (page,) = add(queue_store, 1)
    publish(queue_store, schedule_columns(np.array([page]), crawl_rate=24.0))
    old = take(queue_store, T0)
    later = T0 + TTL + HOUR
    (new,) = take(queue_store, later)
    done = commit_reports(queue_store, old, T0 + SECOND, later, status=200, changed=0)
    assert done.lease_ended.tolist() == [False]
    assert unfinished(queue_store, page, later) is None
    assert take(queue_store, later + TTL) == []
    assert unfinished(queue_store, page, later + TTL)[0] == 1
    assert new.page_id == page


@pytest.mark.parametrize("status", [200, 503])
def test_a_report_without_a_lease_ends_the_count_and_the_wait(queue_store, status):
    """The page is due by the rule of its report, with no epoch in between."""
    (page,) = register(queue_store, 1).tolist()
    publish(queue_store, schedule_columns(np.array([page]), crawl_rate=24.0))
    queue(queue_store, [page], T0)
    now = T0
    for _ in range(SET_ASIDE_AFTER):
        end = expire(queue_store, page, now)
        (_, _, now) = unfinished(queue_store, page, end)
        assert take(queue_store, end) == []
    (crawl,) = take(queue_store, now)
    release(queue_store, [crawl], now)
    plain = [crawl._replace(token=0)]
    commit_reports(queue_store, plain, now + SECOND, now + SECOND, status=status, changed=0)
    assert unfinished(queue_store, page, now + SECOND) is None
    assert ids(take(queue_store, now + 2 * HOUR)) == [page]
    assert unfinished(queue_store, page, now + 2 * HOUR) is None


def test_a_crawl_that_was_reported_without_its_token_is_no_lost_lease(queue_store):
    (page,) = add(queue_store, 1)
    (crawl,) = take(queue_store, T0)
    plain = [crawl._replace(token=0)]
    commit_reports(queue_store, plain, T0 + SECOND, T0 + SECOND, status=200, changed=0)
    assert unfinished(queue_store, page, T0 + TTL) is None
    take(queue_store, T0 + TTL)
    assert unfinished(queue_store, page, T0 + TTL) is None


def test_a_repeated_report_ends_a_lease_as_reported(queue_store):
    (page,) = add(queue_store, 1)
    (crawl,) = take(queue_store, T0)
    plain = [crawl._replace(token=0)]
    commit_reports(queue_store, plain, T0 + SECOND, T0 + SECOND, status=200, changed=0)
    done = commit_reports(queue_store, [crawl], T0 + SECOND, T0 + SECOND, status=200, changed=0)
    assert done.lease_ended.all()
    assert unfinished(queue_store, page, T0 + TTL) is None


# -- requests


def ping(store, page, at):
    with store.begin() as tx:
        answered = record.ping(tx, ping_columns(np.array([page]), instants([at])), RULES)
        SETTLER.queue_requested(tx, np.array([page])[answered.crawl], at)
    return bool(answered.crawl[0])


@pytest.mark.parametrize("way", ["ping", "recrawl"])
def test_a_request_makes_a_page_due_once(queue_store, way):
    (page,) = add(queue_store, 1)
    with queue_store.begin() as tx:
        tx.change_page(page, PagePatch(observability=Observability.complete), T0)
    end = expire(queue_store, page, T0)
    assert take(queue_store, end) == []
    asked, leased = [1, 20, 40], []
    for minute in range(1, 60):
        now = end + minute * 60 * SECOND
        if minute in asked and way == "ping":
            ping(queue_store, page, now)
        elif minute in asked:
            queue_store.clock = lambda now=now: now
            act_on(queue_store, np.array([page]), Recrawl(SETTLER), now)
        leased += [minute] * len(take(queue_store, now, ttl=30 * SECOND))
    n, _, next_at = unfinished(queue_store, page, end + HOUR)
    if way == "ping":  # the third lease in a row sets the page aside, whoever pings it
        assert leased == asked[:2]
        assert (n, next_at) == (3, end + 20 * 60 * SECOND + 30 * SECOND + DAY)
    else:
        assert leased == asked
        assert (n, next_at) == (1, end + 40 * 60 * SECOND + 30 * SECOND + HOUR)


def test_each_request_of_an_operator_starts_the_count_anew(queue_store):
    (page,) = add(queue_store, 1)
    now = T0
    for _ in range(5):
        end = expire(queue_store, page, now)
        assert take(queue_store, end) == []
        assert unfinished(queue_store, page, end)[0] == 1
        now = end + SECOND
        queue_store.clock = lambda now=now: now
        done = act_on(queue_store, np.array([page]), Recrawl(SETTLER), now)
        assert done.changed.tolist() == [page]


def test_an_epoch_brings_no_page_back_that_waits(queue_store):
    (page,) = add(queue_store, 1)
    end = expire(queue_store, page, T0)
    assert take(queue_store, end) == []
    publish(queue_store, schedule_columns(np.array([page]), crawl_rate=48.0))
    fill_queue(queue_store, end + UNTIL)
    assert take(queue_store, end + HOUR - SECOND) == []
    # with a rate by which the page is due much later, the count stays too
    publish(queue_store, schedule_columns(np.array([page]), crawl_rate=0.01))
    fill_queue(queue_store, end + UNTIL)
    assert unfinished(queue_store, page, end)[0] == 1


# -- lists, workers


def test_lists_select_pages_by_their_leases(queue_store):
    a, b, c = sorted(add(queue_store, 3))
    now = T0
    for _ in range(SET_ASIDE_AFTER):
        crawls = take(queue_store, now)
        report(queue_store, [crawl for crawl in crawls if crawl.page_id == c], now)
        release(queue_store, [crawl for crawl in crawls if crawl.page_id == a], now)
        now += DAY
    crawls = take(queue_store, now - DAY + SECOND)
    assert selected(queue_store, "unfinished", now) == [a, b]
    assert selected(queue_store, "set_aside", now) == [a, b]
    with queue_store.begin(write=False) as tx:
        pages = list_pages(tx, 0, 100, Selection(PageFilter()), now).pages
        listed = shown(tx, pages, now)
    counts = dict(zip(listed.page_id.tolist(), listed.n_unfinished.tolist(), strict=True))
    assert counts[c] == 0
    assert min(counts[a], counts[b]) >= SET_ASIDE_AFTER
    assert crawls == []


def test_an_expired_lease_that_nobody_counted_is_listed(queue_store):
    a, b = add(queue_store, 2)
    take(queue_store, T0, count=1)
    assert selected(queue_store, "unfinished", T0 + TTL - SECOND) == []
    (found,) = selected(queue_store, "unfinished", T0 + TTL)
    assert found in (a, b)


def returned(store, worker, now, may_name=lambda _: True, *, dry_run=False):
    store.clock = lambda: now
    ends = []
    n = return_leases_of(
        store, SETTLER, worker, may_name, lambda _, n: ends.append(n), dry_run=dry_run
    )
    assert sum(ends) == (0 if dry_run else n)
    return n


def test_the_leases_of_a_worker_are_returned_together(queue_store):
    pages = add(queue_store, 5)
    take(queue_store, T0, count=4)
    assert returned(queue_store, "other", T0 + SECOND) == 0
    assert returned(queue_store, "w", T0 + SECOND, dry_run=True) == 4
    assert returned(queue_store, "w", T0 + SECOND, lambda url: url.endswith("/1")) <= 1
    assert returned(queue_store, "w", T0 + SECOND) >= 3
    assert returned(queue_store, "w", T0 + SECOND) == 0
    assert sorted(ids(take(queue_store, T0 + SECOND))) == sorted(pages)


def test_the_worker_that_loses_most_is_named_first(queue_store):
    add(queue_store, 6)
    take(queue_store, T0, count=3)
    with queue_store.begin(write=False) as tx:
        (worker,) = tx.workers(T0 + SECOND, 10)
        assert (worker.worker, worker.n_running, worker.n_lost) == ("w", 3, 0)
        (worker,) = tx.workers(T0 + TTL, 10)
        assert (worker.n_running, worker.n_expired, worker.n_lost) == (0, 3, 3)
    assert len(take(queue_store, T0 + TTL, count=10)) == 3
    with queue_store.begin(write=False) as tx:
        (worker,) = tx.workers(T0 + TTL, 10)
        assert (worker.n_running, worker.n_expired, worker.n_lost) == (3, 3, 3)
        assert tx.queue_census(T0 + TTL).n_unfinished == 3


def test_a_page_deleted_meanwhile_has_no_count(queue_store):
    page, other = add(queue_store, 2)
    take(queue_store, T0)
    with queue_store.begin() as tx:
        tx.delete_page(page)
    assert take(queue_store, T0 + TTL) == []
    assert ids(take(queue_store, T0 + TTL + HOUR)) == [other]


@pytest.mark.parametrize("counted", [False, True])
def test_a_wait_goes_along_with_its_host_into_a_group(queue_store, counted):
    (page,) = add(queue_store, 1)
    end = expire(queue_store, page, T0)
    if counted:
        assert take(queue_store, end) == []
    with queue_store.begin() as tx:
        change_host(tx, "example.org", {"group": "cdn"}, end, RUDE)
    assert take(queue_store, end + HOUR - SECOND) == []
    assert ids(take(queue_store, end + HOUR)) == [page]


def test_a_clock_set_back_moves_a_wait_along(queue_store):
    (page,) = add(queue_store, 1)
    end = expire(queue_store, page, T0 + DAY)
    assert take(queue_store, end) == []
    with queue_store.begin() as tx:
        tx.redate_leases(T0)
    _, _, next_at = unfinished(queue_store, page, T0)
    assert next_at == T0 + TTL + HOUR
