"""Crawls of pages that fail, are gone or redirect."""

import numpy as np
import pytest
from support.ingest_cases import HOUR, announce, counts, crawl, log, rules
from support.store_cases import (
    DAY,
    T0,
    crawl_columns,
    due_of,
    page_of,
    publish,
    register,
    schedule_columns,
    states_of,
)

from service.ingest.record import record
from service.leases.due import next_crawl_at, retired
from service.model.domain import Observability


def test_failures_in_a_row_are_counted_until_the_page_answers(memory, page):
    counted = []
    result = [
        {"status": 503},
        {"status": 0},
        {"status": 429},
        {"digest": 5},
        {"status": 400},
    ]
    for hour, what in enumerate(result):
        crawl(memory, page, T0 + hour * HOUR, **what)
        counted.append(page_of(memory, page).n_failures)
    assert counted == [1, 2, 3, 0, 1]


def test_a_page_that_fails_is_tried_again_after_delays_that_double_up_to_30_days(memory, page):
    publish(memory, schedule_columns([page], crawl_rate=1.0))
    crawl(memory, page, T0, digest=5)
    waits, at = [], T0 + DAY
    for _ in range(12):
        crawl(memory, page, at, status=503)
        waits.append((due_of(memory, page) - at) / HOUR)
        at += 2 * DAY
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 720, 720]
    crawl(memory, page, at, digest=5)
    assert due_of(memory, page) - at == pytest.approx(DAY, rel=0.05)


def test_a_page_whose_first_crawl_fails_is_tried_again_after_an_hour_too(memory):
    ids = np.sort(register(memory, 200))
    publish(memory, schedule_columns(ids, crawl_rate=1.0))
    with memory.begin() as tx:
        record(tx, crawl_columns(ids, T0, status=0), rules())
    assert {due_of(memory, i) for i in ids} == {T0 + HOUR}


@pytest.mark.parametrize(
    "result", [{"status": 302, "redirects_to": -1}, {"status": 403}, {"status": 200}]
)
def test_a_page_without_content_is_tried_again_after_intervals_that_double(memory, page, result):
    publish(memory, schedule_columns([page], crawl_rate=1.0))
    crawl(memory, page, T0, digest=5)
    waits, at = [], T0 + DAY
    for _ in range(7):
        crawl(memory, page, at, **result)
        waits.append((due_of(memory, page) - at) / DAY)
        at += 2 * DAY
    assert waits == pytest.approx([1, 2, 4, 8, 16, 30, 30], rel=0.05)


def test_outcomes_that_take_turns_count_together(memory, page):
    publish(memory, schedule_columns([page], crawl_rate=1.0))
    for day, status in enumerate([503, 302, 404, 403, 503]):
        crawl(memory, page, T0 + day * DAY, status=status)
    found = page_of(memory, page)
    assert (found.gone, found.n_failures) == (False, 5)
    assert next_crawl_at(found) == T0 + 4 * DAY + 16 * HOUR


def test_a_glitch_of_404_is_neither_a_change_nor_evidence(memory, page):
    publish(memory, schedule_columns([page], crawl_rate=10.0))
    crawl(memory, page, T0, digest=5)
    crawl(memory, page, T0 + 2 * HOUR, status=404)
    assert next_crawl_at(page_of(memory, page)) == T0 + 3 * HOUR
    crawl(memory, page, T0 + 2.5 * HOUR, status=404)
    assert page_of(memory, page).gone is False
    crawl(memory, page, T0 + 3 * HOUR, digest=5)
    found = page_of(memory, page)
    assert (found.gone, found.n_failures, counts(memory, page)) == (False, 0, (1, 0))
    assert log(memory, page)[0].interval == 0.125


def test_a_page_that_is_back_with_its_old_digest_has_not_changed(memory, page):
    crawl(memory, page, T0, digest=5)
    for hour in (1, 2):
        crawl(memory, page, T0 + hour * HOUR, status=404)
    assert (page_of(memory, page).gone, counts(memory, page)) == (True, (1, 1))
    crawl(memory, page, T0 + 3 * HOUR, digest=5)
    assert (page_of(memory, page).gone, counts(memory, page)) == (False, (2, 1))


def test_the_second_look_of_a_page_crawled_often_comes_after_its_interval(memory, page):
    publish(memory, schedule_columns([page], crawl_rate=96.0))
    crawl(memory, page, T0, digest=5)
    crawl(memory, page, T0 + HOUR, status=404)
    second = next_crawl_at(page_of(memory, page))
    assert second - T0 - HOUR == pytest.approx(HOUR / 4, rel=0.05)
    crawl(memory, page, second, status=404)
    assert page_of(memory, page).gone is True


def test_a_gone_page_is_checked_after_1_2_4_8_and_16_days_and_then_retired(memory, page):
    publish(memory, schedule_columns([page], crawl_rate=24.0))
    crawl(memory, page, T0, digest=5)
    at, waits = T0 + DAY, []
    while at is not None:
        last = at
        assert not retired(page_of(memory, page))
        crawl(memory, page, at, status=404)
        at = due_of(memory, page)
        waits.append(at and (at - last) / DAY)
    assert waits == [pytest.approx(1 / 24, rel=0.05), 1, 2, 4, 8, 16, None]
    found = page_of(memory, page)
    assert (found.gone, found.n_failures, retired(found)) == (True, 7, True)
    assert counts(memory, page) == (6, 1)


@pytest.mark.parametrize("result", [{"status": 503}, {"status": 302, "redirects_to": -1}])
def test_a_crawl_that_says_nothing_of_a_gone_page_leaves_its_checks_as_they_are(
    memory, page, result
):
    for day in range(3):
        crawl(memory, page, T0 + day * DAY, status=404)
    crawl(memory, page, T0 + 9 * DAY, **result)
    found = page_of(memory, page)
    assert (found.gone, found.n_failures) == (True, 3)
    assert next_crawl_at(found) == T0 + 11 * DAY


def test_a_retired_page_that_comes_back_as_it_was_is_crawled_as_ever(memory, page):
    publish(memory, schedule_columns([page], crawl_rate=1.0))
    crawl(memory, page, T0, digest=5)
    for day in range(1, 8):
        crawl(memory, page, T0 + day * DAY, status=410)
    assert retired(page_of(memory, page))
    crawl(memory, page, T0 + 60 * DAY, digest=5)
    found = page_of(memory, page)
    assert (found.gone, found.n_failures, retired(found)) == (False, 0, False)
    assert log(memory, page)[0].changed is False
    assert next_crawl_at(found) - (T0 + 60 * DAY) == pytest.approx(DAY, rel=0.05)


def retire(store, page_id, at):
    for hours in range(-7, 0):
        crawl(store, page_id, at + hours * HOUR, status=404)


@pytest.mark.parametrize("observability", Observability)
def test_a_ping_has_a_retired_page_crawled_once(memory, observability):
    (page_id,) = register(memory, 1, observability=observability)
    retire(memory, page_id, T0)
    assert retired(page_of(memory, page_id))
    at = T0 + 17 * DAY
    assert announce(memory, page_id, at) == (True, "may_be_back")
    assert due_of(memory, page_id) == at
    crawl(memory, page_id, at + HOUR, status=404)
    assert retired(page_of(memory, page_id))


def test_of_a_site_that_goes_on_listing_what_is_gone_a_retired_page_is_crawled_twice_a_month(
    memory,
):
    (page_id,) = register(memory, 1, observability=Observability.auto)
    retire(memory, page_id, T0)
    n_crawls = 0
    for day in range(160):
        at = T0 + day * DAY
        announce(memory, page_id, at)
        due = due_of(memory, page_id)
        if due is not None and due <= at:
            n_crawls += 1
            crawl(memory, page_id, at + HOUR, status=404)
    assert 8 <= n_crawls <= 10


def test_a_check_that_was_asked_for_and_got_no_answer_is_tried_again_after_16_days(memory, page):
    retire(memory, page, T0)
    with memory.begin() as tx:
        assert tx.wake(np.array([page]), T0 + DAY).tolist() == [page]
    crawl(memory, page, T0 + 2 * DAY, status=503)
    assert due_of(memory, page) == T0 + 18 * DAY
    crawl(memory, page, T0 + 18 * DAY, status=404)
    assert retired(page_of(memory, page))


@pytest.mark.parametrize("status", [301, 308])
def test_a_page_that_has_moved_for_good_is_gone_and_names_its_target(memory, status):
    one, other = np.sort(register(memory, 2)).tolist()
    crawl(memory, one, T0, digest=5)
    crawl(memory, one, T0 + DAY, status=status, digest=6, changed=0, redirects_to=other)
    found = page_of(memory, one)
    assert (found.gone, found.n_failures, found.redirects_to) == (False, 1, other)
    assert log(memory, one)[0].changed is None
    crawl(memory, one, T0 + 2 * DAY, status=status, digest=6, changed=0, redirects_to=other)
    found = page_of(memory, one)
    assert (found.gone, found.n_failures, found.redirects_to) == (True, 2, other)
    assert log(memory, one)[0].changed is True
    crawl(memory, one, T0 + 3 * DAY, status=404)
    assert page_of(memory, one).redirects_to is None
    assert page_of(memory, one).n_failures == 3


@pytest.mark.parametrize("status", [300, 302, 303, 305, 307])
def test_a_redirect_for_now_is_neither_evidence_nor_failure(memory, status):
    one, other = np.sort(register(memory, 2)).tolist()
    crawl(memory, one, T0, digest=5)
    crawl(memory, one, T0 + HOUR, status=503)
    crawl(memory, one, T0 + DAY, status=status, digest=6, changed=1, redirects_to=other)
    found = page_of(memory, one)
    assert (found.gone, found.n_failures, found.redirects_to) == (False, 2, other)
    assert (found.last_crawl_at, found.last_observed_at) == (T0 + DAY, T0)
    assert log(memory, one)[0].changed is None
    assert states_of(memory, [one]).digest.tolist() == [5]
    crawl(memory, one, T0 + 2 * DAY, digest=5)
    assert (counts(memory, one), log(memory, one)[0].interval) == ((1, 0), 2.0)
    assert page_of(memory, one).redirects_to is None


def test_a_redirect_to_where_nobody_registered_names_no_target_but_moves_the_page(memory, page):
    for hour in range(2):
        crawl(memory, page, T0 + hour * HOUR, status=301, redirects_to=-1)
    found = page_of(memory, page)
    assert (found.gone, found.redirects_to) == (True, None)


def test_a_crawl_that_a_ping_asked_for_is_done_when_it_shows_the_page(memory):
    (page_id,) = register(memory, 1, observability=Observability.complete)
    crawl(memory, page_id, T0, digest=1)
    announce(memory, page_id, T0 + HOUR)
    crawl(memory, page_id, T0 + 2 * HOUR, status=500)
    assert due_of(memory, page_id) == T0 + 3 * HOUR
    crawl(memory, page_id, T0 + 3 * HOUR, status=500)
    assert due_of(memory, page_id) == T0 + 5 * HOUR
    crawl(memory, page_id, T0 + 5 * HOUR, status=302, redirects_to=-1)
    assert page_of(memory, page_id).requested_at == T0 + HOUR
    assert due_of(memory, page_id) == T0 + 5 * HOUR + 4 * DAY
    crawl(memory, page_id, T0 + 5 * DAY, digest=1)
    assert page_of(memory, page_id).requested_at is None
