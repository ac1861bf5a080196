"""Requests of the fleet sort few pages, and take what a sort of all would give."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recrawl_lab.replay.turns import greatest

VALUES = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0, 7.0, np.inf]), max_size=20)


@given(VALUES, st.integers(min_value=1, max_value=25))
def test_the_greatest_values_are_those_of_a_stable_sort(values, most):
    value = np.array(values, np.float64)
    of_all = np.argsort(-value, kind="stable")[:most]
    np.testing.assert_array_equal(greatest(value, most), of_all)
