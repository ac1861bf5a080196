"""The gate of a process, from its settings."""

from functools import partial
from ssl import SSLContext
from typing import Any

import httpx
import msgspec

from service.access.gate import Gate
from service.access.keyring import KeyRing, full_bucket
from service.access.shared_limits import bucket_in
from service.access.tokens import TokenChecker
from service.connectors.guarded import FetchLimits, Outgoing, guarded_client
from service.connectors.inflating import inflated_within
from service.runtime.access_settings import AccessSettings, is_on_this_machine
from service.runtime.siblings import Siblings
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
    siblings: Siblings | None = None,
) -> Gate:
    """Return the gate, with the keys that the database has now.

    Processes of one server share the rates of keys.

    Raises
    ------
    InvalidSettings
        Tokens are set up, and the package that checks them is not installed.
    StoreUnavailable
        The database does not answer.
    """
    n_slots, provider = settings.max_requests_per_key, settings.tokens()
    environment = [key.get_secret_value() for key in settings.api_keys]
    new_bucket = full_bucket if siblings is None else partial(bucket_in, siblings.folder)
    ring = KeyRing(store, environment, now, n_slots=n_slots, new_bucket=new_bucket)
    ring.refresh()
    tokens = None
    if provider is not None:
        fetch = partial(fetch_jwks, provider.jwks_url, outgoing)
        tokens = TokenChecker(provider, fetch, now, n_slots=n_slots)
    return Gate(ring, tokens, frozenset(settings.public), shared=settings.open)


def fetch_jwks(url: str, outgoing: Outgoing = Outgoing()) -> Any:  # noqa: B008 - frozen
    """Return the set of keys at an address that the operator has chosen.

    So the request goes through the proxies of the environment, and trusts its certificates.

    Raises
    ------
    httpx.HTTPError, msgspec.DecodeError, ValueError, OSError
        The address does not answer, redirects, or sends no JSON or too much; SSL_CERT_FILE names
        no file.
    """
    client = guarded_client(
        JWKS_LIMITS,
        private=True,
        headers={"Accept": "application/json", "Accept-Encoding": "gzip"},
        outgoing=outgoing._replace(proxy_guards=not is_on_this_machine(url)),
        tls=own_tls(),
    )
    with client, client.stream("GET", url) as response:
        if response.has_redirect_location:
            raise ValueError(
                f"it redirects to {response.headers['Location'][:200]}; set that address"
            )
        response.raise_for_status()
        return msgspec.json.decode(inflated_within(response, MAX_BYTES))


def own_tls() -> SSLContext:
    """Return the certificates that the operator trusts, as the files are now.

    They are those of SSL_CERT_FILE or SSL_CERT_DIR, or else of httpx, and those of the system.
    """
    context = httpx.create_ssl_context()
    context.load_default_certs()
    return context
