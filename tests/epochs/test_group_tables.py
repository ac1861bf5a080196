"""Tables of URL groups that parts of one database share: nothing is lost, or counted twice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.joint_cases import together

from service.core.ping_feeds import PingFeeds
from service.core.shared_changes import SHARES, ShareEvidence
from service.core.wide_revisions import WideRevisions
from service.epochs.group_tables import FewRates, SharedGroups, TableShare, joined, shared_groups
from service.model.urls import n_buckets

USUAL, NO_FEEDS = np.float32(0.1), PingFeeds.none()


def evidence_of(n_groups, group, rng):
    score = rng.normal(0, 1, (len(group), SHARES.size))
    score[:, 0] = 0.0
    return ShareEvidence(n_groups, np.array(group), score, np.linspace(1, 2, SHARES.size), 3.0)


class Pages:
    """Pages by their URL groups."""

    def __init__(self, url_group):
        self.url_group = np.array(url_group, np.int32)

    def __len__(self):
        return len(self.url_group)


def shared(groups):
    """Return the buckets of parts whose pages have these URL groups."""
    return together([shared_groups(Pages(each)) for each in groups])


parts = st.lists(st.lists(st.integers(0, 2**20 - 1), max_size=9), min_size=1, max_size=4)


@given(parts, st.integers(0, 99))
def test_the_shares_of_evidence_add_up_to_the_whole(groups, seed):
    buckets = shared(groups)
    n_pages = sum(map(len, groups))
    n_groups = n_buckets(n_pages)
    every = np.concatenate([np.array(each, np.int64) for each in groups]) % n_groups
    np.testing.assert_array_equal(buckets[0].n_all, np.bincount(every, minlength=n_groups))
    rng = np.random.default_rng(seed)
    known = np.unique(np.append(every, rng.integers(0, n_groups, 3)))
    whole = evidence_of(n_groups, known, rng)
    own = [each.evidence(whole) for each in buckets]
    again = joined(
        [TableShare(None, np.zeros(0), each, None, NO_FEEDS) for each in own]
    ).share_evidence
    there = np.isin(known, every)
    np.testing.assert_array_equal(again.group, known[there])
    np.testing.assert_allclose(again.score, whole.score[there], rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(again.n_expected, whole.n_expected)
    assert again.n_changed == whole.n_changed


@given(parts, st.integers(0, 99))
def test_a_bucket_has_the_mean_of_its_parts_by_pages(groups, seed):
    buckets, rng = shared(groups), np.random.default_rng(seed)
    tables = [np.full(len(b.n_own), USUAL) for b in buckets]
    for table in tables:
        some = rng.integers(0, len(table), 12)
        table[some] = rng.gamma(1.0, 1.0, 12).astype(np.float32)
    shares = []
    for bucket, table in zip(buckets, tables, strict=True):
        group = np.flatnonzero(table != USUAL)
        few = FewRates(len(table), USUAL, group, table[group])
        shares.append(bucket.share(few, None, None, NO_FEEDS))
    rate = joined(shares).url_group_rate
    assert rate.dtype == np.float32
    n_own = np.array([bucket.n_own for bucket in buckets])
    n_all = n_own.sum(axis=0)
    sums = (n_own * np.array(tables, np.float64)).sum(axis=0)
    expected = np.where(n_all > 0, sums / np.maximum(n_all, 1), USUAL)
    np.testing.assert_allclose(rate, expected, rtol=1e-6)
    for own, table in zip(n_own, tables, strict=True):
        alone = (own == n_all) & (own > 0)
        np.testing.assert_array_equal(rate[alone], table[alone])


def test_parts_without_rates_or_evidence_have_tables_without_them():
    nothing = TableShare(None, np.zeros(0), None, None, NO_FEEDS)
    assert joined([nothing, nothing]) == (None, None, None, None)
    assert SharedGroups(np.zeros(4, np.int16), np.ones(4, np.int16)).evidence(None) is None


def test_the_revisions_of_all_parts_are_kept_by_host():
    at = np.array(["2026-05-01", "2026-05-02"], "M8[us]")
    one = WideRevisions(np.array([5, 9]), at, np.array([0.5, 0.25]))
    two = WideRevisions(np.array([7]), at[:1], np.array([1.0]))
    of = lambda some: TableShare(None, np.zeros(0), None, some, NO_FEEDS)  # noqa: E731
    joint = joined([of(one), of(None), of(two)]).wide_revisions
    assert joint.host_id.tolist() == [5, 7, 9]


def test_the_feeds_of_all_parts_are_kept_by_host():
    newest = np.array(["2026-05-01", "2026-05-02", "2026-05-03"], "M8[us]")
    one = PingFeeds(np.array([5, 9]), np.array([0.5, 2.0]), newest[:2])
    two = PingFeeds(np.array([7]), np.array([1.0]), newest[2:])
    parts = [TableShare(None, np.zeros(0), None, None, feeds) for feeds in (one, NO_FEEDS, two)]
    feeds = joined(parts).ping_feeds
    assert (feeds.host_id.tolist(), feeds.ping_rate.tolist()) == ([5, 7, 9], [0.5, 1.0, 2.0])
    assert feeds.last_ping_at.tolist() == newest[[0, 2, 1]].tolist()


def test_a_bucket_of_many_pages_counts_as_a_thousand():
    few, many = shared([[3] * 500, [3] * 70_000])
    assert few.n_all[3] == 1_500
    assert (few.weight[3], many.weight[3]) == pytest.approx((1 / 3, 2 / 3))
