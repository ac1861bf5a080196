"""Changes that crawls found: their kinds, intervals and order in the feed."""

import numpy as np
import pytest
from support.feed_cases import feed_of
from support.ingest_cases import HOUR, crawl, rules
from support.store_cases import T0, crawl_columns, instants, register, states_of

from service.ingest.record import record
from service.model.arrays import moment
from service.model.changes import ChangeKind

NEW, CHANGED, GONE, BACK, MOVED, _ = ChangeKind


@pytest.fixture
def pages(sql_store):
    return np.sort(register(sql_store, 3)).tolist()


def kinds(store):
    return [ChangeKind(kind) for kind in feed_of(store).kind.tolist()]


def hours(store):
    """Return the interval of each change, hours after T0."""
    feed = feed_of(store)
    pairs = zip(map(moment, feed.changed_after), map(moment, feed.observed_at), strict=True)
    return [(after and (after - T0) / HOUR, (at - T0) / HOUR) for after, at in pairs]


def test_the_first_content_is_new_and_a_difference_is_a_change(sql_store, pages):
    for hour, digest in enumerate([7, 7, 8, 8]):
        crawl(sql_store, pages[0], T0 + hour * HOUR, digest=digest)
    assert kinds(sql_store) == [NEW, CHANGED]
    assert hours(sql_store) == [(None, 0), (1, 2)]
    assert feed_of(sql_store).digest.tolist() == [7, 8]


def test_a_crawl_without_an_answer_moves_no_interval(sql_store, pages):
    crawl(sql_store, pages[0], T0, digest=7)
    crawl(sql_store, pages[0], T0 + HOUR, status=503)
    crawl(sql_store, pages[0], T0 + 2 * HOUR, digest=8, status=200)
    assert kinds(sql_store) == [NEW, CHANGED]
    assert hours(sql_store)[1] == (0, 2)


def test_a_page_disappears_once_and_comes_back_once(sql_store, pages):
    for hour, status in enumerate([200, 404, 410, 500, 200, 404, 404]):
        crawl(sql_store, pages[0], T0 + hour * HOUR, digest=7, status=status)
    assert kinds(sql_store) == [NEW, GONE, BACK, GONE]
    assert feed_of(sql_store).digest.tolist() == [7, 0, 7, 0]


def test_a_glitch_is_neither_gone_nor_back(sql_store, pages):
    for minutes, status in enumerate([200, 404, 404, 404, 200]):
        crawl(sql_store, pages[0], T0 + minutes * HOUR / 4, digest=7, status=status)
    assert kinds(sql_store) == [NEW]


def test_a_page_that_was_never_there_is_gone_at_its_first_answer(sql_store, pages):
    crawl(sql_store, pages[0], T0, status=404)
    crawl(sql_store, pages[0], T0 + HOUR, status=404)
    crawl(sql_store, pages[0], T0 + 2 * HOUR, digest=1)
    assert kinds(sql_store) == [GONE, BACK]


def test_a_permanent_redirect_moves_a_page_to_its_target(sql_store, pages):
    one, two, three = pages
    crawl(sql_store, one, T0, digest=7)
    crawl(sql_store, one, T0 + HOUR, status=301, redirects_to=two)
    assert kinds(sql_store) == [NEW]
    crawl(sql_store, one, T0 + 2 * HOUR, status=301, redirects_to=two)
    crawl(sql_store, one, T0 + 3 * HOUR, status=308, redirects_to=three)
    crawl(sql_store, one, T0 + 4 * HOUR, status=404)
    assert kinds(sql_store) == [NEW, MOVED, MOVED, GONE]
    assert feed_of(sql_store).moved_to.tolist() == [0, two, three, 0]


def test_a_temporary_redirect_is_no_change(sql_store, pages):
    crawl(sql_store, pages[0], T0, digest=7)
    crawl(sql_store, pages[0], T0 + HOUR, status=302, redirects_to=pages[1])
    assert kinds(sql_store) == [NEW]


def test_a_date_of_the_site_within_the_interval_is_kept(sql_store, pages):
    crawl(sql_store, pages[0], T0, digest=7)
    for hour, modified in ((4, 3), (8, 2), (12, 12)):
        date = instants([T0 + modified * HOUR])
        crawl(sql_store, pages[0], T0 + hour * HOUR, changed=1, last_modified=date)
    dates = [moment(date) for date in feed_of(sql_store).last_modified]
    assert dates == [None, T0 + 3 * HOUR, None, None]


def test_what_was_reported_before_changes_nothing_again(sql_store, pages):
    for _ in range(2):
        crawl(sql_store, pages[0], T0, digest=7)
        crawl(sql_store, pages[0], T0 + HOUR, digest=8)
    assert kinds(sql_store) == [NEW, CHANGED]


@pytest.mark.parametrize("seed", range(5))
def test_the_last_change_of_a_page_is_its_state_whatever_the_batches(sql_store, pages, seed):
    """Random crawls in random batches: the feed folded by page is the table of states."""
    rng = np.random.default_rng(seed)
    n, start = 120, 0
    page = rng.choice(pages, n)
    at = [T0 + k * HOUR for k in range(n)]
    status = rng.choice([-1, 200, 301, 302, 304, 404, 410, 500], n)
    target = np.where((status == 301) | (status == 302), rng.choice(pages, n), 0)
    target = np.where(target == page, 0, target)
    digest = rng.integers(0, 3, n)
    while start < n:
        end = start + int(rng.integers(1, 20))
        rows = slice(start, end)
        crawls = crawl_columns(
            page[rows],
            at[rows],
            status=status[rows],
            redirects_to=target[rows],
            digest=digest[rows],
        )
        with sql_store.begin() as tx:
            record(tx, crawls, rules())
        start = end
    feed, states = feed_of(sql_store), states_of(sql_store, pages)
    for row, one in enumerate(pages):
        own = feed.take(feed.page_id == one)
        assert np.all(np.diff(own.observed_at) > np.timedelta64(0))
        assert np.all(np.diff(own.seq) >= 0)
        assert bool(own.kind[-1] in (GONE, MOVED)) == bool(states.gone[row])
        assert np.count_nonzero(own.kind == NEW) <= 1
        after = own.changed_after[1:]
        assert np.all(after >= own.observed_at[:-1])
    found = np.isin(feed.kind, [CHANGED, GONE, BACK, MOVED]) & ~np.isnat(feed.changed_after)
    assert np.count_nonzero(found) >= states.n_changes.sum()
