"""The feed of changes: an order that never moves, on each database."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.feed_cases import change_columns, feed_of
from support.live_server import until
from support.store_cases import T0, register, same

from service.model.arrays import NO_TIME, instant
from service.model.changes import ChangeColumns, ChangeFilter, FeedPlace
from service.model.listing import PageTags
from service.storage import open_store
from service.storage.feed.blocks import MOST_IN_BLOCK, packed, unpacked
from service.storage.feed.postgres import LOCK

ALL = ChangeFilter()


def append(store, changes):
    with store.begin() as tx:
        tx.append_changes(changes)


@pytest.mark.dear
@given(
    st.lists(
        st.tuples(
            st.integers(1, 2**40),
            st.integers(0, 2**50),
            st.integers(0, 2**25),
            st.integers(0, 4),
            st.integers(-(2**63), 2**63 - 1),
            st.integers(0, 2**20),
            st.sampled_from([0, 0, 0, 7, 2**50]),
        ),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from([1, 1_000_000]),
)
def test_a_block_has_every_value_of_its_changes(rows, unit):
    page, at, since, kind, digest, modified, moved_to = map(list, zip(*sorted(rows), strict=True))
    at = (np.array(at) // unit * unit).view("M8[us]")
    whole = at.astype("M8[s]").astype("M8[us]")
    earlier = [
        np.where(np.array(seconds) == 0, NO_TIME, whole - np.array(seconds, "m8[s]"))
        for seconds in (since, modified)
    ]
    changes = ChangeColumns(
        page_id=np.array(page),
        observed_at=at,
        changed_after=earlier[0],
        kind=np.array(kind, np.int16),
        digest=np.array(digest),
        last_modified=earlier[1],
        moved_to=np.array(moved_to),
    )
    same(unpacked([packed(changes)]), changes)
    some = changes.take(slice(0, 1 + len(changes) // 2))
    twice = [packed(some), packed(changes), packed(some)]
    same(unpacked(twice), ChangeColumns.concatenate([some, changes, some]))


@pytest.mark.dear
def test_a_commit_is_read_back_in_parts_of_any_size(sql_store):
    changes = change_columns(np.arange(1, MOST_IN_BLOCK * 2 + 100), T0)
    append(sql_store, changes)
    append(sql_store, change_columns([5, 6], T0 + timedelta(hours=1)))
    whole = feed_of(sql_store, limit=10_000)
    assert len(whole) == len(changes) + 2
    for limit in (1, 7, MOST_IN_BLOCK, MOST_IN_BLOCK + 1, len(whole)):
        same(feed_of(sql_store, limit=limit, most_parts=len(whole) + 2), whole)
    np.testing.assert_array_equal(whole.page_id[: len(changes)], changes.page_id)
    assert np.all(np.diff(whole.seq) >= 0)


def test_a_reading_says_whether_it_reached_the_end(sql_store):
    append(sql_store, change_columns([1, 2, 3], T0))
    with sql_store.begin(write=False) as tx:
        part = tx.changes(FeedPlace(0), 2)
        assert (len(part.changes), part.whole) == (2, False)
        rest = tx.changes(part.after, 2)
        assert (len(rest.changes), rest.whole) == (1, True)
        nothing = tx.changes(rest.after, 2)
        assert (len(nothing.changes), nothing.after, nothing.whole) == (0, rest.after, True)


def test_a_transaction_that_fails_leaves_no_change(sql_store):
    def fail():
        with sql_store.begin() as tx:
            tx.append_changes(change_columns([1], T0))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    append(sql_store, change_columns([2], T0))
    assert feed_of(sql_store).page_id.tolist() == [2]


def test_no_reader_misses_a_change_of_writers_that_commit_at_once(sql_store):
    n_writers, n_commits = 4, 40
    seen: list[int] = []

    def write(writer):
        for i in range(n_commits):
            with sql_store.begin() as tx:
                tx.append_changes(change_columns([writer * n_commits + i + 1], T0))

    def read(done):
        place = FeedPlace(0)
        while True:
            ended = done()
            with sql_store.begin(write=False) as tx:
                part = tx.changes(place, 5)
            seen.extend(part.changes.page_id.tolist())
            place = part.after
            if ended and part.whole:
                return

    with ThreadPoolExecutor(n_writers + 1) as pool:
        writing = [pool.submit(write, k) for k in range(n_writers)]
        pool.submit(read, lambda: all(w.done() for w in writing)).result()
    assert sorted(seen) == list(range(1, n_writers * n_commits + 1))


def test_a_writer_that_commits_late_comes_later_in_the_feed(postgres_store):
    """The plain sequence, drawn at the append, would put the late commit first, behind readers."""
    with postgres_store.begin() as late:
        late.append_changes(change_columns([1], T0))
        late.now()  # it has begun
        append(postgres_store, change_columns([2], T0))
        seen = feed_of(postgres_store)
        assert seen.page_id.tolist() == [2]
    after = feed_of(postgres_store)
    assert after.page_id.tolist() == [2, 1]
    assert after.seq[1] > seen.seq[0]


def test_a_long_transaction_elsewhere_hides_nothing(postgres_store, postgres_url):
    with psycopg.connect(postgres_url) as other:
        other.execute("INSERT INTO meta VALUES ('held', '1')")
        append(postgres_store, change_columns([1], T0))
        assert feed_of(postgres_store).page_id.tolist() == [1]
        other.rollback()


@pytest.mark.dear
def test_a_session_stuck_between_lock_and_commit_is_ended(postgres_store, postgres_url):
    with psycopg.connect(postgres_url) as stuck:
        stuck.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(append, postgres_store, change_columns([1], T0))
            until(lambda: ended(postgres_store), "the stuck session is ended")
            writing.result(30)
        with pytest.raises(psycopg.OperationalError):
            stuck.execute("SELECT 1")
    assert feed_of(postgres_store).page_id.tolist() == [1]


def test_a_session_that_holds_up_nobody_is_left_alone(postgres_store, postgres_url):
    with psycopg.connect(postgres_url) as holder:
        holder.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        assert not ended(postgres_store)
        holder.execute("SELECT 1")


def ended(store) -> bool:
    with store.begin(write=False) as tx:
        return tx.end_stuck_commit()


def test_deletion_keeps_the_newest_block_and_names_the_earliest_place(sql_store):
    for page in (1, 2, 3):
        append(sql_store, change_columns([page], T0))
    seq = feed_of(sql_store).seq.tolist()
    with sql_store.begin() as tx:
        assert tx.feed_bounds().cut == 0
        assert tx.cut_feed(seq[2] + 10, 1)
        assert tx.feed_bounds().cut == seq[0] + 1
        assert tx.cut_feed(seq[2] + 10, 100)
        assert not tx.cut_feed(seq[2] + 10, 100)
        bounds = tx.feed_bounds()
    assert (bounds.cut, bounds.newest) == (seq[1] + 1, seq[2])
    assert bounds.latest >= seq[2]
    assert feed_of(sql_store).page_id.tolist() == [3]


def test_the_id_of_a_feed_is_written_once(sql_store):
    with sql_store.begin() as tx:
        assert tx.feed_id() == ""
        tx.name_feed("one")
        tx.name_feed("two")
        assert tx.feed_id() == "one"


def test_urls_of_a_part_are_those_of_the_filter(sql_store):
    ids = np.sort(np.append(register(sql_store, 3), register(sql_store, 2, host="b.example")))
    with sql_store.begin(write=False) as tx:
        every = tx.page_urls(np.append(ids, 999), ALL)
        assert every.page_id.tolist() == ids.tolist()
        of_host = tx.page_urls(ids, ChangeFilter(host="b.example"))
        assert sorted(of_host.url) == ["https://b.example/0", "https://b.example/1"]
        prefixed = tx.page_urls(ids, ChangeFilter(prefix="https://example.org/1"))
        assert prefixed.url.tolist() == ["https://example.org/1"]
        for only in (ChangeFilter(host="none.example"), ChangeFilter(tag="docs")):
            assert len(tx.page_urls(ids, only).page_id) == 0
    with sql_store.begin() as tx:
        pairs = PageTags(page_id=ids[[0, 1, 1]], tag=np.array(["docs", "docs", "news"], object))
        tx.add_tags(pairs)
        assert tx.page_urls(ids, ChangeFilter(tag="docs")).page_id.tolist() == ids[:2].tolist()
        both = ChangeFilter(tag="news", host="example.org")
        assert tx.page_urls(ids[:3], both).page_id.tolist() == [ids[1]]


def test_a_number_is_never_before_one_that_was_given(sql_store):
    """A clock that was set back counts on from the last number."""
    append(sql_store, change_columns([1], T0))
    with sql_store.begin() as tx:
        ahead = tx.feed_bounds().latest + 10**12
        if sql_store.embedded:
            tx.run("UPDATE feed SET seq = %(seq)s", seq=ahead)
        else:
            tx.run("SELECT setval('feed_seq', %(seq)s)", seq=ahead)
    append(sql_store, change_columns([2], T0))
    assert feed_of(sql_store).seq[-1] == ahead + 1


def test_the_feed_of_another_process_is_the_same(sql_store, database_url):
    append(sql_store, change_columns([1, 1, 4], [T0, T0 + timedelta(1), T0]))
    other = open_store(database_url, 2)
    same(feed_of(other), feed_of(sql_store))
    assert feed_of(other).observed_at.tolist()[1] == instant(T0 + timedelta(1)).tolist()
    other.close()
