"""Pages of a listed origin read every answer of the service, its errors too."""

import socket
from functools import partial
from typing import Any

import pytest
from support.access_cases import ADMIN, bearer
from support.chromium import chromium
from support.live_server import PATIENCE_S, Live, running, until
from support.local_site import page, serving

from service.api import protocol
from service.model.errors import StoreUnavailable

ORIGIN = "https://console.example"
OTHER = "https://other.example"
JSON = {"Content-Type": "application/json"}
SMALL = 2_000


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """A service with a key that lists one origin."""
    url = f"sqlite:///{tmp_path_factory.mktemp('listed') / 'recrawl.db'}"
    options = {"api_keys": [ADMIN], "cors_origins": ORIGIN, "max_body_bytes": SMALL}
    with running(url, **options) as live:
        yield live


def asked(live: Live, method: str, path: str, origin: str = ORIGIN, **sent: Any):
    headers = {"Origin": origin, **sent.pop("headers", {})}
    return live.client.request(method, path, headers=headers, **sent)


def shown(answer) -> bool:
    """Return whether a browser shows an answer to the page; the headers must be there once."""
    names = answer.headers.get_list("access-control-allow-origin")
    assert len(names) <= 1
    if names:
        exposed = answer.headers["access-control-expose-headers"]
        assert {"Retry-After", "RateLimit", "X-Request-ID"} <= set(exposed.split(", "))
        assert "Origin" in answer.headers["vary"]
    return names == [ORIGIN]


CASES = {
    "not JSON": (400, "POST", "/pages", {"content": b"{", "headers": JSON}),
    "no key": (401, "GET", "/epochs", {"headers": {"Authorization": "Bearer none"}}),
    "no path": (404, "GET", "/nowhere", {}),
    "no page": (404, "GET", "/pages/9", {}),
    "no method": (405, "PUT", "/pages", {}),
    "no media type": (406, "GET", "/schedule", {"headers": {"Accept": "image/png"}}),
    "long body": (413, "POST", "/pages", {"content": b"[" + b" " * SMALL, "headers": JSON}),
    "other body": (415, "POST", "/pages", {"content": b"x", "headers": {"Content-Type": "a/b"}}),
    "other coding": (
        415,
        "POST",
        "/pages",
        {"content": b"[]", "headers": {**JSON, "Content-Encoding": "br"}},
    ),
    "bad parameter": (422, "GET", "/pages?limit=0", {}),
    "console": (303, "GET", "/console/nowhere", {}),
    "no fault": (200, "GET", "/epochs", {}),
}


@pytest.mark.parametrize("name", CASES)
def test_an_answer_is_shown_to_the_listed_origin_and_to_no_other(listed, name):
    status, method, path, sent = CASES[name]
    answer = asked(listed, method, path, **sent)
    assert (answer.status_code, shown(answer)) == (status, True)
    answer = asked(listed, method, path, OTHER, **sent)
    assert (answer.status_code, shown(answer)) == (status, False)


@pytest.mark.parametrize(("error", "status"), [(LookupError("x"), 500), (StoreUnavailable(), 503)])
def test_faults_and_outages_are_shown(listed, monkeypatch, error, status):
    def broken(**_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(listed.service.store, "begin", broken)
        answers = [asked(listed, "GET", "/pages/9", origin) for origin in (ORIGIN, OTHER)]
    assert [answer.status_code for answer in answers] == [status, status]
    assert [shown(answer) for answer in answers] == [True, False]


def test_a_limit_is_shown_with_the_wait(listed):
    made = listed.post("/keys", {"name": "slow", "role": "report", "items_per_s": 0.001}).json()
    sent = {"json": [{"url": "https://a.example/"}], "headers": bearer(made["key"])}
    first, second = (asked(listed, "POST", "/pages", **sent) for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 429)
    assert shown(first)
    assert shown(second)
    assert {"retry-after", "ratelimit", "ratelimit-policy"} <= second.headers.keys()


def raw(live: Live, *pieces: bytes) -> bytes:
    """Return the head of the answer to bytes."""
    with socket.create_connection(("127.0.0.1", live.port), timeout=PATIENCE_S) as connection:
        for piece in pieces:
            connection.sendall(piece)
        answer = b"".join(iter(partial(connection.recv, 65_536), b""))
    return answer.partition(b"\r\n\r\n")[0].lower()


LINE = b"POST /pages HTTP/1.1\r\nHost: x\r\nOrigin: %b\r\nAuthorization: Bearer "
LINE += ADMIN.encode() + b"\r\n"
UNREADABLE = {
    501: b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    400: b"Bad Header: 1\r\n\r\n",
    408: b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n[",
}


@pytest.mark.parametrize("status", UNREADABLE)
def test_what_the_server_itself_refuses_is_shown(listed, monkeypatch, status):
    for name in ("HEAD_S", "BODY_GRACE_S"):
        monkeypatch.setattr(protocol, name, 0.1)
    monkeypatch.setattr(protocol, "RECHECK_S", 0.01)
    monkeypatch.setattr(protocol, "MAX_PAUSE_S", 0.1)
    head = raw(listed, LINE % ORIGIN.encode() + UNREADABLE[status])
    assert head.startswith(b"http/1.1 %d" % status)
    assert b"access-control-allow-origin: %b" % ORIGIN.encode() in head.splitlines()
    head = raw(listed, LINE % OTHER.encode() + UNREADABLE[status])
    assert head.startswith(b"http/1.1 %d" % status)
    assert b"access-control" not in head


def test_a_full_server_is_shown(sqlite_url):
    with (
        running(sqlite_url, cors_origins=ORIGIN, max_connections=1) as live,
        socket.create_connection(("127.0.0.1", live.port)) as busy,
    ):
        busy.sendall(b"POST /pages HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
        until(lambda: asked(live, "GET", "/epochs").status_code == 503, "the server is full")
        answer = asked(live, "GET", "/epochs")
    assert answer.json()["title"] == "Too many connections"
    assert shown(answer)


def test_a_preflight_allows_the_headers_of_traces(listed):
    wanted = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,traceparent,tracestate,idempotency-key",
    }
    answer = asked(listed, "OPTIONS", "/leases", headers=wanted)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, ORIGIN)
    allowed = answer.headers["access-control-allow-headers"].lower()
    assert {"traceparent", "tracestate"} <= {name.strip() for name in allowed.split(",")}
    assert asked(listed, "OPTIONS", "/leases", OTHER, headers=wanted).status_code == 400


READ = """async ([url, path, method, body]) => {
    const headers = {traceparent: `00-${"1".repeat(32)}-${"2".repeat(16)}-01`};
    const answer = await fetch(url + path, {method, body, headers});
    const shown = answer.headers.get("X-Request-ID") !== null;
    return [answer.status, shown, (await answer.json()).title];
}"""


@pytest.mark.dear
def test_a_browser_reads_the_errors_from_a_page_of_another_origin(sqlite_url):
    with serving({"/": page("<title>a page of another origin</title>")}) as site:
        options = {"cors_origins": site.url("", "localhost"), "api_keys": [ADMIN]}
        with running(sqlite_url, **options) as live, chromium() as browser:
            window = browser.new_page()
            window.goto(site.url("/", "localhost"))
            ask = partial(window.evaluate, READ)
            assert ask([live.url, "/epochs", "GET", None]) == [401, True, "Unauthorized"]
            assert ask([live.url, "/nowhere", "GET", None]) == [404, True, "Not found"]
