"""The log in database and archive is one log, whatever happens between the two."""

import threading
from dataclasses import replace
from datetime import timedelta

import numpy as np
import psycopg
import pytest
from support.archive_cases import KEPT, NOW, FaultyFileSystem, Log, damaging, rebuilt
from support.store_cases import DAY, T0, log_columns, same

from service.archive.log_archive import LogArchive
from service.core.estimators.gamma import Gamma
from service.core.estimators.mle import MLE
from service.epochs.plan import Plan
from service.epochs.run import run_epoch
from service.estimation.estimates import rates_from_log
from service.model.arrays import instant
from service.model.domain import Kind
from service.model.errors import (
    ArchiveDamaged,
    ArchiveRunning,
    ArchiveUnavailable,
    PartBusy,
    PartChanged,
)
from service.storage import open_store
from service.storage.log import contract
from service.transfer import archiving
from service.transfer.archiving import Archivist, Retention, days_before


@pytest.fixture
def log(database_url, tmp_path):
    one = Log(database_url, f"faulty://{tmp_path / 'archive'}")
    yield one
    FaultyFileSystem.room, FaultyFileSystem.unreachable = None, ""
    one.store.close()


def histories(log, limit):
    """Read the history of each page part by part."""
    read = []
    for page in log.ids[:5].tolist():
        place, whole = None, []
        with log.store.begin(write=False) as tx:
            while True:
                part, place = tx.whole_log(page, limit, place)
                assert len(part) <= limit
                whole += part
                if place is None:
                    break
        assert [(e.observed_at, e.kind) for e in whole] == sorted(
            ((e.observed_at, e.kind) for e in whole), reverse=True
        )
        read.append(whole)
    return read


@pytest.mark.dear
@pytest.mark.sampled(1)
def test_all_readers_see_the_same_log_before_and_after(log):
    estimator = MLE()

    def everything():
        with log.store.begin(write=False) as tx:
            return (
                tx.log_of(log.ids),
                tx.evidence_of(log.ids),
                rates_from_log(tx, log.ids, estimator),
            )

    before, history = everything(), histories(log, 1000)
    steps = log.run()
    n_archived = sum(file.n_rows for step in steps for file in step.files)
    assert n_archived == np.count_nonzero(
        log.whole.observed_at < np.datetime64((NOW - KEPT).date())
    )
    log.assert_done()
    log.assert_once()
    after = everything()
    same(after[0], before[0])
    same(after[1], before[1])
    np.testing.assert_array_equal(after[2], before[2])
    for limit in (1000, 7, 1):
        assert histories(log, limit) == history
    assert log.run() == []


def test_a_rebuild_reads_the_archive(log):
    before = rebuilt(log)
    log.run()
    same(rebuilt(log), before)
    assert before.estimate.any()


def test_an_epoch_drops_no_day_that_is_not_in_the_archive(log):
    plan = Plan(Gamma(), retention=KEPT)
    run_epoch(log.store, plan, log.clock)
    same(log.read(), log.whole)
    log.run()
    run_epoch(log.store, plan, log.clock)
    same(log.read(), log.whole)
    log.assert_done()


@pytest.mark.dear
@pytest.mark.sampled(1)
def test_late_entries_of_an_archived_day_go_to_a_further_file_of_the_day(log):
    log.run()
    late = log_columns(log.ids[:3], [T0 + 2 * DAY] * 3, interval=1.5, changed=1)
    log.append(late)
    log.whole = log.read()
    assert len(log.stored()) + sum(file.n_rows for file in log.files()) == len(log.whole)
    history = histories(log, 5)
    days = [file.day for file in log.files()]
    assert len(log.run()) == 1
    assert sorted(file.day for file in log.files()) == sorted(
        [*days, late_day := (T0 + 2 * DAY).date()]
    )
    assert days.count(late_day) == 1
    log.assert_done()
    log.assert_once()
    assert histories(log, 5) == history


@pytest.mark.dear
def test_entries_that_arrive_or_go_while_a_part_is_copied_are_neither_lost_nor_doubled(
    log, monkeypatch
):
    check, done = LogArchive.check, []

    def meanwhile(archive, file, form):
        check(archive, file, form)
        if not done:
            done.append(file)
            at = T0.replace(hour=0) + timedelta(days=(file.day - T0.date()).days, hours=1)
            log.append(log_columns(log.ids[:2], [at, at], interval=0.25, changed=0))

    monkeypatch.setattr(LogArchive, "check", meanwhile)
    log.run()
    log.whole = log.read()
    log.assert_once()
    log.run()
    log.assert_done()
    log.assert_once()


@pytest.mark.dear
def test_a_page_that_is_deleted_while_its_day_is_copied_leaves_the_others_alone(log, monkeypatch):
    check, gone = LogArchive.check, int(log.ids[0])

    def meanwhile(archive, file, form):
        check(archive, file, form)
        with log.store.begin() as tx:
            if len(tx.page_ids(np.zeros(0, "V16"))) == 0 and gone in tx.existing_pages(log.ids):
                tx.delete_page(gone)

    monkeypatch.setattr(LogArchive, "check", meanwhile)
    log.run()
    log.run()
    log.ids = log.ids[1:]
    log.whole = log.whole.take(log.whole.page_id != gone)
    same(log.read(), log.whole)
    log.assert_done()


def test_two_workers_take_turns(log):
    with log.store.archiving(), pytest.raises(ArchiveRunning):
        log.run()
    other = log.again()
    with other.archiving():
        pass
    other.close()


def test_two_workers_that_archive_at_once_all_the_same_name_each_entry_once(log, monkeypatch):
    """As after one of them lost its lock: both copy the first part, then both want to drop it."""
    monkeypatch.setattr(type(log.store), "archiving", type(log.store).lead)
    stores = [log.store, log.again()]
    turn, failures, kept = threading.Barrier(2), [], []
    check = LogArchive.check
    copied = threading.local()

    def meet(archive, file, form):
        check(archive, file, form)
        if not getattr(copied, "first", False):
            copied.first = True
            turn.wait(60)

    monkeypatch.setattr(LogArchive, "check", meet)

    def run(store):
        try:
            with store.begin(write=False) as tx:
                before = days_before(NOW, KEPT)
                parts = [p for p in tx.log_parts(before) if archiving.is_set_aside(store, p)]
            for part in parts:
                lead = Unlocked(store)
                try:
                    list(archiving._archive_part(lead, store, part))
                except PartChanged:
                    kept.append(part)
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    with log.store.lead() as lead:
        lead.seal_log(days_before(NOW, KEPT))
    threads = [threading.Thread(target=run, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stores[1].close()
    assert failures == []
    assert kept
    log.assert_once()
    named = {file.name for file in log.files()}
    assert log.store.archive.names() == named, "the files of the loser are gone"


class Unlocked:
    """A lead without its lock."""

    def __init__(self, store):
        self.begin = store.begin


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fault", ["open", "write", "close", "read", "full"])
def test_an_archive_that_fails_leaves_everything_in_the_database(log, fault):
    if fault == "full":
        FaultyFileSystem.room = 5_000
    else:
        FaultyFileSystem.unreachable = fault
    with pytest.raises((ArchiveUnavailable, ArchiveDamaged)) as caught:
        log.run()
    assert ("is full" if fault == "full" else "cannot be used") in caught.value.detail
    FaultyFileSystem.room, FaultyFileSystem.unreachable = None, ""
    same(log.read(), log.whole)
    log.assert_once()
    log.run()
    log.assert_done()
    log.assert_once()


def test_a_file_that_changes_between_writing_and_reading_back_drops_nothing(log, monkeypatch):
    damaging(monkeypatch)
    with pytest.raises(ArchiveDamaged, match=r"\.parquet is damaged|checksum"):
        log.run()
    assert log.files() == []
    assert log.store.archive.names() == set()
    log.assert_once()


def test_without_the_archive_readers_refuse_rather_than_return_a_part(log):
    log.run()
    store = open_store(log.url, 2, clock=log.clock)
    try:
        for read in (
            lambda tx: tx.log_of(log.ids),
            lambda tx: tx.evidence_of(log.ids),
            lambda tx: tx.whole_log(int(log.ids[0]), 1000),
        ):
            with (
                store.begin(write=False) as tx,
                pytest.raises(ArchiveUnavailable, match="RECRAWL_ARCHIVE is not set"),
            ):
                read(tx)
    finally:
        store.close()


@pytest.mark.dear
def test_a_history_opens_a_bounded_number_of_files(log, monkeypatch):
    history = histories(log, 1000)
    log.run()
    monkeypatch.setattr(contract, "MOST_FILES", 3)
    monkeypatch.setattr(contract, "FILES_TOGETHER", 2)
    opened = []
    read = LogArchive._read
    monkeypatch.setattr(LogArchive, "_read", lambda *a: opened.append(a[1]) or read(*a))
    assert histories(log, 1000) == history
    opened.clear()
    with log.store.begin(write=False) as tx:
        part, place = tx.whole_log(int(log.ids[0]), 1000)
    assert 3 <= len(opened) <= 4
    assert place[1] is Kind.crawl
    assert all(entry.observed_at >= place[0] for entry in part)


def test_a_worker_archives_and_a_stopped_one_leaves_the_rest(log):
    worker = Archivist(log.store, Retention(KEPT, KEPT))
    worker.stop()
    assert worker.run_once() == 0
    same(log.read(), log.whole)
    assert log.store.archive.names() == set()
    worker = Archivist(log.store, Retention(KEPT, KEPT))
    assert worker.run_once() == sum(file.n_rows for file in log.files()) > 0
    log.assert_done()
    log.assert_once()


@pytest.mark.dear
def test_a_reader_of_the_log_delays_the_drop_only(postgres_url, tmp_path, monkeypatch):
    monkeypatch.setattr(archiving, "ATTEMPTS", 2)
    log = Log(postgres_url, tmp_path / "archive")
    with log.store.lead() as lead:
        lead.seal_log(days_before(NOW, KEPT))
    with psycopg.connect(postgres_url) as reader:
        reader.execute("SELECT count(*) FROM sealed_observations")
        steps = log.run()
        assert {step.kept for step in steps} == {PartBusy().detail}
        same(log.read(), log.whole)
    log.run()
    log.assert_done()
    log.assert_once()
    log.store.close()


@pytest.mark.dear
def test_days_are_partitions_beside_an_archive(postgres_url, tmp_path):
    log = Log(postgres_url, tmp_path / "archive", days=0)
    names = "SELECT relname FROM pg_class WHERE relispartition AND relname ~ 'observations_2'"
    with log.store.begin() as tx:
        days = sorted(name for (name,) in tx.run(names) if not name.endswith("idx"))
    assert days[0] == "observations_2026_05_01"
    assert len(days) == 15
    with log.store.lead() as lead:
        lead.housekeep(None, T0 + DAY)
    with log.store.begin() as tx:
        later = sorted(name for (name,) in tx.run(names) if not name.endswith("idx"))
    assert later[-2:] == ["observations_2026_06", "observations_2026_07"]
    assert "observations_2026_05_31" in later
    log.store.close()


@pytest.mark.dear
@pytest.mark.sampled(1)
def test_the_log_of_a_range_since_an_instant_is_the_same_before_and_after(log):
    first, last = log.ids[2] - 1, log.ids[-3]
    since = T0 + 3 * DAY + timedelta(hours=5)

    def read():
        with log.store.begin(write=False) as tx:
            return tx.log_since(int(first), int(last), since)

    whole = log.read()
    expected = whole.where((whole.page_id > first) & (whole.page_id <= last))
    expected = expected.where(expected.observed_at >= instant(since))
    expected = replace(expected, crawl_rate=np.full(len(expected), np.nan))
    assert 0 < len(expected) < len(whole)
    same(read(), expected)
    log.run()
    same(read(), expected)
