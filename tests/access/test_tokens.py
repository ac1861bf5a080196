"""Tokens of an identity provider: which are accepted, rotation, and a provider that is away."""

import base64
import hmac
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from structlog.testing import capture_logs
from support.access_cases import bearer
from support.identity import EC, ED, OTHER_RSA, RSA, forged, jwk
from support.live_server import PATIENCE_S, Clock, running, until
from support.local_site import page, serving

from service.access.tokens import (
    FRESH_S,
    KEPT_S,
    LEEWAY_S,
    MAX_CACHED,
    MAX_NOTED,
    NOTED_S,
    RETRY_S,
    TokenChecker,
    TokenSettings,
    UnknownSigner,
    remember,
)
from service.api.assembly import MAX_THREADS
from service.model.access import Role
from service.model.errors import AccessUnavailable, Forbidden, Unauthorized
from service.runtime.access_settings import AccessSettings

ISSUER, AUDIENCE = "https://id.example", "recrawl"
SETTINGS = TokenSettings(
    issuer=ISSUER,
    audience=AUDIENCE,
    jwks_url="https://id.example/jwks",
    role_claim="groups",
    roles={"ops": Role.admin, "crawlers": Role.crawl},
)


class Seconds:
    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


class Provider:
    """An identity provider, its clock, and the checker of its tokens."""

    def __init__(self):
        self.document = {"keys": [jwk(RSA, "one"), jwk(EC, "curve"), jwk(ED, "edwards")]}
        self.clock, self.seconds = Clock(), Seconds()
        self.n_read = 0
        self.checker = TokenChecker(
            SETTINGS, self.fetch, self.clock, n_slots=4, seconds=self.seconds
        )
        self.checker.refresh()

    def fetch(self):
        self.n_read += 1
        if self.document is None:
            raise OSError("the provider is away")
        return self.document

    def claims(self, **changed):
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "worker 7",
            "exp": int((self.clock() + timedelta(hours=1)).timestamp()),
            "groups": ["crawlers"],
            **changed,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, key=RSA, kid="one", algorithm="RS256", **changed):
        headers = {} if kid is None else {"kid": kid}
        return jwt.encode(self.claims(**changed), key, algorithm, headers)

    def role(self, token):
        """Return the role of a token; None for a token that is refused."""
        try:
            return self.checker.caller(token).role
        except Unauthorized:
            return None

    def reason(self, token):
        """Return why a token is refused."""
        with pytest.raises(Unauthorized) as refused:
            self.checker.caller(token)
        return refused.value.detail


@pytest.fixture
def provider():
    return Provider()


def unsigned(provider, **header):
    """Return a token with a header of one's own and no signature."""
    return forged({"alg": "none", "typ": "JWT", **header}, provider.claims())


@pytest.mark.parametrize(
    ("key", "kid", "algorithm"),
    [(RSA, "one", "RS256"), (EC, "curve", "ES256"), (ED, "edwards", "EdDSA")],
)
def test_a_token_of_the_provider_opens_with_its_role(provider, key, kid, algorithm):
    caller = provider.checker.caller(provider.token(key, kid, algorithm))
    assert (caller.name, caller.role, caller.known) == ("jwt:worker 7", Role.crawl, True)


@pytest.mark.parametrize(
    ("groups", "role"),
    [
        ("ops", Role.admin),
        ("read", Role.read),
        (["nobody", "crawlers", "read"], Role.crawl),
        (["crawlers", "ops"], Role.admin),
    ],
)
def test_the_highest_role_of_the_claim_counts(provider, groups, role):
    assert provider.role(provider.token(groups=groups)) is role


@pytest.mark.parametrize("groups", [None, "nobody", [], [7], {"ops": 1}, 7])
def test_a_token_without_a_role_is_refused_with_a_remedy(provider, groups):
    with pytest.raises(Forbidden, match="the claim groups of the token names no role; see RECR"):
        provider.role(provider.token(groups=groups))


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "https://other.example"},
        {"iss": None},
        {"aud": "another service"},
        {"aud": None},
        {"sub": None},
        {"exp": None},
        {"exp": "soon"},
        {"exp": 10**400},
        {"nbf": "soon"},
    ],
    ids=str,
)
def test_a_token_with_wrong_or_missing_claims_is_refused(provider, changed):
    assert provider.role(provider.token(**changed)) is None


def test_a_token_for_several_audiences_is_accepted(provider):
    assert provider.role(provider.token(aud=["another", AUDIENCE])) is Role.crawl


def test_a_token_ends_with_its_expiry_also_when_it_was_checked_before(provider):
    token = provider.token()
    assert provider.role(token)
    provider.clock.advance(hours=1, seconds=LEEWAY_S)
    assert provider.role(token) is None
    assert Provider().role(provider.token(exp=int(provider.clock().timestamp()) - 7_200)) is None


def test_a_token_begins_with_its_not_before(provider):
    begins = int((provider.clock() + timedelta(hours=1)).timestamp())
    token = provider.token(nbf=begins, exp=begins + 60)
    assert provider.role(token) is None
    provider.clock.advance(hours=1)
    assert provider.role(token) is Role.crawl


def test_the_algorithm_none_is_refused_however_it_is_spelt(provider):
    for name in ("none", "None", "NONE", ""):
        for kid in ("one", "curve", None, "two"):
            header = {"alg": name} | ({"kid": kid} if kid else {})
            try:
                assert provider.role(unsigned(provider, **header)) is None
            except UnknownSigner:
                assert kid == "two"
            provider.seconds.now += 1


def test_a_public_key_is_no_secret_of_an_hmac(provider):
    public = RSA.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signer = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    head, body, _ = unsigned(provider, alg="HS256", kid="one").split(".")
    signature = base64.urlsafe_b64encode(signer.sign(f"{head}.{body}".encode(), public))
    assert provider.role(f"{head}.{body}.{signature.rstrip(b'=').decode()}") is None


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS256"])
def test_another_algorithm_than_that_of_the_key_is_refused(provider, algorithm):
    assert provider.role(provider.token(algorithm=algorithm)) is None


def test_a_symmetric_key_or_one_for_encryption_in_the_set_is_ignored(provider):
    secret = base64.urlsafe_b64encode(b"s" * 32).rstrip(b"=").decode()
    oct_key = {"kty": "oct", "k": secret, "kid": "shared", "alg": "HS256"}
    provider.document = {"keys": [oct_key, jwk(OTHER_RSA, "enc", use="enc"), jwk(RSA, "one")]}
    provider.seconds.now += RETRY_S
    provider.checker.refresh()
    assert set(provider.checker.signers.by_name) == {"one"}


def test_a_token_signed_by_another_key_under_a_known_name_is_refused(provider):
    assert provider.role(provider.token(OTHER_RSA, "one")) is None
    assert provider.role(provider.token()[:-2] + "AA") is None


def test_a_token_without_a_key_name_is_accepted_only_if_the_provider_has_one_key(provider):
    assert provider.role(provider.token(kid=None)) is None
    provider.document = {"keys": [jwk(RSA, "one")]}
    provider.seconds.now += RETRY_S
    provider.checker.refresh()
    assert provider.role(provider.token(kid=None)) is Role.crawl


def test_a_new_key_of_the_provider_is_read_when_a_token_names_it_at_most_every_ten_seconds(
    provider,
):
    provider.document = {"keys": [jwk(RSA, "one"), jwk(OTHER_RSA, "two")]}
    token = provider.token(OTHER_RSA, "two")
    assert provider.role(token) is None, "it has just been read"
    provider.seconds.now += RETRY_S
    with pytest.raises(UnknownSigner):
        provider.role(token)
    provider.checker.refresh()
    assert provider.role(token) is Role.crawl
    assert provider.role(provider.token()) is Role.crawl
    for i in range(100):
        assert provider.role(provider.token(OTHER_RSA, f"made up {i}")) is None
    assert provider.n_read == 2


def test_a_key_that_the_provider_withdraws_no_longer_vouches_for_tokens_in_memory(provider):
    token = provider.token()
    assert provider.role(token)
    provider.document = {"keys": [jwk(OTHER_RSA, "one")]}
    provider.seconds.now += FRESH_S + 1
    assert provider.checker.stale()
    provider.checker.refresh()
    assert provider.role(token) is None


def test_while_the_provider_is_away_its_last_keys_count_for_an_hour(provider):
    provider.document = None
    token = provider.token()
    while provider.seconds.now < 1_000 + KEPT_S:
        assert provider.role(token) is Role.crawl
        if provider.checker.stale():
            provider.checker.refresh()
        provider.seconds.now += 60
    provider.seconds.now = 1_000 + KEPT_S + 1
    provider.checker.tried_at = provider.seconds.now
    with pytest.raises(AccessUnavailable):
        provider.role(token)
    provider.seconds.now += RETRY_S
    with pytest.raises(UnknownSigner):
        provider.role(token)
    provider.document = {"keys": [jwk(RSA, "one")]}
    provider.checker.refresh()
    assert provider.role(token) is Role.crawl


@pytest.mark.parametrize("document", [{}, {"keys": []}, [], {"keys": [{"kty": "new"}]}, "x"])
def test_a_document_without_a_usable_key_leaves_the_last_keys_in_force(provider, document):
    provider.document = document
    provider.seconds.now += FRESH_S + 1
    provider.checker.refresh()
    assert provider.role(provider.token()) is Role.crawl


@pytest.mark.parametrize("text", ["..", "a.b.c", "x" * 10_000 + "..", "é.é.é", "eyJ9.e30.", "\n.."])
def test_a_text_that_is_no_token_is_refused(provider, text):
    assert provider.role(text) is None


def test_memory_for_tokens_is_bounded():
    from collections import OrderedDict

    cache = OrderedDict()
    for i in range(MAX_CACHED + 5):
        remember(cache, i, i)
    assert len(cache) == MAX_CACHED
    assert next(iter(cache)) == 5


@contextmanager
def trusting(provider, url):
    """Run a service that accepts tokens of the provider."""
    with serving({"/jwks": page(json.dumps(provider.document))}) as site:
        options = {
            "jwt_issuer": ISSUER,
            "jwt_audience": AUDIENCE,
            "jwt_jwks_url": site.url("/jwks"),
            "jwt_role_claim": "groups",
            "jwt_roles": "crawlers=crawl,ops=admin",
        }
        with running(url, clock=provider.clock, **options) as live:
            yield live


@pytest.mark.dear
def test_a_service_accepts_tokens_beside_keys(sqlite_url):
    provider = Provider()
    with trusting(provider, sqlite_url) as live:

        def ask(method, path, token, **options):
            return live.client.request(method, path, headers=bearer(token), **options)

        assert ask("GET", "/epochs", None).status_code == 401
        assert ask("GET", "/epochs", provider.token()).status_code == 200
        refused = ask("POST", "/epochs", provider.token()).json()
        assert refused["detail"] == (
            "POST /epochs needs a token of role admin; this token has the role crawl"
        )
        assert ask("POST", "/epochs", provider.token(groups="ops")).status_code == 202
        assert ask("GET", "/epochs", provider.token(OTHER_RSA)).status_code == 401
        audit = ask("GET", "/audit", provider.token(groups="ops")).json()["items"]
        assert [(item["key"], item["act"]) for item in audit] == [("jwt:worker 7", "epoch.request")]


@pytest.mark.dear
def test_a_provider_that_was_never_reached_is_named_in_the_answer_and_in_the_log(sqlite_url):
    provider = Provider()
    with trusting(provider, sqlite_url) as live, capture_logs() as lines:
        tokens = live.service.gate.tokens
        until(lambda: tokens.document is not None, "the first reading has ended")
        with tokens.reading:
            tokens.fetch, tokens.read_at = away, tokens.seconds() - KEPT_S - 1
        for age in (RETRY_S, 0):
            tokens.tried_at = tokens.seconds() - age
            answer = live.client.get("/epochs", headers=bearer(provider.token()))
            problem = answer.json()
            assert answer.status_code == 503, problem
            assert answer.headers["Retry-After"] == "5"
            assert problem["type"].endswith("#provider-unavailable")
            assert problem["detail"].startswith("The keys of the identity provider (JWKS) cannot")
    causes = [line["cause"] for line in lines if line["event"] == "identity provider trouble"]
    assert len(causes) == 2
    assert all("/jwks: OSError: no route" in cause for cause in causes)


def away():
    raise OSError("no route")


@pytest.mark.dear
def test_a_provider_that_does_not_answer_takes_one_thread_at_most(sqlite_url):
    provider, ends = Provider(), threading.Event()
    with (
        trusting(provider, sqlite_url) as live,
        ThreadPoolExecutor(2 * MAX_THREADS) as pool,
    ):
        tokens, begun = live.service.gate.tokens, threading.Event()

        def fetch():
            begun.set()
            ends.wait(PATIENCE_S)
            return provider.document

        tokens.fetch, tokens.tried_at = fetch, -RETRY_S

        def ask(token):
            return live.client.get("/epochs", headers=bearer(token)).status_code

        try:
            strangers = [
                pool.submit(ask, provider.token(OTHER_RSA, f"made up {i}"))
                for i in range(2 * MAX_THREADS - 1)
            ]
            assert begun.wait(PATIENCE_S)
            assert ask(provider.token()) == 200
            assert not any(one.done() for one in strangers)
        finally:
            ends.set()
        assert {one.result() for one in strangers} == {401}


@pytest.mark.parametrize("odd", [None, "x", {"kid": ["a"]}, 7])
def test_an_odd_entry_of_the_set_is_ignored(provider, odd):
    provider.document = {"keys": [odd, jwk(OTHER_RSA, "two")]}
    provider.seconds.now += RETRY_S
    provider.checker.refresh()
    assert provider.role(provider.token(OTHER_RSA, "two")) is Role.crawl


@pytest.mark.parametrize("subject", ["a\0b", "\ud800x", "line\nline"])
def test_a_subject_that_no_database_takes_is_refused(provider, subject):
    assert provider.role(provider.token(sub=subject)) is None


def test_a_provider_needs_all_of_its_settings(recrawl):
    sentence = recrawl("serve", jwt_issuer=ISSUER).refusal()
    assert re.search("RECRAWL_JWT_AUDIENCE and RECRAWL_JWT_JWKS_URL must be set too", sentence)
    sentence = recrawl("serve", jwt_role_claim="").refusal()
    assert "RECRAWL_JWT_ROLE_CLAIM: it is empty; send the name of a claim" in sentence
    sentence = recrawl("serve", jwt_jwks_url="http://id.example/jwks").refusal()
    assert (
        "is neither https nor on this machine; use https, or set RECRAWL_JWT_JWKS_HTTP" in sentence
    )
    for address in ("id.example", "ftp://id.example", "https://", "http://[", "https://a:0/"):
        sentence = recrawl("serve", jwt_jwks_url=address, jwt_jwks_http=True).refusal()
        assert "is no http(s) address" in sentence


def test_keys_may_come_by_http_from_a_cluster_that_the_operator_trusts():
    options = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_jwks_http": True}
    url = "http://keycloak.identity.svc:8080/realms/main/protocol/openid-connect/certs"
    assert AccessSettings(**options, jwt_jwks_url=url).tokens().jwks_url == url


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        ("ops=admin,crawlers=crawl", {"ops": Role.admin, "crawlers": Role.crawl}),
        ("CN=ops=admin", {"CN=ops": Role.admin}),
        ("repo:a/b:ref:refs/heads/main=report", {"repo:a/b:ref:refs/heads/main": Role.report}),
        ('{"CN=ops,OU=search": "admin", "a b": "read"}', {"CN=ops,OU=search": 4, "a b": 1}),
        ("", {}),
    ],
)
def test_roles_stand_for_values_of_the_claim(text, roles):
    assert AccessSettings(jwt_roles=text).jwt_roles == roles


@pytest.mark.parametrize("text", ["ops", "ops=boss", "=admin", "{", '{"a": 4}', '{"a": "boss"}'])
def test_roles_that_cannot_be_read_are_refused_with_a_remedy(recrawl, text):
    sentence = recrawl("serve", jwt_roles=text).refusal()
    assert "RECRAWL_JWT_ROLES: " in sentence
    assert "send VALUE=ROLE between commas, or JSON, with a role of read, report" in sentence


@pytest.mark.parametrize("name", ["exp", "nbf"])
@pytest.mark.parametrize("over_s", [-1, 1])
def test_the_clocks_may_differ_by_half_a_minute(provider, name, over_s):
    beyond_s = (LEEWAY_S + over_s) * (1 if name == "nbf" else -1)
    token = provider.token(**{name: provider.clock().timestamp() + beyond_s})
    assert provider.role(token) is (Role.crawl if over_s < 0 else None)


# -- reasons


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"iss": "https://id.example/"}, r"its issuer \(iss\) is 'https://id.example/', not 'http"),
        ({"aud": ["a", "b"]}, r"its audience \(aud\) is \['a', 'b'\], without 'recrawl'"),
        ({"aud": None}, "it has no claim aud"),
        ({"exp": None}, "it has no claim exp"),
        ({"exp": "soon"}, "its exp or nbf is no number of seconds"),
        ({"sub": None}, "it names no subject, by none of sub, client_id, azp"),
        ({"sub": "a\0b"}, "its subject has a character that is not printable"),
        ({"exp": 1}, r"it expired \d+ s ago \(exp\) by the service's clock"),
        ({"nbf": 4_000_000_000}, r"it begins in \d+ s \(nbf\) by the service's clock"),
    ],
    ids=str,
)
def test_a_refusal_names_the_claim_its_value_and_what_is_expected(provider, changed, reason):
    assert re.match(f"the token is not valid: {reason}", provider.reason(provider.token(**changed)))


def test_a_refusal_names_the_key_and_the_algorithm(provider):
    assert "it is no JSON Web Token" in provider.reason("a.b.c")
    assert "it has over 8192 characters" in provider.reason("." * 9_000)
    assert "provider has no key of the name 'two'" in provider.reason(provider.token(kid="two"))
    assert "it names no key (kid), and the provider has 3" in provider.reason(
        provider.token(kid=None)
    )
    symmetric = forged({"alg": "HS256", "kid": "one"}, provider.claims(), b"x")
    assert "its algorithm is 'HS256', and its key signs by RS256" in provider.reason(symmetric)
    other = provider.token(OTHER_RSA, "one")
    assert "its signature is not that of the key 'one'" in provider.reason(other)
    critical = forged({"alg": "RS256", "kid": "one", "crit": ["exp"]}, provider.claims(), b"x")
    assert "the token is not valid" in provider.reason(critical)


def test_the_log_has_each_reason_once_a_minute_and_never_the_token(provider):
    tokens = [
        provider.token(aud="another"),
        provider.token(OTHER_RSA),
        provider.token(exp=1),
        "a.b.c",
        provider.token(kid="k" * 5_000),
    ]
    with capture_logs() as log:
        for token in tokens * 3:
            provider.reason(token)
        with pytest.raises(Forbidden):
            provider.checker.caller(provider.token(groups=["somebody"]))
    refused = [line["reason"] for line in log if line["event"] == "token refused"]
    assert len(refused) == len(set(refused)) == len(tokens) + 1
    assert "it has ['somebody'], which stands for none" in refused[-1]
    assert max(map(len, refused)) < 400
    for token in tokens:
        assert not any(part and part in str(log) for part in token.split(".") if len(part) > 8)
    provider.seconds.now += NOTED_S
    with capture_logs() as log:
        provider.reason(tokens[0])
        for i in range(2 * MAX_NOTED):
            provider.checker.tried_at = provider.seconds.now
            provider.reason(provider.token(kid=f"made up {i}"))
    assert len(log) == MAX_NOTED


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"sub": None, "client_id": "crawler"}, "jwt:crawler"),
        ({"sub": "", "azp": "crawler"}, "jwt:crawler"),
        ({"sub": None, "client_id": "one", "azp": "two"}, "jwt:one"),
        ({"sub": "a person", "client_id": "one", "azp": "two"}, "jwt:a person"),
    ],
    ids=str,
)
def test_the_client_is_the_subject_of_a_token_without_one(provider, claims, name):
    assert provider.checker.caller(provider.token(**claims)).name == name


def of_claim(name, roles=None):
    """Return a provider whose tokens name roles in a claim."""
    provider = Provider()
    settings = replace(SETTINGS, role_claim=name, roles=roles or SETTINGS.roles)
    provider.checker.settings = settings
    provider.checker.roles = {**Role.__members__, **settings.roles}
    return provider


@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("realm_access.roles", {"realm_access": {"roles": ["other", "crawlers"]}}),
        ("resource_access.my.app.roles", {"resource_access": {"my.app": {"roles": ["crawl"]}}}),
        ("https://a.example/roles", {"https://a.example/roles": ["crawl"]}),
        ("https://a.example/app.roles", {"https://a.example/app": {"roles": "crawl"}}),
        ("a.b.c", {"a": {"b.c": "crawl", "b": {"c": "admin"}}, "a.b": {"c": "crawl"}}),
        ("a.b", {"a.b": "crawl", "a": {"b": "admin"}}),
        ("scope", {"scope": "openid crawl profile"}),
        ("scp", {"scp": ["crawl"]}),
        ("https://a.example/scope", {"https://a.example/scope": "read crawl"}),
        ("token.scp", {"token": {"scp": "crawl"}}),
    ],
    ids=str,
)
def test_a_role_may_be_in_a_nested_claim_or_a_word_of_a_scope(name, claims):
    provider = of_claim(name)
    assert provider.role(provider.token(groups=None, **claims)) is Role.crawl


@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("realm_access.roles", {"realm_access": ["crawl"]}),
        ("realm_access.roles", {"realm_access": {"roles": {"crawl": 1}}}),
        ("realm_access.roles", {"realm_access": "crawl", "roles": ["crawl"]}),
        ("a..b", {"a": {"b": "crawl"}}),
        (".", {"": {"": None}}),
        ("environment", {"environment": "x admin"}),
        ("sub", {"sub": "repo:a/b:environment:x admin"}),
        ("groups", {"groups": ["site admin"]}),
        ("scp", {"scp": ["openid crawl"]}),
        ("scope", {"scope": "administrator,crawl ADMIN"}),
    ],
    ids=str,
)
def test_a_text_is_no_role_because_one_of_its_words_is(name, claims):
    provider = of_claim(name)
    with pytest.raises(Forbidden):
        provider.role(provider.token(**{"groups": None, **claims}))


# -- keys


def with_keys(provider, *entries):
    provider.document = {"keys": list(entries)}
    provider.seconds.now += RETRY_S
    provider.checker.refresh()


def test_two_keys_of_one_name_both_vouch(provider):
    with_keys(provider, jwk(RSA, "same"), jwk(OTHER_RSA, "same"), jwk(EC, "same"))
    for key, algorithm in ((RSA, "RS256"), (OTHER_RSA, "RS256"), (EC, "ES256")):
        assert provider.role(provider.token(key, "same", algorithm)) is Role.crawl
    assert provider.role(provider.token(ED, "same", "EdDSA")) is None
    foreign = generate_private_key(65537, 2048)
    assert "is not that of the key" in provider.reason(provider.token(foreign, "same"))


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_a_key_without_an_algorithm_signs_by_each_of_its_kind(provider, algorithm):
    with_keys(provider, jwk(RSA, "one", alg=None), jwk(EC, "curve", alg=None))
    assert provider.role(provider.token(algorithm=algorithm)) is Role.crawl
    assert provider.role(provider.token(EC, "curve", "ES256")) is Role.crawl
    for wrong in ("HS256", "none", "ES256", "ES512"):
        token = forged({"alg": wrong, "kid": "one"}, provider.claims(), b"x")
        assert f"its algorithm is '{wrong}'" in provider.reason(token)


def test_the_public_key_of_an_entry_without_an_algorithm_is_no_secret_of_an_hmac(provider):
    entry = jwk(RSA, "one", alg=None)
    with_keys(provider, entry)
    numbers = base64.urlsafe_b64decode(entry["n"] + "==")
    for secret in (json.dumps(entry).encode(), entry["n"].encode(), numbers):
        head, body, _ = forged({"alg": "HS256", "kid": "one"}, provider.claims()).split(".")
        signed = hmac.new(secret, f"{head}.{body}".encode(), "sha256").digest()
        signature = base64.urlsafe_b64encode(signed).rstrip(b"=").decode()
        assert provider.role(f"{head}.{body}.{signature}") is None


@pytest.mark.parametrize(
    "entry",
    [
        jwk(OTHER_RSA, "bad", key_ops=["sign"]),
        jwk(OTHER_RSA, "bad", key_ops=7),
        jwk(OTHER_RSA, "bad", use=["sig"]),
        jwk(OTHER_RSA, "bad", n="!"),
        jwk(OTHER_RSA, "bad", n=7),
        jwk(OTHER_RSA, "bad", alg=["RS256"]),
        jwk(OTHER_RSA, "bad", alg="ES256"),
        jwk(OTHER_RSA, "bad", kty="EC"),
        jwk(OTHER_RSA, "bad", kty={}),
        {"kty": "OKP", "crv": "X25519", "x": "AA", "kid": "bad"},
    ],
    ids=lambda entry: f"{entry['kty']}-{entry.get('alg')}-{entry.get('use')}",
)
def test_an_entry_that_cannot_be_used_leaves_the_others_in_force(provider, entry):
    with_keys(provider, entry, jwk(RSA, "two"))
    assert set(provider.checker.signers.by_name) == {"two"}
    assert provider.role(provider.token(RSA, "two")) is Role.crawl


def test_a_key_that_is_too_short_vouches_for_nothing(provider):
    short = generate_private_key(65537, 1024)
    with_keys(provider, jwk(short, "short"))
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = provider.token(short, "short")
    assert "2048" in provider.reason(token)
