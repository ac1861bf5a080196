"""A full disk under SQLite: told at once, nothing broken, and over when there is room again.

The system itself refuses to let a file grow: by a limit on the size of the server's files, which
needs no privilege to set and none to lift.
"""

import resource
import sqlite3
from pathlib import Path

import pytest
from support.live_server import until
from support.processes import serving
from support.traffic import Reporter, polite

pytestmark = pytest.mark.slow

ROOM = 1_000_000
"""Bytes that a file may still grow by: many small batches, but no large one."""
MANY = 20_000


def limit_files(pid: int, n_bytes: int) -> None:
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (n_bytes, most))


def largest(database: Path) -> int:
    return max(path.stat().st_size for path in database.parent.glob(f"{database.name}*"))


def test_a_full_disk_is_told_and_when_there_is_room_again_all_goes_on(tmp_path):
    database = tmp_path / "full.db"
    with serving(tmp_path, database_url=f"sqlite:///{database}", epoch_interval_s=3600) as server:
        for start in range(0, MANY, 10_000):
            urls = [f"https://h.example/{i}" for i in range(start, start + 10_000)]
            server.post("/pages", [{"url": url} for url in urls])
        in_force = epoch(server)
        assert in_force["status"] == "published"

        limit_files(server.popen.pid, largest(database) + ROOM)
        crawlers = [Reporter(str(server.client.base_url), f"c{i}") for i in range(2)]
        for crawler in crawlers:
            crawler.start()
        until(lambda: all(len(c.refusals) > 3 for c in crawlers), "every crawler is refused")
        assert all(crawler.n_accepted for crawler in crawlers)
        known = server.client.get("/pages", params={"url": crawlers[0].pages[0]})
        assert known.status_code == 200
        whole = server.client.get("/schedule", params={"limit": 10_000})
        assert whole.json()["epoch"] == in_force["epoch"]
        until(lambda: not server.ready(), "the server is not ready")
        refused = server.client.get("/readyz")
        assert polite(refused, 503)
        assert refused.json()["check"] == "writes"
        asked = server.client.post("/epochs")
        assert asked.status_code == 202 or polite(asked, 507)
        check_intact(database)

        limit_files(server.popen.pid, resource.RLIM_INFINITY)
        enough = [crawler.n_accepted + 3 for crawler in crawlers]
        until(
            lambda: all(c.n_accepted >= n for c, n in zip(crawlers, enough, strict=True)),
            "every crawler goes on",
        )
        until(server.ready, "the server is ready again")
        for crawler in crawlers:
            crawler.stop()
            assert crawler.hung_up == []
            assert all(polite(refusal, 507) for refusal in crawler.refusals)
            crawler.check(server.client)
        assert epoch(server)["status"] == "published"
        assert "Traceback" not in server.log.read_text()
    check_intact(database)


def test_an_epoch_that_finds_the_disk_full_fails_and_the_schedule_stays(tmp_path):
    database = tmp_path / "full.db"
    with serving(tmp_path, database_url=f"sqlite:///{database}", epoch_interval_s=3600) as server:
        for start in range(0, MANY, 10_000):
            urls = [f"https://h.example/{i}" for i in range(start, start + 10_000)]
            server.post("/pages", [{"url": url} for url in urls])
        before = epoch(server)
        rows = server.client.get("/schedule", params={"limit": 10_000}).json()["items"]
        empty_wal(database)
        limit_files(server.popen.pid, 300_000)  # of which the WAL will need more
        failed = epoch(server)
        assert failed["status"] == "failed"
        assert "no room" in failed["reason"]
        left = server.client.get("/schedule", params={"limit": 10_000}).json()
        assert (left["epoch"], left["items"]) == (before["epoch"], rows)
        limit_files(server.popen.pid, resource.RLIM_INFINITY)
        assert epoch(server)["status"] == "published"
    check_intact(database)


def epoch(server) -> dict:
    """Ask for an epoch and wait until it is over."""
    asked = server.client.post("/epochs").json()["epoch"]
    over = ("published", "failed")
    until(lambda: server.client.get(f"/epochs/{asked}").json()["status"] in over, "it is over")
    return server.client.get(f"/epochs/{asked}").json()


def empty_wal(database: Path) -> None:
    other = sqlite3.connect(database, isolation_level=None)
    until(
        lambda: other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0,
        "the write-ahead log is empty",
    )
    other.close()


def check_intact(database: Path) -> None:
    """Let SQLite look at every page of the file, as another process."""
    other = sqlite3.connect(database)
    assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert other.execute("PRAGMA foreign_key_check").fetchall() == []
    other.close()
