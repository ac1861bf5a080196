"""Files of the archive: small, exact, read in parts, and never believed when they are damaged."""

import sys
from contextlib import suppress
from datetime import date
from itertools import pairwise

import numpy as np
import pytest
from support.archive_cases import FaultyFile, FaultyFileSystem, realistic
from support.store_cases import DAY, T0, columns, same

from service.archive import log_archive, parquet
from service.archive.log_archive import LogArchive
from service.model.columns import LogColumns
from service.model.errors import ArchiveDamaged, ArchiveUnavailable, InvalidSettings


def written(archive, *blocks):
    files = []
    assert sum(archive.write(blocks, files)) == sum(map(len, blocks))
    return files


def odd_log():
    """Values at the edges of each column."""
    interval = np.array(
        [
            np.nan,
            0.0,
            -0.0,
            1e-300,
            1 / 3,
            -2.5,
            5 / 86_400_000_000,
            2.0**53 / 86.4e9,
            1e300,
            np.inf,
        ]
    )
    n = len(interval)
    return columns(
        LogColumns,
        n,
        page_id=np.array([1] * 4 + [2**52] * (n - 4)),
        observed_at=np.datetime64(T0.date(), "us") + np.arange(n).astype("m8[us]"),
        kind=np.arange(n) % 2,
        changed=np.arange(n) % 3 - 1,
        interval=interval,
        crawl_rate=interval[::-1].copy(),
        status=np.array([-1, 0, 100, 200, 999, 32767, 304, 404, 503, -1]),
    )


def test_entries_come_back_to_the_last_bit(tmp_path):
    archive = LogArchive(str(tmp_path / "new" / "archive"))
    (file,) = written(archive, log := odd_log())
    archive.check(file)
    again = archive.log_of([file], np.array([1, 2**52]))
    same(again, log)
    assert (np.signbit(again.interval) == np.signbit(log.interval)).all()
    assert (file.day, file.first, file.last) == (T0.date(), 1, 2**52)
    assert (tmp_path / "new" / "archive" / file.name).stat().st_size == file.n_bytes


def test_a_realistic_entry_takes_twelve_bytes_at_most(tmp_path):
    archive = LogArchive(str(tmp_path))
    (file,) = written(archive, realistic(131_072))
    assert file.n_bytes / file.n_rows < 12


def test_each_day_has_files_of_a_limited_size_in_order_of_page(tmp_path, monkeypatch):
    monkeypatch.setattr(log_archive, "ROWS_OF_FILE", 2_000)
    monkeypatch.setattr(parquet, "ROWS_OF_GROUP", 500)
    archive = LogArchive(str(tmp_path))
    days = [realistic(n, at=T0 + i * DAY, seed=i) for i, n in enumerate((5_000, 1, 2_300))]
    whole = LogColumns.concatenate(days)
    blocks = [whole.take(slice(start, start + 700)) for start in range(0, len(whole), 700)]
    files = written(archive, *blocks)
    assert sum(file.n_rows for file in files) == len(whole)
    assert max(file.n_rows for file in files) < 2_000 + 700
    assert sorted({file.day for file in files}) == [(T0 + i * DAY).date() for i in range(3)]
    pairs = [(file, after) for file, after in pairwise(files) if file.day == after.day]
    assert len(pairs) == len(files) - 3
    assert all(file.last <= after.first for file, after in pairs)
    for file in files:
        archive.check(file)
    again = archive.log_of(files, np.unique(whole.page_id))
    same(again.take(np.lexsort((again.page_id, again.observed_at.astype("M8[D]")))), whole)


def test_one_page_is_read_from_one_row_group_of_a_day(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "ROWS_OF_GROUP", 1_000)
    archive = LogArchive(str(tmp_path))
    (file,) = written(archive, log := realistic(20_000))
    groups = []

    def reader(source):
        opened = unpatched(source)
        read = opened.read_row_group
        monkeypatch.setattr(
            opened,
            "read_row_group",
            lambda group, **how: groups.append(group) or read(group, **how),
            raising=False,
        )
        return opened

    unpatched = parquet.reader
    monkeypatch.setattr(parquet, "reader", reader)
    page = log.page_id[10_500]
    same(archive.log_of([file], np.array([page])), log.take(log.page_id == page))
    assert groups in ([10], [9, 10], [10, 11])


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "other"])
def test_a_damaged_file_is_never_believed(tmp_path, damage):
    archive = LogArchive(str(tmp_path))
    log = realistic(3_000)
    (file,) = written(archive, log)
    (other,) = written(archive, realistic(3_000, seed=2))
    path = tmp_path / file.name
    good, pages = path.read_bytes(), np.unique(log.page_id)
    rng = np.random.default_rng(3)
    bad = {
        "flip": [
            good[:i] + bytes([good[i] ^ 1 << int(rng.integers(8))]) + good[i + 1 :]
            for i in rng.integers(0, len(good), 60).tolist()
        ],
        "cut": [good[:i] for i in rng.integers(0, len(good), 5).tolist()],
        "empty": [b""],
        "other": [(tmp_path / other.name).read_bytes()],
    }[damage]
    n_refused = 0
    for data in bad:
        path.write_bytes(data)
        try:
            archive.check(file)
        except ArchiveDamaged as error:
            assert file.name in error.detail  # noqa: PT017
            n_refused += 1
        else:  # bytes that carry no value, as in the name of the writer
            same(archive.log_of([file], pages), log)
        with suppress(ArchiveDamaged):
            same(archive.log_of([file], pages), log)
    assert n_refused >= 0.9 * len(bad)


def test_a_page_takes_two_reads_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "ROWS_OF_GROUP", 30_000)
    archive = LogArchive(f"faulty://{tmp_path}")
    (file,) = written(archive, log := realistic(150_000))
    reads = []
    monkeypatch.setattr(FaultyFile, "read", lambda self, n=-1: counted(self, n), raising=False)

    def counted(opened, n):
        data = opened.file.read(n)
        reads.append(len(data))
        return data

    page = log.page_id[77_777]
    same(archive.log_of([file], np.array([page])), log.take(log.page_id == page))
    assert len(reads) == 2
    assert sum(reads) < file.n_bytes / 3


def test_a_file_that_is_not_there_is_named_with_what_to_do(tmp_path):
    archive = LogArchive(str(tmp_path))
    (file,) = written(archive, odd_log())
    (tmp_path / file.name).unlink()
    with pytest.raises(ArchiveUnavailable, match=f"no file {file.name}; see that RECRAWL_ARCHIVE"):
        archive.log_of([file], np.array([1]))


def test_an_archive_may_be_at_any_address_of_fsspec():
    archive = LogArchive("memory://test-recrawl/log")
    (file,) = written(archive, log := odd_log())
    archive.check(file)
    same(archive.log_of([file], np.array([1, 2**52])), log)
    assert archive.names() == {file.name}
    archive.delete([file])
    assert archive.names() == set()


@pytest.mark.parametrize(
    ("address", "remedy"),
    [("nowhere://x", "nowhere"), ("s3://bucket/x", r"pip install 'recrawl\[s3\]'")],
)
def test_an_address_that_nothing_can_reach_is_refused_at_the_start(address, remedy, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(InvalidSettings, match=remedy):
        LogArchive(address)


def test_without_the_packages_the_sentence_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(InvalidSettings, match=r"pip install 'recrawl\[arrow\]'"):
        LogArchive("x")


def test_a_full_disk_leaves_no_file(tmp_path):
    archive = LogArchive(f"faulty://{tmp_path}")
    FaultyFileSystem.room = 5_000
    try:
        with pytest.raises(ArchiveUnavailable, match=r"is full .* No space left on device"):
            written(archive, realistic(3_000))
    finally:
        FaultyFileSystem.room = None
    assert archive.names() == set()


def test_days_before_1970_and_far_ahead_have_files_too(tmp_path):
    archive = LogArchive(str(tmp_path))
    log = odd_log().take(slice(0, 2))
    at = np.array(["1969-12-31T23:59:59.999999", "2199-01-01"], "M8[us]")
    log = LogColumns(**{**log.arrays(), "observed_at": at})
    files = written(archive, log)
    assert [file.day for file in files] == [date(1969, 12, 31), date(2199, 1, 1)]
    same(archive.log_of(files, np.array([1])), log)
