"""The address of the provider's keys: certificates and proxies of the operator, and its faults."""

import gzip
import json
import socket
from contextlib import ExitStack

import pytest
from structlog.testing import capture_logs
from support.access_cases import bearer
from support.identity import KEYCLOAK, authority, key_server, proxy
from support.live_server import running

from service.access.tokens import TokenChecker
from service.connectors.guarded import FetchLimits, Outgoing
from service.runtime import access
from service.runtime.access import fetch_jwks
from service.runtime.access_settings import AccessSettings

pytestmark = pytest.mark.dear

BOMB = gzip.compress(b" " * 2_000_000, mtime=0)
NAME = "id.test"
"""Name that only the proxy of a test knows."""


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def own(tmp_path):
    """A private authority, and the certificate of a server that it has signed."""
    return authority(tmp_path, NAME, "127.0.0.1")


def refresh(url):
    """Return the line of the log after a reading of an address."""
    settings = AccessSettings(**KEYCLOAK.settings(url), jwt_jwks_http=True).tokens()
    checker = TokenChecker(settings, lambda: fetch_jwks(url), lambda: None, n_slots=4)
    with capture_logs() as log:
        checker.refresh()
    (line,) = log
    return line


def test_the_keys_come_by_https_of_a_private_authority(stack, own, monkeypatch):
    keys = stack.enter_context(key_server(KEYCLOAK.keys(), own.server))
    line = refresh(keys.url)
    assert line["event"] == "the JWKS address does not answer"
    assert line["address"] == keys.url
    assert "CERTIFICATE_VERIFY_FAILED" in line["reason"]
    monkeypatch.setenv("SSL_CERT_FILE", str(own.path))
    assert refresh(keys.url) == {
        "event": "keys of the identity provider read",
        "log_level": "info",
        "n_keys": 1,
        "n_skipped": 1,
    }
    monkeypatch.setenv("SSL_CERT_FILE", str(own.path.parent / "absent.pem"))
    assert "No such file" in refresh(keys.url)["reason"]


def test_a_certificate_of_another_name_is_refused(stack, tmp_path, monkeypatch):
    other = authority(tmp_path, "other.test")
    monkeypatch.setenv("SSL_CERT_FILE", str(other.path))
    keys = stack.enter_context(key_server(KEYCLOAK.keys(), other.server))
    assert "CERTIFICATE_VERIFY_FAILED" in refresh(keys.url)["reason"]


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_the_keys_come_through_the_proxy_of_the_environment(stack, own, monkeypatch, variable):
    keys = stack.enter_context(key_server(KEYCLOAK.keys(), own.server))
    through = stack.enter_context(proxy({NAME: int(keys.url.split(":")[2].split("/")[0])}))
    monkeypatch.setenv("SSL_CERT_FILE", str(own.path))
    monkeypatch.setenv(variable, through.url)
    assert fetch_jwks(f"https://{NAME}/jwks", Outgoing()) == KEYCLOAK.keys()
    assert through.asked == [f"CONNECT {NAME}:443"]


def test_the_keys_come_by_http_through_a_proxy(stack, monkeypatch):
    keys = stack.enter_context(key_server(KEYCLOAK.keys()))
    through = stack.enter_context(proxy({NAME: int(keys.url.split(":")[2].split("/")[0])}))
    monkeypatch.setenv("HTTP_PROXY", through.url)
    assert fetch_jwks(f"http://{NAME}/jwks") == KEYCLOAK.keys()
    assert through.asked == [f"GET http://{NAME}/jwks"]


def test_no_proxy_gets_the_request_for_this_machine_or_for_names_without_one(stack, monkeypatch):
    keys = stack.enter_context(key_server(KEYCLOAK.keys()))
    through = stack.enter_context(proxy({}))
    monkeypatch.setenv("HTTP_PROXY", through.url)
    assert fetch_jwks(keys.url) == KEYCLOAK.keys()
    monkeypatch.setenv("NO_PROXY", NAME)
    assert "address" in refresh(f"http://{NAME}/jwks")["reason"]
    assert through.asked == []


@pytest.mark.parametrize(
    ("status", "headers", "body", "reason"),
    [
        (404, {}, b"", "404 Not Found"),
        (503, {"Retry-After": "9"}, b"{}", "503 Service Unavailable"),
        (302, {"Location": "https://other.example/jwks"}, b"", "it redirects to https://other.ex"),
        (200, {}, b"<html>Sign in</html>", "JSON is malformed"),
        (200, {}, b"", "Input data was truncated"),
        (200, {}, b'{"keys": [', "Input data was truncated"),
        (200, {}, b"[" * 500_000, "recursion"),
        (200, {}, b"[]", "JSON without a list `keys`; is this the JWKS address?"),
        (200, {}, b'{"issuer": "https://id.example"}', "JSON without a list `keys`"),
        (200, {}, b'{"keys": {}}', "JSON without a list `keys`"),
        (200, {}, b'{"keys": [null, 7, {}]}', "has 3 keys, none of which signs by ES256, ES384"),
        (200, {}, b'{"keys": [' + b" " * 2_000_000, "it has over 1000000 bytes"),
        (
            200,
            {"Content-Encoding": "gzip"},
            gzip.compress(b" " * 2_000_000, mtime=0),
            "over 1000000 bytes",
        ),
        (200, {"Content-Encoding": "br"}, b"x", "Content-Encoding br was not requested"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_the_log_has_the_reason_why_an_answer_is_no_set_of_keys(
    stack, status, headers, body, reason
):
    keys = stack.enter_context(key_server(body))
    keys.status, keys.headers = status, headers
    line = refresh(keys.url)
    assert reason in line["reason"]
    assert line["last_keys_count_s"] == 0


def test_the_log_has_the_reason_why_nobody_answers(stack, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert "refused" in refresh(f"http://127.0.0.1:{port}/jwks")["reason"]
    monkeypatch.setattr(access, "JWKS_LIMITS", FetchLimits(0.05, 1_000))
    keys = stack.enter_context(key_server(KEYCLOAK.keys()))
    keys.waits.clear()
    assert "no complete answer after 0.05 s" in refresh(keys.url)["reason"]
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    assert "socks5 are not supported" in refresh(f"https://{NAME}/jwks")["reason"]


def test_a_password_in_the_address_of_a_proxy_is_in_no_line_of_the_log(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://user:hunter2@127.0.0.1:1")
    assert "hunter2" not in str(refresh(f"https://{NAME}/jwks"))


@pytest.mark.dear
def test_a_service_whose_provider_is_away_answers_503_to_tokens_and_goes_on_with_keys(sqlite_url):
    with (
        key_server(b"<html>starting</html>") as keys,
        running(sqlite_url, api_keys=("k" * 30,), **KEYCLOAK.settings(keys.url)) as live,
    ):

        def ask():
            headers = bearer(KEYCLOAK.token(live.clock()))
            return live.client.get("/epochs", headers=headers).status_code

        assert ask() == 503
        assert live.client.get("/epochs").status_code == 200
        keys.body = json.dumps(KEYCLOAK.keys()).encode()
        live.service.gate.tokens.tried_at = float("-inf")  # the last reading was long ago
        assert ask() == 200
        keys.body = b"rubbish"
        live.service.gate.tokens.tried_at = float("-inf")
        live.service.gate.tokens.refresh()
        assert ask() == 200
