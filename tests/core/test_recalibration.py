"""Recalibration: identity without evidence, batch regression, parts, days, and revisions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from service.core import recalibration as module
from service.core.checks import InvalidInput
from service.core.common_values import alone
from service.core.recalibration import (
    MOST_A_DAY,
    N_NUMBERS,
    PRIOR_PRECISION,
    Recalibration,
    learn,
)

NONE = Recalibration.none()


def days_of(n_days, per_day, truth, seed=1):
    """Yield forecasts, and results that follow the `truth` of each forecast."""
    rng = np.random.default_rng(seed)
    for _ in range(n_days):
        p = rng.beta(0.7, 1.0, per_day)
        yield p, rng.random(per_day) < truth(p)


def learnt(days, evidence=NONE):
    for p, changed in days:
        evidence = alone(learn(evidence, p, changed, 1.0))
    return evidence


def test_without_crawls_forecasts_stay_as_they_are_to_the_last_bit():
    p = np.array([0.0, 1e-15, 0.1, 1 / 3, 1.0])
    assert NONE.forecast(p) is p
    assert Recalibration.unpacked(()) == NONE
    later = alone(learn(NONE, np.zeros(0), np.zeros(0, np.bool_), 3.0))
    assert later.forecast(p).tolist() == p.tolist()


def test_the_line_is_that_of_one_regression_of_all_crawls(monkeypatch):
    monkeypatch.setattr(module, "HALF_LIFE_DAYS", 1e12)
    monkeypatch.setattr(module, "MOST_A_DAY", 1e12)

    def truth(p):
        return 1 / (1 + np.exp(-(0.7 + 1.6 * np.log(p / (1 - p)))))

    crawls = list(days_of(300, 20, truth))
    p, changed = (np.concatenate(column) for column in zip(*crawls, strict=True))
    odds = np.log(p / (1 - p))

    def loss(line):
        x = line[0] + line[1] * odds
        prior = 0.5 * PRIOR_PRECISION * (line[0] ** 2 + (line[1] - 1) ** 2)
        return np.logaddexp(0, x).sum() - x[changed].sum() + prior

    batch = minimize(loss, (0.0, 1.0), tol=1e-10).x
    assert learnt(crawls).line == pytest.approx(batch, abs=0.03)
    assert batch == pytest.approx((0.7, 1.6), abs=0.1)


def test_pages_that_always_change_are_expected_to():
    days = ((np.full(20, 0.55), np.ones(20, np.bool_)) for _ in range(40))
    assert learnt(days).forecast(np.array([0.55]))[0] > 0.9
    well = learnt(days_of(200, 50, lambda p: p))
    p = np.linspace(0.02, 0.98, 9)
    np.testing.assert_allclose(well.forecast(p), p, atol=0.03)


def test_one_revision_of_a_thousand_pages_counts_as_a_few_changes():
    before = learnt(days_of(60, 50, lambda p: p))
    p = np.full(1_000, 0.05)
    after = alone(learn(before, p, np.ones(1_000, np.bool_), 1.0))
    moved = after.forecast(p[:1]) - before.forecast(p[:1])
    assert 0 < moved[0] < 0.02
    one = alone(learn(before, p[:10], np.ones(10, np.bool_), 1.0)).forecast(p[:1])
    assert after.forecast(p[:1])[0] < one[0] + MOST_A_DAY / 1_000


def test_a_day_in_hours_is_a_day():
    ((p, changed),) = days_of(1, 240, lambda p: p**2)
    whole, hours = learnt([(p, changed)]), NONE
    for some in np.split(np.arange(240), 24):
        hours = alone(learn(hours, p[some], changed[some], 1 / 24))
        assert hours.day < 1
    assert hours == pytest.approx(whole, rel=1e-9, abs=1e-9)


def test_what_is_learnt_is_forgotten():
    taught = learnt(days_of(60, 50, lambda p: p**0.3))
    idle = learnt([(np.zeros(0), np.zeros(0, np.bool_))] * 600, taught)
    p = np.array([0.3])
    assert abs(idle.forecast(p)[0] - 0.3) < 0.2 * abs(taught.forecast(p)[0] - 0.3)


probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(probabilities, st.integers(0, 2**32), st.integers(0, 30))
def test_parts_are_the_whole_and_forecasts_keep_their_order(p, seed, cut):
    p, rng = np.sort(np.array(p)), np.random.default_rng(seed)
    changed = rng.random(p.size) < 0.5
    whole = alone(learn(NONE, p, changed, 1.0))
    joints = [learn(NONE, p[some], changed[some], 1.0) for some in (slice(cut), slice(cut, None))]
    shares = [next(joint) for joint in joints]
    both = shares[0].combine([share.value for share in shares])
    for joint in joints:
        with pytest.raises(StopIteration) as end:
            joint.send(both)
        assert end.value.value == pytest.approx(whole, rel=1e-9, abs=1e-9)
    forecast = whole.forecast(p)
    assert ((forecast >= 0) & (forecast <= 1)).all()
    inner = (p > 0) & (p < 1)
    assert (np.diff(forecast[inner]) >= 0).all()


def test_numbers_of_another_length_are_refused():
    assert Recalibration.unpacked(tuple(map(float, range(N_NUMBERS))))[-1] == N_NUMBERS - 1
    with pytest.raises(InvalidInput, match="are 3, expected 12"):
        Recalibration.unpacked((1.0, 2.0, 3.0))
