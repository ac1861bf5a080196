"""What pings of `auto` pages earn: a crawl now, later, or with the next pings."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from support.ingest_cases import HOUR, announce, crawl, rules
from support.ping_cases import AUDITS, noisy
from support.store_cases import (
    DAY,
    T0,
    due_of,
    page_of,
    ping_columns,
    publish,
    register,
    save,
    schedule_columns,
    states_of,
)

from recrawl_lab.reference.simulate import by_credit
from service.core.crawl_value import crawl_value, days_to_value
from service.core.estimators import make_estimator
from service.core.estimators.gamma import Gamma
from service.core.pings import recent_days, recent_pings
from service.estimation.estimates import pings_now
from service.ingest.record import ping
from service.model.arrays import instant
from service.model.domain import Observability, PingReason


def quality(store, page_id, at):
    row = np.zeros(1, np.int64)
    return pings_now(states_of(store, [page_id]), row, Gamma(), np.array([instant(at)]))


def credit(store, page_id):
    return float(states_of(store, [page_id]).ping_credit[0])


def test_a_ping_earns_its_share_of_the_planned_crawl(memory):
    page = noisy(memory)
    pings = quality(memory, page, T0 + 6 * HOUR)
    assert announce(memory, page, T0 + 6 * HOUR)[1] == PingReason.later
    planned = 0.5 * pings.ping_rate
    expected = planned * (0.25 * pings.unannounced_rate + pings.precision) / pings.change_rate
    assert credit(memory, page) == pytest.approx(float(expected[0]), rel=1e-9)


def test_the_crawl_is_due_when_its_value_is_that_of_the_plan(store):
    page = noisy(store)
    pings = quality(store, page, T0 + 6 * HOUR)
    planned = 0.5 * pings.ping_rate
    bar = crawl_value(1.0, pings, 1 / planned, pings.ping_rate / planned)
    days = float(days_to_value(bar, 1.0, pings, 1)[0])
    assert announce(store, page, T0 + 6 * HOUR) == (False, PingReason.later)
    assert 0.25 < days < 1 / AUDITS
    # a store keeps seven digits of the interval
    assert due_of(store, page) - T0 == pytest.approx(timedelta(days=days), rel=1e-6)
    assert np.isnat(states_of(store, [page]).requested_at[0])


def test_enough_pings_have_the_page_crawled_at_once(memory):
    page = noisy(memory)
    answers = [announce(memory, page, T0 + i * HOUR) for i in range(1, 7)]
    assert True in [now for now, _ in answers]
    first = [now for now, _ in answers].index(True)
    assert 1 <= first <= 4
    assert {reason for _, reason in answers[:first]} == {PingReason.later}
    assert answers[first] == (True, PingReason.credit)
    assert states_of(memory, [page]).requested_at[0] == instant(T0 + (first + 1) * HOUR)


def test_further_pings_bring_the_crawl_nearer_and_never_put_it_off(memory):
    page = noisy(memory, probability=0.2)
    due = [due_of(memory, page)]
    for hours in range(1, 5):
        announce(memory, page, T0 + hours * HOUR)
        due.append(due_of(memory, page))
    assert due == sorted(due, reverse=True)
    assert len(set(due)) > 3


def test_a_ping_that_pays_after_the_planned_crawl_moves_nothing(memory):
    page = noisy(memory, probability=0.01, crawl_rate=1.0)
    due = due_of(memory, page)
    assert announce(memory, page, T0 + HOUR) == (False, PingReason.saving)
    assert due_of(memory, page) == due
    assert 0 < credit(memory, page) < 0.1


def test_false_pings_earn_less_than_true_ones(memory):
    earned = []
    for real, false in ((29.0, 1.0), (15.0, 15.0), (4.0, 26.0)):
        host = f"{real:.0f}.example.org"
        page = noisy(memory, real_pings=real, false_pings=false, host=host)
        announce(memory, page, T0 + HOUR)
        earned.append(credit(memory, page))
    assert earned == sorted(earned, reverse=True)
    assert earned[0] > 1.5 * earned[2]


def test_the_time_between_pings_earns_what_pings_miss(memory):
    page, other = (int(i) for i in noisy(memory, n=2))
    announce(memory, page, T0 + HOUR)
    announce(memory, other, T0 + HOUR)
    before = credit(memory, page)
    assert announce(memory, page, T0 + 2 * HOUR)[0] is announce(memory, other, T0 + 2 * DAY)[0]
    assert credit(memory, other) - before > credit(memory, page) - before


def test_a_crawl_that_no_ping_paid_for_uses_the_credit_up(memory):
    page = noisy(memory)
    announce(memory, page, T0 + HOUR)
    assert credit(memory, page) > 0
    crawl(memory, page, T0 + 2 * HOUR, status=503)
    assert credit(memory, page) > 0, "the page was not seen"
    crawl(memory, page, T0 + 3 * HOUR, digest=1)
    assert credit(memory, page) == 0


def test_the_rest_of_a_credit_outlives_the_crawl_that_it_paid_for(memory):
    page = noisy(memory, probability=0.9)
    hours = 1
    while not announce(memory, page, T0 + hours * HOUR)[0]:
        hours += 1
    rest = credit(memory, page)
    assert rest > 0
    crawl(memory, page, T0 + (hours + 1) * HOUR, digest=2)
    assert credit(memory, page) == rest


def test_a_late_ping_may_be_due_at_its_arrival(memory):
    page = noisy(memory)
    with memory.begin() as tx:
        arrived = T0 + 90 * DAY
        answer = ping(tx, ping_columns([page], [T0 + HOUR]), rules(), arrived)
    assert (answer.crawl.tolist(), answer.reason.tolist()) == ([True], ["credit"])
    assert states_of(memory, [page]).requested_at[0] == instant(arrived)
    assert credit(memory, page) == 0


def test_an_open_request_is_not_followed_by_a_nearer_date(memory):
    page = noisy(memory)
    save(memory, [page], requested_at=T0 + HOUR)
    announce(memory, page, T0 + 2 * HOUR)
    assert states_of(memory, [page]).interval_factor[0] == 1.0
    assert due_of(memory, page) == T0 + HOUR


def test_trusted_feeds_earn_the_crawl_probability(memory):
    page = noisy(memory, probability=0.25, trust=9.0)
    answers = [announce(memory, page, T0 + i * HOUR) for i in range(1, 9)]
    assert [now for now, _ in answers] == [False, False, False, True] * 2
    assert {reason for now, reason in answers if not now} == {PingReason.saving}


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.5, 0.77, 1.0])
def test_complete_pages_are_crawled_by_credit_alone(memory, probability):
    (page,) = register(memory, 1, observability=Observability.complete)
    crawl(memory, page, T0, digest=1)
    plan = schedule_columns([page], crawl_rate=0.2, crawl_probability=probability)
    publish(memory, plan)
    rng, at, found = np.random.default_rng(1), T0, []
    for _ in range(200):
        at += timedelta(hours=float(rng.exponential(30.0)))
        found.append(announce(memory, page, at)[0])
        if rng.random() < 0.3:
            at += HOUR
            crawl(memory, page, at, digest=2)
    assert found == by_credit(200, probability).tolist()
    assert page_of(memory, page).interval_factor != 0


def test_recent_pings_are_the_weighted_number_of_pings(store):
    page, other = (int(i) for i in np.sort(register(store, 2)))
    days = [0.5, 0.6, 3.0, 20.0, 21.5]
    with store.begin() as tx:
        at = [T0 + day * DAY for day in days]
        ping(tx, ping_columns([page] * 5, at), rules())
    for day in days:
        announce(store, other, T0 + day * DAY)
    expected = sum(0.5 ** ((days[-1] - day) / 7.0) for day in days)
    for page_id in (page, other):
        found = float(states_of(store, [page_id]).recent_pings[0])
        assert found == pytest.approx(expected, rel=1e-12)
        assert page_of(store, page_id).recent_pings == pytest.approx(expected, rel=1e-12)


def test_pings_from_before_the_counting_began_are_not_recent(memory):
    page = int(register(memory, 1)[0])
    announce(memory, page, T0 - 9 * DAY)
    assert float(states_of(memory, [page]).recent_pings[0]) == 0.0
    announce(memory, page, T0 + DAY)
    assert float(states_of(memory, [page]).recent_pings[0]) == 1.0


def test_a_page_that_becomes_complete_counts_anew(store):
    page = int(register(store, 1)[0])
    announce(store, page, T0 + DAY)
    register(store, 1, T0 + 2 * DAY, observability=Observability.complete)
    states = states_of(store, [page])
    assert (states.n_pings[0], states.recent_pings[0]) == (0, 0.0)


@pytest.mark.dear
def test_a_steady_rate_is_found_after_any_time(memory):
    page = int(register(memory, 1)[0])
    for hour in range(24 * 30):
        announce(memory, page, T0 + hour * HOUR)
    states = states_of(memory, [page])
    rate = states.recent_pings[0] / recent_days(30.0)
    assert rate == pytest.approx(24.0, rel=0.01)
    after_a_month = recent_pings(states.recent_pings[0], 30.0) / recent_days(60.0)
    assert after_a_month == pytest.approx(24.0 * 2 ** (-30 / 7) * 0.95, rel=0.02)


def test_rules_without_a_posterior_of_the_rate_use_the_probability(memory):
    page = noisy(memory, probability=0.5)
    by = replace(rules(), estimator=make_estimator("lognormal"))
    assert [announce(memory, page, T0 + i * HOUR, by)[0] for i in range(1, 5)] == [
        False,
        True,
        False,
        True,
    ]
