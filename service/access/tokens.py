"""JSON Web Tokens of an identity provider, in place of keys (extra `recrawl[jwt]`).

A token is checked once, then looked up by its SHA-256 until it expires. The provider's public keys
are read from its JWKS address every `FRESH_S`, and when a token names an unknown key. While the
address does not answer, the last keys stay in force for `KEPT_S`.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from threading import Lock
from typing import Any

import structlog

from service.access.callers import Caller
from service.access.limits import Slots
from service.model.access import Role
from service.model.errors import AccessUnavailable, Forbidden, InvalidSettings

FRESH_S, KEPT_S = 300.0, 3_600.0
"""Age of the provider's keys at which they are read again, and at which they end, seconds."""
RETRY_S = 10.0
"""Minimum time between two readings, seconds."""
MAX_CACHED = 10_000
"""Maximum number of tokens and of subjects in memory."""
LEEWAY_S = 30
"""Tolerance for the provider's clock, seconds."""
LAST = 1e15
"""Latest instant of a token, seconds since 1970."""
MAX_TOKEN = 8_192
"""Maximum length of a token, characters."""
MAX_SUBJECT = 200
"""Maximum length of a subject in the audit, characters."""
ALGORITHMS = frozenset(
    ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
)
"""Accepted algorithms: signatures with a public key only."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """Settings of the identity provider."""

    issuer: str
    audience: str
    jwks_url: str
    role_claim: str
    roles: Mapping[str, Role]
    """Role by the value of the claim; the names of the roles count too."""


class UnknownSigner(Exception):
    """The token is signed by a key that has not been read."""


class TokenChecker:
    """Checks tokens against the public keys of one provider."""

    def __init__(
        self,
        settings: TokenSettings,
        fetch: Callable[[], Any],
        now: Callable[[], datetime],
        *,
        n_slots: int,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            import jwt
        except ImportError as error:
            raise InvalidSettings(
                "RECRAWL_JWT_ISSUER needs the package PyJWT; install recrawl[jwt] or unset it"
            ) from error
        self.jwt: Any = jwt
        self.settings = settings
        self.fetch = fetch
        self.now = now
        self.n_slots = n_slots
        self.seconds = seconds
        self.signers: dict[str | None, Any] = {}
        """Public keys of the provider by their id."""
        self.document: Any = None
        """Set of keys as it was read last."""
        self.read_at = -KEPT_S
        self.tried_at = -KEPT_S
        self.reading = Lock()
        self.turn = asyncio.Lock()
        """Held by the request that waits for a reading."""
        self.checked: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()
        """Caller and expiry of each token, by the SHA-256 of the token."""
        self.callers: OrderedDict[tuple[str, Role], Caller] = OrderedDict()

    def caller(self, token: str) -> Caller | None:
        """Return the caller who shows a token; None for a token that is not valid.

        Raises
        ------
        UnknownSigner
            The token is signed by an unknown key: call `refresh`, then this again.
        AccessUnavailable
            The provider's keys have not been read for `KEPT_S`.
        Forbidden
            The token is valid, and its claim names no role.
        """
        if len(token) > MAX_TOKEN:
            return None
        if self.seconds() - self.read_at > KEPT_S:
            raise UnknownSigner if self.may_refresh() else AccessUnavailable
        digest = sha256(token.encode()).digest()
        cached = self.checked.get(digest)
        if cached is None:
            cached = self._check(token)
            if cached is None:
                return None
            remember(self.checked, digest, cached)
        caller, expires_at = cached
        return caller if self.now().timestamp() < expires_at + LEEWAY_S else None

    def _check(self, token: str) -> tuple[Caller, float] | None:
        try:
            kid = self.jwt.get_unverified_header(token).get("kid")
            signer = self._signer(kid)
            claims = self.jwt.decode(
                token,
                key=signer.key,
                algorithms=[signer.algorithm_name],
                audience=self.settings.audience,
                issuer=self.settings.issuer,
                leeway=LEEWAY_S,
                options={
                    "require": ["exp", "iss", "aud", "sub"],
                    "verify_exp": False,  # by the service's clock, below
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except self.jwt.PyJWTError:
            return None
        return self._admitted(claims)

    def _admitted(self, claims: Mapping[str, Any]) -> tuple[Caller, float] | None:
        """Return the caller of verified claims, unless the token does not run now."""
        now, begins, expires_at = self.now().timestamp(), claims.get("nbf", 0), claims["exp"]
        if not all(isinstance(at, int | float) and abs(at) < LAST for at in (begins, expires_at)):
            return None
        if not begins - LEEWAY_S <= now < expires_at + LEEWAY_S:
            return None
        role = self._role(claims)
        subject = str(claims["sub"])[:MAX_SUBJECT]
        if not subject.isprintable():  # no database and no log takes each of these
            return None
        key = subject, role
        if key not in self.callers:
            caller = Caller(f"jwt:{subject}", role, known=True, slots=Slots(self.n_slots))
            remember(self.callers, key, caller)
        return self.callers[key], float(expires_at)

    def _role(self, claims: Mapping[str, Any]) -> Role:
        value = claims.get(self.settings.role_claim)
        names = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        roles_by_name = {**Role.__members__, **self.settings.roles}
        roles = [
            roles_by_name[name] for name in names if isinstance(name, str) and name in roles_by_name
        ]
        if not roles:
            raise Forbidden(
                f"the claim {self.settings.role_claim} of the token names no role; see "
                "RECRAWL_JWT_ROLE_CLAIM and RECRAWL_JWT_ROLES"
            )
        return max(roles)

    def _signer(self, kid: object) -> Any:
        if kid is None and len(self.signers) == 1:
            return next(iter(self.signers.values()))
        if not isinstance(kid, str):
            raise self.jwt.InvalidTokenError
        if kid not in self.signers:
            if self.may_refresh():
                raise UnknownSigner
            raise self.jwt.InvalidTokenError
        return self.signers[kid]

    # -- the provider's keys

    def may_refresh(self) -> bool:
        """Return whether a reading may begin, or has begun and may soon have ended."""
        return self.reading.locked() or self.is_due()

    def is_due(self) -> bool:
        """Return whether the last reading was long enough ago."""
        return self.seconds() - self.tried_at >= RETRY_S

    def refresh(self) -> None:
        """Read the provider's keys; keep the last ones if the address does not answer."""
        with self.reading:
            if not self.is_due():
                return
            self.tried_at = self.seconds()
            try:
                document = self.fetch()
                signers = self._signers(document)
            except Exception as error:  # noqa: BLE001 - whatever a stranger's server sends
                log.warning("the JWKS address does not answer", error=type(error).__name__)
                return
            if document != self.document:
                self.signers, self.document = signers, document
                self.checked = OrderedDict()  # a key that is gone no longer vouches for its tokens
                log.info("keys of the identity provider read", n_keys=len(signers))
            self.read_at = self.seconds()

    def stale(self) -> bool:
        """Return whether the provider's keys should be read again."""
        return self.seconds() - self.read_at > FRESH_S and self.may_refresh()

    def _signers(self, document: Any) -> dict[str | None, Any]:
        signers: dict[str | None, Any] = {}
        for each in document["keys"]:
            if not (isinstance(each, dict) and isinstance(each.get("kid"), str | None)):
                continue
            try:
                signer = self.jwt.PyJWK(each)
            except self.jwt.PyJWTError:  # an unknown kind of key beside useful ones
                continue
            if signer.algorithm_name in ALGORITHMS and each.get("use", "sig") == "sig":
                signers[each.get("kid")] = signer
        if not signers:
            raise ValueError("the set has no public key of a known algorithm")
        return signers


def remember(cache: "OrderedDict[Any, Any]", name: object, value: object) -> None:
    """Add a value to a cache of bounded size; the oldest value leaves."""
    cache[name] = value
    while len(cache) > MAX_CACHED:
        cache.popitem(last=False)
