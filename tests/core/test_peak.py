"""The zero of a score: as SciPy finds it, ends, and few steps from a good guess."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import digamma

from service.core.prior import peak

LOW, HIGH = 0.05, 20.0


def gamma_score(mean_log):
    """Of the shape of Gamma factors of mean 1."""
    return lambda a: float(np.log(a) - digamma(a) + mean_log)


@given(truth=st.floats(0.06, 19.0), near=st.floats(LOW, HIGH))
def test_the_zero_is_the_one_that_a_bracket_finds(truth, near):
    score = gamma_score(digamma(truth) - np.log(truth))
    expected = brentq(score, LOW, HIGH, xtol=1e-13, rtol=1e-13)
    assert peak(score, near, LOW, HIGH) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("near", [1e-9, LOW, 1.0, HIGH, 1e9])
def test_where_the_score_has_no_zero_it_is_the_end_that_it_points_to(near):
    assert peak(lambda x: 1.0 / x, near, LOW, HIGH) == HIGH
    assert peak(lambda x: -x, near, LOW, HIGH) == LOW


@pytest.mark.parametrize(
    "score", [lambda x: 1.0 - x**9, lambda x: float(np.arctan(1e3 * (1.0 - x))), lambda x: 1 - x]
)
@pytest.mark.parametrize("near", [LOW, 1.0, HIGH])
def test_steep_and_flat_scores_are_found_from_everywhere(score, near):
    assert peak(score, near, LOW, HIGH) == pytest.approx(1.0, rel=1e-9)


def test_a_good_guess_makes_it_short():
    asked = []

    def score(a):
        asked.append(a)
        return gamma_score(-0.9)(a)

    found = peak(score, 1.0, LOW, HIGH)
    cold = len(asked)
    asked.clear()
    assert peak(score, 1.01 * found, LOW, HIGH) == pytest.approx(found, rel=1e-8)
    assert len(asked) <= 4 < cold
