"""The gated fleet: what a request takes, and that days keep their budget."""

from dataclasses import replace

import numpy as np
import pytest

from recrawl_lab.policies.lineup import DEFAULT_PLAN
from recrawl_lab.replay.gated import Gate, GatedFleet, play_gated, replay_gated, requests
from recrawl_lab.replay.replay import instants_of
from recrawl_lab.replay.turns import Pages, Turn, taken_in_turn, within
from recrawl_lab.worlds.simulated_time import START, Clock
from recrawl_lab.worlds.world import synthetic_world
from service.core.even_days import NOTHING_KEPT
from service.core.pace import Available
from service.model.calendars import HourRules, hours_of
from service.model.columns import NOT_SHIFTED

NO_CAP = np.full(3, np.inf)
NIGHT = HourRules(("22:00-06:00 UTC",))


def pages(due, hours=None, **given):
    """Return pages that were crawled on day 0, at a rate of one crawl in ten days."""
    n = len(due)
    values = {
        "page": np.arange(n),
        "host": np.zeros(n, np.int64),
        "due": np.asarray(due, float),
        "last": np.zeros(n),
        "rate": np.full(n, 0.1),
        "steady_rate": np.full(n, 0.1),
        "urgency": np.ones(n),
        "first": np.zeros(n, np.bool_),
        "shown": np.ones(n, np.bool_),
    }
    values |= {name: np.asarray(value) for name, value in given.items()}
    return Pages(**values, hours=hours)


def chosen(columns, left, at=10.0, cap=NO_CAP, first_share=0.5):
    return taken_in_turn(columns, at, left, Turn.none(3), cap, first_share)


def room(due=0.0, ahead=0.0, on_loan=0.0, first=np.inf, in_windows=0.0):
    return Available(due, ahead, on_loan, first, in_windows)


def test_the_most_overdue_pages_go_first_within_the_room():
    columns = pages([9.0, 5.0, 9.5, 11.0], rate=[0.1, 0.1, 1.0, 0.1])
    assert chosen(columns, room(due=2.0)).row.tolist() == [1, 2]
    assert chosen(columns, None).row.tolist() == [1, 2, 0], "without a gate all that is due"
    assert chosen(columns, room(due=0.9)).row.size == 0


def test_first_crawls_go_first_within_their_own_room():
    columns = pages([9.0, 5.0, 4.0, 3.0], first=[False, False, True, True])
    taken = chosen(columns, room(due=3.0, first=1.0))
    assert (taken.row.tolist(), taken.first.tolist()) == ([3, 1, 0], [True, False, False])


def test_urgent_pages_that_are_due_may_go_on_a_loan():
    columns = pages([9.0, 5.0, 8.0, 12.0], urgency=[1.2, 1.0, 1.1, 5.0])
    taken = chosen(columns, room(due=1.0, on_loan=5.0))
    assert (taken.row.tolist(), taken.on_loan.tolist()) == ([1, 0], [False, True])


def test_what_is_left_over_brings_pages_forward_that_have_waited():
    columns = pages([9.0, 12.0, 110.0, 20.0, 11.0], shown=[True, True, True, True, False])
    taken = chosen(columns, room(due=9.0, ahead=2.5))
    assert taken.row.tolist() == [0, 1], "less than a tenth, or no content, or beyond the room"
    taken = chosen(columns, room(due=9.0, ahead=9.0))
    assert (taken.row.tolist(), taken.ahead.tolist()) == ([0, 1, 3], [False, True, True])


def test_caps_of_hosts_hold_for_first_crawls_and_for_all():
    columns = pages(
        [5.0] * 6, host=[0, 0, 0, 0, 1, 1], first=[True, True, True, False, False, False]
    )
    cap = np.array([3.0, 1.0, np.inf])
    taken = chosen(columns, room(due=9.0), cap=cap)
    assert taken.row.tolist() == [0, 3, 4]
    today = Turn.none(3)
    today.add(np.array([0, 0]), np.array([True, True]))
    assert taken_in_turn(columns, 10.0, room(due=9.0), today, cap, 0.5).row.tolist() == [3, 4]
    assert today.on(0) is today
    assert not today.on(1).n_crawls.any()


def test_rows_within_the_crawls_of_their_hosts_keep_their_order():
    host = np.array([0, 1, 0, 1, 0, 2])
    row = np.array([5, 4, 3, 2, 1, 0])
    assert within(row, host, np.array([2.0, 1.0, np.inf])).tolist() == [5, 4, 3, 2]
    assert within(row, host, np.full(3, np.inf)).tolist() == row.tolist()


def test_no_request_passes_a_midnight():
    edges = list(requests(0.2, 2.3, 0.75))
    assert [begin for begin, _ in edges] == pytest.approx([0.2, 0.75, 1.0, 1.5, 2.0, 2.25])
    assert [end for _, end in edges] == pytest.approx([0.75, 1.0, 1.5, 2.0, 2.25, 2.3])


def test_a_crawl_that_change_hours_shift_has_no_loan():
    world = synthetic_world(3, 2.0, rng=np.random.default_rng(2), complete_share=0.0)
    plan, gate = replace(DEFAULT_PLAN, bandwidth=3.0), Gate(budget=lambda _: 3.0)
    fleet = GatedFleet(world, Clock(), plan, 1, gate)
    fleet.register(np.arange(3))
    fleet.new_epoch()
    schedule = fleet.store.schedules[1]
    shift = np.array([NOT_SHIFTED, 30, NOT_SHIFTED], np.int16)
    urgent = replace(schedule, crawl_rate=np.ones(3), urgency=np.full(3, 2.0), shift=shift)
    fleet.store.schedules[1] = urgent
    assert fleet.pages().urgency.tolist() == [2.0, 1.0, 2.0]


def played(loan_days=0.0, days=20.0, **how):
    world = synthetic_world(60, days, rng=np.random.default_rng(2), complete_share=0.0)
    clock = Clock()
    gate = Gate(budget=lambda _: 12.0, loan_days=loan_days, **how)
    fleet = GatedFleet(world, clock, replace(DEFAULT_PLAN, bandwidth=12.0), 1, gate)
    return play_gated(fleet, clock, step=0.5)


@pytest.mark.dear
def test_each_day_has_its_budget_from_the_first_on():
    game = played()
    by_day = np.bincount(game.crawls.at.astype(int), minlength=20)
    assert (np.abs(by_day - 12) <= 1).all()
    assert by_day.sum() == pytest.approx(240, abs=1)
    assert game.first.sum() == 60
    first = np.bincount(game.crawls.at[game.first].astype(int))
    assert first.tolist() == [12, *[6] * 8], "all of the first day, and then their share"
    assert not game.on_loan.any()


@pytest.mark.dear
def test_any_days_in_a_row_have_at_most_their_budget_and_the_loan():
    by_day = np.bincount(played(2.0).crawls.at.astype(int), minlength=20)
    beyond = np.concatenate([[0.0], np.cumsum(by_day - 12.0)])
    assert (beyond - np.minimum.accumulate(beyond)).max() <= 24.0


@pytest.mark.dear
def test_a_fleet_that_asks_a_part_of_the_day_has_no_more():
    game = played(asks=lambda at: 0 < at % 1 <= 0.5)
    assert (np.bincount(game.crawls.at.astype(int)) <= 13).all()
    assert not ((game.crawls.at % 1 > 0.51) & (game.crawls.at % 1 < 0.9)).any()


@pytest.mark.dear
def test_a_comparison_has_free_first_crawls_and_predictions():
    world = synthetic_world(60, 20.0, rng=np.random.default_rng(2), complete_share=0.0)
    replayed = replay_gated(world, 12.0, DEFAULT_PLAN, step=0.5, loan_days=0.0)
    by_day = np.bincount(replayed.crawls.at.astype(int), minlength=20)
    assert (np.abs(by_day[1:] - 12) <= 1).all()
    assert len(replayed.predicted.page) == len(replayed.crawls.at)


# -- windows


def test_a_request_ends_with_the_window_and_takes_nothing_in_a_closure():
    columns = pages([9.0], hours=hours_of(NIGHT, START))
    half_a_minute = 0.5 / 1_440
    assert columns.open_until(1.0, 1.1) == 1.1
    assert columns.open_until(1.2, 1.3) == pytest.approx(1.25 - half_a_minute)
    assert columns.open_until(1.25, 1.5) is None
    assert columns.open_until(1.5, 1.95) == 1.95
    assert pages([9.0]).open_until(1.25, 1.5) == 1.5


def test_after_a_crawl_a_page_is_due_in_open_time():
    columns = pages([1.1, 1.2, 1.2], hours=hours_of(NIGHT, START), steady_rate=[1.0, 8.0, 0.0])
    columns.crawl(np.arange(3), np.array([1.1, 1.2, 1.2]))
    assert columns.due[0] == pytest.approx(2.1, abs=0.001), "at its hour of the next night"
    assert columns.due[1] == pytest.approx(1.958, abs=0.001), "one crawl makes up for the closure"
    assert columns.due[2] == np.inf


def test_pages_are_brought_forward_by_their_open_time():
    columns = pages([2.0, 3.0, 3.0], last=[0.9, 0.9, 0.24], hours=hours_of(NIGHT, START))
    left = room(due=9.0, in_windows=9.0)
    assert chosen(columns, left, at=1.0).row.tolist() == [0, 2, 1]
    assert chosen(columns, left, at=0.97).row.tolist() == [0], "less than a tenth has passed"


def test_a_day_keeps_its_budget_for_the_rest_of_its_windows():
    columns = pages([9.0], hours=hours_of(NIGHT, START))
    left = [columns.kept(1 + hour / 24).due for hour in (0, 4, 12, 22, 23)]
    assert left == pytest.approx([1, 0.422, 0.133, 0.133, 0], abs=0.002)
    assert pages([9.0]).kept(1.0) == NOTHING_KEPT


@pytest.mark.dear
def test_a_replay_keeps_to_the_windows_of_its_site_and_to_its_budget():
    world = synthetic_world(60, 20.0, rng=np.random.default_rng(2), complete_share=0.0)
    options = {"step": 0.5, "loan_days": 0.0, "hours": NIGHT}
    replayed = replay_gated(world, 12.0, DEFAULT_PLAN, **options)
    at = instants_of(replayed.crawls.at)
    assert (hours_of(NIGHT, START).opening(at) == at).all()
    by_day = np.bincount(replayed.crawls.at.astype(int), minlength=20)
    assert (by_day <= 13).all()
    assert by_day[5:].sum() >= 0.99 * 12 * 15
