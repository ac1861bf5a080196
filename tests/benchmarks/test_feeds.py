"""New entries of feeds wait less at learnt rates than at a fixed one, with equal requests."""

import numpy as np
import pytest

from benchmarks.budget.trials import world_of
from benchmarks.feeds.__main__ import main, trial
from benchmarks.feeds.trial import delays
from recrawl_lab.replay.staleness import Crawls


@pytest.mark.slow
def test_entries_wait_at_most_half_as_long_at_learnt_rates():
    both = trial(40, days=20.0, median=1.0, every_h=1.0, seed=1)
    assert both["learnt"].mean <= 0.5 * both["fixed"].mean
    assert both["learnt"].requests <= 1.01 * both["fixed"].requests
    assert both["fixed"].mean == pytest.approx(1 / 48, rel=0.1)


def test_delays_are_from_an_entry_to_the_next_read_of_its_feed():
    rng = np.random.default_rng(1)
    world = world_of(np.array([3.0]), ["https://a.example/feed"], 4.0, rng)
    reads = Crawls(np.zeros(3, np.int64), np.array([1.0, 3.9, 3.0]))
    came = world.changed_at[(world.changed_at > 2.0) & (world.changed_at <= 3.9)]
    expected = np.where(came <= 3.0, 3.0, 3.9) - came
    found = delays(world, reads)
    assert found.mean == pytest.approx(expected.mean())
    assert (found.lost, found.requests) == (0.0, 1.0)


def test_the_command_prints_a_row_for_each_way(capsys):
    main(["--feeds", "5", "--days", "4", "--seeds", "1"])
    out = capsys.readouterr().out
    assert "learnt" in out
    assert "fixed" in out
