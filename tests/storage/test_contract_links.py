"""Redirects between pages in the store: hops, unlinked targets, and what a registration resets."""

import numpy as np
import pytest
from support.store_cases import (
    DAY,
    MICROSECOND,
    T0,
    page_columns,
    page_of,
    register,
    save,
    states_of,
    urls,
)

from service.model.outcomes import Outcome


@pytest.fixture
def pages(queue_store):
    """The ids of six pages, ascending: asked for, 1 to 3 hops away, unlinked, with content."""
    ids = np.sort(register(queue_store, 6))
    save(queue_store, ids, hops=[0, 1, 2, 3, -2, 1])
    save(queue_store, ids[5:], last_crawl_at=T0, last_observed_at=T0)
    save(queue_store, ids[2:3], last_crawl_at=T0, n_failures=2)
    return queue_store, ids


def hops(store, ids):
    return states_of(store, ids).hops.tolist()


def test_links_are_read_by_ascending_page_without_unknown_ids(pages):
    store, ids = pages
    save(store, ids[:2], redirects_to=ids[1:3], n_targets=[7, 0])
    with store.begin(write=False) as tx:
        links = tx.links_of(np.array([ids[1], 10**6, ids[0], ids[4]]))
    assert links.page_id.tolist() == ids[[0, 1, 4]].tolist()
    assert links.hops.tolist() == [0, 1, -2]
    assert links.n_targets.tolist() == [7, 0, 0]
    assert links.redirects_to.tolist() == [*ids[1:3].tolist(), 0]
    assert links.had_content.tolist() == [0, 0, 0]
    with store.begin(write=False) as tx:
        assert tx.links_of(ids[5:]).had_content.tolist() == [1]
    assert [column.dtype.kind for column in links.arrays().values()] == ["i"] * 5


def test_a_redirect_links_targets_that_are_unlinked_or_farther_and_counts_theirs_anew(pages):
    store, ids = pages
    save(store, ids[:2], n_targets=[4, 1])
    with store.begin() as tx:
        changed = tx.link(ids, 2, T0 + DAY, T0 - DAY)
    assert changed.tolist() == ids[[1, 3, 4]].tolist()
    assert hops(store, ids) == [0, 1, 2, 2, 2, 1]
    assert [page_of(store, page).n_targets for page in ids[:2].tolist()] == [4, 0]


@pytest.mark.parametrize(
    ("state", "requested"),
    [
        ({"n_failures": 3}, True),
        ({"n_failures": 3, "requested_at": T0 - DAY}, True),
        ({"n_failures": 3, "requested_at": T0 + MICROSECOND}, False),
        ({"n_failures": 2}, False),
        ({"n_failures": 3, "hops": 0}, False),
        ({"n_failures": 7, "gone": True}, False),
        ({"n_failures": 3, "last_crawl_at": T0 + DAY}, False),
    ],
)
def test_a_redirect_has_a_target_without_content_crawled_again(queue_store, state, requested):
    ids = register(queue_store, 1)
    save(queue_store, ids, **{"hops": 1, "last_crawl_at": T0, **state})
    before = page_of(queue_store, ids[0]).requested_at
    now = T0 + 9 * DAY
    with queue_store.begin() as tx:
        assert tx.link(ids, 1, now, T0 + DAY).tolist() == (ids.tolist() if requested else [])
    assert page_of(queue_store, ids[0]).requested_at == (now if requested else before)


def test_targets_without_content_are_unlinked_once(pages):
    store, ids = pages
    with store.begin() as tx:
        dropped = tx.unlink(ids)
    assert dropped.tolist() == ids[1:4].tolist()
    assert hops(store, ids) == [0, -1, -2, -3, -2, 1]
    with store.begin() as tx:
        assert tx.unlink(ids).tolist() == []


def test_a_registered_page_is_asked_for_and_crawled_if_it_lacks_content(pages):
    store, ids = pages
    save(store, ids[:1], n_targets=9)
    now = T0 + DAY
    with store.begin() as tx:
        woken = tx.wake(ids, now)
    assert np.sort(woken).tolist() == ids.tolist()
    assert hops(store, ids) == [0] * 6
    assert page_of(store, ids[0]).n_targets == 0
    requested = [page_of(store, page).requested_at for page in ids.tolist()]
    assert requested == [None, None, now, None, None, None]
    with store.begin() as tx:
        assert tx.wake(ids, now).tolist() == []


def test_a_retired_page_is_requested_once(queue_store):
    ids = np.sort(register(queue_store, 3))
    save(queue_store, ids[:2], gone=True, last_crawl_at=T0, n_failures=[7, 6])
    with queue_store.begin() as tx:
        assert tx.request_retired(ids, T0 + DAY).tolist() == ids[:1].tolist()
        assert tx.request_retired(ids, T0 + DAY).tolist() == []


def test_a_page_that_another_transaction_holds_is_left_alone(postgres_store):
    ids = np.sort(register(postgres_store, 3))
    save(postgres_store, ids, hops=[3, -1, 1])
    with postgres_store.begin() as holder:
        holder.lock_states(ids[:2])
        with postgres_store.begin() as tx:
            assert tx.link(ids, 2, T0, T0).tolist() == []
            assert tx.unlink(ids).tolist() == ids[2:].tolist()
    assert hops(postgres_store, ids) == [3, -1, -1]


def test_targets_without_content_have_no_share_in_an_epoch(pages):
    store, ids = pages
    with store.begin() as tx:
        tx.register(page_columns(urls(6), min_crawl_rate=2.0), T0)
    with store.read_whole() as tx:
        columns = tx.load_columns()
    shares = dict(zip(columns.page_id.tolist(), columns.importance.tolist(), strict=True))
    assert [shares[page] for page in ids.tolist()] == [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    bounded = ~np.isnan(columns.min_crawl_rate)
    assert bounded.tolist() == [share == 1.0 for share in shares.values()]


def test_pages_to_which_others_redirect_for_now(sql_store):
    """One redirect for now makes a target; one for good, and one to the page itself, make none."""
    ids = np.sort(register(sql_store, 6))
    elsewhere, moved = int(Outcome.elsewhere), int(Outcome.moved)
    save(sql_store, ids[:1], redirects_to=ids[3], outcome=elsewhere)
    save(sql_store, ids[1:2], redirects_to=ids[4], outcome=moved)
    save(sql_store, ids[5:], redirects_to=ids[5], outcome=elsewhere)
    with sql_store.begin(write=False) as tx:
        assert tx.led_to(ids).tolist() == [ids[3]]
        assert tx.shared_targets(ids).tolist() == [], "five make a wall"


def test_pages_whose_digest_a_first_crawl_has_brought(sql_store):
    ids = np.sort(register(sql_store, 4))
    with sql_store.begin() as tx:
        for one, _ in tx.by_database(ids):
            one.add_digests(np.array([7, 9]))
    with sql_store.begin(write=False) as tx:
        digest = np.array([9, 8, 0, 7])
        assert tx.with_known_digest(ids, digest).tolist() == [ids[0], ids[3]]
        assert tx.with_known_digest(ids[:0], digest[:0]).tolist() == []
