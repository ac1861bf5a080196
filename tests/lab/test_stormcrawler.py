"""StormCrawler's scheduler: what the Java class answered, and where its intervals end up."""

import json
from pathlib import Path

import numpy as np
import pytest

from recrawl_lab.policies.stormcrawler import StormCrawler

GOLDEN = Path(__file__).parent / "golden"
SCHEDULERS = {
    "storm_default": StormCrawler(),
    "storm_min1_max43200_i03_d07": StormCrawler(
        min_interval_min=1, max_interval_min=43_200, increase=0.3, decrease=0.7
    ),
}


def cases(name):
    """(2, K) interval and whether changed; (K,) the next interval."""
    rows = json.loads((GOLDEN / f"{name}.json").read_text())["cases"]
    return np.array([given for given, _ in rows]).T, np.array([answer for _, answer in rows])


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_answer_of_the_java_class_is_reproduced_to_the_bit(name):
    (interval, changed), answer = cases(name)
    assert np.array_equal(SCHEDULERS[name].update(interval, changed.astype(bool)), answer)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_answers_cover_every_branch(name):
    (interval, changed), answer = cases(name)
    limit = SCHEDULERS[name].max_interval_min
    assert set(changed) == {0, 1}
    assert ((changed == 0) & (answer < limit)).any()
    assert ((changed == 0) & (answer == limit)).any()
    assert (interval > limit).any()


def test_single_precision_matters():
    (interval, changed), answer = cases("storm_min1_max43200_i03_d07")
    double = np.where(changed, 0.3 * interval + 0.7, np.minimum(interval * 1.3, 43_200))
    assert (double.astype(int) != answer).any()


def test_intervals_end_at_the_limits():
    storm = StormCrawler()
    shrinking = growing = storm.init(1)
    for _ in range(20):
        shrinking = storm.update(shrinking, np.array([True]))
        growing = storm.update(growing, np.array([False]))
    assert (shrinking.item(), growing.item()) == (60, 20_160)


def test_scaling_stretches_all_intervals_and_no_rate():
    assert StormCrawler().scaled(2.0) == StormCrawler(
        default_interval_min=2_880, min_interval_min=120, max_interval_min=40_320
    )
    assert StormCrawler().scaled(1e-9).min_interval_min == 1
