"""More connections than a server may have: some are closed, and health is always answered."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import httpx
import pytest
from support.live_server import PATIENCE_S, Live, running, until
from support.processes import Serving, serving

from service.api.responses.problems import TYPES
from service.api.server import MAX_CONNECTIONS, connections_within

pytestmark = pytest.mark.dear

HALF_HEAD = b"GET /healthz HTT"
POLL = b'GET /schedule?wait_s=30 HTTP/1.1\r\nHost: x\r\nIf-None-Match: W/"epoch-0"\r\n\r\n'
HALF_BODY = b"POST /pages HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n["
KINDS = {"silent": [b""], "half a head": [HALF_HEAD], "half a body": [HALF_BODY]}
KINDS["all"] = [kind for kinds in KINDS.values() for kind in kinds]


@pytest.fixture
def small(sqlite_url: str) -> Iterator[Live]:
    """A service that has four connections and those for health."""
    with running(sqlite_url, max_connections=4) as live:
        yield live


def opened(port: int, crowd: ExitStack, begun: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    crowd.enter_context(connection)
    with suppress(ConnectionError):  # a server that is full may have closed it
        connection.sendall(begun)
    return connection


def answers(port: int, path: str) -> int:
    """Return the status of a request on a connection of its own."""
    return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S).status_code


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False


@pytest.mark.parametrize("begun", [b"", HALF_HEAD])
def test_those_that_wait_the_longest_make_room(small: Live, begun: bytes):
    with ExitStack() as crowd:
        first = [opened(small.port, crowd, begun) for _ in range(3)]
        time.sleep(0.05)
        more = [opened(small.port, crowd, begun) for _ in range(3)]
        until(lambda: sum(map(is_closed, first)) >= 2, "the older ones are closed")
        assert not any(map(is_closed, more))
        assert answers(small.port, "/pages/1") == 404


def test_a_request_at_work_makes_no_room(small: Live):
    """Later connections are refused, but for health."""
    watch = small.service.watch
    until(lambda: watch.in_force == 0, "the watch has looked")
    with ExitStack() as crowd:
        polls = [opened(small.port, crowd, POLL) for _ in range(4)]
        until(lambda: watch.n_waiting == 4, "all wait for an epoch")
        refused = httpx.get(f"{small.url}/pages/1")
        assert [answers(small.port, path) for path in ("/healthz", "/readyz")] == [200, 200]
        watch.note_newest(1)
        assert [poll.recv(12) for poll in polls] == 4 * [b"HTTP/1.1 200"]
    assert refused.status_code == 503
    assert refused.json()["type"] == f"{TYPES}too-many-connections"
    expected = {"retry-after": "5", "connection": "close", "x-content-type-options": "nosniff"}
    assert refused.headers.items() >= expected.items()
    assert answers(small.port, "/pages/1") == 404


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server process that may open 64 files."""
    with serving(tmp_path_factory.mktemp("poor"), n_descriptors=64) as server:
        yield server


@pytest.mark.dear
@pytest.mark.sampled(2)
@pytest.mark.parametrize("n", [120, 600])
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_of_few_descriptors_answers_for_its_health(poor: Serving, kind: str, n: int):
    kinds, port = KINDS[kind], poor.client.base_url.port
    assert port
    with ExitStack() as crowd:
        for i in range(n):
            opened(port, crowd, kinds[i % len(kinds)])
            if i % 60 == 0:
                assert answers(port, "/healthz") == 200
        assert answers(port, "/readyz") == 200
    assert "Traceback" not in poor.log.read_text()


def test_the_log_names_a_limit_that_is_low(poor: Serving):
    assert "raise ulimit -n" in poor.log.read_text()


@pytest.mark.parametrize("limit", [16, 64, 256, 1_024, 65_536, 1 << 30])
def test_descriptors_are_left_for_the_database(limit: int):
    n_open = 15
    n = connections_within(limit, n_open)
    assert 1 <= n <= MAX_CONNECTIONS
    assert n == 1 or limit - n_open - n >= min(64, (limit - n_open) * 2 // 3)
