"""Settings of access: keys, limits, browsers, and the identity provider whose tokens count."""

import re
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode

from service.access.keys import PREFIX as KEY_PREFIX
from service.access.tokens import TokenSettings
from service.model.access import Role, role_names
from service.model.quotes import QUOTES, unquoted

MIN_KEY_LENGTH = 20
"""Minimum length of an API key, characters."""
PLACEHOLDER = "change-me"
"""Start of keys in examples, which everybody knows."""
MAKE_KEY = 'python -c "import secrets; print(secrets.token_urlsafe(32))"'
"""Command that prints a new key."""
PUBLIC = ("metrics", "docs")
"""Words of `RECRAWL_PUBLIC`."""

Words = Annotated[tuple[str, ...], NoDecode]


class AccessSettings(BaseSettings):
    """Everything about access that an operator can set."""

    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """Keys of administrators, separated by commas, which need no database; other keys are made by
    `recrawl keys create`. Without any key no key is required."""
    open: bool = False
    """True where `recrawl serve` may serve other machines, and callers behind a proxy, without
    keys."""
    public: Words = ()
    """Parts that other machines may read without a key, separated by commas: metrics, docs."""
    cors_origins: Words = ()
    """Origins whose pages may call the service from browsers, separated by commas."""
    max_requests_per_key: Annotated[int, Field(ge=1, le=10_000)] = 16
    """Maximum number of requests of one key in work at a time; further ones wait for their turn."""
    audit_retention_days: Annotated[float, Field(gt=0, le=36_500)] | None = 730
    """Retention of the audit, days; empty: for ever."""
    jwt_issuer: str | None = None
    """Issuer of the tokens that replace keys; empty: no tokens."""
    jwt_audience: str | None = None
    """Audience that a token must name."""
    jwt_jwks_url: str | None = None
    """Address of the issuer's public keys (JWKS), https, or http on this machine. It is read
    through the proxies of the environment, and trusts the certificates of the system and of
    SSL_CERT_FILE too."""
    jwt_jwks_http: bool = False
    """True where that address may be http. Every machine that can write to the network on the way
    can then issue tokens."""
    jwt_role_claim: str = "role"
    """Claim of a token that names its role, or a list of names; dots lead into nested claims, such
    as realm_access.roles."""
    jwt_roles: Annotated[dict[str, Role], NoDecode] = Field(default_factory=dict)
    """Roles of other values of the claim, separated by commas: ops=admin,crawlers=crawl. Values
    with commas need JSON: {"CN=ops,OU=search": "admin"}."""

    @field_validator("api_keys", mode="before")
    @classmethod
    def _api_keys(cls, value: Any) -> Any:
        return keys_of(value) if isinstance(value, str) else value

    @field_validator("public", "cors_origins", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        return words_of(value) if isinstance(value, str) else value

    @field_validator("public")
    @classmethod
    def _public(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        return each(words, lambda word: word in PUBLIC, f"name {' or '.join(PUBLIC)}")

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        return each(
            words,
            is_origin,
            "name origins as browsers send them, such as https://console.example.org",
        )

    @field_validator("jwt_roles", mode="before")
    @classmethod
    def _roles(cls, value: Any) -> Any:
        return roles_of(value) if isinstance(value, str) else value

    @field_validator("jwt_role_claim")
    @classmethod
    def _role_claim(cls, name: str) -> str:
        if not name:
            raise ValueError("it is empty; send the name of a claim, or leave it unset for role")
        return name

    @model_validator(mode="after")
    def _jwks(self) -> "AccessSettings":
        url = self.jwt_jwks_url
        if url and not is_web_address(url):
            raise ValueError(f"RECRAWL_JWT_JWKS_URL: {url!r} is no http(s) address")
        if url and not (self.jwt_jwks_http or is_safe(url)):
            raise ValueError(
                f"RECRAWL_JWT_JWKS_URL: {url!r} is neither https nor on this machine; use https, "
                "or set RECRAWL_JWT_JWKS_HTTP=true if nobody else can write to the network on the "
                "way"
            )
        return self

    @model_validator(mode="after")
    def _whole_provider(self) -> "AccessSettings":
        parts = {
            "JWT_ISSUER": self.jwt_issuer,
            "JWT_AUDIENCE": self.jwt_audience,
            "JWT_JWKS_URL": self.jwt_jwks_url,
        }
        missing = [f"RECRAWL_{name}" for name, value in parts.items() if not value]
        if 0 < len(missing) < len(parts):
            raise ValueError(
                f"{' and '.join(missing)} must be set too, because tokens need an issuer, an "
                "audience and an address of keys"
            )
        return self

    def tokens(self) -> TokenSettings | None:
        """Return the settings of the identity provider; None without one."""
        if not (self.jwt_issuer and self.jwt_audience and self.jwt_jwks_url):
            return None
        return TokenSettings(
            issuer=self.jwt_issuer,
            audience=self.jwt_audience,
            jwks_url=self.jwt_jwks_url,
            role_claim=self.jwt_role_claim,
            roles=self.jwt_roles,
        )


def words_of(text: str) -> tuple[str, ...]:
    """Return the words between commas.

    >>> words_of("metrics, docs,")
    ('metrics', 'docs')
    """
    words = (unquoted(word.strip()) for word in unquoted(text.strip()).split(","))
    return tuple(word for word in words if word)


def each(words: tuple[str, ...], allowed: Callable[[str], bool], remedy: str) -> tuple[str, ...]:
    """Return the words; raise `ValueError` for the first one that is not allowed."""
    for word in words:
        if not allowed(word):
            raise ValueError(f"{word!r} is not valid; {remedy}")
    return words


ORIGIN = re.compile(
    r"(?P<scheme>https?)://([a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(:(?P<port>[0-9]+))?"
)
"""Pattern of an origin as browsers write it: small letters, other alphabets as Punycode."""
DEFAULT_PORTS = {"http": "80", "https": "443"}
"""Ports that browsers leave out."""


def is_origin(text: str) -> bool:
    """Return whether a text is an origin; `*` is none, because keys travel with the requests.

    >>> [is_origin(text) for text in ("https://a.example", "https://a.example/", "*", "null")]
    [True, False, False, False]
    >>> [is_origin(text) for text in ("https://A.example", "https://a.example:99999")]
    [False, False]

    An origin that no browser sends would admit nobody, without a word:

    >>> [is_origin(text) for text in ("https://*.example", "https://a.example:443", "https://ü.de")]
    [False, False, False]
    >>> [is_origin(text) for text in ("http://[::1]:3000", "http://127.0.0.1", "http://a_b:443")]
    [True, True, True]
    """
    parts = ORIGIN.fullmatch(text)
    return parts is not None and parts["port"] != DEFAULT_PORTS[parts["scheme"]] and has_port(text)


def has_port(url: str) -> bool:
    """Return whether the port of a URL is valid, or left out."""
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


def is_safe(url: str) -> bool:
    """Return whether nobody on the network can replace the answer of a URL.

    >>> [is_safe(url) for url in ("https://a.example/jwks", "http://a.example/jwks")]
    [True, False]
    """
    return is_web_address(url) and (urlsplit(url).scheme == "https" or is_on_this_machine(url))


def is_web_address(url: str) -> bool:
    """Return whether a URL is one of http or https, with a host.

    >>> [is_web_address(url) for url in ("http://a.example/jwks", "file:///jwks", "http://[")]
    [True, False, False]
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and has_port(url)


def is_on_this_machine(url: str) -> bool:
    """Return whether a URL names this machine, which no proxy can reach."""
    return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")


def roles_of(text: str) -> dict[str, Role]:
    """Return the role of each value, from words VALUE=ROLE between commas, or from JSON.

    >>> roles_of("ops=admin, CN=x=crawl"), roles_of('{"CN=ops,OU=search": "admin"}')
    ({'ops': <Role.admin: 4>, 'CN=x': <Role.crawl: 3>}, {'CN=ops,OU=search': <Role.admin: 4>})
    """
    remedy = f"send VALUE=ROLE between commas, or JSON, with a role of {role_names()}"
    if text.lstrip().startswith("{"):
        try:
            pairs = msgspec.json.decode(text.encode(), type=dict[str, str])
        except msgspec.MsgspecError as error:
            raise ValueError(f"it is no JSON object of texts ({error}); {remedy}") from error
    else:
        split = (word.rpartition("=") for word in words_of(text))
        pairs = {value: role for value, _, role in split}
    for value, role in pairs.items():
        if not value or role not in Role.__members__:
            raise ValueError(f"{f'{value}={role}'!r} is not valid; {remedy}")
    return {value: Role[role] for value, role in pairs.items()}


def keys_of(text: str) -> tuple[str, ...]:
    """Return the keys between commas; raise `ValueError` for unusable keys without showing them."""
    keys = words_of(text)
    if text.strip() and not keys:  # without a key everybody would be admitted
        raise ValueError("RECRAWL_API_KEYS holds no key between its commas; unset it or name one")
    if not all(key.isascii() and key.isprintable() for key in keys):
        raise ValueError("RECRAWL_API_KEYS has a character that is not printable ASCII; remove it")
    if any(key[0] in QUOTES or key[-1] in QUOTES for key in keys):
        raise ValueError("RECRAWL_API_KEYS holds a quote at the end of a key; remove the quotes")
    if any(key.startswith(KEY_PREFIX) for key in keys):
        raise ValueError(
            f"RECRAWL_API_KEYS holds a key that begins with {KEY_PREFIX}, as keys of the database "
            "do; those need no setting, remove it"
        )
    if any(key.startswith(PLACEHOLDER) for key in keys):
        raise ValueError(
            f"RECRAWL_API_KEYS holds a key that begins with {PLACEHOLDER}, as keys of examples do; "
            f"use a key of your own, as {MAKE_KEY} prints"
        )
    if keys and (shortest := min(map(len, keys))) < MIN_KEY_LENGTH:
        raise ValueError(
            f"RECRAWL_API_KEYS holds a key of {shortest} characters; use {MIN_KEY_LENGTH} or more, "
            f"as {MAKE_KEY} prints"
        )
    return keys
