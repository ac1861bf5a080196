"""The gate of crawls: what a day, and any number of days, may spend."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.checks import InvalidInput
from service.core.even_days import Demand, kept
from service.core.open_hours import OpenHours
from service.core.pace import (
    Pace,
    TakenAmounts,
    advanced,
    at_last_request,
    given_back,
    next_room_at,
    regrouped,
    room,
    taken,
)

ROUNDING = 1e-9


@st.composite
def lives(draw):
    """Return a budget, a loan and steps: time, wish of due, urgent and early crawls."""
    budget = draw(st.sampled_from([0.3, 1.0, 7.5, 100.0, 12_345.6]))
    loan = draw(st.sampled_from([0.0, 1.0, 3.0, 7.0]))
    wish = st.floats(0, 5).map(lambda days: days * budget)
    step = st.tuples(st.floats(0, 1.7), wish, wish, wish)
    return budget, loan, draw(st.lists(step, max_size=25))


def play(budget, loan, steps, at=0.4):
    """Return the crawls, on time and on loan, of each day of a life at the gate."""
    pace, days = Pace.starting(budget, at), {}
    for wait, due, urgent, ahead in steps:
        at += wait
        pace = advanced(pace, at, budget)
        for wish, limit in ((due, "due"), (ahead, "ahead")):
            crawls = math.floor(min(wish, getattr(room(pace, loan), limit)) + ROUNDING)
            pace = taken(pace, TakenAmounts(crawls))
            days[int(at)] = days.get(int(at), 0) + crawls
        lent = math.floor(min(urgent, room(pace, loan).on_loan) + ROUNDING)
        pace = taken(pace, TakenAmounts(lent, on_loan=lent))
        days[int(at)] = days.get(int(at), 0) + lent
    return days


@pytest.mark.dear
@given(lives())
def test_any_days_have_at_most_their_budget_and_the_loan(life):
    budget, loan, steps = life
    days = play(budget, loan, steps)
    spent = [days.get(day, 0) for day in range(max(days, default=0) + 1)]
    for first in range(len(spent)):
        for last in range(first, len(spent)):
            most = budget * (last - first + 1 + loan)
            # a part of a crawl is carried into the first of the days
            assert sum(spent[first : last + 1]) <= most + 1 + ROUNDING * budget


@given(lives())
def test_days_without_a_loan_have_at_most_the_budget(life):
    budget, _, steps = life
    for crawls in play(budget, 0.0, steps).values():
        assert crawls <= budget + 1 + ROUNDING * budget


@pytest.mark.dear
@given(lives(), st.integers(2, 9))
def test_time_in_parts_is_the_same_time(life, parts):
    budget, _, steps = life
    whole = split = taken(Pace.starting(budget, 0.4), TakenAmounts(budget, on_loan=budget / 2))
    at = 0.4
    for wait, *_ in steps:
        for part in np.linspace(at, at + wait, parts):
            split = advanced(split, float(part), budget)
        at += wait
        whole = advanced(whole, at, budget)
    for limit in ("due", "ahead", "on_loan"):
        of_whole, of_split = (getattr(room(pace, 3.0), limit) for pace in (whole, split))
        assert of_whole == pytest.approx(of_split, abs=1e-6 * budget)


def test_a_fleet_that_asks_every_six_hours_spends_every_day():
    pace, day = Pace.starting(200.0, 0.0), np.zeros(30)
    for quarter in range(4 * 30):
        pace = advanced(pace, quarter / 4, 200.0)
        crawls = math.floor(room(pace).due + ROUNDING)
        pace, day[quarter // 4] = taken(pace, TakenAmounts(crawls)), day[quarter // 4] + crawls
    assert day.tolist() == [200.0] * 30


def test_a_day_of_a_third_of_a_crawl_adds_up():
    pace, crawls = Pace.starting(1 / 3, 0.0), 0
    for hour in range(24 * 30):
        pace = advanced(pace, hour / 24, 1 / 3)
        if room(pace).due >= 1 - ROUNDING:
            pace, crawls = taken(pace, TakenAmounts(1.0)), crawls + 1
    assert crawls == 10


def test_an_idle_budget_brings_pages_forward():
    pace = advanced(Pace.starting(100.0, 0.0), 0.5, 100.0)
    assert room(pace).ahead == pytest.approx(50.0)
    pace = taken(pace, TakenAmounts(30.0))
    assert room(pace).ahead == pytest.approx(20.0)


@pytest.mark.parametrize("at", [[0, 6, 12, 18], [3, 9, 15, 21], range(24), np.arange(0, 24, 0.1)])
def test_days_of_early_pages_alone_spend_their_budget_whenever_a_fleet_asks(at):
    """All is due on the first day, and nothing on the others."""
    pace, asked_at, days = Pace.starting(200.0, 0.0), 0.0, np.zeros(10)
    longest = 0.0
    for day in range(10):
        for hour in at:
            now = day + hour / 24
            pace = at_last_request(advanced(pace, now, 200.0), pace.at)
            may = room(pace)
            crawls = math.floor((may.ahead if day else may.due) + ROUNDING)
            pace, days[day] = taken(pace, TakenAmounts(crawls)), days[day] + crawls
            if crawls:
                longest, asked_at = max(longest, now - asked_at if day > 2 else 0.0), now
    assert days.tolist() == [200.0] * 10
    assert longest <= max(0.25, 1.01 / len(at))


def test_a_fleet_that_may_ask_again_before_midnight_keeps_the_rest_of_its_day():
    pace = taken(Pace.starting(100.0, 0.0), TakenAmounts(100.0))
    for hours, opens in ((6, True), (4, False), (9, False)):
        before = advanced(pace, 1.75 - hours / 24, 100.0)
        after = at_last_request(advanced(before, 1.75, 100.0), before.at)
        assert (room(after).ahead > 80.0) is opens


def test_a_debt_is_paid_out_of_what_the_day_leaves():
    pace = taken(Pace.starting(100.0, 0.0), TakenAmounts(50.0, on_loan=50.0))
    pace = taken(pace, TakenAmounts(100.0))
    assert advanced(pace, 0.9, 100.0).debt == 50.0  # the day has nothing left to pay with
    assert advanced(pace, 1.5, 100.0).debt == pytest.approx(25.0)
    assert room(advanced(pace, 1.5, 100.0)).due == pytest.approx(75.0)


def test_a_tenth_of_the_budget_is_in_force_at_once():
    pace = advanced(Pace.starting(1000.0, 0.0), 0.0, 100.0)
    assert room(pace).due == 100.0
    assert room(advanced(taken(pace, TakenAmounts(100.0)), 0.9, 100.0)).due == 0.0


def test_crawls_outside_of_the_gate_use_up_their_day_only():
    pace = taken(Pace.starting(100.0, 0.0), TakenAmounts(1_000.0))
    assert room(advanced(pace, 0.99, 100.0)).due == 0.0
    assert room(advanced(pace, 1.5, 100.0)).due == 100.0


BEGUN_LATE = (Pace.starting(100.0, 0.75), 100.0)
UNASKED = (advanced(Pace.starting(100.0, 0.0), 0.75, 100.0), 1_000.0)
CUT = (advanced(Pace.starting(1_000.0, 0.0), 0.75, 1_000.0), 1_000.0)


@pytest.mark.parametrize(("pace", "crawls"), [BEGUN_LATE, UNASKED, CUT])
def test_early_crawls_may_spend_the_day_after_one_that_was_spent_in_advance(pace, crawls):
    pace = advanced(taken(pace, TakenAmounts(crawls)), 0.75, 100.0)
    assert room(advanced(pace, 1.0, 100.0)).ahead == 0.0
    assert room(advanced(pace, 1.5, 100.0)).ahead == pytest.approx(50.0)
    assert room(advanced(pace, 1.9999, 100.0)).ahead == pytest.approx(100.0, abs=0.1)


def test_an_allotment_comes_back():
    before = advanced(Pace.starting(100.0, 0.0), 0.25, 100.0)
    allotment = TakenAmounts(30.0, on_loan=10.0, first=5.0)
    assert given_back(taken(before, allotment), allotment, day=0) == before
    late = advanced(taken(before, allotment), 1.0, 100.0)
    assert room(given_back(late, allotment, day=0)).due == 100.0


def test_a_clock_set_back_does_not_stop_the_pace():
    pace = taken(Pace.starting(100.0, 9.0), TakenAmounts(100.0))
    pace = advanced(pace, 3.5, 100.0)
    assert room(advanced(pace, 4.5, 100.0)).due == 100.0


def test_first_crawls_of_a_day_have_a_maximum():
    pace = taken(Pace.starting(100.0, 0.0), TakenAmounts(30.0, first=30.0))
    assert room(pace, most_first=50.0).first == 20.0
    assert room(advanced(pace, 1.0, 100.0), most_first=50.0).first == 50.0


@pytest.mark.parametrize("budget", [-1.0, math.nan, math.inf])
def test_a_budget_is_a_finite_amount(budget):
    with pytest.raises(InvalidInput, match="budget"):
        advanced(Pace.starting(1.0, 0.0), 1.0, budget)


def test_hosts_with_windows_take_their_share_in_turn_with_others_after_a_late_start():
    day = np.datetime64("2026-05-01", "us") + np.arange(10) * np.timedelta64(1, "D")
    hours = OpenHours.of(day, day + np.timedelta64(1430, "m"), day[0], day[-1])
    demands = [Demand(hours, 100.0), Demand(None, 200.0)]
    at = 16.5 / 24
    late = kept(demands, day[3] + np.timedelta64(990, "m"))
    new = Pace.starting(24_000.0, at)
    now = room(new, kept=late)
    assert now.shared == pytest.approx(8_000 * at, rel=0.1)
    assert now.shared_each == pytest.approx(1 / 3, rel=0.05)
    # others have taken what is released to them and more, so all is for hosts with windows
    ahead = replace(new, spent=17_000.0, in_windows=500.0)
    assert room(ahead, kept=late).shared_each == 1.0
    # hosts with windows have had their share
    even = replace(new, spent=16_000.0, in_windows=8_000.0)
    assert (room(even, kept=late).shared, room(even, kept=late).shared_each) == (0.0, 0.0)


def test_a_change_of_windows_moves_the_part_of_the_hosts_that_it_concerns():
    noon = Pace(budget=24.0, at=0.5, tokens=0.0, spent=12.0, in_windows=3.0)
    assert regrouped(noon, 0.25, 0.5).in_windows == 6.0
    assert regrouped(noon, 0.5, 0.25).in_windows == 1.5
    assert regrouped(noon, 0.5, 0.0).in_windows == 0.0
    assert regrouped(noon, 0.0, 0.0).in_windows == 0.0


@st.composite
def changes(draw):
    """Return a loan, the first budget, and steps: time, wish of due and urgent crawls, budget."""
    budgets = st.sampled_from([0.0, 0.3, 10.0, 100.0, 20_000.0])
    wish = st.floats(0, 30_000.0)
    step = st.tuples(st.floats(0, 0.6), wish, wish, budgets)
    return draw(st.sampled_from([0.0, 3.0])), draw(budgets), draw(st.lists(step, max_size=20))


def integral(orders, at):
    """Return the integral of the budgets over the day of an instant, the last one to its end."""
    day = math.floor(at)
    time, budget = (np.array(column) for column in zip(*orders, strict=True))
    ends = np.append(time[1:], day + 1.0)
    return float((np.clip(np.minimum(ends, day + 1) - np.maximum(time, day), 0, 1) * budget).sum())


@pytest.mark.dear
@given(changes())
def test_a_day_spends_at_most_the_integral_of_its_budgets_and_the_loan(life):
    loan, budget, steps = life
    at, pace = 0.4, Pace.starting(budget, 0.4)
    orders, spent, allowed = [(0.0, budget)], {}, {}
    for wait, due, urgent, budget in steps:
        at += wait
        pace = advanced(pace, at, budget)
        orders.append((at, budget))
        crawls = math.floor(min(due, room(pace, loan).due) + ROUNDING)
        lent = math.floor(min(urgent, room(pace, loan).on_loan) + ROUNDING)
        pace = taken(taken(pace, TakenAmounts(crawls)), TakenAmounts(lent, on_loan=lent))
        day = int(at)
        spent[day] = spent.get(day, 0) + crawls + lent
        if crawls + lent:
            allowed[day] = max(allowed.get(day, 0.0), integral(orders, at))
        if crawls and not loan:
            assert spent[day] <= min(integral(orders, at), budget) + 1
    beyond = [spent.get(day, 0) - allowed.get(day, 0.0) for day in range(int(at) + 1)]
    beyond = np.concatenate([[0.0], np.cumsum(beyond)])
    most = loan * max(each for _, each in orders) + 1
    assert (beyond - np.minimum.accumulate(beyond)).max() <= most


@pytest.mark.dear
@given(lives(), st.sampled_from([0.0, 0.1, 3.0]))
def test_a_cut_that_is_taken_back_within_a_minute_loses_and_gains_nothing(life, part):
    budget, _, steps = life
    pace, at = Pace.starting(budget, 0.4), 0.4
    for wait, due, _, ahead in steps:
        at += wait
        minute = min(1 / 1440, math.floor(at) + 1 - at - 1e-6)
        pace = advanced(pace, at, budget)
        if minute > 0:
            back = advanced(advanced(pace, at, part * budget), at + minute, budget)
            same = advanced(pace, at + minute, budget)
            change = max(part - 1.0, 1.0) * budget * minute + ROUNDING * max(budget, 1.0)
            assert room(back).due >= room(same).due - change
            assert room(back).ahead >= room(same).ahead - change
            assert back.left <= same.left + change
            if part < 1:
                assert back.tokens <= same.tokens + change
        for wish, limit in ((due, "due"), (ahead, "ahead")):
            pace = taken(pace, TakenAmounts(math.floor(min(wish, getattr(room(pace), limit)))))


def test_a_raise_gives_its_share_of_the_day_at_once():
    few = taken(Pace.starting(10.0, 100.5), TakenAmounts(10.0))
    assert room(advanced(few, 100.5, 20_000.0)).due == pytest.approx(9_995.0)
    spent = taken(Pace.starting(20_000.0, 100.5), TakenAmounts(20_000.0))
    assert room(advanced(spent, 100.75, 40_000.0)).due == pytest.approx(5_000.0)


def test_a_cut_holds_at_once_and_its_return_brings_the_credit_back():
    pace = taken(Pace.starting(20_000.0, 100.5), TakenAmounts(20.0))
    low = advanced(pace, 100.5, 10.0)
    assert room(low).due == 0.0
    assert next_room_at(low) == 101.0
    assert room(advanced(low, 100.5 + 1 / 1440, 20_000.0)).due == pytest.approx(19_980.0, abs=14)
    # the next day is one of the low budget alone
    assert room(advanced(low, 101.0, 10.0)).due == pytest.approx(10.0)
