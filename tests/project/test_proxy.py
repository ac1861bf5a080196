"""The nginx of the page on proxies, run with its own lines; from apt, so external."""

import re
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from support.image import finish
from support.live_server import until
from support.nginx import program
from support.pages import DOCS, block, terminal
from support.processes import free_port

pytestmark = pytest.mark.external

PAGE = (DOCS / "how-to" / "reverse-proxy.md").read_text()
WHOLE = """
daemon off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/answers;
    {server}
}}
"""
INSIDE = "allow 10.0.0.0/8;"
A_MEGABYTE = 1_000_000


@contextmanager
def proxied(folder: Path, service: str, allowed: str) -> Iterator[httpx.Client]:
    """Run nginx with the lines of the page; names, port, addresses and keys are this machine's."""
    port, key, certificate = free_port(), folder / "key.pem", folder / "certificate.pem"
    finish(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
        f" -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}".split()
    )
    server = block(PAGE, "/etc/nginx/conf.d/recrawl.conf").text
    here = {
        "127.0.0.1:8000": service.removeprefix("http://"),
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "recrawl.example.org": "localhost",
        "/etc/ssl/recrawl.pem": str(certificate),
        "/etc/ssl/recrawl.key": str(key),
        INSIDE: allowed,
    }
    for name, value in here.items():
        assert name in server
        server = server.replace(name, value)
    file = folder / "nginx.conf"
    file.write_text(WHOLE.format(folder=folder, server=server))
    process = subprocess.Popen([program(), "-c", str(file), "-p", str(folder)])
    trusted = ssl.create_default_context(cafile=str(certificate))
    try:
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trusted) as client:
            until(lambda: answers(client), "nginx serves")
            yield client
    finally:
        process.terminate()
        process.wait()


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/").status_code > 0
    except httpx.TransportError:
        return False


@pytest.fixture
def service(tmp_path) -> Iterator[str]:
    name, _, value = block(PAGE, ".env").text.strip().partition("=")
    assert name == "RECRAWL_TRUSTED_PROXIES"
    with terminal("recrawl serve --port 0", tmp_path, trusted_proxies=value) as log:
        printed = until(lambda: re.search(r"serves at (\S+)", log.read_text()), "it serves")
        yield printed[1]


def test_large_bodies_and_streams_pass_the_proxy(tmp_path, service):
    with proxied(tmp_path, service, "allow 127.0.0.0/8;") as client:
        assert client.get("/readyz").status_code == 200
        pages = [{"url": f"https://example.com/{i}/{'x' * 900}"} for i in range(2_000)]
        answer = client.post("/pages", json=pages)
        assert int(answer.request.headers["content-length"]) > A_MEGABYTE
        assert answer.json()["created"] == 2_000
        assert client.post("/epochs", params={"wait_s": 30}).json()["status"] == "published"
        with client.stream("GET", "/schedule", headers={"Accept": "application/x-ndjson"}) as lines:
            assert sum(1 for _ in lines.iter_lines()) == 2_000


def test_strangers_reach_two_paths_over_tls_and_no_other(tmp_path, service):
    with proxied(tmp_path, service, INSIDE) as client:
        assert client.get("/pages").status_code == 403
        for path in ("/indexnow", "/indexnow/"):
            answer = client.get(path, params={"url": "https://example.com/a", "key": "a" * 8})
            assert answer.status_code in (200, 202)
            assert not answer.is_redirect
        assert client.get("/websub/unknown").status_code == 404
