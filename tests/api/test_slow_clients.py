"""Clients that hold a connection: heads and bodies that do not come are answered, and closed."""

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from support.live_server import PATIENCE_S, Live, until
from support.processes import serving

from service.api import protocol
from service.api.protocol import BoundedConnection
from service.api.requests import blocks
from service.api.responses.problems import TYPES
from service.runtime.requests import PLAIN_HEADERS

pytestmark = pytest.mark.dear

HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /observations HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
HARDENING = [b": ".join(header).decode() for header in PLAIN_HEADERS]
"""Lines of a head that make a browser do less with an answer."""
CRAWL = b'{"url":"http://slow.example/%d","observed_at":"2026-01-01T00:00:00Z","changed":true}\n'


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines of a moment instead of ten seconds."""
    for name in ("HEAD_S", "BODY_GRACE_S"):
        monkeypatch.setattr(protocol, name, 0.3)
    monkeypatch.setattr(protocol, "RECHECK_S", 0.05)


@contextmanager
def connected(api: Live) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", api.port), timeout=PATIENCE_S) as connection:
        yield connection


def rest(connection: socket.socket) -> bytes:
    """Return what comes until the server closes."""
    return b"".join(iter(partial(connection.recv, 65_536), b""))


def trickle(connection: socket.socket, piece: bytes) -> None:
    """Send a little again and again."""
    for _ in range(int(PATIENCE_S / 0.05)):
        connection.sendall(piece)
        time.sleep(0.05)


def assert_problem(answer: bytes, status: int, name: str, *says: str) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().lower().splitlines()
    assert lines[0].startswith(f"http/1.1 {status}")
    assert {"content-type: application/problem+json", "connection: close"} <= {*lines}
    assert [lines.count(line) for line in HARDENING] == [1] * len(HARDENING)
    problem = json.loads(body)
    assert (problem["status"], problem["type"]) == (status, f"{TYPES}{name}")
    for words in says:
        assert words in problem["detail"]


@pytest.mark.usefixtures("soon")
def test_a_silent_connection_is_closed(sqlite_api: Live):
    with connected(sqlite_api) as connection:
        assert rest(connection) == b""


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("begun", [b"GET /heal", HEAD[:-2], b"\r\n", b"GET / HTTP/1.1\r\nX: "])
@pytest.mark.parametrize("kept_alive", [False, True])
def test_half_a_head_is_answered_and_closed(sqlite_api: Live, begun: bytes, kept_alive: bool):
    with connected(sqlite_api) as connection:
        if kept_alive:
            connection.sendall(HEAD)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        connection.sendall(begun)
        assert_problem(rest(connection), 408, "request-timeout", "the head was not complete")


@pytest.mark.usefixtures("soon")
def test_a_head_that_trickles_is_answered_and_closed(sqlite_api: Live):
    with connected(sqlite_api) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            trickle(connection, b"X: y\r\n")


@pytest.mark.dear
@pytest.mark.sampled(3)
@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("path", ["/observations", "/pages", "/leases", "/sitemaps?url=http://x/"])
@pytest.mark.parametrize("n_sent", [0, 5])
def test_a_body_that_stops_is_answered_and_closed(sqlite_api: Live, path: str, n_sent: int):
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n" % path.encode()
    with connected(sqlite_api) as connection:
        connection.sendall(head + b" " * n_sent)
        assert_problem(rest(connection), 408, "request-timeout", "less than 1000 bytes a second")
    assert sqlite_api.alive()


@pytest.mark.usefixtures("soon")
def test_a_body_that_nobody_waits_for_is_not_read_for_ever(sqlite_api: Live):
    """The answer comes before the body does."""
    with connected(sqlite_api) as connection:
        connection.sendall(b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 404")
        with pytest.raises(ConnectionError):
            trickle(connection, b" ")


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_takes_its_time_but_flows_is_taken(sqlite_api: Live, chunked: bool):
    lines = [CRAWL % i + b" " * 2_000 for i in range(15)]
    length = b"Content-Length: %d" % sum(map(len, lines))
    with connected(sqlite_api) as connection:
        connection.sendall(POST + (b"Transfer-Encoding: chunked" if chunked else length))
        connection.sendall(b"\r\nConnection: close\r\n\r\n")
        for line in lines:
            connection.sendall(b"%x\r\n%s\r\n" % (len(line), line) if chunked else line)
            time.sleep(0.1)
        connection.sendall(b"0\r\n\r\n" if chunked else b"")
        assert b'"accepted":15' in rest(connection)


@pytest.mark.usefixtures("soon")
def test_time_in_which_the_server_does_not_read_does_not_count(
    sqlite_api: Live, monkeypatch: pytest.MonkeyPatch
):
    """A stream waits for the database: its client is not at fault."""
    settled, all_sent = blocks.settled, threading.Event()

    async def slowly(job):
        await asyncio.to_thread(all_sent.wait, PATIENCE_S)
        return await settled(job)

    monkeypatch.setattr(blocks, "settled", slowly)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1_000)
    lines = b"".join(CRAWL % i for i in range(3_000))
    with connected(sqlite_api) as connection:
        connection.sendall(POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        connection.sendall(b"%x\r\n%s\r\n" % (len(lines), lines))
        time.sleep(1)
        connection.sendall(b"0\r\n\r\n")
        all_sent.set()
        assert b'"accepted":3000' in rest(connection)


@pytest.mark.usefixtures("soon")
def test_a_request_that_waits_outlasts_the_deadlines(sqlite_api: Live):
    """So does one with half of the next head behind it."""
    body = b'{"wait_s": 1}'
    head = b"POST /leases HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    with connected(sqlite_api) as connection:
        connection.sendall(head + body)
        time.sleep(0.1)
        connection.sendall(b"GET /heal")
        first, _, second = rest(connection).partition(b"HTTP/1.1 408")
    assert first.startswith(b"HTTP/1.1 200")
    assert b"request-timeout" in second


@pytest.mark.dear
def test_nonsense_after_a_request_does_not_take_its_place(sqlite_api: Live):
    """As where a Content-Length is too short: the answer is of the request, and the last."""
    body = b'{"wait_s": 0.3}'
    head = b"POST /leases HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    with connected(sqlite_api) as connection:
        connection.sendall(head + body + b"}]\r\n\r\n")
        answer = rest(connection)
    assert answer.startswith(b"HTTP/1.1 200")
    assert (answer.count(b"HTTP/1.1"), b"connection: close" in answer) == (1, True)


def test_an_idle_connection_is_closed_after_a_while(
    sqlite_api: Live, monkeypatch: pytest.MonkeyPatch
):
    made = BoundedConnection.connection_made

    def impatient(self: BoundedConnection, transport) -> None:
        made(self, transport)
        self.timeout_keep_alive = 0.2

    monkeypatch.setattr(BoundedConnection, "connection_made", impatient)
    with connected(sqlite_api) as connection:
        connection.sendall(HEAD + HEAD)
        assert rest(connection).count(b"HTTP/1.1 200") == 2


def reset(connection: socket.socket) -> None:
    """Close without a farewell, as a client that crashes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


def n_answered(api: Live, path: str) -> float:
    lines = api.get("/metrics").text.splitlines()
    return sum(
        float(line.split()[-1])
        for line in lines
        if line.startswith("recrawl_requests_total") and f'"{path}"' in line
    )


def test_a_client_that_resets_before_its_answer_leaves_no_traceback(sqlite_api: Live, caplog):
    """Two requests were sent at once: uvicorn tells only the last that the client has gone."""
    logger, body = logging.getLogger("uvicorn.error"), b'{"wait_s": 0.3}'
    request = b"POST /leases HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    logger.addHandler(caplog.handler)
    try:
        for _ in range(5):
            with connected(sqlite_api) as connection:
                connection.sendall(request + request)
                time.sleep(0.05)
                reset(connection)
        until(lambda: n_answered(sqlite_api, "/leases") == 5, "the requests are answered")
    finally:
        logger.removeHandler(caplog.handler)
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.slow
@pytest.mark.parametrize("begun", [b"Content-Length: 10000\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_a_body_that_still_arrives_when_the_process_ends_is_answered(
    sqlite_url: str, tmp_path: Path, begun: bytes
):
    with serving(tmp_path, database_url=sqlite_url) as ending:
        address = "127.0.0.1", ending.client.base_url.port
        with socket.create_connection(address, timeout=PATIENCE_S) as connection:
            connection.sendall(POST + begun + b"Expect: 100-continue\r\n\r\n")
            assert connection.recv(65_536).startswith(b"HTTP/1.1 100")
            connection.sendall(b"1\r\n{\r\n" if b"chunked" in begun else b"{")
            assert ending.terminate() in (0, -15)
            assert_problem(rest(connection), 503, "store-unavailable", "this process ends; send")
        assert "Traceback" not in ending.log.read_text()
