"""Tokens as identity providers issue them open a service, whose keys come from a real server."""

import json
import re

import jwt
import pytest
from support.access_cases import bearer, new_key
from support.identity import GITHUB, KEYCLOAK, OTHER_RSA, RSA, SHAPES, forged, jwk, key_server
from support.live_server import Clock, running

from service.access.tokens import TokenChecker
from service.model.access import Role
from service.runtime.access_settings import AccessSettings


@pytest.fixture
def clock():
    return Clock()


@pytest.mark.parametrize("name", SHAPES)
def test_a_token_of_each_provider_has_its_subject_and_its_role(name, clock):
    shape = SHAPES[name]
    settings = AccessSettings(**shape.settings("https://id.example/jwks")).tokens()
    checker = TokenChecker(settings, shape.keys, clock, n_slots=4)
    checker.refresh()
    caller = checker.caller(shape.token(clock()))
    assert (caller.name, caller.role) == (f"jwt:{shape.subject}", Role[shape.role])


def test_a_lightweight_token_of_keycloak_names_its_client(clock):
    settings = AccessSettings(**KEYCLOAK.settings("https://id.example/jwks")).tokens()
    checker = TokenChecker(settings, KEYCLOAK.keys, clock, n_slots=4)
    checker.refresh()
    token = KEYCLOAK.token(clock(), sub=None, client_id=None)
    assert checker.caller(token).name == "jwt:crawler"


@pytest.mark.dear
@pytest.mark.parametrize("name", SHAPES)
def test_a_service_admits_the_token_of_each_provider(name, sqlite_url):
    shape = SHAPES[name]
    with (
        key_server(shape.keys()) as keys,
        running(sqlite_url, **shape.settings(keys.url)) as live,
    ):
        token = shape.token(live.clock())
        assert live.client.get("/epochs", headers=bearer(token)).status_code == 200
        assert live.client.get("/audit", headers=bearer(token)).status_code == 403
        assert keys.asked == ["/jwks"]


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('shapes') / 'recrawl.db'}"
    with (
        key_server(GITHUB.keys()) as keys,
        running(url, **GITHUB.settings(keys.url)) as live,
    ):
        yield live


def answer(live, token, path="/epochs"):
    return live.client.get(path, headers={} if token is None else bearer(token))


@pytest.mark.parametrize(
    ("token", "status", "challenge"),
    [
        (lambda _: None, 401, "Bearer"),
        (lambda _: "wrong", 401, 'Bearer error="invalid_token", error_description="Send a valid'),
        (lambda _: "a.b.c", 401, 'Bearer error="invalid_token", error_description="the token is n'),
        (lambda now: GITHUB.token(now, exp=1), 401, r".*it expired \d+ s ago \(exp\)"),
        (lambda now: GITHUB.token(now, aud='a"\\\r\nb: é'), 401, r".*aud\) is 'a'///r/nb: /xe9'"),
        (
            lambda now: GITHUB.token(now, sub="repo:x"),
            403,
            '.*"insufficient_scope", .*of the token',
        ),
        (lambda now: forged({"alg": "none"}, {}, b""), 401, '.*error="invalid_token"'),
    ],
)
def test_a_refusal_has_the_challenge_that_clients_read(live, token, status, challenge):
    refused = answer(live, token(live.clock()))
    assert refused.status_code == status
    header = refused.headers["WWW-Authenticate"]
    assert re.match(challenge, header)
    assert re.fullmatch(r'Bearer( error="\w+", error_description="[ !#-\[\]-~]{1,500}")?', header)
    assert refused.headers["Content-Type"] == "application/problem+json"


def test_a_token_without_the_right_is_challenged_by_its_role(live):
    refused = answer(live, GITHUB.token(live.clock()), "/audit")
    assert refused.status_code == 403
    assert (
        'insufficient_scope", error_description="GET /audit needs'
        in (refused.headers["WWW-Authenticate"])
    )


def test_a_stranger_of_the_same_provider_has_no_role_however_its_workflow_is_named(live):
    for environment in ("x admin", "admin", "x,admin", "x=admin"):
        token = GITHUB.token(live.clock(), sub=f"repo:evil/fork:environment:{environment}")
        assert answer(live, token).status_code == 403


def test_keys_of_the_service_work_beside_tokens(live):
    text, _ = new_key(live.service.store, Role.read)
    live.service.gate.ring.refresh()
    assert answer(live, text).status_code == 200
    refused = answer(live, text, "/audit")
    assert 'error="insufficient_scope"' in refused.headers["WWW-Authenticate"]


def test_new_keys_of_the_provider_count_as_soon_as_a_token_names_them(sqlite_url):
    with (
        key_server(KEYCLOAK.keys()) as keys,
        running(sqlite_url, **KEYCLOAK.settings(keys.url)) as live,
    ):
        assert answer(live, KEYCLOAK.token(live.clock())).status_code == 200
        keys.body = json.dumps({"keys": [jwk(OTHER_RSA, "two"), jwk(RSA, "one")]}).encode()
        live.service.gate.tokens.tried_at = float("-inf")  # the last reading was long ago
        claims = jwt.decode(KEYCLOAK.token(live.clock()), options={"verify_signature": False})
        token = jwt.encode(claims, OTHER_RSA, "RS256", {"kid": "two"})
        assert answer(live, token).status_code == 200
        assert keys.asked == ["/jwks", "/jwks"]
