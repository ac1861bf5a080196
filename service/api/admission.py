"""Admission of requests: the caller by its key, the rights, the limits of the key."""

import time
from functools import lru_cache
from ipaddress import ip_address
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from service.access.callers import ANYONE, STRANGER, Caller
from service.access.gate import Gate
from service.access.roles import Right, right_of
from service.access.tokens import UnknownSigner
from service.api.assembly import the_monitored
from service.api.responses import problems
from service.model.access import Actor
from service.model.errors import AccessUnavailable, Forbidden, RecrawlError, Unauthorized
from service.runtime.requests import BODY, SECURITY, SLOTS

CALLER = "caller"
"""Key of a scope: the caller of the request."""
FORWARDED = frozenset((b"x-forwarded-for", b"forwarded", b"x-real-ip"))
"""Headers of a proxy, which shows that the caller may be on another machine."""
BEARER = b"bearer "

DOCUMENT_POLICY = (
    b"default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    b"img-src 'self' data:; worker-src blob:; frame-ancestors 'none'"
)
"""Content-Security-Policy of /docs, whose page starts its script inline."""


async def enter(request: Request, operation: str, right: Right) -> None:
    """Write the caller of a request into its scope, and take a place in work for its key.

    Raises
    ------
    Unauthorized, Forbidden, AccessUnavailable
        As `Gate.admit`.
    RateLimited
        The key has used up its items, or too many of its requests wait.
    """
    scope, service = request.scope, the_monitored(request)
    if right.public_as and (right.public_as in service.gate.public or is_local(scope)):
        scope[CALLER] = STRANGER
        return
    try:
        caller = await identified(service.gate, shown_key(scope), right, operation)
    except (Unauthorized, Forbidden):
        if not right.site_key or service.key_checks is None:
            raise
        caller = STRANGER
    await take_place(scope, caller)


async def take_place(scope: Scope, caller: Caller) -> None:
    """Write the caller of a request into its scope, and take a place in work for its key.

    Raises
    ------
    RateLimited
        The key has used up its items, or too many of its requests wait.
    Forbidden
        A web page of another site has made the request.
    """
    if caller is ANYONE:
        refuse_other_sites(scope)
    scope[CALLER] = caller
    if caller.bucket is not None:
        caller.bucket.admit(time.monotonic())
    if caller.slots is not None:
        await caller.slots.take()
        scope[SLOTS] = caller.slots


async def identified(gate: Gate, key: str, right: Right, operation: str) -> Caller:
    """Return the caller who shows a key; read the keys of the provider first if they are old."""
    try:
        return gate.admit(key, right, operation)
    except UnknownSigner:
        if gate.tokens is not None:
            async with gate.tokens.turn:  # so that strangers' tokens take one thread at most
                if gate.tokens.may_refresh():
                    await run_in_threadpool(gate.tokens.refresh)
    try:
        return gate.admit(key, right, operation)
    except UnknownSigner:
        raise AccessUnavailable from None


def refuse_other_sites(scope: Scope) -> None:
    """Raise `Forbidden` if a web page of another site has made this request to an open service.

    A browser states the page's site as Origin. A site that points its own name to this machine is
    shown by that name as Host, in a request from this machine.
    """
    headers = dict(scope["headers"])
    origin, host = headers.get(b"origin"), headers.get(b"host", b"")
    if origin is not None and origin.partition(b"://")[2] != host:
        listed = getattr(scope["app"].state.service, "cors_origins", ())
        if origin.decode("latin-1") not in listed:
            raise Forbidden(
                "a service without keys admits no web page of another site; list its origin in "
                "RECRAWL_CORS_ORIGINS, or create a key"
            )
    if is_local(scope) and not _is_own_name(host):
        raise Forbidden(
            "a service without keys admits calls from this machine by an address or by localhost, "
            "because a web page may have made the others; use these, or create a key"
        )


@lru_cache(1_024)
def _is_own_name(host: bytes) -> bool:
    """Return whether no name server can have given this machine the name of a Host header.

    >>> [_is_own_name(host) for host in (b"[::1]:8000", b"localhost:8000", b"api", b"a.example:1")]
    [True, True, True, False]
    """
    name = host.decode("latin-1").rpartition("]")[0].lstrip("[")
    name = name or host.decode("latin-1").partition(":")[0]
    try:
        return bool(ip_address(name))
    except ValueError:
        return "." not in name.removesuffix(".localhost")


def leave(scope: Scope) -> None:
    """Free the place of a request, and the memory of its body."""
    slots, body = scope.get(SLOTS), scope.get(BODY)
    if slots is not None:
        slots.leave()
    if body is not None:
        body.release()


def add_limits(scope: Scope, response: Response) -> None:
    """Add the header fields that state how many items the key has left."""
    caller = scope.get(CALLER)
    if caller is not None and caller.bucket is not None:
        response.headers.update(caller.bucket.headers(time.monotonic()))


def shown_key(scope: Scope) -> str:
    """Return the key in the header Authorization, "" without one."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            if value[: len(BEARER)].lower() != BEARER:
                return ""
            return str(value[len(BEARER) :].strip(), "latin-1")
    return ""


def is_local(scope: Scope) -> bool:
    """Return whether a request comes from this machine and through no proxy."""
    client = scope.get("client")
    if client is None or any(name in FORWARDED for name, _ in scope["headers"]):
        return False
    return _is_loopback(client[0])


@lru_cache(1_024)
def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def the_caller(request: Request) -> Caller:
    """Return the caller of a request."""
    caller: Caller = request.scope[CALLER]
    return caller


def the_actor(request: Request) -> Actor:
    """Return the author of an administrative act."""
    return Actor(the_caller(request).name, request.scope.get("request_id"))


TheCaller = Annotated[Caller, Depends(the_caller)]
TheActor = Annotated[Actor, Depends(the_actor)]


class Documents:
    """Pages that describe the service: an application behind the right `docs`."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with the page, or with the problem of its key."""
        request = Request(scope, receive)
        answer: Any = self.app
        scope[SECURITY] = DOCUMENT_POLICY
        try:
            await enter(request, "docs", right_of("docs"))
        except RecrawlError as error:
            answer = await problems.respond(request, error)
        try:
            await answer(scope, receive, send)
        finally:
            leave(scope)
