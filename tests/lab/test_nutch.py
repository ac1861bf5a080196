"""Nutch's schedule: what the Java class answered, and the walk of a page through it."""

import json
from pathlib import Path

import numpy as np
import pytest

from recrawl_lab.policies.nutch import MODIFIED, NOT_MODIFIED, UNKNOWN, Nutch, NutchState

GOLDEN = Path(__file__).parent / "golden"
DAY_MS = 86_400_000
SCHEDULES = {"nutch_default": Nutch(), "nutch_max7d": Nutch(max_interval_s=604_800)}


def cases(name):
    """(4, K) interval, fetched, modified, outcome; (3, K) interval, due, modified."""
    rows = json.loads((GOLDEN / f"{name}.json").read_text())["cases"]
    return np.array([given for given, _ in rows]).T, np.array([answer for _, answer in rows]).T


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_answer_of_the_java_class_is_reproduced_to_the_bit(name):
    (interval, fetched, modified, outcome), answer = cases(name)
    state, due = SCHEDULES[name].update(NutchState(interval, modified), fetched, outcome)
    assert np.array_equal(np.stack((state.interval_s, due, state.modified_ms)), answer)


def test_the_answers_cover_every_branch():
    moved, unmoved = 0, 0
    for name, schedule in SCHEDULES.items():
        (interval, fetched, modified, outcome), (new_interval, due, _) = cases(name)
        assert set(outcome) == {UNKNOWN, MODIFIED, NOT_MODIFIED}
        assert (interval == 0).any()
        assert (modified <= 0).any()
        assert (new_interval == schedule.min_interval_s).any()
        assert (new_interval == schedule.max_interval_s).any()
        lagging = (modified > 0) & (modified < fetched) & (outcome != MODIFIED)
        synced = due - fetched < new_interval * 1000
        moved += (lagging & synced).sum()
        unmoved += (lagging & ~synced).sum()
    assert min(moved, unmoved) > 10


def test_pages_do_not_mind_each_other():
    (interval, fetched, modified, outcome), answer = cases("nutch_default")
    one_by_one = [
        Nutch().update(NutchState(interval[i : i + 1], modified[i : i + 1]), fetched[i : i + 1], s)
        for i, s in enumerate(outcome.tolist())
    ]
    assert [due.item() for _, due in one_by_one] == answer[1].tolist()


def test_a_page_due_more_than_90_days_ahead_is_due_now_with_an_interval_of_81_days():
    now = 1_000 * DAY_MS
    state = NutchState(np.array([86_400 * d for d in (180, 80, 180)]), np.zeros(3, np.int64))
    due = now + np.array([91, 91, 90]) * DAY_MS
    state, due = Nutch().refetch(state, due, now)
    assert (state.interval_s / 86_400).tolist() == [81, 80, 180]
    assert due.tolist() == [now, now, now + 90 * DAY_MS]


def test_scaling_stretches_all_intervals_and_no_rate():
    doubled = Nutch().scaled(2.0)
    assert doubled == Nutch(
        default_interval_s=5_184_000,
        min_interval_s=120,
        max_interval_s=63_072_000,
        refetch_after_s=15_552_000,
    )
    assert Nutch().scaled(1e-9).min_interval_s == 1
