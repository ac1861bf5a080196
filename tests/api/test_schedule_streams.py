"""What changed since an epoch, and the schedule as a stream: lines or Arrow, compressed or not."""

import gzip
import io
import json
import socket
from datetime import datetime
from types import SimpleNamespace

import httpx
import pyarrow as pa
import pytest
import zstandard
from structlog.testing import capture_logs
from support.live_server import Live, until

from service.api import protocol
from service.api.encodings import best
from service.api.responses import encode
from service.api.responses.problems import TYPES
from service.api.routes import schedule
from service.api.routes.schedule import ScheduleQuery, ScheduleReader
from service.model.domain import ScheduleFilter
from service.model.errors import CursorExpired

JSON, NDJSON = "application/json", "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def corpus(api: Live, monkeypatch) -> list[int]:
    """Twenty-five scheduled pages, streamed in blocks of four."""
    monkeypatch.setattr(schedule, "BLOCK", 4)
    page_ids = api.register(*(f"https://a.example/{i}" for i in range(25)))
    api.epoch()
    return page_ids


def fetched(api: Live, accept: str, **query) -> httpx.Response:
    return api.client.get("/schedule", params=query, headers={"Accept": accept})


def changed(api: Live, since: int, **query) -> tuple[list[dict], list[int], int]:
    """Follow the cursors of the changes; also gives how many pages they came in."""
    items, removed, cursor, n = [], [], {}, 0
    while True:
        page = api.get("/schedule", since_epoch=since, **cursor, **query).json()
        items, removed, n = items + page["items"], removed + page["removed"], n + 1
        if page["next_cursor"] is None:
            return items, removed, n
        cursor = {"cursor": page["next_cursor"]}


def test_changes_bring_what_is_known_up_to_date(api: Live, corpus):
    known = {row["page_id"]: row for row in api.schedule()}
    since = api.get("/schedule").json()["epoch"]
    api.client.delete(f"/pages/{corpus[3]}")
    api.client.patch(f"/pages/{corpus[5]}", json={"importance": 50})
    (new,) = api.register("https://b.example/")
    api.epoch()
    items, removed, _ = changed(api, since, min_change=0)
    assert removed == [corpus[3]]
    for row in items:
        known[row["page_id"]] = row
    for page_id in removed:
        del known[page_id]
    assert list(known.values()) == api.schedule()
    few, _, n_pages = changed(api, since, min_change=0.5, limit=1)
    assert [row["page_id"] for row in few] == [corpus[5], new]
    assert n_pages >= 2


def test_changes_come_as_lines_too(api: Live, corpus):
    since = api.get("/schedule").json()["epoch"]
    for page_id in corpus[::3]:
        api.client.delete(f"/pages/{page_id}")
    api.client.patch(f"/pages/{corpus[1]}", json={"importance": 50})
    api.epoch()
    response = fetched(api, NDJSON, since_epoch=since, min_change=0)
    lines = list(map(json.loads, response.iter_lines()))
    assert [row["page_id"] for row in lines if row.get("removed")] == sorted(corpus[::3])
    assert [row for row in lines if "removed" not in row] == changed(api, since, min_change=0)[0]


def test_changes_since_the_epoch_in_force_are_none(api: Live, corpus):
    since = api.get("/schedule").json()["epoch"]
    assert api.get("/schedule", since_epoch=since).status_code == 304


@pytest.mark.dear
@pytest.mark.parametrize("accept", [JSON, NDJSON])
def test_changes_since_an_epoch_long_gone_ask_for_the_whole_schedule(api: Live, corpus, accept):
    since = api.get("/schedule").json()["epoch"]
    for _ in range(4):
        api.epoch()
    for unknown in (since, 4711):
        response = fetched(api, accept, since_epoch=unknown)
        assert response.status_code == 410
        assert response.json()["type"] == f"{TYPES}epoch-not-kept"
        assert "whole" in response.json()["detail"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"since_epoch": 0}, "since_epoch"),
        ({"since_epoch": "x"}, "since_epoch"),
        ({"since_epoch": 1, "host": "a.example"}, "since_epoch"),
        ({"since_epoch": 1, "observability": "auto"}, "since_epoch"),
        ({"min_change": -0.1}, "min_change"),
        ({"min_change": "nan"}, "min_change"),
    ],
)
def test_changes_that_cannot_be_asked_for_are_refused(api: Live, query, field):
    response = api.get("/schedule", **query)
    assert (response.status_code, response.json()["field"]) == (422, field)


def test_arrow_is_the_schedule_to_the_last_bit(api: Live, corpus):
    response = fetched(api, ARROW)
    assert response.headers["Content-Type"] == ARROW
    with pa.ipc.open_stream(io.BytesIO(response.content)) as reader:
        table = reader.read_all()
    rows = api.schedule()
    for row in rows:
        row["next_crawl_at"] = row["next_crawl_at"] and datetime.fromisoformat(row["next_crawl_at"])
    assert table.to_pylist() == rows
    assert table.schema.metadata[b"epoch"] == str(api.get("/schedule").json()["epoch"]).encode()
    assert len(table["page_id"].chunks) == 7


def test_arrow_of_nothing_is_a_table_without_rows(api: Live, corpus):
    response = fetched(api, ARROW, host="unknown.example")
    with pa.ipc.open_stream(io.BytesIO(response.content)) as reader:
        assert reader.read_all().num_rows == 0


def test_never_due_is_null_in_arrow(api: Live):
    (page_id,) = api.register("https://a.example/", observability="complete")
    api.post("/observations", [{"page_id": page_id, "observed_at": api.clock().isoformat()}])
    api.epoch()
    with pa.ipc.open_stream(io.BytesIO(fetched(api, ARROW).content)) as reader:
        assert reader.read_all()["next_crawl_at"].to_pylist() in ([None], [api.clock()])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("accept", "given"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        (f"{NDJSON}, */*", NDJSON),
        (f"{JSON};q=0.5, {NDJSON};q=0.9", NDJSON),
        (f"{NDJSON};q=0, */*;q=0.1", JSON),
        (f"{ARROW};q=0.4, text/html", ARROW),
        ("Application/X-NDJSON; charset=utf-8", NDJSON),
    ],
)
def test_the_client_gets_what_it_likes_best(sqlite_api: Live, accept, given):
    sqlite_api.register("https://a.example/")
    sqlite_api.epoch()
    response = fetched(sqlite_api, accept)
    assert (response.status_code, response.headers["Content-Type"]) == (200, given)
    assert "Accept" in response.headers["Vary"].split(", ")


@pytest.mark.parametrize("accept", ["text/html", f"{JSON};q=0", "image/*, text/csv"])
def test_what_cannot_be_given_is_named(sqlite_api: Live, accept):
    response = fetched(sqlite_api, accept)
    assert response.status_code == 406
    assert response.json()["type"] == f"{TYPES}not-acceptable"
    assert NDJSON in response.json()["detail"]


def test_without_pyarrow_the_remedy_is_named(sqlite_api: Live, monkeypatch):
    monkeypatch.setattr(encode, "HAS_ARROW", False)
    response = fetched(sqlite_api, ARROW)
    assert response.status_code == 406
    assert "pip install 'recrawl[arrow]'" in response.json()["detail"]
    assert fetched(sqlite_api, f"{ARROW}, {JSON};q=0.1").status_code == 200


def test_an_epoch_that_is_dropped_half_way_breaks_the_stream_off(
    api: Live, corpus, monkeypatch, caplog
):
    following = ScheduleReader.next

    def drop_first(reading, tx, after):
        if after:
            for _ in range(4):
                with api.service.store.begin() as writing:
                    writing.request_epoch(api.clock())
                api.service.runner.run_once()
        return following(reading, tx, after)

    monkeypatch.setattr(ScheduleReader, "next", drop_first)
    with capture_logs() as logs:
        for accept in (NDJSON, ARROW):
            with pytest.raises(httpx.RemoteProtocolError):
                fetched(api, accept)
    told = [line for line in logs if line["event"] == "a stream ended early"]
    assert [line["reason"][:14] for line in told] == ["CursorExpired:"] * 2
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.dear
def test_a_slow_reader_holds_no_connection_of_the_database(api: Live, corpus):
    store = api.service.store
    query = ScheduleQuery(NDJSON, None, None, 4, None, 0.1, False, None, None, None, None)
    with store.begin(write=False) as tx:
        reading = ScheduleReader(api.service, tx.epoch_in_force(), 4, query, ScheduleFilter())
        part = reading.next(tx, 0)
    api.service.watch.stopped.set()
    lines = reading.lines(part)
    for _ in range(3):
        assert next(lines).count(b"\n") == 4
        with store.begin() as tx:  # on SQLite, nobody else may be writing
            tx.set_estimator("gamma")
    for _ in range(4):
        api.epoch()
    with pytest.raises(CursorExpired):  # after the part that was read ahead
        list(lines)


def asked_and_not_read(api: Live) -> socket.socket:
    """Ask for an answer far larger than what the system keeps for who does not read."""
    url = "https://big.example/" + "x" * 2_000
    api.register(*(f"{url}{i}" for i in range(8_000)))
    api.epoch()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.connect(("127.0.0.1", api.port))
    connection.sendall(b"GET /schedule HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\n\r\n")
    return connection


@pytest.mark.dear
def test_who_reads_nothing_of_an_answer_is_given_up(sqlite_api: Live, monkeypatch):
    ended, lost = [], protocol.BoundedConnection.connection_lost

    def told(self, error):
        ended.append(self.client[1])
        lost(self, error)

    monkeypatch.setattr(protocol.BoundedConnection, "connection_lost", told)
    monkeypatch.setattr(protocol, "STALLED_S", 0.2)
    with asked_and_not_read(sqlite_api) as connection:
        port = connection.getsockname()[1]
        until(lambda: port in ended, "the connection is given up")


def test_who_reads_slowly_is_not():
    """What is left to be read at each look, every five minutes: only standing still ends it."""
    connection, left, looks, ended = object.__new__(protocol.BoundedConnection), [9], [], []
    connection.loop = SimpleNamespace(call_later=lambda *given: looks.append(given))
    connection.transport = SimpleNamespace(
        get_write_buffer_size=lambda: left[0], abort=lambda: ended.append(left[0])
    )
    connection._look_later()
    for left[0] in (8, 1, 1):
        assert not ended
        span, look, before = looks.pop()
        assert span == protocol.STALLED_S
        look(before)
    assert (ended, looks) == ([1], [])


def raw(
    api: Live, encoding: str, path: str = "/schedule", **headers
) -> tuple[httpx.Headers, bytes]:
    headers = {"Accept-Encoding": encoding, **headers}
    with api.client.stream("GET", path, headers=headers) as response:
        return response.headers, b"".join(response.iter_raw())


def plain(encoding: str, body: bytes) -> bytes:
    if encoding == "zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(body)
    return gzip.decompress(body)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@pytest.mark.parametrize("accept", [JSON, NDJSON, ARROW])
def test_bodies_are_compressed_whole_or_streamed(api: Live, corpus, encoding, accept):
    identity, body = raw(api, "identity", Accept=accept)
    headers, compressed = raw(api, encoding, Accept=accept)
    assert headers["Content-Encoding"] == encoding
    assert headers["Vary"] == identity["Vary"] == "Accept, Accept-Encoding"
    assert headers["ETag"] == identity["ETag"]
    assert "Content-Encoding" not in identity
    assert len(compressed) < len(body) / 2
    assert plain(encoding, compressed) == body


def test_large_bodies_are_compressed_too(sqlite_api: Live):
    sqlite_api.register(*(f"https://a.example/{i}" for i in range(1_000)))
    sqlite_api.epoch()
    _, body = raw(sqlite_api, "identity")
    _, compressed = raw(sqlite_api, "zstd, gzip")
    assert len(body) > 65_536
    assert plain("zstd", compressed) == body


def test_tiny_and_empty_bodies_stay_plain(sqlite_api: Live):
    headers, body = raw(sqlite_api, "gzip, zstd")
    assert "Content-Encoding" not in headers
    assert json.loads(body)["epoch"] is None
    headers, body = raw(sqlite_api, "gzip", **{"If-None-Match": headers["ETag"]})
    assert (body, "Content-Encoding" in headers) == (b"", False)


@pytest.mark.parametrize(
    ("accepted", "given"),
    [
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip;q=1.0, zstd;q=0.5", "gzip"),
        ("gzip, zstd;q=0", "gzip"),
        ("*", "zstd"),
        ("*;q=0", None),
        ("br", None),
        ("identity, gzip;q=0.5", "identity"),
        ("", None),
    ],
)
def test_encodings_are_chosen_by_quality(accepted, given):
    assert best(accepted, ("zstd", "gzip", "identity")) == given
