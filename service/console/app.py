"""The console's routes: who may see a view, the tokens of forms, headers and errors.

Each view names an operation of the API, and needs the same right. So a role that cannot do
something through the API cannot do it here.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import NamedTuple, cast
from urllib.parse import parse_qsl, quote

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import Scope
from typing_extensions import override

from service.access.callers import STRANGER, Caller
from service.access.roles import right_of
from service.api.admission import identified, leave, take_place
from service.api.app import create_app
from service.api.assembly import Service
from service.api.origins import peer_of, refuse_others
from service.api.prefix import refuse_own_path
from service.api.requests.bodies import read_within
from service.api.responses.problems import HEADERS, STATUS
from service.api.threads import CALLER_NAME, in_thread
from service.console.render import environment, static_files
from service.console.session import (
    COOKIE,
    MAX_KEY,
    Seal,
    Session,
    cookie_attributes,
    end,
    forget,
    keep,
)
from service.console.views import (
    access,
    budget,
    changes,
    epochs,
    hosts,
    leases,
    needs,
    orders,
    overview,
    page,
    pages,
    savings,
    url_groups,
)
from service.console.visit import THEME, THEMES, Visit, inside
from service.model.errors import Forbidden, MalformedBody, RecrawlError, Unauthorized
from service.runtime.requests import QUESTION, SECURITY

MOST_FORM = 64_000
"""Maximum size of the body of a form, bytes."""
MOST_FIELDS = 50
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of the console: no script and no style within a page."""
FIRST = "get_history"
"""Operation of the first page, whose right every visitor needs."""
A_YEAR_S = 31_536_000
MEDIA = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "txt": "text/plain"}


class View(NamedTuple):
    """A page or an act of the console."""

    method: str
    path: str
    operation: str
    """Operation of the API whose right the view needs."""
    respond: Callable[[Visit], Response] | Callable[[Visit], Awaitable[Response]]
    """A function runs in a thread; a coroutine function waits for others without one."""


VIEWS = (
    View("GET", "/console", FIRST, overview.show),
    View("GET", "/console/savings", "get_savings", savings.show),
    View("GET", "/console/pages", "list_all_pages", pages.show),
    View("POST", "/console/pages/recrawl", "recrawl_pages", pages.recrawl),
    View("POST", "/console/pages/delete", "delete_pages", pages.delete),
    View("GET", "/console/pages/{page_id}", "get_page", page.show),
    View("POST", "/console/pages/{page_id}/recrawl", "recrawl_pages", page.recrawl),
    View("POST", "/console/pages/{page_id}/delete", "delete_page", page.delete),
    View("GET", "/console/hosts", "list_hosts", hosts.show_all),
    View("GET", "/console/hosts/{host}", "get_host", hosts.show),
    View("POST", "/console/hosts/{host}/pause", "pause_host", hosts.pause),
    View("POST", "/console/hosts/{host}/end-incident", "end_host_incident", hosts.end_incident),
    View("POST", "/console/hosts/{host}/politeness", "put_host", hosts.set_politeness),
    View("POST", "/console/hosts/{host}/delete", "delete_host_by_name", hosts.delete),
    View("POST", "/console/pause", "post_pause", orders.pause),
    View("POST", "/console/needs/accept", "accept_need", needs.accept),
    View("POST", "/console/needs/withdraw", "withdraw_acceptance", needs.withdraw),
    View("POST", "/console/budget", "put_budget", orders.set_budget),
    View("POST", "/console/budget/unset", "delete_budget", orders.unset_budget),
    View("GET", "/console/url-groups", "list_url_groups", url_groups.show),
    View("POST", "/console/url-groups/rule", "put_url_group", url_groups.rule),
    View("GET", "/console/epochs", "list_epochs", epochs.show_all),
    View("POST", "/console/epochs", "post_epoch", epochs.request),
    View("GET", "/console/epochs/{epoch}", "get_epoch", epochs.show),
    View("GET", "/console/plan", "get_plan", budget.show),
    View("GET", "/console/leases", "list_leases", leases.show),
    View("GET", "/console/changes", "get_changes", changes.show),
    View("GET", "/console/webhooks/{webhook_id}", "get_webhook", changes.show_webhook),
    View("POST", "/console/webhooks/{webhook_id}", "patch_webhook", changes.set_paused),
    View("POST", "/console/webhooks/{webhook_id}/test", "test_webhook", changes.test),
    View("GET", "/console/access", "list_keys", access.show),
    View("POST", "/console/access/keys", "post_key", access.create),
    View("POST", "/console/access/keys/{key_id}/revoke", "delete_key", access.revoke),
    View("POST", "/console/access/keys/{key_id}/rotate", "rotate_key", access.rotate),
)
"""Every page and act behind the sign-in."""


def create_app_with_console(service: Service) -> FastAPI:
    """Return the application of the API with the console."""
    app, console = create_app(service), Console(service)
    both = ["GET", "POST"]
    app.router.routes += [
        FrontRoute("/", to_console),
        *(console.route(view) for view in VIEWS),
        CountedRoute("/console/sign-in", console.guarded(console.sign_in), methods=both),
        CountedRoute("/console/sign-out", console.guarded(console.sign_out), methods=["POST"]),
        CountedRoute("/console/theme", console.guarded(console.choose_theme), methods=["POST"]),
        CountedRoute("/console/static/{name}", console.file),
        CountedRoute("/console/{rest:path}", console.guarded(console.miss), methods=both),
    ]
    if service.root_path:
        refuse_own_path(service.root_path, app.routes)
    return app


class CountedRoute(Route):
    """A route that metrics and the log name by its path."""

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return match, {**child, "route": self}


class FrontRoute(Route):
    """The root for browsers; to any other client the service has no such path, as before."""

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        accepted = Headers(scope=scope).get("accept", "") if match is Match.FULL else ""
        return (match, child) if "text/html" in accepted else (Match.NONE, {})


async def to_console(_: Request) -> Response:
    """Send a browser to the console."""
    return Response(status_code=307, headers={"Location": "/console", "Vary": "Accept"})


Step = Callable[[Request, Session], Awaitable[Response]]


class Console:
    """The console of one process."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.files = static_files()
        self.templates = environment(self.files, service.root_path)
        self.seal = Seal(service.store, service.now, service.incarnation)

    def route(self, view: View) -> Route:
        """Return the route of a view."""
        endpoint = self.guarded(partial(self.respond, view))
        return CountedRoute(view.path, endpoint, methods=[view.method])

    def guarded(self, step: Step) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that opens the session, checks the token of a form, and shows errors.

        A visitor without a session receives one, because every form needs its token.
        """

        async def endpoint(request: Request) -> Response:
            request.scope[SECURITY] = POLICY
            QUESTION.set(None)
            CALLER_NAME.set(f"@{peer_of(request.scope)}")
            session, is_new = Session(), False
            try:
                if self.service.gate.open:
                    shared = self.service.gate.shared
                    refuse_others(request.scope, shared=shared, acts_by_link=False)
                opened = await self.opened(request.cookies.get(COOKIE, ""))
                session, is_new = opened or session, opened is None
                response = await step(request, session)
            except Unauthorized:
                response = to_sign_in(request)
            except (RecrawlError, RequestValidationError) as error:
                response = await self.show_error(request, session, error)
            finally:
                leave(request.scope)
            if is_new and COOKIE not in response.headers.get("set-cookie", ""):
                with suppress(RecrawlError):  # an outage has its own page
                    keep(response, request.scope, await in_thread(self.seal.close, session))
            return response

        return endpoint

    async def opened(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None without one, and after its sign-out.

        Raises
        ------
        AccessUnavailable
            The list of sessions that were signed out could not be read of late.
        """
        session = await in_thread(self.seal.open, cookie) if cookie else None
        if session is None or (session.key and self.service.gate.ring.has_ended(session.digest)):
            return None
        return session

    # -- views

    async def respond(self, view: View, request: Request, session: Session) -> Response:
        """Return the answer of a view; raise as a request to the API with the session's key."""
        caller, right = await self.caller(session.key), right_of(view.operation)
        caller.check(right, view.operation)
        form = await read_form(request, session)
        question = partial(self.service.gate.ask_again, session.key, right, view.operation)
        await take_place(request.scope, caller, question)
        visit = self.visit(request, session, caller, form)
        if iscoroutinefunction(view.respond):
            response: Response = await view.respond(visit)
            return response
        return await in_thread(cast("Callable[[Visit], Response]", view.respond), visit)

    async def caller(self, key: str) -> Caller:
        """Return the caller who shows a key.

        Raises
        ------
        Unauthorized, Forbidden, AccessUnavailable
            This is no key, it is limited to hosts or URLs, or it cannot be checked now.
        """
        caller = await identified(self.service.gate, key, right_of(FIRST), FIRST)
        if caller.boundary is not None:
            raise Forbidden(
                "the console shows all pages; use a key without limits of hosts or URLs"
            )
        return caller

    def visit(
        self, request: Request, session: Session, caller: Caller, form: Mapping[str, str]
    ) -> Visit:
        """Return the visit of a request."""
        return Visit(self.service, request, self.templates, session, caller, form)

    async def show_error(
        self, request: Request, session: Session, error: RecrawlError | RequestValidationError
    ) -> Response:
        """Return the page of a named condition, with the status of the API."""
        if isinstance(error, RequestValidationError):
            status, detail = 422, "; ".join(str(fault["msg"]) for fault in error.errors())
        else:
            status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
            detail = error.detail
        caller = STRANGER
        with suppress(RecrawlError):
            caller = await self.caller(session.key)
        title, visit = HTTPStatus(status).phrase, self.visit(request, session, caller, {})
        template = "part_error.html" if visit.wants_part else "error.html"
        response = visit.page(template, status, title=title, detail=detail)
        response.headers.update(HEADERS.get(status, {}))
        return response

    async def miss(self, request: Request, session: Session) -> Response:
        """Return the page of an unknown address."""
        visit = self.visit(request, session, await self.caller(session.key), {})
        detail = "The console has no such page"
        return visit.page("error.html", 404, title="Not found", detail=detail)

    # -- the visitor

    async def sign_in(self, request: Request, session: Session) -> Response:
        """Show the form of the sign-in; start the session of a valid key."""
        visit = self.visit(request, session, STRANGER, {})
        back = inside(request.query_params.get("next", ""))
        if request.method != "POST":
            if self.service.gate.open:
                return visit.go(back)
            return visit.page("sign_in.html", back=back, reason="")
        form = await read_form(request, session)
        back, key = inside(form.get("next", "")), form.get("key", "").strip()
        if len(key) > MAX_KEY:
            reason = f"The key is over {MAX_KEY} characters; use an API key."
            return visit.page("sign_in.html", 403, back=back, reason=reason)
        try:
            await self.caller(key)
        except Unauthorized:
            reason = "This key is not valid: it is mistyped, was revoked, or has expired."
            return visit.page("sign_in.html", 401, back=back, reason=reason)
        except Forbidden as error:
            return visit.page("sign_in.html", 403, back=back, reason=error.detail)
        response = visit.go(back)
        cookie = await in_thread(self.seal.close, Session(key))
        keep(response, request.scope, cookie)
        return response

    async def sign_out(self, request: Request, session: Session) -> Response:
        """End the session, on every server."""
        await read_form(request, session)
        if session.key:
            await in_thread(self.end, session)
        response = self.visit(request, session, STRANGER, {}).go("/console/sign-in")
        forget(response, request.scope)
        return response

    def end(self, session: Session) -> None:
        """Keep a session as ended; this server refuses it at once."""
        end(self.service.store, session)
        with suppress(RecrawlError):  # the thread of the keys reads again
            self.service.gate.ring.refresh()

    async def choose_theme(self, request: Request, session: Session) -> Response:
        """Keep the visitor's choice of colours in a cookie."""
        form = await read_form(request, session)
        response = self.visit(request, session, STRANGER, {}).go(inside(form.get("next", "")))
        attributes = cookie_attributes(request.scope)
        if form.get("theme") in THEMES:
            response.set_cookie(THEME, form["theme"], max_age=A_YEAR_S, **attributes)
        else:
            response.delete_cookie(THEME, **attributes)
        return response

    async def file(self, request: Request) -> Response:
        """Return a file of the console; its address changes with its content."""
        name = request.path_params["name"]
        if name not in self.files:
            raise HTTPException(404)
        media_type = MEDIA[name.rpartition(".")[2]]
        headers = {"Cache-Control": f"public, max-age={A_YEAR_S}, immutable"}
        return Response(self.files[name], 200, headers, media_type)


def to_sign_in(request: Request) -> Response:
    """Return the redirect of a visitor without a valid key to the sign-in, and back afterwards."""
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    back = inside("/console" if request.method == "POST" else wanted)
    address = f"/console/sign-in?next={quote(back, safe='/')}"
    if "hx-request" in request.headers:  # a script must leave the page, not fill a part of it
        return Response(status_code=401, headers={"HX-Redirect": address})
    return Response(status_code=303, headers={"Location": address})


async def read_form(request: Request, session: Session) -> dict[str, str]:
    """Return the fields of a form, none of a request that is no POST.

    Raises
    ------
    BodyTooLarge, MalformedBody
        The body is no form.
    Forbidden
        The form has no token of the session, as a form on another site.
    """
    if request.method != "POST":
        return {}
    body = await read_within(request, MOST_FORM, lambda _: None)
    try:
        fields = parse_qsl(
            body.content.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS
        )
    except ValueError as error:
        raise MalformedBody("the body is no form; go back and send it again") from error
    form = dict(fields)
    if not session.owns(form.pop("token", "")):
        raise Forbidden(
            "this form does not belong to your session: it is old, comes from another site, or "
            "your browser keeps no cookies of this address; beyond this machine that needs HTTPS. "
            "Load the page again"
        )
    return form
