"""Checks before an endpoint is called: the API key, and names of the query that are unknown."""

import hmac

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError

from service.api.service import key_hash, the_service
from service.model.errors import Unauthorized


def check_key(request: Request) -> None:
    """Raise `Unauthorized` without one of the API keys; where none are set, every call passes."""
    key_hashes = the_service(request).key_hashes
    if not key_hashes:
        return
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    sent = key_hash(key.strip()) if scheme.lower() == "bearer" else b""
    matches = [hmac.compare_digest(sent, each) for each in key_hashes]
    if not any(matches):
        raise Unauthorized


def check_query(request: Request) -> None:
    """Refuse parameters that a path does not have: a misspelt one would change nothing.

    Raises
    ------
    RequestValidationError
        Some are unknown; says which, and what there is.
    """
    if not request.scope["query_string"]:
        return
    names = request.scope["route"].parameters.query_names
    available = f"there are {', '.join(names)}" if names else "there are none"
    if unknown := [name for name in request.query_params if name not in names]:
        raise RequestValidationError(
            [
                {"loc": ("query", name), "msg": f"no such parameter; remove it, {available}"}
                for name in unknown
            ]
        )


GUARDED = [Depends(check_key), Depends(check_query)]
"""Guards of every router whose callers need an API key."""
