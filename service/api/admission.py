"""Admission of requests: the caller by its key, the rights, the limits of the key."""

import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from service.access.callers import ANYONE, STRANGER, Caller
from service.access.gate import Gate
from service.access.roles import Right, right_of
from service.access.tokens import UnknownSigner
from service.api.assembly import the_monitored
from service.api.origins import has_own_name, is_local, peer_of, refuse_others
from service.api.prefix import root_of
from service.api.responses import problems
from service.api.threads import CALLER_NAME
from service.model.access import Actor
from service.model.errors import Forbidden, ProviderUnavailable, RecrawlError, Unauthorized
from service.runtime.requests import BODY, QUESTION, SECURITY, SLOTS, ask_again

CALLER = "caller"
"""Key of a scope: the caller of the request."""
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
        As `Gate.admit`; and as `refuse_others`, of a service without keys.
    RateLimited
        The key has used up its items, or too many of its requests wait.
    """
    scope, service = request.scope, the_monitored(request)
    # a pipelined request has the context of the one before
    QUESTION.set(None)
    if right.public_as and (
        right.public_as in service.gate.public or (is_local(scope) and has_own_name(scope))
    ):
        CALLER_NAME.set(f"@{peer_of(scope)}")
        scope[CALLER] = STRANGER
        return
    try:
        caller = await identified(service.gate, shown_key(scope), right, operation)
        if caller is ANYONE:
            refuse_others(scope, shared=service.gate.shared, acts_by_link=right.acts_by_link)
    except (Unauthorized, Forbidden):
        if not right.site_key or service.key_checks is None:
            raise
        caller = STRANGER
    question = partial(service.gate.ask_again, shown_key(scope), right, operation)
    await take_place(scope, caller, None if caller is STRANGER else question)


async def take_place(scope: Scope, caller: Caller, question: Callable[[], object] | None) -> None:
    """Write the caller of a request into its scope, and take a place in work for its key.

    The question is asked again while the request works (`runtime.requests.ask_again`).

    Raises
    ------
    RateLimited
        The key has used up its items, or too many of its requests wait.
    Unauthorized, Forbidden, AccessUnavailable
        The right has ended before the place was free.
    """
    QUESTION.set(question)
    CALLER_NAME.set(caller.name if caller.known else f"@{peer_of(scope)}")
    scope[CALLER] = caller
    if caller.bucket is not None:
        caller.bucket.admit(time.monotonic())
    if caller.slots is not None:
        await caller.slots.take()
        scope[SLOTS] = caller.slots
        ask_again()


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
    except UnknownSigner as error:
        raise ProviderUnavailable from error


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
        scope["root_path"] = scope["root_path"] or root_of(scope)
        try:
            await enter(request, "docs", right_of("docs"))
        except RecrawlError as error:
            answer = await problems.respond(request, error)
        try:
            await answer(scope, receive, send)
        finally:
            leave(scope)
