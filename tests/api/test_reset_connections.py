"""A connection that its client resets frees its objects at once, without a collection."""

import gc
import socket
import time

import pytest
from support.live_server import PATIENCE_S, Live, until

from service.api.protocol import BoundedConnection

HEAD = b"POST /pages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
WAITING = b"POST /leases HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n" + b'{"wait_s":0.1}'
STAGES = {
    "silent": b"",
    "within the head": b"GET /healthz HT",
    "within the body": HEAD + b"Content-Length: 100\r\n\r\n[",
    "before a body": HEAD + b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n",
    "idle after an answer": GET,
    "idle after an upgrade": GET[:-2] + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    "before its answer": WAITING,
    "with requests in a row": WAITING * 3,
}
N = 20


def n_connections() -> int:
    return sum(type(each) is BoundedConnection for each in gc.get_objects())


def visited(live: Live, sent: bytes) -> None:
    """Open a connection, send, read an answer that comes at once, and reset."""
    with socket.create_connection(("127.0.0.1", live.port), timeout=PATIENCE_S) as connection:
        connection.sendall(sent)
        if sent.startswith(GET[:-2]) or b"Expect" in sent:
            assert connection.recv(65_536)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


@pytest.mark.parametrize("stage", STAGES)
def test_a_reset_connection_frees_its_objects_at_once(sqlite_api: Live, stage):
    sqlite_api.client.close()
    until(lambda: n_connections() == 0, "the own connection is closed")
    gc.disable()
    try:
        started = time.monotonic()
        for _ in range(N):
            visited(sqlite_api, STAGES[stage])
        until(lambda: n_connections() == 0, "all objects are free", patience_s=10)
        assert time.monotonic() - started < 4.5, "they stayed until a timer of 5 s"
    finally:
        gc.enable()
