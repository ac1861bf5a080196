"""Sets of hosts: each host is in one, groups are whole, and the sets have about as many pages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.model import host_sets
from service.model.host_sets import EVERY_HOST, NO_END, HostSizes

pages = st.dictionaries(st.integers(1, 400), st.integers(0, 1_000), min_size=1, max_size=60)


def sizes_of(n_pages):
    ids = np.array(sorted(n_pages), np.int64)
    return HostSizes(ids, np.array([n_pages[i] for i in ids.tolist()], np.int64))


def grouped(ids, labels):
    """Return the hosts of each label but 0."""
    labels = np.resize(labels, len(ids))
    return [ids[labels == label] for label in np.unique(labels[labels > 0])]


def pages_in(sets, sizes):
    return [int(sizes.n_pages[each.has(sizes.host_id)].sum()) for each in sets]


@given(pages, st.integers(1, 6), st.lists(st.integers(0, 4), min_size=1, max_size=60))
def test_each_host_is_in_one_set_and_each_group_whole_in_one(n_pages, n, labels):
    sizes = sizes_of(n_pages)
    groups = grouped(sizes.host_id, labels)
    sets = host_sets.host_sets(sizes, groups, n)
    assert len(sets) == n
    unknown = np.array([0, 401, 1 << 52])
    for ids in (sizes.host_id, unknown, np.arange(1, 402)):
        assert (np.sum([each.has(ids) for each in sets], axis=0) == 1).all()
    for hosts in groups:
        assert {tuple(each.has(hosts).tolist()) for each in sets} <= {
            (True,) * len(hosts),
            (False,) * len(hosts),
        }


@given(pages, st.integers(1, 6), st.lists(st.integers(0, 4), min_size=1, max_size=60))
def test_no_set_has_more_than_its_share_and_one_unit(n_pages, n, labels):
    sizes = sizes_of(n_pages)
    groups = grouped(sizes.host_id, labels)
    units = [int(sizes.n_pages[np.isin(sizes.host_id, hosts)].sum()) for hosts in groups]
    largest = max([*units, *sizes.n_pages.tolist()])
    share = sizes.n_pages.sum() / n
    assert max(pages_in(host_sets.host_sets(sizes, groups, n), sizes)) <= share + largest + 1


def test_a_host_of_half_of_the_pages_is_a_set_of_its_own():
    sizes = HostSizes(np.arange(1, 202), np.ones(201, np.int64))
    sizes.n_pages[100] = 200
    large, *others = host_sets.host_sets(sizes, [], 3)
    assert sizes.host_id[large.has(sizes.host_id)].tolist() == [101]
    assert pages_in(others, sizes) == [100, 100]


def test_equal_hosts_are_divided_into_ranges():
    sizes = HostSizes(np.arange(10, 1_010), np.full(1_000, 7))
    sets = host_sets.host_sets(sizes, [], 4)
    assert [(each.first, each.end) for each in sets] == [
        (0, 260),
        (260, 510),
        (510, 760),
        (760, NO_END),
    ]
    assert all(not each.named and not each.without for each in sets)


def test_too_many_hosts_of_groups_make_one_set(monkeypatch):
    sizes = HostSizes(np.arange(1, 9), np.ones(8, np.int64))
    groups = [np.array([1, 3, 8]), np.array([2, 5])]
    assert len(host_sets.host_sets(sizes, groups, 2)) == 2
    monkeypatch.setattr(host_sets, "MOST_NAMED", 4)
    assert host_sets.host_sets(sizes, groups, 2) == (EVERY_HOST,)


@pytest.mark.parametrize("n", [1, 4])
def test_a_store_without_pages_is_divided_too(n):
    nothing = HostSizes(np.zeros(0, np.int64), np.zeros(0, np.int64))
    sets = host_sets.host_sets(nothing, [], n)
    assert np.sum([each.has(np.array([1, 99])) for each in sets], axis=0).tolist() == [1, 1]
