"""What uvicorn writes, as it goes out."""

import asyncio
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from live_server import Live

from service.api import wire
from service.api.transport import ExcusingFlow, Joining


class Sent:
    """A transport that writes down what it is told, a list for each system call."""

    def __init__(self) -> None:
        self.calls: list[list[bytes]] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.calls.append([data])

    def writelines(self, parts: Any) -> None:
        if self.closed:
            raise RuntimeError("the handler is closed")  # as uvloop's
        self.calls.append(list(parts))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def turn(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_until_complete(asyncio.sleep(0))


def joined(loop: asyncio.AbstractEventLoop) -> tuple[Sent, Joining]:
    sent = Sent()
    return sent, Joining(sent, loop)  # type: ignore[arg-type]


def test_a_head_and_its_body_go_out_by_one_call(loop: asyncio.AbstractEventLoop) -> None:
    sent, transport = joined(loop)
    for k in (b"1", b"2"):
        transport.write(b"head" + k)
        transport.write(b"body" + k)
    assert sent.calls == [[b"head1", b"body1"], [b"head2", b"body2"]]
    turn(loop)
    assert len(sent.calls) == 2


def test_what_nothing_follows_goes_out_on_the_next_turn(loop: asyncio.AbstractEventLoop) -> None:
    sent, transport = joined(loop)
    transport.write(b"head")
    assert sent.calls == []
    turn(loop)
    assert sent.calls == [[b"head"]]


def test_closing_sends_what_is_held_first(loop: asyncio.AbstractEventLoop) -> None:
    sent, transport = joined(loop)
    transport.write(b"head")
    transport.close()
    assert (sent.calls, sent.closed) == ([[b"head"]], True)


def test_a_connection_that_is_gone_is_not_written_to(loop: asyncio.AbstractEventLoop) -> None:
    sent, transport = joined(loop)
    transport.write(b"head")
    sent.closed = True
    transport.write(b"body")
    transport.write(b"head")
    turn(loop)
    assert sent.calls == []


@pytest.mark.parametrize("paused", [False, True])
def test_a_client_is_excused_when_the_server_reads_again(paused: bool) -> None:
    excuses: list[int] = []
    flow = ExcusingFlow(Mock(), lambda: excuses.append(1))
    if paused:
        flow.pause_reading()
    for _ in range(2):
        flow.resume_reading()
    assert len(excuses) == paused


class Spied:
    """A connection's own transport, and which of its methods are called to write."""

    def __init__(self, transport: asyncio.Transport, calls: list[str]) -> None:
        self.transport = transport
        self.calls = calls

    def __getattr__(self, name: str) -> Any:
        if name.startswith("write"):
            self.calls.append(name)
        return getattr(self.transport, name)


def test_the_service_answers_by_one_call(sqlite_api: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def spied(transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> Joining:
        return Joining(Spied(transport, calls), loop)  # type: ignore[arg-type]

    monkeypatch.setattr(wire, "Joining", spied)
    for n in (1, 2):
        assert sqlite_api.get("/healthz").status_code == 200
        assert calls == ["writelines"] * n


CRAWLED = b'{"url":"http://c.example/%d","observed_at":"2026-01-01T00:00:00Z","changed":true}\n'


@pytest.mark.parametrize("wish", [b"h2c", b"websocket", b"TLS/1.0"])
@pytest.mark.parametrize("body", ["with the head", "later", "in chunks"])
def test_a_wish_for_another_protocol_costs_no_body(sqlite_api: Live, wish: bytes, body: str):
    """As `curl --http2` and Java's client send it; a further request follows on the connection."""
    said = b"".join(CRAWLED % page for page in range(3))
    length, sent = b"Content-Length: %d" % len(said), said
    if body == "in chunks":
        length = b"Transfer-Encoding: chunked"
        sent = b"%x\r\n%s\r\n0\r\n\r\n" % (len(said), said)
    head = b"\r\n".join([
        b"POST /observations?register=true HTTP/1.1", b"Host: localhost",
        b"Content-Type: application/x-ndjson", b"Connection: Upgrade, HTTP2-Settings",
        b"Upgrade: " + wish, b"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA", length, b"\r\n",
    ])  # fmt: skip
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", sqlite_api.port), timeout=30) as connection:
        if body == "later":
            connection.sendall(head)
            connection.sendall(sent + last)
        else:
            connection.sendall(head + sent + last)
        answers = b"".join(iter(partial(connection.recv, 65_536), b""))
    first, second = answers.split(b"HTTP/1.1 ")[1:]
    assert first.startswith(b"200")
    assert b'"accepted":3' in first.replace(b" ", b"")
    assert second.startswith(b"200")
    assert sqlite_api.get("/pages", url="http://c.example/2").status_code == 200
