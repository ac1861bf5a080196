"""The memory of recent digests: what is alike, and what twins are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.store_cases import T0, instants

from service.ingest.incidents import HOUR
from service.ingest.recent_digests import NewDigests, RecentDigests, Shared

MINUTE = np.timedelta64(1, "m")


def found(*rows, host=1):
    """New digests: page, digest, digest before, and minutes."""
    page, digest, before, minutes = map(np.array, zip(*rows, strict=True))
    return NewDigests(
        host_id=np.full(len(rows), host),
        page_id=page,
        digest=digest,
        digest_before=before,
        at=instants([T0])[0] + minutes * MINUTE,
    )


def added(memory, *rows, host=1):
    """Which rows are doubtful, and the number of pages before each."""
    shared = memory.add(found(*rows, host=host)) or Shared.none(len(rows))
    assert not (shared.is_doubtful & ~shared.is_shared).any()
    return shared.is_doubtful.tolist(), shared.n.tolist()


def shared(memory, *rows):
    return (memory.add(found(*rows)) or Shared.none(len(rows))).is_shared.tolist()


def test_a_digest_that_no_other_page_shows_is_not_alike():
    memory = RecentDigests()
    assert added(memory, (1, 7, 10, 0), (2, 8, 20, 0)) == ([False, False], [0, 0])
    assert added(memory, (3, 7, 30, 1), host=2) == ([False], [0])
    assert shared(RecentDigests(), (1, 7, 10, 0), (2, 8, 20, 0)) == [False, False]


def test_the_second_page_with_a_digest_is_alike_whichever_batch_it_is_in():
    memory = RecentDigests()
    assert added(memory, (1, 7, 10, 0)) == ([False], [0])
    assert added(memory, (2, 7, 20, 30)) == ([True], [1])
    assert added(memory, (3, 7, 30, 60), (4, 7, 40, 61)) == ([True, True], [2, 3])


def test_pages_of_one_batch_are_all_alike():
    assert added(RecentDigests(), *((i, 7, 10 * i, i) for i in range(1, 5))) == (
        [True] * 4,
        [0, 1, 2, 3],
    )


def test_twins_share_a_digest_without_a_doubt():
    memory = RecentDigests()
    assert added(memory, (1, 7, 10, 0), (2, 7, 10, 0)) == ([False, False], [0, 1])
    assert added(memory, (3, 7, 10, 1)) == ([False], [2])
    assert added(memory, (4, 7, 40, 2)) == ([True], [3])
    assert shared(RecentDigests(), (1, 7, 10, 0), (2, 7, 10, 0)) == [True, True]


def test_one_stranger_among_twins_is_alike_alone():
    twins = [(i, 7, 10, 0) for i in range(1, 9)]
    assert added(RecentDigests(), *twins, (9, 7, 90, 1))[0] == [False] * 8 + [True]


@pytest.mark.parametrize(("minutes", "alike"), [(60, True), (61, False)])
def test_an_hour_separates(minutes, alike):
    memory = RecentDigests()
    added(memory, (1, 7, 10, 0))
    assert added(memory, (2, 7, 20, minutes))[0] == [alike]
    apart = added(RecentDigests(), (1, 7, 10, 0), (2, 7, 20, minutes))[0]
    assert apart == [alike, alike]


def test_the_same_page_again_is_no_other_page():
    memory = RecentDigests()
    assert shared(memory, (1, 7, 10, 0), (1, 7, 11, 1)) == [False, False]


def test_a_full_memory_forgets_and_never_confuses():
    memory, rng = RecentDigests(bits=3), np.random.default_rng(5)
    for _ in range(50):
        digest = rng.choice(2**62, 20, replace=False)
        rows = [(i, d, i + 100, 0) for i, d in enumerate(digest.tolist(), 1)]
        assert added(memory, *rows)[0] == [False] * 20


def test_the_hour_is_that_of_incidents():
    assert np.timedelta64(HOUR, "us") == np.timedelta64(1, "h")


def test_a_page_that_changes_back_and_forth_counts_once():
    memory = RecentDigests()
    rows = [(1, 7, 10, 0), (2, 7, 20, 1), (3, 7, 30, 2), (1, 7, 11, 3), (2, 7, 21, 4)]
    assert [added(memory, row)[1] for row in rows] == [[0], [1], [2], [2], [2]]
    assert added(RecentDigests(), *rows)[1] == [0, 1, 2, 2, 2]
    assert added(memory, (4, 7, 40, 5)) == ([True], [3])


def test_repetitions_of_the_first_page_hide_no_stranger():
    rows = [(1, 7, 10, 0), (2, 7, 20, 1), (1, 7, 11, 2), (1, 7, 12, 3), (1, 7, 13, 4)]
    assert added(RecentDigests(), *rows) == ([True] * 5, [0, 1, 1, 1, 1])


def test_one_page_alone_shares_nothing_however_often_it_shows_a_digest():
    memory = RecentDigests()
    assert shared(memory, *((1, 7, 10 + i, i) for i in range(6))) == [False] * 6
    assert shared(memory, (1, 7, 20, 7)) == [False]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), max_size=30), st.integers(0, 30))
def test_any_division_into_batches_counts_the_pages_of_each_digest(rows, cut):
    rows = [(page, digest, 10 * page, i % 60) for i, (page, digest) in enumerate(rows)]
    memory, pages, expected = RecentDigests(), {}, []
    for page, digest, *_ in rows:
        known = pages.setdefault(digest, set())
        known.add(page)
        expected.append(len(known) - 1)
    counts = [n for part in (rows[:cut], rows[cut:]) if part for n in added(memory, *part)[1]]
    assert counts == expected


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2)), min_size=1, max_size=8),
        max_size=12,
    )
)
def test_batches_that_fight_for_one_place_confuse_no_pages(batches):
    memory = RecentDigests(bits=1)
    for batch in batches:
        rows = [(page, 10 * page + k, 10 * page + (k + 1) % 3, 0) for page, k in batch]
        assert shared(memory, *rows) == [False] * len(rows)
