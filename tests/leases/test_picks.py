"""The rows to lease: the most overdue first, within rooms and maxima of first crawls."""

import numpy as np
import pytest
from support.store_cases import T0, columns

from service.leases.picks import PickLimits, counted_turns, most_overdue
from service.leases.turns import HostTurns
from service.model.arrays import NO_TIME, instant
from service.storage.queue.columns import QueuedPages

AT = instant(T0)
DAY = np.timedelta64(1, "D")


def rows(first, days_ago=None):
    """Return rows of one page each, in two host queues in turns."""
    n = len(first)
    ago = np.arange(n, 0, -1) if days_ago is None else np.array(days_ago)
    return columns(
        QueuedPages,
        n,
        page_id=np.arange(1, n + 1),
        next_at=AT - ago * DAY,
        last_crawl_at=np.where(first, NO_TIME, AT - ago * DAY),
        crawl_rate=1.0,
        requested=False,
        queue_id=1 + np.arange(n) % 2,
        leased=False,
    )


def pick(first, n, n_first, room=(99, 99), first_room=None):
    first_room = None if first_room is None else np.array(first_room)
    limits = PickLimits(n, n_first, np.array(room), first_room)
    queued = rows(np.array(first))
    return (1 + most_overdue(queued, queued.queue_id - 1, limits, AT)).tolist()


@pytest.mark.parametrize(
    ("n", "n_first", "picked"),
    [(9, 9, [1, 2, 3, 4, 5, 6]), (9, 1, [1, 3, 5, 6]), (9, 0, [3, 5, 6]), (2, 1, [1, 3])],
)
def test_first_crawls_have_a_maximum_and_others_take_their_place(n, n_first, picked):
    assert pick([True, True, False, True, False, False], n, n_first) == picked


def test_a_first_crawl_too_many_does_not_take_the_room_of_its_host():
    assert pick([True, True, False, False], 9, 1, room=(1, 1)) == [1, 4]


def test_first_crawls_of_a_host_have_a_maximum_and_come_first():
    assert pick([True, True, True, False], 9, 9, first_room=(1, 0)) == [1, 4]
    assert pick([False, False, True, False], 2, 9, first_room=(1, 0)) == [3, 1]


def test_rows_without_room_are_left():
    assert pick([False] * 6, 9, 9, room=(1, 2)) == [1, 2, 4]
    assert pick([], 9, 9) == []


def in_turns(first, share, credit=0.0, **options):
    turns = HostTurns(np.full(2, share), np.full(2, credit))
    n = len(first)
    queued = rows(np.array(first))
    limits = PickLimits(n, options.get("n_first", n), np.array([99, 99]), np.array([99, 99]))
    limits = limits._replace(turns=turns)
    order = 1 + most_overdue(queued, np.zeros(n, np.int64), limits, AT)
    return order.tolist(), counted_turns(queued, np.zeros(n, np.int64), limits, AT).tolist()


def test_first_crawls_and_others_of_a_host_take_turns():
    kinds = [True] * 4 + [False] * 4
    assert in_turns(kinds, 0.5)[0] == [5, 1, 6, 2, 7, 3, 8, 4]
    assert in_turns(kinds, 0.5, 0.5)[0] == [1, 5, 2, 6, 3, 7, 4, 8]
    assert in_turns(kinds, 0.25)[0] == [5, 6, 7, 1, 8, 2, 3, 4]
    assert in_turns(kinds, 0.0)[0] == [5, 6, 7, 8, 1, 2, 3, 4]
    assert in_turns(kinds, 1.0)[0] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_turns_count_where_both_kinds_are_due_and_may_be_crawled():
    assert in_turns([True, True], 0.5)[1] == [False, False]
    assert in_turns([True, False], 0.5)[1] == [True, True]
    assert in_turns([True, False], 0.5, n_first=0)[1] == [False, False]


def test_turns_in_parts_are_those_of_one_transaction():
    """Take one crawl at a time, and keep the credit between."""
    credit, taken = np.array([0.5]), []
    for _ in range(100):
        turns = HostTurns(np.array([0.3]), credit)
        kinds = np.array([True, False])
        is_first = bool(turns.places(np.zeros(2, np.int64), kinds)[0] == 1)
        credit = turns.after(np.zeros(1, np.int64), np.array([is_first]))
        taken.append(is_first)
    assert sum(taken) == 30
    kinds = np.repeat([True, False], [30, 70])
    whole = HostTurns(np.array([0.3]), np.array([0.5])).places(np.zeros(100, np.int64), kinds)
    assert sorted(whole[:30]) == [1 + i for i in range(100) if taken[i]]
    assert sorted(whole) == list(range(1, 101))
