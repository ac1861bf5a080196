"""A visit: one request for a page of the console, and what its view may use."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from shlex import quote
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
from fastapi import Request, Response
from jinja2 import Environment
from starlette.datastructures import QueryParams
from starlette.responses import HTMLResponse, RedirectResponse

from service.access.callers import Caller
from service.access.roles import right_of
from service.api.app import ROUTERS
from service.api.assembly import Service
from service.api.requests.bodies import JSON, Body
from service.api.route import DirectRoute
from service.console import render
from service.console.session import Session
from service.model.access import Actor

AnswerT = TypeVar("AnswerT")

THEMES = ("light", "dark")
THEME = "recrawl_theme"
"""Cookie with the visitor's choice of colours; without it, the browser's setting counts."""
DONE = {
    "crawl": "The crawl is requested; it comes as soon as politeness allows.",
    "waiting": "The page waits for a requested crawl already.",
    "page_deleted": "The page is deleted, with its state and log.",
    "paused": "The host is paused.",
    "resumed": "The host is crawled again, unless its site has asked for a pause.",
    "all_paused": "All hosts are paused; every server stops within a second.",
    "incident_ended": "The host has no incident, and its pages are crawled again.",
    "all_resumed": "The pause of all hosts is over.",
    "budget": "The budget is in force; the next epoch plans with it.",
    "polite": "The politeness is in force.",
    "host_deleted": "The host is deleted; a pause that runs comes back with it.",
    "ruled": "The rule of the URL group is in force.",
    "accepted": "The need is accepted; it counts no more until then.",
    "withdrawn": "The need counts again while it holds.",
    "webhook": "The webhook is changed.",
    "revoked": "The key is revoked; every server refuses it within 5 s.",
}
"""Sentence on an act that was done, by the word that the address of the next page has."""


@dataclass(frozen=True)
class Visit:
    """One request, its caller, and the ways to answer."""

    service: Service
    request: Request
    templates: Environment
    session: Session
    caller: Caller
    form: Mapping[str, str] = field(default_factory=dict)
    """Fields of the form of a POST."""

    @cached_property
    def now(self) -> datetime:
        """The time at which the page is made."""
        return self.service.now()

    @cached_property
    def planned_at(self) -> datetime | None:
        """The start of the epoch in force; None: there is none."""
        with self.service.store.begin(write=False) as tx:
            epoch = tx.epoch_in_force()
        return None if epoch is None else epoch.started_at

    @property
    def actor(self) -> Actor:
        """The author of acts, for the audit."""
        return Actor(self.caller.name, self.request.scope.get("request_id"))

    @property
    def wants_part(self) -> bool:
        """True if a script asks, which puts the answer into a page."""
        return "hx-request" in self.request.headers

    def may(self, operation: str) -> bool:
        """Return whether the caller has the right to an operation of the API."""
        right = right_of(operation)
        return self.caller.role is not None and self.caller.role >= (right.role or 0)

    def parameters(self, operation: str, query_string: str | None = None) -> dict[str, Any]:
        """Return the parameters of an operation of the API in the path and a query.

        Blank parameters are absent. The default is the query of the request. Raise
        `RequestValidationError` for a wrong value, with the sentence of the API.
        """
        route = route_of(operation)
        query = self.request.url.query if query_string is None else query_string
        sent = QueryParams(query)
        names = route.parameters.query_names
        values = {name: sent[name].strip() for name in names if sent.get(name, "").strip()}
        scope = {"type": "http", "query_string": urlencode(values).encode(), "headers": []}
        return route.parameters.read(Request({**scope, "path_params": self.request.path_params}))

    def ask(self, kind: type[AnswerT], endpoint: Callable[..., Response], **values: Any) -> AnswerT:
        """Return what an endpoint of the API answers, called as its route calls it."""
        response = endpoint(service=self.service, **values)
        return msgspec.json.decode(response.body, type=kind)

    def body(self, **fields: Any) -> Body:
        """Return the body of a request to an endpoint."""
        return Body(msgspec.json.encode(fields), JSON)

    # -- answers

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page, or the part of it that a script asks for."""
        theme = self.request.cookies.get(THEME, "")
        common = {
            "visit": self,
            "now": self.now,
            "may": self.may,
            "theme": theme if theme in THEMES else "",
            "path": self.request.url.path,
            "here": self.here,
            "params": self.request.query_params,
            "all_paused_until": self.service.keeper.pause_in_force(),
            "done": DONE.get(self.request.query_params.get("done", "")),
            "ago": lambda at: render.instant(at, self.now),
            "token": lambda: render.hidden("token", self.session.form_token()),
        }
        content = self.templates.get_template(template).render(**common, **values)
        return HTMLResponse(content, status, {"Cache-Control": "no-store"})

    @property
    def here(self) -> str:
        """The address of the page, without the report of an act."""
        sent = [each for each in self.request.query_params.multi_items() if each[0] != "done"]
        return f"{self.request.url.path}?{urlencode(sent)}".rstrip("?")

    def curl(self, path: str, body: str = "") -> str:
        """Return a command that asks the API, for people who copy it."""
        key = "" if self.service.gate.open else ' --oauth2-bearer "$RECRAWL_API_KEY"'
        sent = f" --json {quote(body)}" if body else ""
        return f"curl{key}{sent} {quote(f'{self.request.base_url}{path[1:]}')}"

    def go(self, path: str, done: str = "") -> Response:
        """Return a redirect to a page that reports an act."""
        mark = "&" if "?" in path else "?"
        return RedirectResponse(f"{path}{mark}done={done}" if done else path, 303)

    def back(self, path: str, done: str) -> Response:
        """Return a redirect to the page whose form was sent, or else to a path."""
        sent = self.form.get("back", "")
        return self.go(inside(sent) if sent else path, done)


@cache
def route_of(operation: str) -> DirectRoute:
    """Return the route of an operation of the API."""
    return next(
        each
        for router in ROUTERS
        for each in router.routes
        if isinstance(each, DirectRoute) and each.operation == operation
    )


def inside(path: str) -> str:
    """Return a path of the console to go on to; any other address becomes the first page.

    >>> [inside(path) for path in ("/console/pages?tag=a", "//evil.example", "/pages")]
    ['/console/pages?tag=a', '/console', '/console']
    """
    plain = path.isprintable() and path.isascii() and "\\" not in path
    ours = path == "/console" or path.startswith(("/console/", "/console?"))
    return path if plain and ours else "/console"
