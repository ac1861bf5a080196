"""What an operator sees of a request: its identifier, its log line, its duration and its wait."""

import asyncio
import json
import time
from contextlib import closing
from http.client import HTTPConnection
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs
from support.live_server import Live, running

from service.model.errors import StoreUnavailable
from service.runtime import requests
from service.runtime.requests import RequestMiddleware, waiting

REQUESTS = ("request", "slow request", "request failed")


def of_requests(logs):
    return [entry for entry in logs if entry["event"] in REQUESTS]


def samples(api: Live) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in api.get("/metrics").text.splitlines()]
    return {name: float(value) for name, _, value in lines if not name.startswith("#")}


@pytest.mark.parametrize("sent", ["job-7", "a b", "~" * 128, '{"quoted"}'])
def test_the_identifier_of_a_request_is_returned(sqlite_api: Live, sent):
    for path, status in (("/healthz", 200), ("/pages/9", 404), ("/no/such/path", 404)):
        answer = sqlite_api.client.get(path, headers={"X-Request-ID": sent})
        assert (answer.status_code, answer.headers["X-Request-ID"]) == (status, sent)


@pytest.mark.parametrize("sent", [None, b"", b"~" * 129, b"caf\xc3\xa9", b"a\tb", b"\xff"])
def test_a_request_without_a_valid_identifier_has_a_new_one(sqlite_api: Live, sent):
    headers = {} if sent is None else {"X-Request-ID": sent}
    made = [sqlite_api.client.get("/healthz", headers=headers) for _ in range(2)]
    identifiers = [answer.headers["X-Request-ID"] for answer in made]
    assert all(len(identifier) == 16 and identifier.isalnum() for identifier in identifiers)
    assert identifiers[0] != identifiers[1]


def test_a_304_that_all_requests_share_has_the_identifier_of_each(sqlite_api: Live):
    sqlite_api.register("https://a.example/")
    sqlite_api.epoch()
    etag = sqlite_api.get("/schedule").headers["ETag"]
    for sent in ("one", "two"):
        headers = {"If-None-Match": etag, "X-Request-ID": sent}
        answer = sqlite_api.client.get("/schedule", headers=headers)
        assert answer.status_code == 304
        assert answer.headers.get_list("X-Request-ID") == [sent]


def test_at_debug_each_request_has_a_line_and_otherwise_none(sqlite_url):
    with running(sqlite_url, log_level="debug", slow_request_s=3_600) as api:
        with capture_logs() as logs:
            api.client.get("/pages/9", headers={"X-Request-ID": "job-7"})
            api.client.get("/no/such/path")
            api.post("/pages", [{"url": "https://a.example/"}])
        missing, lost, posted = of_requests(logs)
        assert missing.pop("seconds") >= 0
        assert missing == {
            "event": "request",
            "log_level": "debug",
            "request_id": "job-7",
            "method": "GET",
            "route": "/pages/{page_id}",
            "status": 404,
            "waited_s": 0,
        }
        assert (lost["route"], lost["status"]) == ("unknown", 404)
        assert (posted["method"], posted["route"], posted["status"]) == ("POST", "/pages", 200)
    with running(sqlite_url, slow_request_s=3_600) as api:
        with capture_logs() as logs:
            api.get("/pages/9")
        assert of_requests(logs) == []


def test_a_slow_request_has_a_line_at_info(sqlite_url):
    with running(sqlite_url, slow_request_s=0) as api, capture_logs() as logs:
        api.get("/pages/9")
    (line,) = of_requests(logs)
    assert (line["event"], line["log_level"]) == ("slow request", "info")


def test_a_failed_request_has_a_line_with_its_identifier(sqlite_api: Live, monkeypatch):
    def unavailable(**_):
        raise StoreUnavailable

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(sqlite_api.service.store, "begin", unavailable)
        answer = sqlite_api.client.get("/pages/9", headers={"X-Request-ID": "job-7"})
    assert (answer.status_code, answer.headers["X-Request-ID"]) == (503, "job-7")
    (line,) = of_requests(logs)
    assert (line["event"], line["log_level"]) == ("request failed", "warning")
    assert (line["request_id"], line["route"], line["status"]) == ("job-7", "/pages/{page_id}", 503)


def test_a_fault_of_the_service_has_the_identifier_in_answer_and_log(sqlite_api: Live, monkeypatch):
    def broken(**_):
        raise LookupError("a fault of the service")

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(sqlite_api.service.store, "begin", broken)
        answer = sqlite_api.client.get("/pages/9", headers={"X-Request-ID": "job-7"})
    assert answer.status_code == 500
    assert answer.headers.get_list("X-Request-ID") == ["job-7"]
    (line,) = of_requests(logs)
    assert (line["event"], line["request_id"], line["status"]) == ("request failed", "job-7", 500)


def test_a_fault_of_the_service_announces_that_the_connection_closes(sqlite_api: Live, monkeypatch):
    def broken(**_):
        raise LookupError("a fault of the service")

    connection = HTTPConnection("127.0.0.1", sqlite_api.port)
    with closing(connection), capture_logs():
        with monkeypatch.context() as patch:
            patch.setattr(sqlite_api.service.store, "begin", broken)
            connection.request("GET", "/pages/9")
            answer = connection.getresponse()
            answer.read()
        assert (answer.status, answer.getheader("Connection")) == (500, "close")
        connection.request("GET", "/healthz")  # on a new connection, because the header says so
        assert connection.getresponse().status == 200


def test_no_key_stands_in_the_log(sqlite_url):
    key, site_key, token = "k" * 24, "0123abcd-4567-ef89", "5-3abcdef012345"
    settings = {"api_keys": (key,), "log_level": "debug", "slow_request_s": 0}
    with running(sqlite_url, **settings) as api, capture_logs() as logs:
        api.get("/indexnow", url="https://a.example/", key=site_key)
        api.get(f"/websub/{token}", **{"hub.mode": "subscribe", "hub.challenge": site_key})
        api.client.delete(f"/leases/{token}")
        api.get(f"/unknown/{token}", api_key=key)
    assert len(of_requests(logs)) == 4
    written = json.dumps(logs, default=str)
    assert not [secret for secret in (key, site_key, token) if secret in written]


@pytest.mark.dear
def test_waiting_for_a_crawl_is_measured_apart(sqlite_api: Live):
    started = time.monotonic()
    sqlite_api.client.post("/leases", json={"wait_s": 0.5})
    elapsed = time.monotonic() - started
    metrics = samples(sqlite_api)
    labels = '{method="POST",route="/leases"}'
    waited_s = metrics[f"recrawl_wait_seconds_sum{labels}"]
    assert metrics[f"recrawl_wait_seconds_count{labels}"] == 1
    assert 0.4 < waited_s <= elapsed
    assert metrics[f"recrawl_request_seconds_sum{labels}"] <= elapsed - waited_s


@pytest.mark.dear
def test_waiting_for_an_epoch_is_measured_apart(sqlite_api: Live):
    sqlite_api.register("https://a.example/")
    epoch = sqlite_api.epoch()["epoch"]
    assert sqlite_api.get("/schedule", since_epoch=epoch).status_code == 304
    labels = '{method="GET",route="/schedule"}'
    assert f"recrawl_wait_seconds_count{labels}" not in samples(sqlite_api)
    before_s = samples(sqlite_api)[f"recrawl_request_seconds_sum{labels}"]
    started = time.monotonic()
    assert sqlite_api.get("/schedule", since_epoch=epoch, wait_s=0.5).status_code == 304
    elapsed = time.monotonic() - started
    metrics = samples(sqlite_api)
    waited_s = metrics[f"recrawl_wait_seconds_sum{labels}"]
    assert 0.4 < waited_s <= elapsed
    assert metrics[f"recrawl_request_seconds_sum{labels}"] - before_s <= elapsed - waited_s


@pytest.mark.parametrize(("worked_s", "events"), [(0.9, []), (1.0, ["slow request"])])
def test_a_request_that_waits_is_slow_only_by_its_work(monkeypatch, worked_s, events):
    now, counts = [0.0], []

    async def app(scope, receive, send):
        with waiting(scope):
            now[0] += 30
        now[0] += worked_s
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        pass

    monkeypatch.setattr(requests, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    telemetry = SimpleNamespace(count_request=lambda *request: counts.append(request))
    middleware = RequestMiddleware(app, telemetry, slow_s=1.0)
    with capture_logs() as logs:
        asyncio.run(middleware({"type": "http", "method": "GET", "headers": []}, None, send))
    assert [entry["event"] for entry in logs] == events
    ((*_, seconds, waited_s),) = counts
    assert (seconds, waited_s) == (pytest.approx(worked_s), 30)
