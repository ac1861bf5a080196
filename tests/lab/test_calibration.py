"""Calibration of predictions: closed forms, and an oracle that predicts the truth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recrawl_lab.replay.calibration import calibration, later
from recrawl_lab.replay.replay import NOTHING, Predicted
from service.core.calibration import GROUPS


def predicted(probability, changed, at=None):
    n = len(probability)
    at = np.zeros(n) if at is None else np.array(at, float)
    return Predicted(np.arange(n), at, np.array(probability, float), np.array(changed, np.bool_))


def test_by_hand_two_bins():
    found = calibration(predicted([0.9, 0.1, 0.2, 0.8], [1, 0, 1, 1]), groups=2)
    assert found.expected == pytest.approx([0.15, 0.85])
    assert found.observed == pytest.approx([0.5, 1.0])
    assert found.n_predictions.tolist() == [2, 2]
    assert found.expected_error == pytest.approx((0.35 + 0.15) / 2)
    assert found.log_loss == pytest.approx(-np.log([0.9, 0.9, 0.2, 0.8]).mean())
    assert found.log_loss_constant == pytest.approx(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))


def test_who_predicts_the_truth_is_calibrated_and_beats_any_constant():
    rng = np.random.default_rng(2)
    truth = rng.random(200_000) ** 3
    found = calibration(predicted(truth, rng.random(200_000) < truth))
    assert found.expected_error < 0.005
    assert found.log_loss == pytest.approx(
        -(truth * np.log(truth) + (1 - truth) * np.log1p(-truth)).mean(), abs=0.005
    )
    assert 0.3 < found.skill < 1


def test_errors_that_a_bin_of_a_tenth_would_average_away_are_found():
    rng = np.random.default_rng(2)
    truth = rng.choice([0.01, 0.09], 100_000)
    swapped = calibration(predicted(0.1 - truth, rng.random(100_000) < truth))
    assert swapped.expected_error == pytest.approx(0.08, abs=0.01)
    assert swapped.skill < 0


def test_the_best_constant_has_no_skill():
    changed = np.arange(100) < 7
    assert calibration(predicted(np.full(100, 0.07), changed)).skill == pytest.approx(0.0)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=50))
def test_bins_hold_every_prediction_once(pairs):
    probability, changed = zip(*pairs, strict=True)
    found = calibration(predicted(probability, changed))
    n = found.n_predictions
    assert n.sum() == len(pairs)
    assert n.min() > 0
    assert len(n) <= GROUPS
    assert found.expected @ n == pytest.approx(sum(probability))
    assert found.observed @ n == pytest.approx(sum(changed))
    assert 0 <= found.expected_error <= 1
    assert np.isfinite(found.log_loss)


def test_later_predictions_only():
    kept = later(predicted([0.1, 0.2, 0.3], [0, 1, 1], at=[1.0, 2.0, 3.0]), 2.0)
    assert kept.probability.tolist() == [0.3]


def test_without_predictions_there_is_none():
    assert calibration(NOTHING) is None
