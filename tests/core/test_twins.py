"""Twins: many pages of one content are together worth one."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.joint_cases import together

from service.core.twins import discounted, discounted_among


@given(st.lists(st.integers(-2, 2), max_size=90))
def test_the_pages_of_one_content_share_their_worth_beyond_ten(digests):
    counts = Counter(map(abs, digests))
    share = [1 / max(counts[abs(digest)] - 9, 1) if digest else 1 for digest in digests]
    worth = [2 * (one if d >= 0 else max(one, 0.05)) for d, one in zip(digests, share, strict=True)]
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


@given(
    st.lists(st.integers(-3, 3), max_size=120),
    st.lists(st.integers(0, 3), min_size=1, max_size=120),
)
def test_twins_in_any_part_count(digests, places):
    digest = np.array(digests, np.int64)
    place = np.resize(places, len(digest))
    rows = [np.flatnonzero(place == n) for n in range(4)]
    importance = np.arange(1.0, len(digest) + 1)
    whole = discounted(importance, digest)
    parts = together([discounted_among(importance[row], digest[row]) for row in rows])
    for row, part in zip(rows, parts, strict=True):
        np.testing.assert_array_equal(part, whole[row])
