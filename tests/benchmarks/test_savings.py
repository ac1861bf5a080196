"""The savings that a log shows are the true ones of a made-up world, and of its log in SQLite."""

import numpy as np
import pytest

from benchmarks.savings.__main__ import estimated, logged, true_ratios
from recrawl_lab.policies.plain import matched, uniform
from recrawl_lab.worlds.world import synthetic_world


@pytest.mark.dear
@pytest.mark.parametrize("importance", ["equal", "lognormal"])
def test_savings_by_the_log_are_within_a_twentieth_of_the_truth(importance):
    rng = np.random.default_rng(4)
    world = synthetic_world(800, 120.0, rng=rng, importance=importance, complete_share=0.0)
    fleet, clock, own = logged(world, 0.2 * len(world), 2.0, seed=2)
    other = matched(uniform, world, len(own.at))
    for last in (120.0, 60.0):
        savings = estimated(fleet, clock, last, seed=1)
        assert savings.missing is None
        assert savings.equal_importance == (importance == "equal")
        true = true_ratios(world, own, other, world.days - last)
        for compared, truth in zip((savings.harmonic, savings.stale), true, strict=True):
            assert compared.ratio.value == pytest.approx(truth, abs=0.05)
            assert compared.fleet / compared.uniform == pytest.approx(compared.ratio.value)
            assert compared.ratio.low < compared.ratio.value < compared.ratio.high
