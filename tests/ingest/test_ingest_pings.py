"""What pings make of a page's state, rule by rule."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from support.ingest_cases import (
    ACCEPTED,
    DUPLICATE,
    HOUR,
    LATE,
    UNKNOWN,
    announce,
    crawl,
    log,
    rules,
)
from support.store_cases import (
    DAY,
    MICROSECOND,
    T0,
    crawl_columns,
    due_of,
    page_of,
    ping_columns,
    publish,
    register,
    same,
    schedule_columns,
    states_of,
)

from service.ingest.record import ping, record
from service.model.arrays import instant
from service.model.domain import Kind, Observability, PingReason, Timing


def test_a_ping_soon_after_a_crawl_is_dropped_where_that_is_set(memory):
    (page_id,) = register(memory, 1, observability=Observability.complete)
    minute = timedelta(minutes=1)
    by = replace(rules(), ping_delay_s=60)
    crawl(memory, page_id, T0, digest=1)
    before = states_of(memory, [page_id])
    assert announce(memory, page_id, T0 + minute, by) == (False, "crawled_since")
    same(states_of(memory, [page_id]), before)
    assert len(log(memory, page_id)) == 1
    assert announce(memory, page_id, T0 + minute + MICROSECOND, by) == (True, "unscheduled")
    assert announce(memory, page_id, T0 - HOUR, by) == (False, "not_newer")
    assert page_of(memory, page_id).n_pings == 1


@pytest.fixture
def complete(memory):
    """The id of a complete page that was crawled and is scheduled at probability 1/3."""
    (page_id,) = register(memory, 1, observability=Observability.complete)
    crawl(memory, page_id, T0, digest=1)
    publish(memory, schedule_columns([page_id], crawl_rate=0.0, crawl_probability=1 / 3))
    return int(page_id)


def test_a_ping_of_a_page_never_crawled_asks_for_a_crawl_whoever_sends_it(memory):
    for page_id in register(memory, 3, observability=[0, 1, 2]).tolist():
        assert announce(memory, page_id, T0) == (True, PingReason.never_crawled)
        assert states_of(memory, [page_id]).requested_at == instant(T0)


@pytest.mark.parametrize("observability", [Observability.incomplete, Observability.auto])
def test_pings_of_pages_that_are_not_complete_are_counted_and_not_trusted(memory, observability):
    (page,) = register(memory, 1, observability=observability)
    crawl(memory, page, T0)
    assert announce(memory, page, T0 + HOUR) == (False, PingReason.not_trusted)
    found = page_of(memory, page)
    assert (found.n_pings, found.last_ping_at) == (1, T0 + HOUR)
    assert np.isnat(states_of(memory, [page]).requested_at).all()


def test_a_change_that_was_crawled_since_needs_no_crawl(memory, complete):
    assert announce(memory, complete, T0 - HOUR) == (False, PingReason.crawled_since)
    assert announce(memory, complete, T0) == (False, PingReason.crawled_since)
    assert states_of(memory, [complete]).ping_credit.tolist() == [0.0]
    assert page_of(memory, complete).n_pings == 1, "one is from before the page was known"


def test_a_complete_page_without_a_schedule_is_crawled_at_every_ping(memory):
    (page,) = register(memory, 1, observability=Observability.complete)
    crawl(memory, page, T0)
    for hours in (1, 2):
        assert announce(memory, page, T0 + hours * HOUR) == (True, PingReason.unscheduled)


def test_at_a_probability_of_a_third_every_third_ping_is_crawled(memory, complete):
    answers = [announce(memory, complete, T0 + i * HOUR) for i in range(1, 301)]
    assert [crawl for crawl, _ in answers] == [False, False, True] * 100
    assert [reason for _, reason in answers[:3]] == ["saving", "saving", "credit"]
    assert page_of(memory, complete).n_pings == 300


def test_three_pings_in_one_batch_are_as_three_batches(memory, complete):
    with memory.begin() as tx:
        at = [T0 + hours * HOUR for hours in (3, 1, 2)]
        answer = ping(tx, ping_columns([complete] * 3, at), rules())
    assert answer.crawl.tolist() == [True, False, False]
    assert answer.reason.tolist() == ["credit", "saving", "saving"]
    assert states_of(memory, [complete]).requested_at == instant(T0 + 3 * HOUR)


@pytest.mark.parametrize(("probability", "crawls"), [(0.0, 0), (1.0, 12), (0.25, 3)])
def test_pings_are_crawled_as_often_as_the_schedule_says(memory, complete, probability, crawls):
    publish(memory, schedule_columns([complete], crawl_probability=probability))
    assert sum(announce(memory, complete, T0 + i * HOUR)[0] for i in range(1, 13)) == crawls


def test_a_ping_that_is_not_newer_changes_nothing(memory, complete):
    announce(memory, complete, T0 + 2 * HOUR)
    before = states_of(memory, [complete])
    with memory.begin() as tx:
        at = [T0 + 2 * HOUR, T0 + HOUR]
        answer = ping(tx, ping_columns([complete] * 2, at), rules())
    assert answer.verdict.tolist() == [DUPLICATE, LATE]
    assert answer.reason.tolist() == [PingReason.not_newer] * 2
    assert not answer.crawl.any()
    same(states_of(memory, [complete]), before)
    assert len(log(memory, complete)) == 2


def test_a_ping_of_an_unknown_page_says_so(memory, complete):
    with memory.begin() as tx:
        answer = ping(tx, ping_columns([4711, complete, 0], [T0 + HOUR] * 3), rules())
    assert answer.verdict.tolist() == [UNKNOWN, ACCEPTED, UNKNOWN]
    assert answer.reason.tolist() == ["unknown_page", "saving", "unknown_page"]
    assert not answer.crawl.any()


def test_a_wish_stays_until_a_crawl_that_answered_and_saw_the_change(memory, complete):
    publish(memory, schedule_columns([complete], crawl_rate=0.0, crawl_probability=1.0))

    def due():
        return due_of(memory, complete)

    announce(memory, complete, T0 + 2 * HOUR)
    assert due() == T0 + 2 * HOUR
    announce(memory, complete, T0 + 5 * HOUR)
    assert due() == T0 + 2 * HOUR  # the oldest wish stands
    crawl(memory, complete, T0 + HOUR, digest=2)  # before the change
    assert due() == T0 + 2 * HOUR
    crawl(memory, complete, T0 + 6 * HOUR, status=503)
    assert due() == T0 + 7 * HOUR  # not at once: the host has just failed
    crawl(memory, complete, T0 + 6.5 * HOUR, digest=2)
    assert due() is None
    announce(memory, complete, T0 + 8 * HOUR)
    assert due() == T0 + 8 * HOUR


def test_a_crawl_of_the_very_instant_of_the_wish_fulfils_it(memory):
    (page,) = register(memory, 1)
    announce(memory, page, T0)
    crawl(memory, page, T0, digest=1)
    assert np.isnat(states_of(memory, [page]).requested_at).all()


def test_news_from_before_the_counting_began_is_not_counted(memory):
    page = int(register(memory, 1, observability=int(Observability.auto))[0])
    for at in (T0 - 9 * DAY, T0 - MICROSECOND, T0, T0 + HOUR):
        announce(memory, page, at)
    found = page_of(memory, page)
    assert (found.n_pings, found.last_ping_at) == (2, T0 + HOUR)
    assert len(log(memory, page)) == 4


def test_poisson_pings_are_drawn_independently(memory):
    n = 1_000
    ids = np.sort(register(memory, n, observability=Observability.complete))
    by = rules(timing=Timing.poisson)
    with memory.begin() as tx:
        record(tx, crawl_columns(ids, T0), by)
    probability = np.linspace(0, 1, n)
    publish(memory, schedule_columns(ids, crawl_probability=probability))
    with memory.begin() as tx:
        answer = ping(tx, ping_columns(ids, T0 + HOUR), rules(timing=Timing.poisson, seed=9))
    drawn = np.random.default_rng(9).random(n) < probability
    assert answer.crawl.tolist() == drawn.tolist()
    assert not states_of(memory, ids).ping_credit.any()


def test_pings_are_logged_and_say_nothing_of_change_rates(memory, complete):
    announce(memory, complete, T0 + HOUR)
    entry = log(memory, complete)[0]
    assert (entry.kind, entry.observed_at) == (Kind.ping, T0 + HOUR)
    assert entry.changed is entry.interval is entry.status is None


def test_crawls_and_pings_do_not_share_a_clock(memory, complete):
    announce(memory, complete, T0 + 9 * HOUR)
    assert crawl(memory, complete, T0 + HOUR, digest=2) == ACCEPTED
    assert announce(memory, complete, T0 + 10 * HOUR)[1] == PingReason.saving
