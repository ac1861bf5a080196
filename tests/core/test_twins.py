"""Twins: pages that share their digest with more than ten others."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.twins import discounted, twins


@given(st.lists(st.integers(-3, 3), max_size=60))
def test_twins_are_the_pages_whose_digest_more_than_ten_have(digests):
    counts = Counter(digests)
    expected = [digest != 0 and counts[digest] > 10 for digest in digests]
    assert twins(np.array(digests, np.int64)).tolist() == expected


def test_digests_that_share_a_bucket_are_no_twins():
    digest = np.random.default_rng(3).integers(1, 2**62, 5_000)
    digest[::100] = 99
    assert np.flatnonzero(twins(digest)).tolist() == list(range(0, 5_000, 100))


def test_the_importance_of_twins_is_a_twentieth():
    importance = discounted(np.full(20, 2.0), np.array([5.0] * 15 + [6.0] * 5))
    assert importance.tolist() == pytest.approx([0.1] * 15 + [2.0] * 5)


def test_no_page_has_no_twin():
    assert twins(np.zeros(0, np.int64)).tolist() == []
