"""Numbers that no incarnation repeats, and how a database knows that it was restored."""

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.store_cases import T0

from service.model.incarnations import (
    EPOCHS,
    ID_BITS,
    PAGES,
    REWOUND_AFTER,
    SINCE,
    Incarnation,
    Surroundings,
    floor,
    is_lost_epoch,
    lost_pages,
    restored,
)

HOME = Incarnation(1, "00000001", T0, "1/2/3", "00000001", 0, 0, 0, 0, 0, 0)
MINUTE = timedelta(minutes=1)


def second(last_page, first_page, last_epoch=0, first_epoch=0):
    return HOME._replace(
        number=2,
        last_page=last_page,
        first_page=first_page,
        last_epoch=last_epoch,
        first_epoch=first_epoch,
    )


@given(
    last=st.integers(0, 2**40),
    years=st.floats(0, 40),
    uniform=st.floats(0, 1, exclude_max=True),
)
def test_a_first_number_is_far_above_the_last(last, years, uniform):
    now = SINCE + timedelta(days=365 * years)
    first = floor(PAGES, last, now, uniform)
    assert first >= last + PAGES.least
    assert first <= max(last + PAGES.least, years * 366 * 86_400 * PAGES.per_s) + PAGES.chance


def test_300_restores_in_30_years_stay_within_the_bits_of_a_shard():
    rng, last, epoch = np.random.default_rng(7), 20_000_000, 100_000
    for n in range(300):
        now = SINCE + timedelta(days=36.5 * n)
        last = floor(PAGES, last, now, rng.random()) + 20_000_000
        epoch = floor(EPOCHS, epoch, now, rng.random()) + 5_000
    assert last < 1 << ID_BITS
    assert epoch < 1 << 31


def test_a_backup_that_is_restored_twice_does_not_begin_with_the_same_numbers():
    """The second restore knows nothing of the first; time and chance keep the two apart."""
    rng, n_pages = np.random.default_rng(7), 20_000_000
    for _ in range(1_000):
        firsts = [floor(PAGES, 10, T0 + k * MINUTE, rng.random()) for k in range(2)]
        assert abs(firsts[1] - firsts[0]) > 1
    apart = [
        floor(PAGES, 10, SINCE + timedelta(days=3_650) + k * timedelta(hours=6), 0.5)
        for k in range(2)
    ]
    assert apart[1] - apart[0] > n_pages


@given(st.lists(st.integers(1, 5_000), max_size=50))
def test_lost_pages_are_those_between_two_incarnations(ids):
    lives = [HOME, second(100, 1_000), second(1_200, 3_000)]
    expected = [100 < i < 1_000 or 1_200 < i < 3_000 for i in ids]
    assert lost_pages(np.array(ids, np.int64), lives).tolist() == expected
    in_shard = np.array(ids, np.int64) + (5 << ID_BITS)
    assert lost_pages(in_shard, lives).tolist() == expected


def test_no_item_without_an_id_is_lost():
    assert not lost_pages(np.array([0, -1]), [second(0, 1_000)]).any()


def test_lost_epochs():
    lives = [HOME, second(0, 0, 7, 100)]
    assert [n for n in (6, 7, 8, 99, 100) if is_lost_epoch(n, lives)] == [8, 99]


@pytest.mark.parametrize(
    ("found", "is_restored"),
    [
        (Surroundings("1/2/3", "00000001", T0), False),
        (Surroundings("1/2/4", "00000001", T0), True),
        (Surroundings("9/2/3", "00000001", T0), True),
        (Surroundings("1/2/3", "00000002", T0), True),
        (Surroundings("1/2/3", "00000002", None), True),
        (Surroundings("1/2/3", "00000002", T0 + REWOUND_AFTER), False),
        (Surroundings("1/2/3", "", T0), False),
    ],
)
def test_a_restore_shows_by_the_tables_or_by_a_timeline_and_silence(found, is_restored):
    now = T0 + 2 * REWOUND_AFTER
    assert bool(restored(HOME, found, now)) == is_restored


def test_a_timeline_that_was_never_known_shows_nothing():
    found = Surroundings("1/2/3", "00000002", None)
    assert not restored(HOME._replace(timeline=""), found, T0 + 2 * REWOUND_AFTER)
