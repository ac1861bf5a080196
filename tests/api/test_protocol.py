"""The protocol of a connection: flow control, and requests that ask for another protocol."""

import socket
from functools import partial
from unittest.mock import Mock, call

import pytest
from support.live_server import PATIENCE_S, Live

from service.api.protocol import ExcusingFlow


@pytest.mark.parametrize("paused", [False, True])
def test_a_client_is_excused_when_the_server_reads_again(paused: bool) -> None:
    arrival = Mock()
    flow = ExcusingFlow(Mock(), arrival, lambda: 7.0)
    if paused:
        flow.pause_reading()
    for _ in range(2):
        flow.resume_reading()
    assert arrival.excuse.call_args_list == [call(7.0)] * paused


CRAWLED = b'{"url":"http://c.example/%d","observed_at":"2026-01-01T00:00:00Z","changed":true}\n'


@pytest.mark.sampled(4)
@pytest.mark.parametrize("wish", [b"h2c", b"websocket", b"TLS/1.0"])
@pytest.mark.parametrize("body", ["with the head", "later", "in chunks"])
def test_a_wish_for_another_protocol_costs_no_body(sqlite_api: Live, wish: bytes, body: str):
    """As `curl --http2` and Java's client send it; a further request follows on the connection."""
    sent_lines = b"".join(CRAWLED % page for page in range(3))
    length, sent = b"Content-Length: %d" % len(sent_lines), sent_lines
    if body == "in chunks":
        length = b"Transfer-Encoding: chunked"
        sent = b"%x\r\n%s\r\n0\r\n\r\n" % (len(sent_lines), sent_lines)
    head = b"\r\n".join(
        [
            b"POST /observations?register=true HTTP/1.1",
            b"Host: localhost",
            b"Content-Type: application/x-ndjson",
            b"Connection: Upgrade, HTTP2-Settings",
            b"Upgrade: " + wish,
            b"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA",
            length,
            b"\r\n",
        ]
    )
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", sqlite_api.port), timeout=PATIENCE_S) as connection:
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
