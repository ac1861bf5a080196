"""The nginx of the page on proxies, run with its own lines; from apt, so external."""

import re
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from support.access_cases import ADMIN, bearer
from support.chromium import Watched, chromium
from support.image import finish
from support.live_server import until
from support.local_site import page
from support.local_site import serving as serving_site
from support.nginx import program
from support.pages import DOCS, block, terminal
from support.processes import ROOT, free_port, running_python

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
def proxied(folder: Path, service: str, allowed: str, more: str = "") -> Iterator[httpx.Client]:
    """Run nginx with the lines of the page; names, port, addresses and keys are this machine's.

    `more` stands in the server too.
    """
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
    server = f"{server.rstrip().removesuffix('}')}{more}}}"
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


@contextmanager
def serving(folder: Path, **settings: str) -> Iterator[str]:
    """Run the service with the setting of the page and others; yield its address."""
    name, _, value = block(PAGE, ".env").text.strip().partition("=")
    assert name == "RECRAWL_TRUSTED_PROXIES"
    with terminal("recrawl serve --port 0", folder, trusted_proxies=value, **settings) as log:
        printed = until(lambda: re.search(r"serves at (\S+)", log.read_text()), "it serves")
        yield printed[1]


@pytest.fixture
def service(tmp_path) -> Iterator[str]:
    """The address of a service with a key, which sites may take the place of."""
    with serving(tmp_path, api_keys=ADMIN, indexnow_check="true") as url:
        yield url


def test_large_bodies_and_streams_pass_the_proxy(tmp_path, service):
    with proxied(tmp_path, service, "allow 127.0.0.0/8;") as client:
        assert client.get("/readyz").status_code == 200
        assert client.get("/pages").status_code == 401
        client.headers.update(bearer(ADMIN))
        pages = [{"url": f"https://example.com/{i}/{'x' * 900}"} for i in range(2_000)]
        answer = client.post("/pages", json=pages)
        assert int(answer.request.headers["content-length"]) > A_MEGABYTE
        assert answer.json()["created"] == 2_000
        assert client.post("/epochs", params={"wait_s": 30}).json()["status"] == "published"
        with client.stream("GET", "/schedule", headers={"Accept": "application/x-ndjson"}) as lines:
            assert sum(1 for _ in lines.iter_lines()) == 2_000


def test_strangers_reach_two_paths_over_tls_and_no_other(tmp_path, service):
    with proxied(tmp_path, service, INSIDE) as client:
        refused = client.get("/pages")
        assert refused.status_code == 403
        assert refused.headers["server"].startswith("nginx"), "the proxy refuses, not the service"
        for path in ("/indexnow", "/indexnow/"):
            answer = client.get(path, params={"url": "https://example.com/a", "key": "a" * 8})
            assert answer.status_code in (200, 202)
            assert not answer.is_redirect
        assert client.get("/websub/unknown").status_code == 404


LOCATION = block(PAGE, "a location for the path").text
SPELLINGS = {"left": LOCATION, "removed": LOCATION.replace("//recrawl;", "//recrawl/;")}


WITH_KEY = f"""
import os, runpy, sys
os.environ["RECRAWL_API_KEY"] = {ADMIN!r}
sys.argv[:1] = []
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Program that runs the example with a key: processes of tests have no variables of ours."""


@pytest.mark.parametrize("path", SPELLINGS)
def test_a_service_below_a_path_is_used_as_one_at_the_root(tmp_path, monkeypatch, path):
    name, _, root = block(PAGE, ".env of a service below a path").text.strip().partition("=")
    assert name == "RECRAWL_ROOT_PATH"
    assert len({*SPELLINGS.values()}) == 2
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    pages = {"/robots.txt": page(""), "/": page("home"), "/news": page("news")}
    with (
        serving_site(pages) as site,
        serving(tmp_path, root_path=root, api_keys=ADMIN) as service,
        proxied(tmp_path, service, "allow 127.0.0.0/8;", SPELLINGS[path]) as client,
    ):
        url = f"{client.base_url}{root}"
        client.headers["Authorization"] = f"Bearer {ADMIN}"
        client.post(f"{root}/pages", json=[{"url": site.url(each)} for each in ("/", "/news")])
        first = client.get(f"{root}/pages", params={"limit": 1})
        assert client.get(first.links["next"]["url"]).json()["items"][0]["page_id"] == 2
        epoch = client.post(f"{root}/epochs")
        assert client.get(epoch.headers["Location"]).status_code == 200

        with running_python(tmp_path, "-c", WITH_KEY, ROOT / "examples" / "crawler.py", url):
            until(
                lambda: all(
                    client.get(f"{root}/pages/{n}").json()["last_crawl_at"] for n in (1, 2)
                ),
                "the example crawls through the proxy",
            )

        with chromium() as browser:
            window = Watched(browser, str(client.base_url), ignore_https_errors=True)
            asked: list[str] = []
            window.page.on("request", lambda request: asked.append(request.url))
            window.page.goto(f"{root}/")
            window.page.get_by_label("API key").fill(ADMIN)
            window.page.get_by_role("button", name="Sign in").click()
            for name in ("Pages", "Hosts", "Epochs", "Access", "Overview"):
                window.page.get_by_role("link", name=name, exact=True).first.click()
                window.page.wait_for_load_state("networkidle")
                assert "/console" in window.page.url
            window.page.goto(f"{root}/docs")
            assert window.page.get_by_text("Sign in").count() == 0
        outside = [each for each in asked if not each.startswith(f"{url}/")]
        assert outside == []
