"""Twins: many pages of one content are together worth one."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.twins import discounted


@given(st.lists(st.integers(-3, 3), max_size=60))
def test_the_pages_of_one_content_share_their_worth_beyond_ten(digests):
    counts = Counter(digests)
    worth = [2 / max(counts[digest] - 9, 1) if digest else 2 for digest in digests]
    importance = np.full(len(digests), 2.0)
    assert discounted(importance, np.array(digests, np.int64)).tolist() == pytest.approx(worth)
    assert (importance == 2).all()


def test_digests_that_share_a_bucket_are_no_twins():
    digest = np.random.default_rng(3).integers(1, 2**62, 5_000)
    digest[::100] = 99
    worth = discounted(np.ones(5_000), digest)
    assert np.flatnonzero(worth < 1).tolist() == list(range(0, 5_000, 100))
    assert worth[0] == 1 / 41


def test_the_worth_of_copies_comes_down_to_one_page_without_a_jump():
    each = [discounted(np.ones(n), np.full(n, 5.0))[0] for n in (10, 11, 12, 10_000)]
    assert each == pytest.approx([1, 1 / 2, 1 / 3, 1 / 9_991])
