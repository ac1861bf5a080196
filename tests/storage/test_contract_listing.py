"""What every database promises of lists of pages, tags and acts on many pages."""

import threading
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.store_cases import (
    DAY,
    T0,
    log_columns,
    page_of,
    publish,
    save,
    schedule_columns,
)
from support.store_cases import register as registered

from service.core.change_hours.evidence import WIDTH
from service.core.change_hours.profile import TERMS
from service.model.arrays import instant
from service.model.columns import ChangeHours
from service.model.domain import Kind, Observability, PagePatch
from service.model.errors import HostHasPages, HostNotFound
from service.model.listing import PageFilter, PageTags
from service.model.outcomes import Outcome
from service.storage.epochs import schedule
from service.storage.pages import listing

ALL = PageFilter()


def register(store, n, **fields):
    """Register pages and return their ids, ascending."""
    return np.sort(registered(store, n, **fields))


def pairs(*tagged):
    pages, tags = zip(*tagged, strict=True)
    return PageTags(page_id=np.array(pages), tag=np.array(tags, object))


def tag(store, page_id, *tags):
    with store.begin() as tx:
        tx.add_tags(pairs(*((page, name) for page in page_id for name in tags)))


def listed(store, limit=1000, **filters):
    """Return the ids of all parts."""
    after, found = 0, []
    while after is not None:
        with store.begin(write=False) as tx:
            pages, after = tx.list_pages(after, limit, PageFilter(**filters))
        assert len(pages) <= limit
        found += pages.page_id.tolist()
    return found


def test_a_list_has_the_values_of_each_page(sql_store):
    (page_id,) = register(sql_store, 1, importance=3.0, observability=1, max_crawl_rate=9.0)
    save(sql_store, [page_id], last_crawl_at=T0, n_observations=4, n_changes=2)
    tag(sql_store, [page_id], "news", "blog")
    publish(sql_store, schedule_columns(np.array([page_id]), 0.1, 0.3))
    with sql_store.begin(write=False) as tx:
        pages, after = tx.list_pages(0, 10, ALL)
    assert after is None
    page = page_of(sql_store, page_id)
    assert pages.url.tolist() == [page.url]
    assert pages.tags.tolist() == ["blog news"]
    assert (pages.importance[0], pages.observability[0], pages.max_crawl_rate[0]) == (3.0, 1, 9.0)
    assert np.isnan(pages.min_crawl_rate[0])
    assert (pages.change_rate[0], pages.crawl_rate[0], pages.due_rate[0]) == pytest.approx(
        (0.1, 0.3, 0.3)
    )
    assert (pages.n_observations[0], pages.n_changes[0]) == (4, 2)
    assert pages.last_crawl_at[0] == instant(T0)


def test_rates_are_none_before_the_first_epoch(sql_store):
    register(sql_store, 2)
    with sql_store.begin(write=False) as tx:
        pages, _ = tx.list_pages(0, 10, ALL)
    assert np.isnan(pages.change_rate).all()
    assert np.isnan(pages.due_rate).all()
    assert pages.tags.tolist() == ["", ""]


def test_moved_pages_name_their_targets_on_whatever_host_these_are(queue_store):
    hosts = [f"{letter}.example" for letter in "abcdefgh"]
    ids = np.sort(np.concatenate([register(queue_store, 1, host=host) for host in hosts]))
    targets = np.roll(ids, 3)
    save(
        queue_store,
        ids,
        last_crawl_at=T0,
        n_failures=1,
        outcome=Outcome.moved,
        redirects_to=targets,
    )
    save(queue_store, ids[:1], outcome=Outcome.content, redirects_to=0)
    with queue_store.begin(write=False) as tx:
        pages, _ = tx.list_pages(0, 100, ALL)
        moved, _ = tx.list_pages(0, 100, PageFilter(moved=True))
    url = dict(zip(pages.page_id.tolist(), pages.url.tolist(), strict=True))
    assert moved.page_id.tolist() == ids[1:].tolist()
    assert moved.redirect_url.tolist() == [url[target] for target in targets[1:].tolist()]
    assert pages.redirect_url[0] == ""


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
def test_filters_select_their_pages_in_parts_of_any_size(sql_store, limit):
    a, b = register(sql_store, 5, host="a.example"), register(sql_store, 4, host="b.example")
    ids = np.concatenate([a, b])
    save(sql_store, a[:2], gone=True, n_failures=1, last_crawl_at=T0)
    save(sql_store, b[:1], n_failures=2, last_crawl_at=T0)
    tag(sql_store, [a[1], a[4], b[2]], "news")
    rates = np.arange(1, 10) / 10
    publish(sql_store, schedule_columns(ids, rates, rates * 2))

    def select(**filters):
        return listed(sql_store, limit, **filters)

    assert select() == ids.tolist()
    assert select(host="a.example") == a.tolist()
    assert select(host="c.example") == []
    assert select(tag="news") == [a[1], a[4], b[2]]
    assert select(tag="none") == []
    assert select(tag="news", host="b.example") == [b[2]]
    url = page_of(sql_store, a[3]).url
    assert select(host="a.example", url_prefix=url) == [a[3]]
    assert select(host="a.example", url_prefix="https://a.example/") == a.tolist()
    assert select(host="a.example", url_prefix="https://a.example/%") == []
    assert select(gone=True) == a[:2].tolist()
    assert select(gone=False, failing=True) == [b[0]]
    assert select(crawled=True) == [a[0], a[1], b[0]]
    assert select(change_rate_from=0.3, change_rate_to=0.5) == a[2:].tolist()
    assert select(crawl_rate_from=1.7) == b[-1:].tolist()
    assert select(observability=Observability.auto) == ids.tolist()
    assert select(observability=Observability.complete) == []


def test_a_change_counts_from_the_crawl_that_found_it(sql_store):
    ids = register(sql_store, 4)
    at = [T0, T0 + DAY, T0 + 2 * DAY]
    # the first page changed at its last crawl, the second before an unchanged one, the third never
    save(
        sql_store,
        ids[:3],
        last_observed_at=at[2],
        last_interval=[1.0, -1.0, -1.0],
        n_changes=[1, 1, 0],
    )
    with sql_store.begin() as tx:
        tx.append_log(log_columns(ids[1:2], at[1], changed=1))
        tx.append_log(log_columns(ids[1:3], at[2], changed=0))
    assert listed(sql_store, changed_since=at[0]) == ids[:2].tolist()
    assert listed(sql_store, changed_since=at[1]) == ids[:2].tolist()
    assert listed(sql_store, changed_since=at[1] + timedelta(seconds=1)) == ids[:1].tolist()
    assert listed(sql_store, changed_since=at[2] + timedelta(seconds=1)) == []


def test_a_reading_scans_a_bounded_number_of_candidates(sql_store, monkeypatch):
    monkeypatch.setattr(listing, "MOST_SCANNED", 4)
    monkeypatch.setattr(listing, "LOOKED_UP", 4)
    a, b = register(sql_store, 6, host="a.example"), register(sql_store, 6, host="b.example")
    save(sql_store, [a[5], b[5]], gone=True)
    tag(sql_store, a, "news")
    with sql_store.begin(write=False) as tx:
        for filters in ({}, {"host": "a.example"}, {"tag": "news"}):
            part = tx.list_pages(0, 10, PageFilter(gone=True, **filters))
            assert (len(part.pages), part.after) == (0, a[3])
    assert listed(sql_store, gone=True) == [a[5], b[5]]
    assert listed(sql_store, gone=True, host="a.example") == [a[5]]
    assert listed(sql_store, gone=True, tag="news") == [a[5]]


def test_candidates_are_counted_along_the_index_of_a_filter(sql_store):
    a, b = register(sql_store, 3, host="a.example"), register(sql_store, 2, host="b.example")
    tag(sql_store, [a[1], b[1]], "news")
    with sql_store.begin(write=False) as tx:
        assert tx.candidates(0, 10, ALL) == (5, b[1])
        assert tx.candidates(0, 2, PageFilter(host="a.example", gone=True)) == (2, a[1])
        assert tx.candidates(int(a[1]), 10, PageFilter(tag="news")) == (1, b[1])
        assert tx.candidates(int(b[1]), 10, ALL) == (0, b[1])
        assert tx.last_page_id() == b[1]


@pytest.mark.dear
def test_pages_that_stay_are_listed_once_while_others_write(sql_store):
    stay = register(sql_store, 300, host="stay.example").tolist()
    stop = threading.Event()

    def write():
        n = 0
        while not stop.is_set():
            n += 1
            new = register(sql_store, 20, host=f"new{n}.example")
            with sql_store.begin() as tx:
                tx.request_many(np.array(stay[n % 50 :: 50]), T0 + n * DAY)
                tx.change_many(np.array(stay[n % 7 :: 7]), PagePatch(importance=n % 9 + 1.0), T0)
                tx.delete_many(new[::2])

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        for limit in (7, 50, 1000):
            found = listed(sql_store, limit)
            assert len(found) == len(set(found))
            assert set(stay) <= set(found)
            assert found == sorted(found)
            assert listed(sql_store, limit, host="stay.example") == stay
    finally:
        stop.set()
        for writer in writers:
            writer.join()


# -- tags


def test_tags_are_added_read_and_dropped(sql_store):
    ids = register(sql_store, 3)
    tag(sql_store, ids[:2], "news", "a-b")
    tag(sql_store, ids[:1], "news")  # again
    with sql_store.begin() as tx:
        own = tx.tags_of(ids)
        assert list(zip(own.page_id.tolist(), own.tag.tolist(), strict=True)) == [
            (ids[0], "a-b"),
            (ids[0], "news"),
            (ids[1], "a-b"),
            (ids[1], "news"),
        ]
        tx.drop_tags(pairs((ids[0], "news"), (ids[2], "news"), (ids[1], "unknown")))
    assert listed(sql_store, tag="news") == [ids[1]]
    assert listed(sql_store, tag="a-b") == ids[:2].tolist()


def test_a_page_without_tags_has_no_row(sql_store):
    register(sql_store, 100)
    with sql_store.begin(write=False) as tx:
        assert tx.scalar("SELECT count(*) FROM page_tags") == 0


@pytest.mark.dear
@settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.sampled_from("abc")), max_size=30))
def test_tags_are_sets_whatever_the_order_of_acts(sqlite_store, acts):
    ids = register(sqlite_store, 5)
    with sqlite_store.begin() as tx:
        tx.drop_tags(tx.tags_of(ids))
    model = set()
    for adds, row, name in acts:
        with sqlite_store.begin() as tx:
            act = tx.add_tags if adds else tx.drop_tags
            act(pairs((ids[row], name)))
        (model.add if adds else model.discard)((int(ids[row]), name))
    with sqlite_store.begin(write=False) as tx:
        own = tx.tags_of(ids)
    assert list(zip(own.page_id.tolist(), own.tag.tolist(), strict=True)) == sorted(model)


# -- acts on many pages


def test_a_change_of_many_pages_returns_those_that_differ(sql_store):
    ids = register(sql_store, 4)
    patch = PagePatch(importance=5.0, max_crawl_rate=2.0)
    with sql_store.begin() as tx:
        assert tx.change_many(ids[:2], patch, T0).tolist() == ids[:2].tolist()
        assert tx.change_many(ids, patch, T0).tolist() == ids[2:].tolist()
        assert tx.change_many(ids, patch, T0).tolist() == []
        cleared = PagePatch(cleared=frozenset({"max_crawl_rate"}))
        assert tx.change_many(ids[1:], cleared, T0).tolist() == ids[1:].tolist()
    assert [page_of(sql_store, page).max_crawl_rate for page in ids] == [2.0, None, None, None]


def test_many_pages_become_complete_and_count_pings_anew(sql_store):
    ids = register(sql_store, 3)
    save(sql_store, ids, n_pings=7)
    patch = PagePatch(observability=Observability.complete)
    with sql_store.begin() as tx:
        assert tx.change_many(ids[:2], patch, T0 + DAY).tolist() == ids[:2].tolist()
        assert tx.change_many(ids[:2], patch, T0 + 2 * DAY).tolist() == []
    one, other = page_of(sql_store, ids[0]), page_of(sql_store, ids[2])
    assert (one.n_pings, one.pings_since, one.observability.name) == (0, T0 + DAY, "complete")
    assert (other.n_pings, other.observability.name) == (7, "auto")


def test_pages_whose_bounds_a_patch_would_cross_are_found(sql_store):
    ids = register(sql_store, 3)
    with sql_store.begin() as tx:
        tx.change_many(ids[:1], PagePatch(max_crawl_rate=1.0), T0)
        tx.change_many(ids[1:2], PagePatch(min_crawl_rate=4.0), T0)
        assert tx.contradicted(ids, PagePatch(min_crawl_rate=2.0)).tolist() == [ids[0]]
        assert tx.contradicted(ids, PagePatch(max_crawl_rate=2.0)).tolist() == [ids[1]]
        assert tx.contradicted(ids, PagePatch(importance=2.0)).tolist() == []
        known = tx.bounds_of(np.append(ids, 10**9))
        assert known.page_id.tolist() == ids.tolist()
        np.testing.assert_equal(known.min_crawl_rate, [np.nan, 4.0, np.nan])
        np.testing.assert_equal(known.max_crawl_rate, [1.0, np.nan, np.nan])
        cleared = PagePatch(max_crawl_rate=2.0, cleared=frozenset({"min_crawl_rate"}))
        assert tx.contradicted(ids, cleared).tolist() == []


def test_a_crawl_is_requested_once_until_it_is_made(sql_store):
    ids = register(sql_store, 3)
    save(sql_store, ids[:1], last_crawl_at=T0, requested_at=T0 - DAY)
    save(sql_store, ids[1:2], last_crawl_at=T0, requested_at=T0 + DAY)
    with sql_store.begin() as tx:
        assert tx.request_many(ids, T0 + 2 * DAY).tolist() == [ids[0], ids[2]]
        assert tx.request_many(ids, T0 + 3 * DAY).tolist() == []
    assert page_of(sql_store, ids[0]).requested_at == T0 + 2 * DAY
    assert page_of(sql_store, ids[1]).requested_at == T0 + DAY


def test_deleted_pages_leave_nothing(sql_store):
    ids = register(sql_store, 4)
    tag(sql_store, ids, "news")
    with sql_store.begin() as tx:
        tx.append_log(log_columns(ids, T0, changed=1))
        assert tx.delete_many(np.append(ids[:2], 999)) == 2
        assert tx.delete_many(ids[:2]) == 0
    assert listed(sql_store) == ids[2:].tolist()
    with sql_store.begin(write=False) as tx:
        for table in ("page_states", "page_tags", "observations"):
            assert tx.scalar(f"SELECT count(*) FROM {table}") == 2


def test_deleted_pages_are_not_listed_by_their_rates(sql_store):
    ids = register(sql_store, 4)
    tag(sql_store, ids, "news")
    publish(sql_store, schedule_columns(ids, 0.5, 0.5))
    with sql_store.begin() as tx:
        tx.delete_many(ids[1:3])
    left = [ids[0], ids[3]]
    assert listed(sql_store, change_rate_from=0.1) == left
    assert listed(sql_store, change_rate_from=0.1, host="example.org", limit=1) == left
    assert listed(sql_store, crawl_rate_to=1.0, tag="news") == left


# -- the log, hosts and groups


def test_a_log_is_read_in_parts_from_the_newest_entry(store):
    (page_id,) = register(store, 1)
    with store.begin() as tx:
        for day in range(5):
            tx.append_log(log_columns(np.array([page_id]), T0 + day * DAY, changed=1))
    before, found = None, []
    while True:
        with store.begin(write=False) as tx:
            part = tx.page_log(int(page_id), 2, before)
        if not part:
            break
        found += [entry.observed_at for entry in part]
        before = part[-1].observed_at, Kind(part[-1].kind)
    assert found == [T0 + day * DAY for day in reversed(range(5))]


def test_hosts_are_listed_in_four_orders(sql_store):
    for host in ("b.example", "c.example", "a.example"):
        register(sql_store, 1, host=host)
    orders = {"host_id": "bca", "-host_id": "acb", "host": "abc", "-host": "cba"}
    for order, expected in orders.items():
        after, found = None, []
        while True:
            with sql_store.begin(write=False) as tx:
                hosts, after = tx.hosts_in_order(order, after, 2)
            found += [host.host[0] for host in hosts]
            if after is None:
                break
        assert "".join(found) == expected, order


def test_a_host_with_pages_is_not_deleted(sql_store):
    ids = register(sql_store, 2, host="a.example")
    with sql_store.begin() as tx:
        tx.hold_hosts()
        with pytest.raises(HostHasPages, match="DELETE /pages"):
            tx.delete_host(tx.host("a.example"))
        tx.delete_many(ids)
        tx.delete_host(tx.host("a.example"))
        with pytest.raises(HostNotFound):
            tx.host("a.example")
    register(sql_store, 1, host="a.example")
    with sql_store.begin(write=False) as tx:
        assert tx.host("a.example").host == "a.example"


def test_the_change_hours_of_a_deleted_host_are_deleted(sql_store):
    ids = register(sql_store, 1, host="a.example")
    with sql_store.begin(write=False) as tx:
        host_id = tx.host_ids(["a.example"])
    evidence, profile = np.ones((1, WIDTH)), np.ones((1, 1 + TERMS))
    at = np.array([instant(T0)])
    clock = ChangeHours(host_id=host_id, learnt_at=at, evidence=evidence, profile=profile)
    publish(sql_store, schedule_columns(ids), change_hours=clock)
    with sql_store.begin() as tx:
        assert len(tx.change_hours(host_id)) == 1
        tx.delete_many(ids)
        tx.delete_host(tx.host("a.example"))
        assert len(tx.change_hours(host_id)) == 0


@pytest.mark.dear
def test_registering_waits_while_a_host_is_deleted_and_makes_it_anew(postgres_store):
    ids = register(postgres_store, 1, host="a.example")
    new = []
    with postgres_store.begin() as tx:
        tx.delete_many(ids)
    with postgres_store.begin() as tx:
        tx.hold_hosts()
        tx.delete_host(tx.host("a.example"))
        late = threading.Thread(
            target=lambda: new.extend(register(postgres_store, 2, host="a.example").tolist())
        )
        late.start()
        late.join(0.2)
        assert late.is_alive()
    late.join()
    assert len(new) == 2
    assert all(new)
    assert page_of(postgres_store, new[0]).host == "a.example"
    assert listed(postgres_store, host="a.example") == new


def test_the_bound_of_a_reading_is_that_of_the_schedule():
    assert listing.MOST_SCANNED == schedule.MOST_SCANNED
