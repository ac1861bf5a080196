"""The gate of a process, from its settings."""

import time
from functools import partial
from typing import Any

import httpx
import msgspec

from service.access.gate import Gate
from service.access.keyring import KeyRing
from service.access.tokens import TokenChecker
from service.runtime.access_settings import AccessSettings
from service.storage import Store
from service.storage.clock import Clock

TIMEOUT_S = 5.0
"""Maximum time of one step of fetching the provider's keys, seconds."""
MAX_BYTES = 1_000_000
"""Maximum size of a set of keys, bytes."""


def open_gate(store: Store, settings: AccessSettings, now: Clock) -> Gate:
    """Return the gate, with the keys that the database has now.

    Raises
    ------
    InvalidSettings
        Tokens are set up, and the package that checks them is not installed.
    StoreUnavailable
        The database does not answer.
    """
    n_slots, provider = settings.max_requests_per_key, settings.tokens()
    environment = [key.get_secret_value() for key in settings.api_keys]
    ring = KeyRing(store, environment, now, n_slots=n_slots)
    ring.refresh()
    tokens = None
    if provider is not None:
        fetch = partial(fetch_jwks, provider.jwks_url)
        tokens = TokenChecker(provider, fetch, now, n_slots=n_slots)
    return Gate(ring, tokens, frozenset(settings.public), shared=settings.open)


def fetch_jwks(url: str) -> Any:
    """Return the set of keys at an address that the operator has chosen.

    Raises
    ------
    httpx.HTTPError, msgspec.DecodeError, ValueError
        The address does not answer, redirects, or sends no JSON or too much.
    """
    with httpx.Client(timeout=TIMEOUT_S, trust_env=False) as client, client.stream("GET", url) as r:
        r.raise_for_status()
        content, ends_at = bytearray(), time.monotonic() + TIMEOUT_S
        for part in r.iter_bytes():
            content += part
            if time.monotonic() > ends_at:
                raise ValueError(f"the set of keys takes over {TIMEOUT_S:g} s")
            if len(content) > MAX_BYTES:
                raise ValueError(f"the set of keys has over {MAX_BYTES} bytes")
        return msgspec.json.decode(bytes(content))
