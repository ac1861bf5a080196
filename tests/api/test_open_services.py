"""A service without keys: proxies, other sites, odd Host headers; RECRAWL_OPEN admits them."""

import socket

import pytest
from support.access_cases import ADMIN
from support.live_server import PATIENCE_S, Live, running

pytestmark = pytest.mark.dear

PAGE = "https://a.example/"
PROXIES = {
    "X-Forwarded-For": "203.0.113.7",
    "X-Forwarded-Host": "crawl.example",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Port": "443",
    "X-Forwarded-Server": "www",
    "X-Forwarded": "for=203.0.113.7",
    "Forwarded": "for=203.0.113.7",
    "X-Real-IP": "203.0.113.7",
    "Via": "1.1 cache",
    "CF-Connecting-IP": "203.0.113.7",
    "CF-Ray": "1",
    "True-Client-IP": "203.0.113.7",
    "X-Client-IP": "203.0.113.7",
    "X-Cluster-Client-IP": "203.0.113.7",
    "Fly-Client-IP": "203.0.113.7",
    "Fastly-Client-IP": "203.0.113.7",
    "X-Azure-ClientIP": "203.0.113.7",
    "X-Envoy-External-Address": "203.0.113.7",
    "CDN-Loop": "cloudflare",
    "Tailscale-User-Login": "somebody",
}
CALLS = (
    ("GET", "/pages"),
    ("POST", "/pages"),
    ("GET", "/schedule"),
    ("POST", "/leases"),
    ("POST", "/indexnow"),
    ("GET", f"/indexnow?url={PAGE}&key=0123abcd-4567"),
    ("GET", "/IndexNow"),
    ("DELETE", "/pages?all_pages=true"),
    ("GET", "/metrics"),
    ("GET", "/docs"),
    ("GET", "/openapi.json"),
    ("GET", "/keys"),
)
CONSOLE = ("/console", "/console/pages", "/console/sign-in", "/console/no-such-page")


@pytest.fixture(scope="module")
def keyless(sqlite_template, tmp_path_factory):
    """Serve without keys, with the console."""
    path = tmp_path_factory.mktemp("keyless") / "recrawl.db"
    path.write_bytes(sqlite_template.read_bytes())
    url = f"sqlite:///{path}"
    with running(url, indexnow_check=False) as live:
        yield live


def is_refused(answer, word="RECRAWL_OPEN=true"):
    if answer.status_code != 403:
        return False
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert "recrawl keys create" in answer.json()["detail"] or "create a key" in answer.text
    return word in answer.json()["detail"]


@pytest.mark.parametrize("name", PROXIES)
def test_a_service_without_keys_serves_nobody_through_a_proxy(keyless: Live, name):
    for host in ("127.0.0.1:8000", "crawl.example", "localhost"):
        headers = {name: PROXIES[name], "Host": host}
        answer = keyless.client.get("/pages", headers=headers)
        assert is_refused(answer), answer.text
        assert name.lower() in answer.json()["detail"]


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_no_operation_serves_a_proxy(keyless: Live, method, path):
    headers = {"X-Forwarded-For": "203.0.113.7"}
    assert is_refused(keyless.client.request(method, path, json=[{"url": PAGE}], headers=headers))
    assert keyless.get("/pages").json()["items"] == []


@pytest.mark.parametrize("path", CONSOLE)
def test_the_console_serves_no_proxy(keyless: Live, path):
    refused = keyless.client.get(path, headers={"Via": "1.1 cache"})
    assert refused.status_code == 403
    assert "RECRAWL_OPEN=true" in refused.text
    shown = keyless.client.get(path)
    assert shown.status_code in (200, 303, 404)


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_is_for_everybody(keyless: Live, path):
    for headers in (PROXIES, {"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert keyless.client.get(path, headers=headers).status_code == 200


def test_a_setting_opens_a_service_without_keys_to_proxies(sqlite_url):
    with running(sqlite_url, open=True) as live:
        for path in ("/pages", "/metrics", "/docs"):
            answer = live.client.get(path, headers={**PROXIES, "Host": "crawl.example"})
            assert answer.status_code == 200


def test_a_key_works_through_a_proxy(sqlite_url):
    with running(sqlite_url, api_keys=(ADMIN,)) as live:
        assert live.client.get("/pages", headers=PROXIES).status_code == 200
        assert live.client.get("/pages", headers=PROXIES | {"Authorization": ""}).status_code == 401


def test_a_page_with_a_rebound_name_reads_no_metrics_of_a_service_with_keys(sqlite_url):
    with running(sqlite_url, api_keys=(ADMIN,)) as live:
        headers = {"Host": "rebound.evil.example", "Authorization": ""}
        assert live.client.get("/metrics", headers=headers).status_code == 401
        assert live.client.get("/metrics", headers={"Authorization": ""}).status_code == 200


def test_a_site_with_its_key_is_a_stranger_behind_a_proxy(sqlite_url):
    """It may announce pages that are registered, as with a service that has keys."""
    with running(sqlite_url, indexnow_check=True) as live:
        url = f"/indexnow?url={PAGE}&key=0123abcd-4567"
        assert live.client.get(url, headers={"Via": "1.1 cache"}).status_code == 202
        assert live.get("/pages").json()["items"] == []


def raw(live: Live, head: str) -> int:
    """Return the status of a request that is sent as it stands."""
    with socket.create_connection(("127.0.0.1", live.port), timeout=PATIENCE_S) as connection:
        connection.sendall(head.encode())
        return int(connection.recv(64).split()[1])


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /pages HTTP/1.1\r\nHost: localhost\r\n", 200),
        ("GET /pages HTTP/1.1\r\nHost: LOCALHOST:8000\r\n", 200),
        ("GET /pages HTTP/1.1\r\nHost: [::1]\r\n", 200),
        ("GET /pages HTTP/1.1\r\nHost: [::ffff:127.0.0.1]:8000\r\n", 200),
        ("GET /pages HTTP/1.1\r\n", 403),
        ("GET /pages HTTP/1.1\r\nHost:\r\n", 403),
        ("GET /pages HTTP/1.1\r\nHost: :8000\r\n", 403),
        ("GET /pages HTTP/1.1\r\nHost: [::1\r\n", 403),
        ("GET /pages HTTP/1.1\r\nHost: ::1.evil.example\r\n", 403),
        ("GET /pages HTTP/1.1\r\nHost: localhost@evil.example\r\n", 403),
        ("GET /pages HTTP/1.1\r\nHost: localhost, evil.example\r\n", 403),
        ("GET /pages HTTP/1.1\r\nHost: evil.example.\r\n", 403),
        ("GET /pages HTTP/1.1\r\nHost: localhost.evil.example\r\n", 403),
        ("GET /pages HTTP/1.1\r\nHost: 127.0.0.1.nip.example\r\n", 403),
        ("GET /pages HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n", 403),
        ("GET /pages HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n", 403),
        ("GET /pages HTTP/1.0\r\n", 403),
        ("GET /pages HTTP/1.0\r\nHost: 127.0.0.1:8000\r\nConnection: close\r\n", 403),
        ("GET /healthz HTTP/1.0\r\n", 200),
        ("GET http://localhost/pages HTTP/1.1\r\nHost: localhost\r\n", 200),
        ("GET http://evil.example/pages HTTP/1.1\r\nHost: localhost\r\n", 403),
        ("GET HTTP://127.0.0.1:1/healthz HTTP/1.1\r\nHost: evil.example\r\n", 200),
        ("GET http://localhost@evil.example/pages HTTP/1.1\r\nHost: localhost\r\n", 403),
    ],
)
def test_the_host_of_a_request_is_one_name_of_this_machine(keyless: Live, head, status):
    assert raw(keyless, f"{head}\r\n") == status


CROSS = {"Sec-Fetch-Site": "cross-site"}
LINK = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "none", **LINK}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        (CROSS, 403),
        ({**CROSS, **LINK}, 403),
        ({**CROSS, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "something-new"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Referer": "https://evil.example/"}, 403),
        ({"Referer": "http://localhost/docs", "Host": "localhost"}, 200),
    ],
)
@pytest.mark.parametrize("path", ["/indexnow", "/IndexNow/"])
def test_a_page_of_another_site_announces_no_page(sqlite_api: Live, headers, status, path):
    for is_open in (False, True):
        sqlite_api.service.gate.shared = is_open
        params = {"url": f"{PAGE}{is_open}", "key": "0123abcd-4567-ef89"}
        answer = sqlite_api.client.get(path, params=params, headers=headers)
        assert answer.status_code == status, answer.text
    assert len(sqlite_api.get("/pages").json()["items"]) == (2 if status == 200 else 0)


def test_a_link_of_another_site_leads_to_the_documents(keyless: Live):
    for path, alone in (("/docs", 200), ("/console", 403), ("/pages", 403)):
        assert keyless.client.get(path, headers=CROSS | LINK).status_code == 200
        assert keyless.client.get(path, headers=CROSS).status_code == alone


@pytest.mark.parametrize("path", ["/IndexNow", "/INDEXNOW", "/indexNow/", "/%49ndexNow"])
def test_indexnow_is_found_in_any_case(sqlite_api: Live, path):
    body = {"host": "a.example", "key": "0123abcd-4567", "urlList": [f"{PAGE}1"]}
    assert sqlite_api.client.post(path, json=body).json()["n_taken"] == 1
    params = {"url": f"{PAGE}2", "key": "0123abcd-4567"}
    assert sqlite_api.client.get(path, params=params).json()["n_taken"] == 1
    assert sqlite_api.client.put(path).status_code == 405
