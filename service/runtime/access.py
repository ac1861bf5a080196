"""The gate of a process, from its settings."""

from functools import partial
from typing import Any

import msgspec

from service.access.gate import Gate
from service.access.keyring import KeyRing
from service.access.tokens import TokenChecker
from service.connectors.guarded import FetchLimits, Outgoing, guarded_client, inflated_within
from service.runtime.access_settings import AccessSettings
from service.storage import Store
from service.storage.clock import Clock

MAX_BYTES = 1_000_000
"""Maximum size of a set of keys, bytes."""
JWKS_LIMITS = FetchLimits(seconds=5.0, max_bytes=MAX_BYTES)
"""Limits of a request for the keys of an identity provider."""


def open_gate(
    store: Store,
    settings: AccessSettings,
    now: Clock,
    outgoing: Outgoing = Outgoing(),  # noqa: B008 - frozen
) -> Gate:
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
        fetch = partial(fetch_jwks, provider.jwks_url, outgoing)
        tokens = TokenChecker(provider, fetch, now, n_slots=n_slots)
    return Gate(ring, tokens, frozenset(settings.public), shared=settings.open)


def fetch_jwks(url: str, outgoing: Outgoing = Outgoing()) -> Any:  # noqa: B008 - frozen
    """Return the set of keys at an address that the operator has chosen.

    Raises
    ------
    httpx.HTTPError, msgspec.DecodeError, ValueError
        The address does not answer, redirects, or sends no JSON or too much.
    """
    client = guarded_client(
        JWKS_LIMITS, private=True, headers={"Accept-Encoding": "gzip"}, outgoing=outgoing
    )
    with client, client.stream("GET", url) as response:
        response.raise_for_status()
        return msgspec.json.decode(inflated_within(response, MAX_BYTES))
