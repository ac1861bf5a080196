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

from service.access.callers import OF_TOKENS, Caller
from service.access.claims import SUBJECTS, role_names, subject_of
from service.access.limits import Slots
from service.access.signers import NO_SIGNERS, Signer, signers_of
from service.model.access import Role
from service.model.errors import Forbidden, InvalidSettings, ProviderUnavailable, Unauthorized
from service.model.redaction import redacted

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
MAX_SHOWN = 120
"""Maximum length of a value of a token in a reason, characters."""
NOTED_S, MAX_NOTED = 60.0, 30
"""Time within which a reason is logged once, seconds, and maximum number of reasons in that time.
"""
NOT_READ = "not read yet"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """Settings of the identity provider."""

    issuer: str
    audience: str
    jwks_url: str
    role_claim: str
    """Name of a claim, or a path of names with dots between."""
    roles: Mapping[str, Role]
    """Role by the value of the claim; the names of the roles count too."""


class UnknownSigner(Exception):
    """The token is signed by a key that has not been read; the message has the reason."""


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
        self.roles = {**Role.__members__, **settings.roles}
        self.fetch = fetch
        self.now = now
        self.n_slots = n_slots
        self.seconds = seconds
        self.signers = NO_SIGNERS
        """Public keys of the provider."""
        self.document: Any = None
        """Set of keys as it was read last."""
        self.trouble = NOT_READ
        """Reason why the keys could not be read last."""
        self.read_at = -KEPT_S
        self.tried_at = -KEPT_S
        self.reading = Lock()
        self.turn = asyncio.Lock()
        """Held by the request that waits for a reading."""
        self.checked: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()
        """Caller and expiry of each token, by the SHA-256 of the token."""
        self.callers: OrderedDict[tuple[str, Role], Caller] = OrderedDict()
        self.noted: set[str] = set()
        """Reasons that were logged since `noted_at`."""
        self.noted_at = -NOTED_S

    def caller(self, token: str) -> Caller:
        """Return the caller who shows a token; the log has the reason of a refusal.

        Raises
        ------
        UnknownSigner
            The token is signed by an unknown key: call `refresh`, then this again.
        ProviderUnavailable
            The provider's keys have not been read for `KEPT_S`.
        Unauthorized
            The token is not valid.
        Forbidden
            The token is valid, and its claim names no role.
        """
        try:
            return self._caller(token)
        except (Unauthorized, Forbidden) as error:
            self._note(error.detail)
            raise

    def _caller(self, token: str) -> Caller:
        if len(token) > MAX_TOKEN:
            raise refusal(f"it has over {MAX_TOKEN} characters")
        if self.seconds() - self.read_at > KEPT_S:
            unread = UnknownSigner(self.trouble)
            if self.may_refresh():
                raise unread
            raise ProviderUnavailable from unread
        digest = sha256(token.encode()).digest()
        cached = self.checked.get(digest)
        if cached is None:
            cached = self._admitted(self._verified(token))
            remember(self.checked, digest, cached)
        caller, expires_at = cached
        self._check_expiry(expires_at)
        return caller

    def _verified(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token of the provider for this service; its times may be wrong."""
        try:
            header = self.jwt.get_unverified_header(token)
            signers = self._signers(header.get("kid"), header.get("alg"))
            return self._decoded(token, signers, header["alg"])
        except self.jwt.InvalidSignatureError as error:
            named = shown(header.get("kid", "without a name"))
            raise refusal(f"its signature is not that of the key {named}") from error
        except self.jwt.MissingRequiredClaimError as error:
            raise refusal(f"it has no claim {error.claim}") from error
        except (self.jwt.InvalidAudienceError, self.jwt.InvalidIssuerError) as error:
            raise self._of_others(token) from error
        except (self.jwt.DecodeError, RecursionError) as error:
            raise refusal("it is no JSON Web Token") from error
        except self.jwt.PyJWTError as error:
            raise refusal(shown(str(error))) from error

    def _signers(self, kid: str | None, algorithm: object) -> list[Signer]:
        """Return the keys that may have signed a token, by its name of the key and algorithm."""
        named = self.signers.of(kid)
        if named is None and kid is None:
            raise refusal(f"it names no key (kid), and the provider has {self.signers.n_keys}")
        if named is None:
            if self.may_refresh():
                raise UnknownSigner(self.trouble)
            raise refusal(f"the provider has no key of the name {shown(kid)}")
        signers = [signer for signer in named if algorithm in signer.algorithms]
        if not signers:
            accepted = ", ".join(sorted(frozenset().union(*(each.algorithms for each in named))))
            raise refusal(f"its algorithm is {shown(algorithm)}, and its key signs by {accepted}")
        return signers

    def _decoded(self, token: str, signers: list[Signer], algorithm: str) -> Mapping[str, Any]:
        """Return the claims, verified by the first of the keys that has signed them."""
        for i, signer in enumerate(signers, 1):
            try:
                claims: Mapping[str, Any] = self.jwt.decode(
                    token,
                    key=signer.key,
                    algorithms=[algorithm],  # one of the key, never another of the token
                    audience=self.settings.audience,
                    issuer=self.settings.issuer,
                    leeway=LEEWAY_S,
                    options={
                        "require": ["exp", "iss", "aud"],
                        "enforce_minimum_key_length": True,
                        "verify_exp": False,  # by the service's clock, below
                        "verify_nbf": False,
                        "verify_iat": False,
                    },
                )
            except self.jwt.InvalidSignatureError:
                if i == len(signers):
                    raise
            else:
                return claims
        raise AssertionError("there is a key")

    def _of_others(self, token: str) -> Unauthorized:
        """Return the refusal of a token of another issuer, or for another audience."""
        claims = self.jwt.decode(token, options={"verify_signature": False})
        issuer, audience = self.settings.issuer, self.settings.audience
        if claims["iss"] != issuer:
            return refusal(f"its issuer (iss) is {shown(claims['iss'])}, not {shown(issuer)}")
        return refusal(f"its audience (aud) is {shown(claims['aud'])}, without {shown(audience)}")

    def _admitted(self, claims: Mapping[str, Any]) -> tuple[Caller, float]:
        """Return the caller of verified claims and their expiry, if they are in force now."""
        now, begins, expires_at = self.now().timestamp(), claims.get("nbf", 0), claims["exp"]
        if not all(isinstance(at, int | float) and abs(at) < LAST for at in (begins, expires_at)):
            raise refusal("its exp or nbf is no number of seconds")
        if now < begins - LEEWAY_S:
            raise refusal(f"it begins in {begins - now:.0f} s (nbf) by the service's clock")
        self._check_expiry(expires_at)
        subject = (subject_of(claims) or "")[:MAX_SUBJECT]
        if not subject:
            raise refusal(f"it names no subject, by none of {', '.join(SUBJECTS)}")
        if not subject.isprintable():  # no database and no log takes each of these
            raise refusal("its subject has a character that is not printable")
        role = self._role(claims)
        key = subject, role
        if key not in self.callers:
            caller = Caller(f"{OF_TOKENS}{subject}", role, known=True, slots=Slots(self.n_slots))
            remember(self.callers, key, caller)
        return self.callers[key], float(expires_at)

    def _check_expiry(self, expires_at: float) -> None:
        late_s = self.now().timestamp() - expires_at
        if late_s >= LEEWAY_S:
            raise refusal(f"it expired {late_s:.0f} s ago (exp) by the service's clock")

    def _role(self, claims: Mapping[str, Any]) -> Role:
        names = role_names(claims, self.settings.role_claim)
        roles = [self.roles[name] for name in names if name in self.roles]
        if not roles:
            content = f"has {shown(names)}, which" if names else "is missing or has no names, so it"
            raise Forbidden(
                f"the claim {self.settings.role_claim} of the token names no role; see "
                f"RECRAWL_JWT_ROLE_CLAIM and RECRAWL_JWT_ROLES: it {content} stands for none"
            )
        return max(roles)

    def _note(self, reason: str) -> None:
        """Log a reason; strangers cannot fill the log with made-up names of keys."""
        at = self.seconds()
        if at - self.noted_at >= NOTED_S:
            self.noted, self.noted_at = set(), at
        if reason not in self.noted and len(self.noted) < MAX_NOTED:
            self.noted.add(reason)
            log.warning("token refused", reason=reason)

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
                signers = signers_of(self.jwt, document)
            except Exception as error:  # noqa: BLE001 - whatever a stranger's server sends
                self._warn(error)
                return
            if document != self.document:
                self.signers, self.document = signers, document
                self.checked = OrderedDict()  # a key that is gone no longer vouches for its tokens
                log.info(
                    "keys of the identity provider read",
                    n_keys=signers.n_keys,
                    n_skipped=signers.n_skipped,
                )
            self.read_at, self.trouble = self.seconds(), NOT_READ

    def _warn(self, error: Exception) -> None:
        left_s, name = KEPT_S - (self.tried_at - self.read_at), type(error).__name__
        reason = redacted(str(error))[:300]
        self.trouble = f"{self.settings.jwks_url}: {name}: {reason}"
        log.warning(
            "the JWKS address does not answer",
            address=self.settings.jwks_url,
            error=name,
            reason=reason,
            last_keys_count_s=round(max(left_s, 0.0)),
        )

    def stale(self) -> bool:
        """Return whether the provider's keys should be read again."""
        return self.seconds() - self.read_at > FRESH_S and self.may_refresh()


def refusal(reason: str) -> Unauthorized:
    """Return the error of a token that is not valid; its reason never has the token."""
    return Unauthorized(f"the token is not valid: {reason}")


def shown(value: object) -> str:
    r"""Return a value of a token for a reason, in ASCII and of bounded length.

    >>> shown("aé"), len(shown("x" * 10_000))
    ("'a\\xe9'", 121)
    """
    text = ascii(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}~"


def remember(cache: "OrderedDict[Any, Any]", name: object, value: object) -> None:
    """Add a value to a cache of bounded size; the oldest value leaves."""
    cache[name] = value
    while len(cache) > MAX_CACHED:
        cache.popitem(last=False)
