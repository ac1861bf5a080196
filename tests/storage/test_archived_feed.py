"""The feed in files and database is one feed: same changes, same places, no gap and no double."""

from datetime import timedelta

import numpy as np
import pytest
from support.archive_cases import FaultyFileSystem, damaging
from support.feed_cases import change_columns, feed_of
from support.store_cases import DAY, T0, register, same

from service.archive import log_archive, parquet
from service.archive.feed_parquet import FEED
from service.archive.log_archive import LogArchive
from service.events import reading
from service.events.reading import NamedChanges, check_place
from service.model.arrays import NO_TIME, UNIX_ZERO
from service.model.changes import ChangeFilter, ChangeKind, FeedPlace
from service.model.errors import ArchiveDamaged, ArchiveUnavailable, CursorExpired, PartChanged
from service.storage.feed import contract
from service.storage.feed.contract import FeedSql
from service.transfer.archiving import Archivist, Retention, archive_feed

KEPT = timedelta(days=4)
N_DAYS, N_COMMITS, N_CHANGES = 12, 36, 40
NOW = T0 + N_DAYS * DAY
EVERY = N_DAYS * DAY / N_COMMITS
FILTERS = (
    ChangeFilter(),
    ChangeFilter(kinds=frozenset({ChangeKind.gone, ChangeKind.moved})),
    ChangeFilter(host="h1.test"),
    ChangeFilter(prefix="https://h2.test/1"),
)


def number(at):
    return (at - UNIX_ZERO) // timedelta(microseconds=1)


class Feed:
    """A store with changes of some days, and its archive."""

    def __init__(self, store, address):
        self.store = store
        store.archive = LogArchive(f"faulty://{address}")
        store.clock = lambda: NOW
        hosts = ("h0.test", "h1.test", "h2.test", "h5.test")
        self.ids = np.sort(np.concatenate([register(store, 30, host=host) for host in hosts]))
        rng = np.random.default_rng(3)
        for commit in range(N_COMMITS):
            with store.begin() as tx:
                tx.append_changes(self.commit(T0 + commit * EVERY, rng))
        for part in store.parts:
            redate(part)
        self.whole = feed_of(store, limit=10_000)
        assert len(self.whole) == N_COMMITS * N_CHANGES

    def commit(self, at, rng):
        """Return the changes of a commit, with every kind of value."""
        n, day = N_CHANGES, np.datetime64(at.date(), "us")
        pages = np.sort(rng.choice(self.ids, n, replace=False))
        return change_columns(
            pages,
            at,
            kind=rng.integers(0, len(ChangeKind), n).astype(np.int16),
            changed_after=np.where(rng.random(n) < 0.3, NO_TIME, day),
            digest=np.where(rng.random(n) < 0.3, 0, rng.integers(-(2**63), 2**63 - 1, n)),
            last_modified=np.where(rng.random(n) < 0.5, NO_TIME, day),
            moved_to=np.where(rng.random(n) < 0.8, 0, pages),
        )

    def archive(self):
        return [step for part in self.store.parts for step in archive_feed(part, KEPT)]

    def stored(self):
        """Return the numbers of all blocks in the databases."""
        statement = "SELECT seq FROM feed ORDER BY seq"
        numbers = []
        for part in self.store.parts:
            with part.begin(write=False) as tx:
                numbers += [seq for (seq,) in tx.run(statement)]
        return numbers

    def files(self):
        with self.store.begin(write=False) as tx:
            return tx.feed_files()

    def read(self, only, limit):
        """Return all changes that match, as a reader of the interface gets them."""
        parts, place, whole = [], FeedPlace(0), False
        while not whole:
            with self.store.begin(write=False) as tx:
                part = reading.read(tx, place, limit, only)
                check_place(place, tx.feed_bounds(), same_feed=True)
            assert len(part.changes) <= limit
            assert part.whole or part.after > place
            place, whole = part.after, part.whole
            parts.append(part.changes)
        return NamedChanges.concatenate(parts)


def redate(part):
    """Spread the blocks of a database over the days, those of all databases at the same times."""
    with part.begin() as tx:
        numbers = [seq for (seq,) in tx.run("SELECT seq FROM feed ORDER BY seq")]
        for i, old in enumerate(numbers):
            new = number(T0 + i * EVERY)
            tx.run("UPDATE feed SET seq = %(new)s WHERE seq = %(old)s", new=new, old=old)


@pytest.fixture
def feed(queue_store, tmp_path):
    yield Feed(queue_store, tmp_path / "archive")
    FaultyFileSystem.room, FaultyFileSystem.unreachable = None, ""


@pytest.fixture
def small(monkeypatch):
    """Make stretches, files and row groups so small that every seam is met."""
    monkeypatch.setattr(contract, "MOST_IN_STRETCH", 5)
    monkeypatch.setattr(contract, "CHANGES_TOGETHER", 50)
    monkeypatch.setattr(log_archive, "ROWS_OF_FILE", 60)
    monkeypatch.setattr(parquet, "ROWS_OF_GROUP", 16)


@pytest.mark.dear
@pytest.mark.sampled(1)
def test_old_days_leave_the_database_and_readers_see_the_same_feed(feed):
    midnight = number((NOW - KEPT).replace(hour=0, minute=0, second=0, microsecond=0))
    n_old = sum(seq < midnight for seq in feed.stored())
    assert sum(file.n_rows for step in feed.archive() for file in step.files) == np.count_nonzero(
        feed.whole.seq < midnight
    )
    assert n_old > 0
    assert min(feed.stored()) >= midnight
    for limit in (3, 512, 10_000):
        same(feed_of(feed.store, limit=limit, most_parts=2_000), feed.whole)
    assert feed.archive() == []
    names = {file.name for file in feed.files()}
    assert names == feed.store.archive.names()
    assert all(name.startswith("changes/") for name in names)


@pytest.mark.slow
def test_seams_of_files_and_groups_lose_and_double_nothing(feed, small):
    feed.archive()
    assert len(feed.files()) > 2 * N_DAYS / 3
    for limit in (1, 16, 33, 10_000):
        same(feed_of(feed.store, limit=limit, most_parts=2_000), feed.whole)


@pytest.mark.dear
@pytest.mark.sampled(2)
@pytest.mark.parametrize("only", FILTERS, ids=str)
def test_filters_match_the_same_changes_in_files(feed, small, only):
    before = feed.read(only, 10_000)
    assert len(before)
    feed.archive()
    for limit in (9, 10_000):
        same(feed.read(only, limit), before)


def test_a_place_of_before_goes_on_in_the_files(feed, small):
    with feed.store.begin(write=False) as tx:
        first = tx.changes(FeedPlace(0), 101)
    feed.archive()
    with feed.store.begin(write=False) as tx:
        check_place(first.after, tx.feed_bounds(), same_feed=True)
        rest = tx.changes(first.after, 5)
    same(rest.changes, feed.whole.take(slice(101, 101 + len(rest.changes))))
    assert len(rest.changes)


def test_blocks_that_move_between_two_statements_are_read_once(feed, monkeypatch):
    stored, todo = FeedSql.stored_changes, [feed.archive]

    def meanwhile(tx, place, limit):
        while todo:
            todo.pop()()
        return stored(tx, place, limit)

    monkeypatch.setattr(FeedSql, "stored_changes", meanwhile)
    same(feed_of(feed.store, limit=10_000), feed.whole)
    assert feed.files()


@pytest.mark.parametrize("fault", ["write", "read", "full"])
def test_an_archive_that_fails_leaves_the_blocks_in_the_database(feed, fault):
    stored = feed.stored()
    if fault == "full":
        FaultyFileSystem.room = 500
    else:
        FaultyFileSystem.unreachable = fault
    with pytest.raises((ArchiveUnavailable, ArchiveDamaged)):
        feed.archive()
    FaultyFileSystem.room, FaultyFileSystem.unreachable = None, ""
    assert (feed.stored(), feed.files()) == (stored, [])
    feed.archive()
    same(feed_of(feed.store), feed.whole)


def test_a_file_that_is_not_as_written_deletes_no_block(feed, monkeypatch):
    stored = feed.stored()
    damaging(monkeypatch)
    with pytest.raises(ArchiveDamaged):
        feed.archive()
    assert (feed.stored(), feed.files()) == (stored, [])
    assert feed.store.archive.names() == set()


def test_two_that_archive_the_same_blocks_name_them_once(feed):
    part, files = feed.store.parts[0], []
    with part.begin(write=False) as tx:
        stretch = tx.feed_stretch(number(NOW - KEPT))
        for _ in feed.store.archive.write(tx.read_stretch(stretch), files, FEED):
            pass
    feed.archive()
    named = feed.files()
    with pytest.raises(PartChanged), part.begin() as tx:
        tx.drop_stretch(stretch, files, NOW)
    assert feed.files() == named
    same(feed_of(feed.store), feed.whole)


def test_without_the_archive_readers_refuse_until_the_retention_passes_the_files(feed):
    feed.archive()
    address, feed.store.archive = feed.store.archive, None
    with feed.store.begin(write=False) as tx, pytest.raises(ArchiveUnavailable):
        tx.changes(FeedPlace(0), 10)
    with feed.store.begin() as tx:
        while tx.cut_feed(number(NOW), 5):
            pass
    with feed.store.begin(write=False) as tx:
        tx.changes(FeedPlace(0), 10)
        with pytest.raises(CursorExpired):
            check_place(FeedPlace(0), tx.feed_bounds(), same_feed=True)
    assert feed.files() == []
    assert address.names(), "a file is never deleted by the retention"


def test_a_reading_opens_a_bounded_number_of_files(feed, small, monkeypatch):
    feed.archive()
    opened, changes = [], LogArchive.changes
    monkeypatch.setattr(
        LogArchive, "changes", lambda *given: opened.append(given[1]) or changes(*given)
    )
    monkeypatch.setattr(reading, "MOST_PARTS", 3)
    with feed.store.begin(write=False) as tx:
        part = reading.read(tx, FeedPlace(0), 10_000, ChangeFilter())
    assert not part.whole
    assert 0 < len(opened) <= 3 * len(feed.store.parts)


def test_a_worker_archives_the_feed(feed):
    worker = Archivist(feed.store, Retention(None, KEPT))
    assert worker.run_once() == sum(file.n_rows for file in feed.files()) > 0
    same(feed_of(feed.store), feed.whole)
