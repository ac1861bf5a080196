"""Behind a proxy: both spellings of a path without a redirect, headers of trusted proxies alone."""

import threading

import httpx
import pytest
import uvicorn
from support.live_server import Live, until

from service.api.app import ROUTERS
from service.api.assembly import open_service
from service.api.route import DirectRoute
from service.cli.serving import server_config
from service.runtime.settings import read_settings

KEY = "0123abcd-4567-ef89"
FORWARDED = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https"}
PATHS = sorted(
    route.path
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, DirectRoute) and "GET" in route.methods
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("path", PATHS)
def test_a_slash_at_the_end_changes_no_answer(sqlite_api: Live, path):
    names = {"subscription_id": "s", "host": "h", "group": "g", "key_id": "0" * 10}
    names |= {"webhook_id": "x" * 22}
    path = path.format(page_id=1, epoch=1, lease="1-a", **names)
    plain, slashed = (sqlite_api.client.get(spelt) for spelt in (path, f"{path}/"))
    assert slashed.status_code == plain.status_code
    assert slashed.headers["Content-Type"] == plain.headers["Content-Type"]
    if path != "/metrics":
        assert slashed.json() == plain.json()


def test_indexnow_is_taken_with_a_slash(sqlite_api: Live):
    sqlite_api.service.gate.shared = True
    body = {"host": "a.example", "key": KEY, "urlList": ["https://a.example/1"]}
    posted = sqlite_api.client.post("/indexnow/", json=body, headers=FORWARDED)
    assert (posted.status_code, posted.json()["n_taken"]) == (200, 1)
    asked = sqlite_api.client.get("/indexnow/", params={"url": "https://a.example/2", "key": KEY})
    assert (asked.status_code, asked.json()["n_taken"]) == (200, 1)


@pytest.mark.parametrize("path", ["/docs/", "/openapi.json/"])
def test_the_documentation_is_found_with_a_slash(sqlite_api: Live, path):
    assert sqlite_api.get(path).status_code == 200


@pytest.mark.parametrize("path", ["/indexnow//", "//indexnow", "/no/such/path/"])
def test_other_spellings_are_not_found_and_not_redirected(sqlite_api: Live, path):
    assert sqlite_api.client.request("GET", sqlite_api.url + path).status_code == 404


def callers_of(database_url, proxies):
    """Return scheme and address of a caller as `recrawl serve` sees them, over a real socket."""
    settings = read_settings(database_url=database_url, trusted_proxies=proxies)
    service = open_service(settings)
    config = server_config(service, settings, "127.0.0.1", 0)
    app, callers = config.app, []

    async def recording(scope, receive, send):
        if scope["type"] == "http":
            callers.append((scope["scheme"], scope["client"][0]))
        await app(scope, receive, send)

    config.app = recording
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started, "the server starts")
        port = server.servers[0].sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/healthz"
        assert httpx.get(url, headers=FORWARDED).status_code == 200
    finally:
        server.should_exit = True
        thread.join()
    return callers


@pytest.mark.parametrize("proxies", ["127.0.0.1", "10.0.0.1, 127.0.0.0/8"])
def test_a_trusted_proxy_names_the_caller_and_its_scheme(sqlite_url, proxies):
    assert callers_of(sqlite_url, proxies) == [("https", "203.0.113.7")]


@pytest.mark.parametrize("proxies", ["", "10.0.0.1", "203.0.113.0/24"])
def test_headers_of_others_do_not_count(sqlite_url, proxies, monkeypatch):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # uvicorn's own
    assert callers_of(sqlite_url, proxies) == [("http", "127.0.0.1")]
