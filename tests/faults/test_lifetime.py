"""How processes begin and end: refused in one sentence, ended cleanly when asked."""

import json
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from support.live_server import PATIENCE_S, until
from support.processes import ENDS_WITHIN_S, command, environment, free_port, run, serving, started

pytestmark = pytest.mark.slow

CLEAN = (0, -signal.SIGTERM)


def told(result) -> str:
    """Give the one sentence that a refused start ends with."""
    assert result.returncode != 0
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_a_server_ends_cleanly_when_asked(sqlite_url, tmp_path):
    with serving(tmp_path, database_url=sqlite_url) as server:
        server.post("/pages", [{"url": "https://a.example/"}])
        began = time.monotonic()
        assert server.terminate() in CLEAN
        assert time.monotonic() - began < ENDS_WITHIN_S
        assert "Traceback" not in server.log.read_text()
    with serving(tmp_path, database_url=sqlite_url) as server:
        found = server.client.get("/pages", params={"url": "https://a.example/"})
        assert found.status_code == 200


def test_a_server_ends_in_time_whoever_is_half_way(sqlite_url, tmp_path):
    half = b"POST /observations HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n[{"
    with serving(tmp_path, database_url=sqlite_url) as server:
        at = server.client.base_url.host, server.client.base_url.port
        with socket.create_connection(at) as one, socket.create_connection(at) as two:
            for connection in (one, two):
                connection.sendall(half)
            server.post("/pages", [{"url": "https://a.example/"}])
            assert server.terminate() in CLEAN
        told = server.log.read_text()
        assert "timeout graceful shutdown exceeded" in told
        assert "Traceback" not in told


def test_a_worker_ends_cleanly_when_asked(postgres_url, tmp_path):
    with (
        serving(tmp_path, wait=False, database_url=postgres_url) as server,
        started(tmp_path, "worker", database_url=postgres_url) as worker,
    ):
        until(server.ready, "the server is ready")
        server.post("/pages", [{"url": "https://a.example/"}])
        until(lambda: server.client.get("/epochs/latest").status_code == 200, "the first epoch")
        began = time.monotonic()
        assert worker.terminate() in CLEAN
        assert server.terminate() in CLEAN
        assert time.monotonic() - began < ENDS_WITHIN_S
        for process in (worker, server):
            assert "Traceback" not in process.log.read_text()
        events = [json.loads(line)["event"] for line in worker.log.read_text().splitlines()]
    assert events[0] == "worker started"
    assert "this process leads: epoch started" in events
    assert events[-1] == "worker ended"


@pytest.mark.parametrize(
    ("arguments", "begun"),
    [
        (("demo", "--live"), "serves at"),
        (("demo", "--pages", "5000"), "serves at"),
        (("demo", "--serve", "--pages", "50", "--days", "2"), "console is at"),
        (("replay", "--pages", "5000", "--days", "2000", "--processes", "2"), ""),
    ],
)
def test_a_show_that_is_told_to_end_leaves_nothing_behind(tmp_path, arguments, begun):
    """Whatever it has begun holds its standard error, which would not end before."""
    with subprocess.Popen(
        command(*arguments),
        env=environment() | {"TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as show:
        if begun:
            said = iter(show.stderr.readline, "")
            assert any(begun in line for line in said)
        else:
            until(lambda: len(children(show.pid)) > 1, "processes that play, beside a tracker")
        show.terminate()
        _, rest = show.communicate(timeout=PATIENCE_S)
    assert show.returncode == 128 + signal.SIGTERM
    if begun:  # a process that is ended as it comes to life says so itself
        assert "Traceback" not in rest
    assert not list(tmp_path.glob("recrawl-demo-*"))


def children(pid: int) -> list[str]:
    """Give the processes that a process has begun."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_a_postgres_without_the_schema_is_refused_until_migrated(empty_postgres_url, tmp_path):
    sentence = told(run(tmp_path, "serve", database_url=empty_postgres_url))
    assert "run `recrawl migrate`" in sentence
    migrated = run(tmp_path, "migrate", database_url=empty_postgres_url)
    assert migrated.returncode == 0, migrated.stderr
    with serving(tmp_path, database_url=empty_postgres_url) as server:
        assert server.ready()


def test_a_port_in_use_is_refused(sqlite_url, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sentence = told(run(tmp_path, "serve", "--port", str(port), database_url=sqlite_url))
    assert "the port is in use" in sentence


def test_an_interrupted_server_leaves_its_port_free(sqlite_url, tmp_path):
    port = free_port()
    arguments = ("serve", "--port", str(port))
    for _ in range(2):
        with started(tmp_path, *arguments, database_url=sqlite_url) as server:
            until(lambda: listens(port), "the server listens")
            server.popen.send_signal(signal.SIGINT)
            assert server.popen.wait(ENDS_WITHIN_S) in (0, -signal.SIGINT, 130)
            assert "Traceback" not in server.log.read_text()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
