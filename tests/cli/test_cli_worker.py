"""The port of a worker: none by default, health and metrics behind the keys of the service."""

import re
import socket

import httpx
import pytest
import sqlalchemy as sa
from support.live_server import command, until
from support.processes import free_port, started

KEY = "a-key-of-twenty-characters-or-more"
END_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'"
OTHERS = {"X-Forwarded-For": "203.0.113.7"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_worker_that_others_reach_is_not_started_without_keys(recrawl, host):
    ended = recrawl("worker", "--host", host, "--port", 0)
    assert ended.status == 2
    assert "set RECRAWL_API_KEYS, or RECRAWL_OPEN=true to allow" in " ".join(ended.err.split())


def test_a_port_in_use_is_refused_before_any_round(recrawl, sqlite_url):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = recrawl("worker", "--port", port, database_url=sqlite_url)
    assert ended.status == 2
    assert f"cannot listen on 127.0.0.1:{port}: the port is in use" in " ".join(ended.err.split())


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.slow
def test_a_worker_answers_for_itself_while_its_database_is_away(
    tmp_path, postgres_url, postgres_server
):
    port, name = free_port(), sa.make_url(postgres_url).database
    url = f"http://127.0.0.1:{port}"
    settings = {"database_url": postgres_url, "api_keys": KEY}
    with started(tmp_path, "worker", "--port", str(port), **settings) as worker:
        until(lambda: answers(url), "the worker is ready")
        with httpx.Client(base_url=url) as client:
            assert client.get("/healthz").json()["status"] == "ok"
            text = client.get("/metrics").text
            assert "recrawl_up 1.0" in text
            assert re.search(
                r'^recrawl_build_info{.*database="postgres".*} 1.0$', text, re.MULTILINE
            )
            (memory,) = re.findall(r"^process_resident_memory_bytes (\S+)$", text, re.MULTILINE)
            assert float(memory) > 1e7
            for path, status in (("/metrics", 401), ("/pages", 404), ("/docs", 404)):
                refused = client.get(path, headers=OTHERS)
                assert refused.status_code == status
                assert refused.headers["Content-Type"] == "application/problem+json"
            shown = {**OTHERS, "Authorization": f"Bearer {KEY}"}
            assert client.get("/metrics", headers=shown).status_code == 200

            command(postgres_server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            command(postgres_server, END_SESSIONS.format(name))
            try:
                assert client.get("/healthz").status_code == 200
                assert client.get("/readyz").status_code == 503
                text = client.get("/metrics").text
                assert "recrawl_up 0.0" in text
                assert "recrawl_epoch_failed 0.0" in text
            finally:
                command(postgres_server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            until(lambda: answers(url), "the worker is ready again")
        assert worker.terminate() == 0
        assert "Traceback" not in worker.log.read_text()
