"""Addresses with odd answers: each request is listed, and each failure waits before the next."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest
from structlog.testing import capture_logs
from support.live_server import Clock, running
from support.odd_answers import answering, drips, floods, resets, sends, silent

from service.connectors.guarded import FetchLimits, guarded_client
from service.events import courier
from service.events.posting import Poster

LIMITS = FetchLimits(seconds=120.0, max_bytes=65_536)
"""Limits of answers that end at once, however busy the machine is."""
ENDLESS_S = 2.0
"""Deadline of answers that never end, seconds."""
ENDLESS_HOST = "127.0.0.2"
"""Address of the server for answers that never end."""
EMPTY = b"Content-Length: 0\r\n\r\n"
HINTS = b"HTTP/1.1 102 Wait\r\n" + b"X: %s\r\n" % (b"a" * 2_000) * 2 + b"\r\n"


def status(code, *headers: bytes, line: bytes = b"X") -> bytes:
    head = b"HTTP/1.1 %s %s\r\n" % (str(code).encode(), line)
    return head + b"".join(header + b"\r\n" for header in headers) + EMPTY


def moved(code, location: bytes):
    return sends(status(code, b"Location: " + location))


def later(value: bytes):
    return sends(status(429, b"Retry-After: " + value))


REDIRECTS = {
    f"{code} {name}": (moved(code, location), code, f"redirect to {shown}")
    for code in (301, 302, 303, 307, 308)
    for name, location, shown in (
        ("absolute", b"https://x.test/", "https://x.test/"),
        ("relative", b"/next?a=b", "/next?a=b"),
        ("malformed", b"http://[::1", "http://[::1"),
        ("bad port", b"https://x.test:999999/", "https://x.test:999999/"),
        ("bad scheme", b"javascript:alert(1)", "javascript:alert(1)"),
        ("bytes", b"https://x.test/\xff\x01\x7f", "https://x.test/\xff\ufffd\ufffd"),
        ("long", b"https://x.test/" + b"a" * 60_000, "https://x.test/aaa"),
    )
    if code == 302 or name in ("absolute", "malformed")
}
FAILURES = REDIRECTS | {
    "301 none": (sends(status(301)), 301, None),
    "302 empty Location": (moved(302, b""), 302, "without a Location"),
    "300": (moved(300, b"/x"), 300, "redirect to /x"),
    "304": (sends(b"HTTP/1.1 304 X\r\nLocation: /x\r\n\r\n"), 304, "redirect to /x"),
    "304 bare": (sends(b"HTTP/1.1 304 X\r\n\r\n"), 304, None),
    "302 endless": (floods(b"HTTP/1.1 302 X\r\nLocation: /y\r\n\r\n", b"x" * 999), 302, "to /y"),
    "302 gzip": (
        sends(b"HTTP/1.1 302 X\r\nLocation: /z\r\nContent-Encoding: gzip\r\n\r\nno gzip"),
        302,
        "to /z",
    ),
    "999": (sends(status(999)), 999, None),
    "600": (sends(status(600)), 600, None),
    "000": (sends(status("000")), None, "not valid HTTP"),
    "099": (sends(status("099")), None, "not valid HTTP"),
    "1000": (sends(status(1000)), None, "not valid HTTP"),
    "status of letters": (sends(status("abc")), None, "not valid HTTP"),
    "101": (
        sends(b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
        None,
        "not valid",
    ),
    "426": (sends(status(426, b"Upgrade: h2c", b"Connection: upgrade")), 426, None),
    "reason of bytes": (sends(status(500, line=b"\xff\xfe\x80")), 500, None),
    "no reason": (sends(b"HTTP/1.1 503\r\n" + EMPTY), 503, None),
    "1xx flood": (floods(b"", HINTS), None, "head has over"),
    "1xx drip": (drips(b"", b"HTTP/1.1 102 Wait\r\n\r\n"), None, "no complete answer"),
    "1xx then none": (sends(b"HTTP/1.1 103 Hints\r\n\r\n"), None, "without an answer"),
    "garbage": (sends(b"\x16\x03\x01\x02\x00\x01\xff\x00"), None, "not valid HTTP"),
    "text": (sends(b"hello\r\n\r\n"), None, "not valid HTTP"),
    "endless line": (floods(b"", b"x" * 9_999), None, "head of the answer is too long"),
    "HTTP/0.9": (sends(b"<html>ok</html>"), None, "without an answer"),
    "HTTP/2": (sends(b"HTTP/2 200\r\n" + EMPTY), None, "not valid HTTP"),
    "empty": (sends(b""), None, "closed the connection without an answer"),
    "half a head": (sends(b"HTTP/1.1 200 OK\r\nContent-"), None, "without an answer"),
    "reset": (resets(b""), None, ""),
    "reset in the head": (resets(b"HTTP/1.1 200 OK\r\n"), None, ""),
    "reset in the body": (resets(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"), None, ""),
    "silent": (silent, None, f"no complete answer after {ENDLESS_S:g} s"),
    "drip of the head": (drips(b"HTTP/1.1 200 OK\r\nX: ", b"x"), None, "no complete answer"),
    "drip of the body": (
        drips(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x"),
        200,
        "no complete answer",
    ),
    "drip of a refusal": (drips(b"HTTP/1.1 422 X\r\n\r\n", b"x"), 422, "no complete answer"),
    "drip of gone": (drips(b"HTTP/1.1 410 X\r\n\r\n", b"x"), 410, "no complete answer"),
    "drip of chunks": (
        drips(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        200,
        "no complete answer",
    ),
    "header without colon": (sends(status(200, b"bad header line")), None, "not valid HTTP"),
    "header with NUL": (sends(status(200, b"X: a\x00b")), None, "not valid HTTP"),
    "header of 200 KB": (sends(status(200, b"X: " + b"a" * 200_000)), None, "is too long"),
    "bad chunk": (
        sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        200,
        "not valid HTTP",
    ),
    "cut chunk": (
        sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nab"),
        200,
        "not valid HTTP",
    ),
    "unknown coding": (
        sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: zip\r\n\r\nab"),
        None,
        "not valid HTTP",
    ),
    "short body": (
        sends(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok"),
        200,
        "not valid HTTP",
    ),
    "missing body": (
        sends(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok", closes=False),
        200,
        "no complete answer",
    ),
    "two lengths": (
        sends(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        None,
        "not valid HTTP",
    ),
    "negative length": (
        sends(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nab"),
        None,
        "not valid HTTP",
    ),
    "Retry-After -5": (later(b"-5"), 429, None),
    "Retry-After nan": (later(b"nan"), 429, None),
    "Retry-After inf": (later(b"inf"), 429, None),
    "Retry-After 1e3": (later(b"1e3"), 429, None),
    "Retry-After huge": (later(b"9" * 400), 429, None),
    "Retry-After bytes": (later(b"\xff\xfe soon"), 429, None),
    "Retry-After digits": (later("٣".encode()), 429, None),
    "Retry-After date": (later(b"Fri, 31 Dec 9999 23:59:59 GMT"), 429, None),
    "Retry-After zone": (later(b"Fri, 31 Dec 9999 23:59:59 -2359"), 429, None),
    "Retry-After past": (later(b"Fri, 31 Dec 1999 23:59:59 GMT"), 429, None),
    "Retry-After naive": (later(b"Fri, 31 Dec 2027 23:59:59"), 429, None),
    "Retry-After year 0": (later(b"Fri, 31 Dec 0000 23:59:59 GMT"), 429, None),
}
SUCCESSES = {
    "plain": (sends(status(200)), 200),
    "204 with body": (sends(b"HTTP/1.1 204 X\r\n\r\nok", closes=False), 204),
    "no length": (sends(b"HTTP/1.1 200 OK\r\n\r\nok"), 200),
    "HTTP/1.0": (sends(b"HTTP/1.0 200 OK\r\n\r\n"), 200),
    "hints": (sends(b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + status(202)), 202),
    "gzip": (
        sends(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok"),
        200,
    ),
    "long body": (sends(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokokok", closes=False), 200),
    "endless body": (floods(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 999), 200),
    "empty header": (sends(status(200, b"X-Empty:", b"Y:   ")), 200),
    "header of 60 KB": (sends(status(200, b"X: " + b"a" * 60_000)), 200),
    "cookies": (
        sends(status(200, b"Set-Cookie: a=b", b"Set-Cookie: \xff=1; expires=nonsense; ;;=")),
        200,
    ),
    "200 Location": (sends(status(200, b"Location: http://[::1")), 200),
}
URL = "https://a.example/1"


def is_endless(name: str) -> bool:
    """Return whether the answer of this name ends at the deadline only."""
    return "drip" in name or name in ("silent", "missing body")


def client() -> httpx.Client:
    """Return a client whose deadline is short for the answers that never end."""

    def bound(request):
        endless = request.url.host == ENDLESS_HOST
        client._transport.deadline.seconds = ENDLESS_S if endless else LIMITS.seconds

    client = guarded_client(LIMITS, private=True, event_hooks={"request": [bound]})
    return client


@pytest.fixture
def live(database_url):
    clock = Clock()
    clock.now = datetime.now(UTC)
    with running(database_url, clock=clock, webhooks_private=True) as live:
        live.service.courier.poster = Poster(client)
        live.register(URL)
        yield live


def report(live, digest: str) -> None:
    at = (live.clock.now - timedelta(minutes=5)).isoformat()
    item = {"url": URL, "observed_at": at, "digest": digest}
    assert live.post("/observations", [item]).json()["accepted"] == 1


def hooks(live, port: int, names) -> dict[str, str]:
    """Return the path of a webhook for each name of an answer."""
    paths = {}
    for name in names:
        host = ENDLESS_HOST if is_endless(name) else "127.0.0.1"
        url = str(httpx.URL(f"http://{host}:{port}").join(f"/{name.replace(' ', '-')}"))
        response = live.client.post("/webhooks", json={"url": url})
        assert response.status_code == 200, response.text
        paths[name] = f"/webhooks/{response.json()['id']}"
    return paths


def deliver(live, **span) -> None:
    live.clock.advance(**span)
    while live.service.courier.run_once():
        pass


def deliveries(live, path):
    return live.get(f"{path}/deliveries").json()["items"]


def by_path(answers):
    return {name.replace(" ", "-"): answer for name, (answer, *_) in answers.items()}


@pytest.mark.dear
def test_each_odd_answer_is_a_listed_failure_that_waits(live):
    with capture_logs() as logs, answering(by_path(FAILURES)) as (port, requests):
        paths = hooks(live, port, FAILURES)
        report(live, "one")
        before = live.clock.now
        deliver(live, seconds=1)
        deliver(live, seconds=3.5)  # longer than a claim, shorter than the first wait
        assert len(set(requests)) == len(FAILURES)  # one over an ended connection goes twice
        for name, path in paths.items():
            _, code, reason = FAILURES[name]
            (one,) = deliveries(live, path)
            state = live.get(path).json()
            wait = datetime.fromisoformat(state["next_at"]) - before
            if name.startswith("reset"):
                assert one["status"] in (None, 200), name
            else:
                assert (name, one["status"]) == (name, code)
            if reason is None:
                assert one["error"] == f"answered {code}", (name, one)
            else:
                assert reason in one["error"], (name, one)
                assert one["error"].isprintable()
            assert (one["status"] is None) <= bool(one["error"]), name
            assert (state["status"], state["n_attempts"]) == ("active", 1), name
            assert state["failing_since"] is not None, name
            assert timedelta(seconds=4.9) < wait <= timedelta(seconds=43_202), name
            assert state["lag_s"] > 0, name
    assert [one for one in logs if one.get("exc_info") or one["log_level"] == "error"] == []


@pytest.mark.dear
@pytest.mark.parametrize("step", ["choose", "encode_changes", "event"])
def test_an_error_of_the_service_is_a_listed_failure_that_waits(live, monkeypatch, step):
    def breaks(*_):
        raise KeyError(step)

    with answering({"a": sends(status(204))}) as (port, requests):
        (path,) = hooks(live, port, ["a"]).values()
        report(live, "one")
        with monkeypatch.context() as patched:
            patched.setattr(courier, step, breaks)
            deliver(live, seconds=1)
            deliver(live, seconds=3.5)
        (one,) = deliveries(live, path)
        assert (one["status"], step in one["error"], one["n_items"]) == (None, True, 0)
        assert live.get(path).json()["n_attempts"] == 1
        assert requests == []
        deliver(live, seconds=4)
        assert [one["status"] for one in deliveries(live, path)] == [204, None]
        assert live.get(path).json()["n_attempts"] == 0


def test_waits_after_redirects_grow_until_the_webhook_is_disabled(live):
    with answering(by_path(REDIRECTS)) as (port, requests):
        names = ["302 absolute", "308 malformed"]
        paths = hooks(live, port, names)
        report(live, "one")
        for n in range(1, 12):
            deliver(live, hours=13)
            if n == 3:
                assert {live.get(path).json()["n_attempts"] for path in paths.values()} == {3}
        for name, path in paths.items():
            state = live.get(path).json()
            assert state["status"] == "disabled"
            assert FAILURES[name][2] in state["reason"]
        assert len(deliveries(live, paths[names[0]])) == len(deliveries(live, paths[names[1]])) < 9
        assert len(requests) < 20


@pytest.mark.dear
def test_a_test_of_each_odd_address_shows_what_happened(live):
    with capture_logs() as logs, answering(by_path(FAILURES)) as (port, _):
        paths = hooks(live, port, FAILURES)
        for name, path in paths.items():
            if is_endless(name):
                continue  # each would wait for the deadline
            response = live.client.post(f"{path}/test")
            assert response.status_code == 200, (name, response.text)
            shown = response.json()
            assert shown["status"] is not None or shown["error"], name
            assert deliveries(live, path) == [shown]
            assert live.get(path).json()["n_attempts"] == 0
    assert [one for one in logs if one.get("exc_info") or one["log_level"] == "error"] == []


@pytest.mark.dear
def test_odd_answers_of_success_confirm_each_change(live):
    """Also the next change over the same connection, which bytes after an answer would spoil."""
    with answering(by_path(SUCCESSES)) as (port, _):
        paths = hooks(live, port, SUCCESSES)
        for n in range(3):
            report(live, str(n))
            deliver(live, minutes=1)
        for name, path in paths.items():
            shown = [(one["status"], one["error"]) for one in deliveries(live, path)]
            assert (name, shown) == (name, [(SUCCESSES[name][1], None)] * 3)
            assert live.get(path).json()["lag_s"] == 0


def test_an_answer_that_came_before_its_request_confirms_nothing(live):
    """The first answer is chunked, so that the second one behind it is not noticed at once."""
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ahead = sends(chunked + b"HTTP/1.1 200 OK\r\n" + EMPTY, closes=False)
    with answering({"a": ahead}) as (port, requests):
        (path,) = hooks(live, port, ["a"]).values()
        report(live, "one")
        deliver(live, minutes=1)
        report(live, "two")
        deliver(live, minutes=1)
        second, first = deliveries(live, path)
        assert (first["status"], first["error"]) == (200, None)
        assert (second["status"], "before the request" in second["error"]) == (None, True)
        deliver(live, minutes=1)
        assert deliveries(live, path)[0]["status"] == 200
        assert len(requests) == 3


def test_a_connection_that_ended_while_idle_costs_no_failure(live):
    n_requests = 0

    def ends_late(connection):
        nonlocal n_requests
        n_requests += 1
        if n_requests == 2:  # as if the end had crossed the request
            connection.shutdown(2)
            return
        connection.sendall(status(200))

    with answering({"a": ends_late}) as (port, requests):
        (path,) = hooks(live, port, ["a"]).values()
        for digest in ("one", "two"):
            report(live, digest)
            deliver(live, minutes=1)
        assert [one["status"] for one in deliveries(live, path)] == [200, 200]
        assert len(requests) == 3


def test_cookies_of_an_address_are_not_sent_back():
    heads = []

    class Site(httpx.BaseTransport):
        def handle_request(self, request):
            heads.append(request.headers)
            return httpx.Response(204, headers={"Set-Cookie": f"n{len(heads)}=1"})

    client = Poster(lambda: httpx.Client(transport=Site()))._take()
    for _ in range(3):
        client.post("https://a.example/")
    assert [("cookie" in head) for head in heads] == [False] * 3


def test_tls_on_a_plain_port_and_a_plain_port_of_tls_are_failures(live):
    hello = b"\x15\x03\x01\x00\x02\x02\x46"
    with answering({"a": sends(hello), "b": sends(status(200))}) as (port, _):
        for url, reason in (
            (f"http://127.0.0.1:{port}/a", "not valid HTTP"),
            (f"https://127.0.0.1:{port}/b", "no connection to the address"),
            ("http://127.0.0.1:1/", "no connection to the address"),
        ):
            path = f"/webhooks/{live.client.post('/webhooks', json={'url': url}).json()['id']}"
            shown = live.client.post(f"{path}/test").json()
            assert shown["status"] is None
            assert reason in shown["error"]
