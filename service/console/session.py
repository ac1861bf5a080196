"""Sessions: the caller's key in a sealed cookie, and the tokens of its forms.

The cookie is encrypted and signed (Fernet) with a secret that the database keeps, so every server
can open it. Each request presents the key of its session to the gate, as the header Authorization
does: a key that was revoked or has expired ends its sessions as fast as it ends other requests.
Neither the cookie nor the database alone is of use: the cookie does not show the key, and the
database has no key from which a cookie could be made. A sign-out keeps a digest of the session in
the database, so every server refuses its cookie.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
from cryptography.fernet import Fernet, InvalidToken
from starlette.responses import Response
from starlette.types import Scope

from service.api.origins import is_local
from service.api.prefix import root_of
from service.storage import Store
from service.storage.clock import Clock

COOKIE = "recrawl_session"
LIFETIME_S = 12 * 3_600
"""Lifetime of a session from the sign-in, seconds."""
MAX_KEY = 2_500
"""Maximum length of the key of a session, characters: a browser keeps cookies up to 4,096."""
PATH = "/console"


@dataclass(frozen=True, slots=True)
class Session:
    """The state of a visitor; servers keep none of it until the sign-out."""

    key: str = field(default="", repr=False)
    """Key or token of the visitor; "" before the sign-in."""
    salt: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    """Secret of the tokens of the session's forms."""

    @property
    def digest(self) -> bytes:
        """Digest by which the database names this session after its sign-out."""
        return hashlib.sha256(self.salt.encode()).digest()

    def form_token(self) -> str:
        """Return a new token for a form; every token differs, so compressed pages betray none."""
        nonce = secrets.token_hex(8)
        return f"{nonce}.{self._signature(nonce)}"

    def owns(self, token: str) -> bool:
        """Return whether a token of a form belongs to this session."""
        nonce, _, signature = token.partition(".")
        return hmac.compare_digest(self._signature(nonce).encode(), signature.encode())

    def _signature(self, nonce: str) -> str:
        return hmac.new(self.salt.encode(), nonce.encode(), "sha256").hexdigest()


class Seal:
    """The secret that seals the cookies of all servers of a database."""

    def __init__(self, store: Store, now: Clock, incarnation: Callable[[], str] = str) -> None:
        self.store = store
        self.now = now
        self.incarnation = incarnation
        """Name of the database's incarnation; each has a secret of its own."""
        self._sealed: tuple[str, Fernet] | None = None

    def fernet(self) -> Fernet:
        """Return the cipher; the first server of an incarnation makes its secret."""
        name = self.incarnation()
        if self._sealed is None or self._sealed[0] != name:
            with self.store.begin(write=False) as tx:
                secret = tx.console_secret()
            if not secret:
                with self.store.begin() as tx:
                    tx.keep_console_secret(Fernet.generate_key().decode())
                    secret = tx.console_secret()
            self._sealed = name, Fernet(secret)
        return self._sealed[1]

    def close(self, session: Session) -> str:
        """Return the cookie of a session."""
        content = msgspec.json.encode(session)
        return self.fernet().encrypt_at_time(content, self._seconds()).decode()

    def open(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None for one that is old, or not of these servers."""
        try:
            content = self.fernet().decrypt_at_time(cookie, LIFETIME_S, self._seconds())
        except (InvalidToken, ValueError):  # ValueError: characters beyond ASCII
            return None
        return msgspec.json.decode(content, type=Session)

    def _seconds(self) -> int:
        return int(self.now().timestamp())


def end(store: Store, session: Session) -> None:
    """Keep the digest of a session for as long as its cookie would work."""
    with store.begin() as tx:
        now = tx.now()
        tx.end_session(session.digest, now)
        tx.forget_sessions(now - timedelta(seconds=LIFETIME_S))


def cookie_attributes(scope: Scope) -> dict[str, Any]:
    """Return the attributes of cookies; browsers send them over HTTPS only, except on loopback."""
    local = scope["scheme"] == "http" and is_local(scope)
    path = f"{root_of(scope)}{PATH}"
    return {"path": path, "secure": not local, "httponly": True, "samesite": "strict"}


def keep(response: Response, scope: Scope, cookie: str) -> None:
    """Send the cookie of a session."""
    response.set_cookie(COOKIE, cookie, max_age=LIFETIME_S, **cookie_attributes(scope))


def forget(response: Response, scope: Scope) -> None:
    """Delete the cookie of a session."""
    response.delete_cookie(COOKIE, **cookie_attributes(scope))
