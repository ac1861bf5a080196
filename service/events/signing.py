"""Signatures of webhooks by Standard Webhooks (standardwebhooks.com)."""

import base64
import hmac
import secrets
from collections.abc import Iterable
from datetime import datetime

PREFIX = "whsec_"
SECRET_BYTES = 32


def new_secret() -> str:
    """Return a random secret."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signed_headers(
    keys: Iterable[str], delivery: str, now: datetime, content: bytes
) -> dict[str, str]:
    """Return the headers that identify, date and sign a request, a signature for each secret.

    >>> at = datetime.fromisoformat("2026-05-01T12:00:00Z")
    >>> signed_headers(["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"], "msg_1", at, b"{}")
    {'webhook-id': 'msg_1', 'webhook-timestamp': '1777636800', 'webhook-signature': 'v1,...='}
    """
    seconds = int(now.timestamp())
    signed = f"{delivery}.{seconds}.".encode() + content
    return {
        "webhook-id": delivery,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{_signature(key, signed)}" for key in keys),
    }


def _signature(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    return base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
