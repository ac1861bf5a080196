"""`recrawl archive`: shows, moves, checks; refuses what it cannot do in one sentence."""

import re

import pytest
from support.archive_cases import Log
from support.command import recrawl  # noqa: F401 - a fixture

from service.storage.clock import system_clock


@pytest.fixture
def log(database_url, tmp_path):
    one = Log(database_url, tmp_path / "archive", clock=system_clock)
    yield one
    one.store.close()


def test_days_beyond_the_retention_move_and_are_checked(log, recrawl):  # noqa: F811
    settings = {"database_url": log.url, "archive": log.address, "retention_days": "10"}
    old = f"{len(log.whole):,}"
    shown = recrawl("archive", "--dry-run", **settings)
    assert shown.status == 0
    assert re.search(r"[\d,]+ entries in \d+ parts would go to the archive$", shown.out.strip())
    if log.store.embedded:
        days = sorted({str(day) for day in log.whole.observed_at.astype("M8[D]")})
        assert re.findall(r"(.*): [\d,]+ entries\n", shown.out) == days
    assert log.files() == []
    moved = recrawl("archive", **settings)
    assert moved.status == 0
    assert re.match(rf"{old} entries archived in \d+ files, [\d.]+ bytes each\n", moved.out)
    log.assert_once()
    assert len(log.stored()) == 0
    assert recrawl("archive", **settings).out == "0 entries archived in 0 files\n"
    n = len(log.files())
    stray = log.address / "day=2026-05-01" / "stray.parquet"
    stray.write_bytes(b"")
    checked = recrawl("archive", "--check", **settings)
    assert checked.status == 0
    assert "day=2026-05-01/stray.parquet is not in the database" in checked.out
    assert f"{n} of {n} files are as they were written" in checked.out
    (log.address / log.files()[0].name).write_bytes(b"PAR1")
    checked = recrawl("archive", "--check", **settings)
    assert checked.status == 1
    assert f"{log.files()[0].name} is damaged" in checked.err.replace("\n", "")
    assert f"{n - 1} of {n} files" in checked.out


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "RECRAWL_ARCHIVE is not set; name a path or an address"),
        (
            {"archive": "x", "retention_days": "", "changes_days": ""},
            "RECRAWL_RETENTION_DAYS and RECRAWL_CHANGES_DAYS are empty",
        ),
        ({"archive": "nowhere://x"}, "RECRAWL_ARCHIVE: Protocol not known: nowhere"),
    ],
)
def test_what_cannot_be_archived_is_refused_in_a_sentence(sqlite_url, recrawl, settings, sentence):  # noqa: F811
    refusal = recrawl("archive", database_url=sqlite_url, **settings).refusal()
    assert sentence in refusal
