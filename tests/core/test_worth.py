"""Worth of URL groups: shares, places, grants and counts, against a model of single pages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core import worth
from service.core.worth import ADMIT, ALL, HOLD, Levels

HOST, SHOP, LAST, OTHER, FAR, FARTHER = range(6)
PARENT = np.array([-1, HOST, SHOP, SHOP, HOST, FAR])
"""A host with a directory of two last levels, and with a directory of one."""
PATHS = {LAST: (SHOP, HOST), OTHER: (SHOP, HOST), FARTHER: (FAR, HOST)}
"""Levels above each last level, the nearest first."""


def levels(**columns):
    zeros = np.zeros(len(PARENT), np.int64)
    values = {name: zeros.copy() for name in Levels._fields[1:]}
    for name, cells in columns.items():
        for place, value in cells.items():
            values[name][place] = value
    tree = Levels(PARENT, **values)
    if "n_first" in columns:
        return tree
    last = at(dict.fromkeys(PATHS, 1))
    return tree._replace(
        n_first=worth.summed(PARENT, tree.n * last), n_new=worth.summed(PARENT, tree.new * last)
    )


def at(places):
    amounts = np.zeros(len(PARENT), np.int64)
    for place, amount in places.items():
        amounts[place] = amount
    return amounts


def test_a_level_without_evidence_has_the_share_of_the_one_above():
    shares = worth.shares(levels(n={SHOP: 8}))
    assert shares[[HOST, SHOP, LAST]] == pytest.approx([0.9, 0.1, 0.1])


def test_a_good_group_below_a_bad_directory_goes_on():
    tree = levels(n={SHOP: 100, LAST: 20}, new={LAST: 20})
    assert worth.stopped(tree)[[SHOP, LAST, OTHER]].tolist() == [True, False, True]
    assert worth.grants(tree, at({LAST: 50, OTHER: 50})).tolist() == at({LAST: 40}).tolist()


def test_a_group_without_new_pages_stops_after_nine_crawls():
    tree = levels()
    granted = worth.grants(tree, at({LAST: 5_000}))
    assert granted[LAST] == 9  # 0.9 / (1 + 9) is below 0.1
    tree = worth.admitted(tree, granted)
    assert worth.grants(tree, at({LAST: 5_000})).sum() == 0
    tree = worth.answered(tree, granted, at({}), granted)
    assert worth.stopped(tree)[LAST]
    assert worth.grants(tree, at({LAST: 5_000})).sum() == 0


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 30))
def test_no_more_are_admitted_than_would_stop_the_group(n, new, n_host):
    new, n_host = min(n, new), max(n_host, 1)
    tree = levels(n={LAST: n, HOST: n_host}, new={LAST: new, HOST: n_host // 2})
    useless = 0
    while not worth.shares(tree._replace(n=tree.n + at({LAST: useless})))[LAST] < worth.STOP:
        useless += 1
    assert max(worth.until_stopped(tree)[LAST], 0) == useless
    assert worth.places(tree)[LAST] <= useless


def test_a_good_group_doubles():
    tree, waiting, n_rounds = levels(), 5_000, 0
    while waiting:
        granted = worth.grants(tree, at({LAST: waiting}))
        tree = worth.answered(worth.admitted(tree, granted), granted, granted, granted)
        waiting -= int(granted[LAST])
        n_rounds += 1
    assert n_rounds <= 12
    assert tree.in_flight.tolist() == [0] * 6


def test_groups_without_an_answer_share_the_places_of_the_level_above():
    granted = worth.grants(levels(), at({LAST: 100, OTHER: 100, FARTHER: 100}))
    assert granted.sum() == 9
    assert (granted[[LAST, OTHER, FARTHER]] > 0).all()


def test_the_nearest_rule_holds():
    tree = levels(rule={HOST: HOLD, SHOP: ADMIT, OTHER: HOLD})
    assert worth.rules(tree).tolist() == [HOLD, ADMIT, ADMIT, HOLD, HOLD, HOLD]
    granted = worth.grants(tree, at({LAST: 500, OTHER: 500, FARTHER: 500}))
    assert granted.tolist() == at({LAST: 500}).tolist()
    assert worth.places(tree)[LAST] == ALL


def test_an_admitted_level_takes_no_place_of_the_level_above():
    tree = worth.admitted(levels(), at({LAST: 7}))
    assert tree.in_flight.tolist() == [7, 7, 7, 0, 0, 0]
    here = np.arange(6) == SHOP
    admitted = worth.ruled(tree, np.full(6, ADMIT), here)
    assert admitted.in_flight.tolist() == [0, 7, 7, 0, 0, 0]
    assert worth.ruled(admitted, np.zeros(6, np.int64), here).in_flight.tolist() == [
        *(7, 7, 7, 0, 0, 0)
    ]


last_levels = st.sampled_from(sorted(PATHS))
steps = st.lists(
    st.tuples(st.just("wait"), last_levels, st.integers(0, 30))
    | st.tuples(st.just("crawl"), last_levels, st.integers(0, 5), st.integers(0, 5))
    | st.tuples(st.just("delete"), last_levels, st.integers(0, 5)),
    max_size=30,
)


@pytest.mark.dear
@given(steps)
def test_counts_are_those_of_single_pages(events):
    tree = levels()
    flying, n, new, below = at({}), at({}), at({}), (at({}), at({}))
    for what, place, *amounts in events:
        if what == "wait":
            granted = worth.grants(tree, at({place: amounts[0]}))
            assert 0 <= granted[place] <= amounts[0]
            assert not granted[place] or not worth.stopped(tree)[place]
            flying += granted
            tree = worth.admitted(tree, granted)
        else:
            ended = min(amounts[0], int(flying[place]))
            crawls = ended if what == "crawl" else 0
            n_new = min(crawls, amounts[-1]) if crawls else 0
            changes = at({place: crawls}), at({place: n_new}), at({place: ended})
            tree = worth.answered(tree, *changes)
            flying[place] -= ended
            _count(n, new, below, place, crawls, n_new)
        assert tree.n.tolist() == n.tolist()
        assert tree.new.tolist() == new.tolist()
        assert [tree.n_first.tolist(), tree.n_new.tolist()] == [each.tolist() for each in below]
        assert tree.in_flight.tolist() == _in_flight(flying, n).tolist()


def _count(n, new, below, place, crawls, n_new):
    """Count first crawls, and the trials of their parents that change by them."""
    every = crawls, n_new
    for level, above in zip((place, *PATHS[place]), (*PATHS[place], None), strict=True):
        before = _trials(n[level], *(counts[level] for counts in below))
        n[level] += crawls
        new[level] += n_new
        for counts, more in zip(below, every, strict=True):
            counts[level] += more
        after = _trials(n[level], *(counts[level] for counts in below))
        crawls, n_new = (now - then for now, then in zip(after, before, strict=True))
        if above is None:
            return


def _trials(n, n_first, n_new):
    """Return the trials of one child, and those with news."""
    if n_new and (0.9 + n_new) / (1 + n_first) > 0.0999999:
        return 1, 1
    return min(n, 3), 0


def _in_flight(flying, n):
    """Return the pages in flight of each level: those of children without an answer."""
    total = flying.copy()
    for level in (SHOP, FAR, HOST):
        below = np.flatnonzero(level == PARENT)
        total[level] = sum(total[child] for child in below if n[child] == 0)
    return total


def crawled(tree, place, n, new):
    """Return the levels after first crawls of a last level."""
    return worth.answered(tree, at({place: n}), at({place: new}), at({}))


def test_a_bad_directory_is_three_trials_of_its_host_and_stops_no_good_one():
    tree = crawled(levels(), LAST, 9, 0)
    assert tree.n[[SHOP, HOST]].tolist() == [3, 3]
    assert tree.new.tolist() == [0] * 6
    assert worth.stopped(tree)[SHOP]
    assert worth.shares(tree)[FARTHER] == pytest.approx(0.9 / 4)
    tree = crawled(tree, FARTHER, 1, 1)
    assert tree.new[[FARTHER, FAR, HOST]].tolist() == [1, 1, 1]


def test_news_of_a_child_are_taken_back_once_it_is_junk():
    tree = crawled(levels(), LAST, 1, 1)
    assert (tree.n[SHOP], tree.new[SHOP]) == (1, 1)
    tree = crawled(tree, LAST, 18, 0)
    assert (tree.n[SHOP], tree.new[SHOP]) == (3, 0)
    tree = crawled(tree, LAST, 5, 5)  # an operator admits more, and they are good
    assert (tree.n[SHOP], tree.new[SHOP]) == (1, 1)


def test_counts_of_an_older_rule_never_fall_below_what_they_count():
    tree = crawled(levels(n={LAST: 40, SHOP: 1, HOST: 1}), LAST, 9, 9)
    assert (tree.n[SHOP], tree.new[SHOP]) == (1, 1)
    assert (tree.n[HOST], tree.new[HOST]) == (1, 1)


def test_news_of_one_page_carry_no_level_above_once_all_below_bring_nothing():
    """The news of the first page of a trap, where each of its directories has few pages."""
    tree = crawled(crawled(levels(), LAST, 1, 1), OTHER, 17, 0)
    assert (tree.n[SHOP], tree.new[SHOP]) == (1 + 3, 1)
    assert (tree.n[HOST], tree.new[HOST]) == (1, 1), "18 crawls, one new"
    tree = crawled(tree, OTHER, 1, 0)
    assert tree.new[SHOP] == 1, "the first page alone brought all that it could"
    assert (tree.n[HOST], tree.new[HOST]) == (3, 0)


def test_one_page_with_news_gives_few_places_to_each_level_above():
    tree = crawled(levels(), LAST, 1, 1)
    assert worth.places(tree)[[LAST, SHOP, HOST]].tolist() == [3, 3, 3]
    tree = crawled(tree, LAST, 8, 8)
    assert worth.places(tree)[[LAST, SHOP, HOST]].tolist() == [18, 12, 12]
