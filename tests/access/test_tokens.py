"""Tokens of an identity provider: which are accepted, rotation, and a provider that is away."""

import base64
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from support.access_cases import bearer
from support.live_server import PATIENCE_S, Clock, running
from support.local_site import page, serving

from service.access.tokens import (
    FRESH_S,
    KEPT_S,
    LEEWAY_S,
    MAX_CACHED,
    RETRY_S,
    TokenChecker,
    TokenSettings,
    UnknownSigner,
    remember,
)
from service.api.assembly import MAX_THREADS
from service.model.access import Role
from service.model.errors import AccessUnavailable, Forbidden

ISSUER, AUDIENCE = "https://id.example", "recrawl"
RSA, OTHER_RSA = (rsa.generate_private_key(65537, 2048) for _ in range(2))
EC, ED = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
SETTINGS = TokenSettings(
    issuer=ISSUER,
    audience=AUDIENCE,
    jwks_url="https://id.example/jwks",
    role_claim="groups",
    roles={"ops": Role.admin, "crawlers": Role.crawl},
)


def jwk(key, kid, **fields):
    """Return the public key as an entry of a JWKS document."""
    kinds = {
        rsa.RSAPrivateKey: (jwt.algorithms.RSAAlgorithm, "RS256"),
        ec.EllipticCurvePrivateKey: (jwt.algorithms.ECAlgorithm, "ES256"),
        ed25519.Ed25519PrivateKey: (jwt.algorithms.OKPAlgorithm, "EdDSA"),
    }
    algorithm, name = next(kinds[kind] for kind in kinds if isinstance(key, kind))
    return {
        **json.loads(algorithm.to_jwk(key.public_key())),
        "kid": kid,
        "alg": name,
        "use": "sig",
        **fields,
    }


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
        caller = self.checker.caller(token)
        return caller and caller.role


@pytest.fixture
def provider():
    return Provider()


def unsigned(provider, **header):
    """Return a token with a header of one's own and no signature."""
    parts = ({"alg": "none", "typ": "JWT", **header}, provider.claims())
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join([*encoded, b""]).decode()


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
    assert set(provider.checker.signers) == {"one"}


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
        assert ask("POST", "/epochs", provider.token()).status_code == 403
        assert ask("POST", "/epochs", provider.token(groups="ops")).status_code == 202
        assert ask("GET", "/epochs", provider.token(OTHER_RSA)).status_code == 401
        audit = ask("GET", "/audit", provider.token(groups="ops")).json()["items"]
        assert [(item["key"], item["act"]) for item in audit] == [("jwt:worker 7", "epoch.request")]


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
    assert "is neither https nor on this machine" in sentence
