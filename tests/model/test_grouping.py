"""Scans over groups do what a walk entry by entry does."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.model.arrays import Groups, places, rounds

entries = st.lists(
    st.tuples(st.integers(0, 4), st.booleans(), st.integers(1, 99)), min_size=1, max_size=20
).map(lambda entries: sorted(entries, key=lambda entry: entry[0]))


@given(entries=entries)
def test_what_entries_find_and_leave_is_the_last_value_set(entries):
    numbers, sets, value = (np.array(column) for column in zip(*entries, strict=True))
    groups = Groups.of(numbers)
    pages = np.unique(numbers)
    assert pages[groups.page].tolist() == numbers.tolist()
    initial = -1 - np.arange(len(pages))
    held = dict(zip(pages.tolist(), initial.tolist(), strict=True))
    found = []
    for page, is_set, number in entries:
        found.append(held[page])
        held[page] = number if is_set else held[page]
    assert groups.before(initial, sets, value).tolist() == found
    assert groups.after(initial, sets, value).tolist() == list(held.values())
    selected = [sum(s for p, s, _ in entries if p == page) for page in pages]
    assert groups.count(sets).tolist() == selected
    assert [numbers[end] for end in groups.end] == pages.tolist()


@given(entries=entries)
def test_the_kth_turn_has_the_kth_entry_of_each_page(entries):
    page = np.array([entry[0] for entry in entries])
    taken = [page[entries].tolist() for entries in rounds(page)]
    n_entries = np.bincount(page)
    assert taken == [np.flatnonzero(n_entries > k).tolist() for k in range(n_entries.max())]
    in_order = np.concatenate([np.flatnonzero(page == p) for p in np.unique(page)])
    assert sorted(np.concatenate(list(rounds(page)))) == in_order.tolist()


def test_no_entries_take_no_turn():
    assert list(rounds(np.zeros(0, np.int64))) == []


@given(
    st.sampled_from([60, 1 << 30, 1 << 62]).flatmap(
        lambda most: st.tuples(
            st.lists(st.integers(0, most), max_size=60), st.sets(st.integers(0, most), max_size=30)
        )
    ),
    st.sampled_from([0, 1 << 20, 1 << 42]),
)
def test_places_of_ids_are_their_rows_whether_the_others_lie_close_together_or_not(
    both, same_low_bits
):
    """Ids with the same low bits, as those of two shards, are different."""
    ids, others = both
    rows = sorted(others)
    ids = [*ids, *rows, *(one ^ same_low_bits for one in rows)]
    place = places(np.array(ids, np.int64), np.array(rows, np.int64))
    assert place.tolist() == [rows.index(one) if one in others else -1 for one in ids]
