"""A service with an archive: histories are whole, a server on SQLite archives by itself."""

from datetime import timedelta

import pytest
from support.live_server import START, Live, running, until

PAGE = "https://example.org/"
N_DAYS = 8


@pytest.fixture
def archived(database_url, tmp_path):
    """A service whose first days are archived."""
    settings = {"archive": str(tmp_path / "archive"), "retention_days": 3}
    with running(database_url, **settings) as live:
        live.register(PAGE)
        for day in range(N_DAYS):
            at = (START + timedelta(days=day)).isoformat()
            live.clock.now = START + timedelta(days=day, hours=1)
            crawl = {"url": PAGE, "observed_at": at, "digest": str(day // 2), "status": 200}
            assert live.post("/observations", [crawl]).json()["accepted"] == 1
        live.clock.now = START + timedelta(days=N_DAYS)
        yield live


def history(live: Live, limit: int) -> list[dict]:
    path, read, query = "/pages/1/observations", [], {"limit": limit}
    while True:
        part = live.get(path, **query)
        assert part.status_code == 200, part.text
        assert len(part.json()["items"]) <= limit
        read += part.json()["items"]
        if part.json()["next_cursor"] is None:
            return read
        query["cursor"] = part.json()["next_cursor"]


@pytest.mark.dear
def test_the_history_of_a_page_is_whole_in_parts_of_any_length(archived):
    before = history(archived, 1000)
    assert len(before) == N_DAYS
    assert archived.service.archivist.run_once() == N_DAYS - 3
    for limit in (1000, 3, 1):
        assert history(archived, limit) == before


@pytest.mark.dear
def test_a_missing_file_is_named_in_a_503_that_says_what_to_do(archived, tmp_path):
    assert archived.service.archivist.run_once()
    for file in (tmp_path / "archive").rglob("*.parquet"):
        file.unlink()
    response = archived.get("/pages/1/observations")
    assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
    problem = response.json()
    assert problem["type"].endswith("#archive-unavailable")
    assert ".parquet; see that RECRAWL_ARCHIVE is right" in problem["detail"]
    assert str(tmp_path) not in problem["detail"]
    assert archived.get("/pages/1").status_code == 200


def test_a_server_on_sqlite_archives_by_itself(sqlite_url, tmp_path):
    settings = {"archive": str(tmp_path / "archive"), "retention_days": 3}
    with running(sqlite_url, **settings) as live:
        live.register(PAGE)
        crawl = {"url": PAGE, "observed_at": START.isoformat(), "digest": "x"}
        assert live.post("/observations", [crawl]).json()["accepted"] == 1
        clock = live.clock
    clock.now = START + timedelta(days=9)
    with running(sqlite_url, clock=clock, embedded=True, **settings) as live:
        until(lambda: list((tmp_path / "archive").rglob("*.parquet")), "a file is written")
        until(lambda: files_of(live), "the file is named")
        assert len(history(live, 10)) == 1


def files_of(live: Live) -> list:
    with live.service.store.begin(write=False) as tx:
        return tx.log_files()
