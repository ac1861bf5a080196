"""The study of verdicts against maximum ages."""

import json

import numpy as np
import pytest

from recrawl_lab.replay.freshness import Judged, compared, study, table
from recrawl_lab.worlds.world import synthetic_world
from service.core.estimators.bursty import Bursty
from service.epochs.plan import Plan
from service.runtime.bootstrap import configure_logging


def judged(stale, was_stale, age):
    """Return copies with verdicts; of the bounds, one knows all and one the age."""
    n = len(stale)
    columns = np.arange(n), np.zeros(n), np.asarray(age, float), np.asarray(stale, float)
    bounds = np.column_stack([was_stale, age]).astype(float)
    return Judged(*columns, np.asarray(was_stale, bool), bounds)


def test_a_verdict_that_knows_all_fetches_the_stale_copies_alone():
    rng = np.random.default_rng(1)
    was_stale = rng.random(1_000) < 0.2
    one = compared(judged(was_stale, was_stale, rng.uniform(0, 60, 1_000)))
    assert one.share_stale == was_stale.mean()
    assert one.calibration.expected_error == 0.0
    for line in one.lines:
        assert line.fetched_by_verdict == pytest.approx(one.share_stale - line.stale)
        assert line.saved >= 0.75 or line.fetched < 0.01


def test_a_verdict_by_age_alone_saves_nothing():
    rng = np.random.default_rng(2)
    age = rng.uniform(0, 60, 2_000)
    was_stale = rng.random(2_000) < age / 100
    one = compared(judged(age / 100, was_stale, age))
    lines = [line for line in one.lines if line.stale > 0.001]
    assert all(abs(line.saved) < 0.03 for line in lines)
    assert all(line.bounds[0] > 0.3 and abs(line.bounds[1]) < 0.03 for line in lines)


@pytest.mark.slow
def test_verdicts_on_pages_of_different_rates_are_calibrated_and_fetch_less():
    configure_logging("warning")
    world = synthetic_world(150, 80.0, rng=np.random.default_rng(3), importance="equal")
    studies = study(world, 0.3 * 150, Plan(Bursty()), step=1.0, seed=4)
    for one in studies.values():
        assert one.n_copies > 30_000
        assert one.calibration.expected_error < 0.08
    by_age = {line.age: line for line in studies["last crawl"].lines}
    assert by_age["3 days"].saved > 0.3
    rate_known, past_known = by_age["3 days"].bounds
    assert rate_known > past_known - 0.05 > by_age["3 days"].saved - 0.15
    assert sum("saved" in line for line in table(studies)) == 2


@pytest.mark.dear
def test_the_command_prints_both_tables_and_writes_the_figures(recrawl, tmp_path):
    options = ("--pages", "40", "--days", "60", "--freshness", "--out", str(tmp_path))
    output = recrawl("replay", *options)
    assert output.status == 0
    assert "copies of last crawl" in output.out
    figures = json.loads((tmp_path / "freshness.json").read_text())
    assert figures["any time"]["calibration_error"] < 0.1
    assert [line["age"] for line in figures["last crawl"]["ages"]][:2] == ["1 hour", "6 hours"]
