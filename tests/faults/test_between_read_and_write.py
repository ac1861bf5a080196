"""Killed after it has read the states, with its writes under way: nothing is half done."""

import signal
import sqlite3
import threading
from datetime import UTC, datetime, timedelta

import httpx
import psycopg
import pytest
from support.live_server import PATIENCE_S, until
from support.processes import Serving, serving

pytestmark = pytest.mark.slow

BASE = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)

STOPPED = """
SELECT count(*) > 0 FROM pg_locks JOIN pg_class ON pg_class.oid = relation
WHERE relname LIKE %s AND NOT granted AND database = (
    SELECT oid FROM pg_database WHERE datname = current_database())
"""


def batch(hour: int, n_pages: int) -> list[dict]:
    at = (BASE + timedelta(hours=hour)).isoformat()
    return [
        {"url": f"https://a.example/{i}", "observed_at": at, "changed": True}
        for i in range(n_pages)
    ]


def unanswered(server: Serving, items: list[dict], answers: list) -> threading.Thread:
    """Post from a thread that waits for an answer; it must not come."""

    def post() -> None:
        try:
            answers.append(
                httpx.post(f"{server.client.base_url}/observations", json=items, timeout=PATIENCE_S)
            )
        except httpx.TransportError:
            return

    thread = threading.Thread(target=post)
    thread.start()
    return thread


@pytest.mark.parametrize("write", ["page_states", "observations"])
def test_a_replica_killed_while_it_writes_leaves_all_or_nothing(postgres_url, tmp_path, write):
    """A lock held from outside lets it read and lock its states, and stops that one write.

    What it had sent by then ends with its COMMIT or without: the database goes on, or does not.
    """
    n_pages = 50
    answers: list[httpx.Response] = []
    with (
        serving(tmp_path, wait=False, database_url=postgres_url) as one,
        serving(tmp_path, wait=False, database_url=postgres_url) as two,
    ):
        for server in (one, two):
            until(server.ready, "the server is ready")
        assert one.post("/observations", batch(0, n_pages))["accepted"] == n_pages
        with (
            psycopg.connect(postgres_url) as holder,
            psycopg.connect(postgres_url, autocommit=True) as other,
        ):
            holder.execute(f"LOCK TABLE {write} IN SHARE MODE")
            post = unanswered(one, batch(1, n_pages), answers)
            stopped = f"{write}%"  # the log is written to a partition
            until(lambda: other.execute(STOPPED, [stopped]).fetchone()[0], "the write waits")
            one.kill()
            post.join(PATIENCE_S)
        assert answers == []
        again = two.post("/observations", batch(1, n_pages))
        assert sorted((again["accepted"], again["duplicate"])) == [0, n_pages]
        check_totals(two, n_pages, 2)


def test_a_server_on_sqlite_killed_inside_its_transaction_leaves_all_or_nothing(
    sqlite_url, tmp_path
):
    """Frozen at any moment; that the file's write lock is held shows that it is inside."""
    n_pages = 10_000
    answers: list[httpx.Response] = []
    hour = 0
    with serving(tmp_path, database_url=sqlite_url) as server:
        server.post("/observations", batch(0, n_pages))
        while not answers:
            hour += 1
            assert hour < 30, "it was never caught inside"
            post = unanswered(server, batch(hour, n_pages), answers)
            frozen = frozen_inside(server, sqlite_url.removeprefix("sqlite:///"), post)
            if frozen:
                server.kill()
            post.join(PATIENCE_S)
            if frozen:
                break
            answers.clear()
    assert answers == []
    with serving(tmp_path, database_url=sqlite_url) as server:
        again = server.post("/observations", batch(hour, n_pages))
        assert n_pages in (again["accepted"], again["duplicate"])
        check_totals(server, n_pages, hour + 1)


def frozen_inside(server: Serving, file: str, post: threading.Thread) -> bool:
    """Freeze the server; tells whether that was inside of a write transaction."""
    probe = sqlite3.connect(file, timeout=0, isolation_level=None)
    while post.is_alive():
        if writing(probe):
            server.popen.send_signal(signal.SIGSTOP)
            if writing(probe):
                probe.close()
                return True
            server.popen.send_signal(signal.SIGCONT)
    probe.close()
    return False


def writing(probe: sqlite3.Connection) -> bool:
    try:
        probe.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    probe.execute("ROLLBACK")
    return False


def check_totals(server: Serving, n_pages: int, n_batches: int) -> None:
    for i in (0, n_pages // 2, n_pages - 1):
        page = server.client.get("/pages", params={"url": f"https://a.example/{i}"}).json()
        assert page["estimate"]["n_observations"] == n_batches - 1
