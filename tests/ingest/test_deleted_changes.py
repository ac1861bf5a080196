"""Deletions in the feed: a reader that applies its changes holds exactly the pages with content."""

from datetime import timedelta

import numpy as np
import pytest
from support.feed_cases import feed_of
from support.ingest_cases import HOUR, crawl
from support.store_cases import T0, register

from service.events.reading import read
from service.ingest.bulk import Delete, act_on
from service.model.arrays import NO_TIME, moment
from service.model.changes import ChangeFilter, ChangeKind, FeedPlace
from service.model.listing import PageTags
from service.storage.feed.contract import KEPT_FOR

ALL = ChangeFilter()
ENDS = (ChangeKind.gone, ChangeKind.moved, ChangeKind.deleted)
STATUSES = (200, 200, 404, 410, 503, 301)


class Follower:
    """A copy of the pages with content, by the changes of the feed alone."""

    def __init__(self, only=ALL):
        self.only = only
        self.place = FeedPlace(0)
        self.urls = set()

    def follow(self, store, limit=7):
        whole = False
        while not whole:
            with store.begin(write=False) as tx:
                part = read(tx, self.place, limit, self.only)
            self.place, whole = part.after, part.whole
            for url, kind in zip(part.changes.url, part.changes.kind.tolist(), strict=True):
                (self.urls.discard if kind in ENDS else self.urls.add)(url)
        return self.urls


def with_content(store):
    """Return the URLs of the pages whose last answer had content."""
    with store.begin(write=False) as tx:
        pages, states = tx.read_pages(0, 1_000)
    present = ~states.gone & ~np.isnat(states.last_observed_at)
    return set(pages.url[np.isin(pages.page_id, states.page_id[present])])


def delete(store, page_id, now=T0):
    return act_on(store, np.sort(np.array(page_id)), Delete(), now).changed


def changes_of(store, only=ALL):
    with store.begin(write=False) as tx:
        return read(tx, FeedPlace(0), 1_000, only).changes


@pytest.mark.parametrize("seed", range(3))
def test_a_reader_of_the_feed_holds_exactly_the_pages_with_content(queue_store, seed):
    rng, at = np.random.default_rng(seed), T0
    often, late = Follower(), Follower()
    for _ in range(40):
        at += HOUR * int(rng.integers(1, 30))
        page_id = register(queue_store, 6, at) if rng.random() < 0.3 else existing(queue_store)
        some = rng.permutation(page_id)
        for page in some[:2]:
            status = int(rng.choice(STATUSES))
            crawl(queue_store, page, at, status=status, digest=int(rng.integers(1, 4)))
        if rng.random() < 0.4:
            delete(queue_store, some[-3:], at)
        if rng.random() < 0.4:
            assert often.follow(queue_store) == with_content(queue_store)
    assert often.follow(queue_store) == late.follow(queue_store) == with_content(queue_store)
    assert ChangeKind.deleted in feed_of(queue_store).kind


def existing(store):
    with store.begin(write=False) as tx:
        return tx.next_page_ids(0, 100)


def test_the_deletion_of_a_page_is_its_last_change(sql_store):
    pages = np.sort(register(sql_store, 2))
    crawl(sql_store, pages[0], T0, digest=7)
    crawl(sql_store, pages[1], T0, digest=7)
    before = changes_of(sql_store)
    assert delete(sql_store, pages[:1], T0 + HOUR).tolist() == pages[:1].tolist()
    changes = changes_of(sql_store)
    assert changes.kind.tolist() == [ChangeKind.new, ChangeKind.deleted]
    assert changes.page_id.tolist() == [pages[1], pages[0]]
    assert changes.url[1] == before.url[before.page_id == pages[0]][0]
    assert moment(changes.observed_at[1]) == T0 + HOUR
    assert np.isnat(changes.changed_after[1])
    assert changes.last_modified[1].astype(int) == NO_TIME.astype(int)
    assert delete(sql_store, pages[:1]).tolist() == []
    assert len(changes_of(sql_store)) == 2


def test_a_page_that_was_never_crawled_ends_without_a_change(sql_store):
    unknown, failing = np.sort(register(sql_store, 2))
    crawl(sql_store, failing, T0, status=503)
    assert len(delete(sql_store, [unknown, failing])) == 2
    assert changes_of(sql_store).page_id.tolist() == [failing]


def test_filters_choose_deletions_by_the_last_values_of_the_page(sql_store):
    ours, other = register(sql_store, 1)[0], register(sql_store, 1, host="b.example")[0]
    for page in (ours, other):
        crawl(sql_store, page, T0, digest=7)
    with sql_store.begin() as tx:
        pairs = PageTags(page_id=np.array([ours] * 2), tag=np.array(["docs", "news"], object))
        tx.add_tags(pairs)
    delete(sql_store, [ours, other])
    every = changes_of(sql_store)
    assert [sorted(tags.split()) for tags in every.tags] == [["docs", "news"], []]
    for only, page in (
        (ChangeFilter(host="b.example"), other),
        (ChangeFilter(prefix="https://b.example/"), other),
        (ChangeFilter(tag="docs"), ours),
        (ChangeFilter(kinds=frozenset({ChangeKind.deleted}), host="example.org"), ours),
    ):
        assert changes_of(sql_store, only).page_id.tolist() == [page]
    for only in (
        ChangeFilter(tag="doc"),
        ChangeFilter(tag="docs", host="b.example"),
        ChangeFilter(kinds=frozenset({ChangeKind.gone})),
    ):
        assert len(changes_of(sql_store, only)) == 0
    follower = Follower(ChangeFilter(tag="docs"))
    follower.urls = {"https://example.org/0"}
    assert follower.follow(sql_store) == set()


def test_deleted_pages_are_kept_as_long_as_their_changes(sql_store):
    """A day longer: the number of a change is later than the time of its deletion."""
    pages = np.sort(register(sql_store, 3))
    for page in pages:
        crawl(sql_store, page, T0, digest=7)
    now = sql_store.clock()
    delete(sql_store, pages[:1], now - 2 * KEPT_FOR)
    delete(sql_store, pages[1:2], now)
    horizon = int((now + timedelta(hours=1)).timestamp() * 1e6)
    with sql_store.begin() as tx:
        assert not tx.cut_feed(0, 10)
        assert tx.deleted_pages(pages, ALL).page_id.tolist() == pages[:2].tolist()
        while tx.cut_feed(horizon, 1):
            pass
        assert tx.deleted_pages(pages, ALL).page_id.tolist() == pages[1:2].tolist()
    assert changes_of(sql_store).page_id.tolist() == pages[1:2].tolist()
