"""Direct routes answer and are described as FastAPI's own routes are."""

import asyncio
import threading
from datetime import datetime
from typing import Annotated, Literal

import httpx
import pytest
from fastapi import (
    APIRouter,
    Body,
    Cookie,
    Depends,
    FastAPI,
    Header,
    Path,
    Query,
    Request,
    Response,
)
from fastapi.responses import StreamingResponse
from msgspec import json
from starlette.types import ASGIApp

from service.access.gate import Gate
from service.access.keyring import KeyRing
from service.api.encodings import CompressMiddleware
from service.api.responses import problems
from service.api.route import GUARDED, DirectMiddleware, DirectRoute
from service.runtime.requests import RequestMiddleware

N = Annotated[int, Query(ge=1, le=10, description="A number")]
Kind = Annotated[Literal["a", "b"] | None, Query()]
When = Annotated[datetime | None, Query()]
Tag = Annotated[str | None, Header()]
Topic = Annotated[str | None, Query(alias="hub.topic")]
Signature = Annotated[str, Header(alias="X-Signature")]
Item = Annotated[int, Path(ge=1, le=99)]


class StubService:
    """What the guards need of a service."""

    gate = Gate(KeyRing(None, ["secret"], lambda: None, n_slots=8))


class Counts(list):
    """What the middleware needs of telemetry: each request's method, route and status."""

    def count_request(
        self, method: str, route: str, status: int, seconds: float, waited_s: float
    ) -> None:
        assert seconds >= 0 == waited_s
        self.append((method, route, status))


def encoded(**values) -> Response:
    return Response(json.encode(values), media_type="application/json")


async def numbers(
    n: N,
    register: Annotated[bool, Query()] = True,
    kind: Kind = None,
    when: When = None,
    topic: Topic = None,
    if_none_match: Tag = None,
    signature: Signature = "",
) -> Response:
    return encoded(
        n=n,
        register=register,
        kind=kind,
        when=when,
        topic=topic,
        if_none_match=if_none_match,
        signature=signature,
    )


def item(item: Item, n: N = 1) -> Response:
    return encoded(item=item, n=n, thread=threading.current_thread().name)


async def read_twice(request: Request) -> bytes:
    return await request.body() * 2


def agent_of(request: Request) -> str:
    return request.headers["user-agent"]


async def read(
    request: Request,
    body: Annotated[bytes, Depends(read_twice)],
    agent: Annotated[str, Depends(agent_of)],
) -> Response:
    return encoded(body=body.decode(), agent=agent, path=request.url.path)


async def long() -> Response:
    return encoded(text="word " * 1_000)


async def streamed() -> Response:
    return StreamingResponse(iter([b"word ", b"word "]), media_type="text/plain")


async def broken() -> Response:
    raise LookupError("a fault of the service")


PATHS = {
    "/numbers": numbers,
    "/items/{item}": item,
    "/read": read,
    "/long": long,
    "/streamed": streamed,
    "/broken": broken,
}
ROUTER = APIRouter(route_class=DirectRoute, dependencies=GUARDED)
PLAIN = APIRouter(prefix="/plain")
for path, endpoint in PATHS.items():
    ROUTER.get(path, summary="Numbers")(endpoint)
    PLAIN.get(path, summary="Numbers")(endpoint)


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
def app(counts) -> FastAPI:
    app = FastAPI()
    app.state.service = StubService()
    app.router.routes.extend(ROUTER.routes)
    app.include_router(PLAIN)
    problems.install(app)
    app.add_middleware(DirectMiddleware, routes=ROUTER.routes)
    app.add_middleware(CompressMiddleware)
    app.add_middleware(RequestMiddleware, telemetry=counts, slow_s=60)
    return app


def ask(
    app: ASGIApp, path: str, key: str = "secret", *, fails: bool = False, **headers: str
) -> httpx.Response:
    """Call the application without a socket; what `fails` is answered, then raised again."""

    async def once() -> httpx.Response:
        sent = {"Authorization": f"Bearer {key}", "If-None-Match": 'W/"epoch-1"', **headers}
        transport = httpx.ASGITransport(app, raise_app_exceptions=not fails)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://x", headers=sent
        ) as client:
            return await client.get(path)

    return asyncio.run(once())


@pytest.mark.parametrize(
    "path",
    [
        "/numbers?n=1",
        "/numbers?n=10&register=false&kind=b&when=2026-05-01T12:00:00Z&hub.topic=t",
        "/numbers",
        "/numbers?n=",
        "/numbers?n=0",
        "/numbers?n=11",
        "/numbers?n=1.5",
        "/numbers?n=1&register=maybe",
        "/numbers?n=1&kind=c",
        "/numbers?n=x&when=soon&kind=",
        "/numbers?n=1&when=%ff",
        "/items/7",
        "/items/7?n=3",
        "/items/seven",
        "/items/0?n=0",
        "/items/100",
    ],
)
def test_parameters_are_validated_as_on_a_route_of_fastapi(app, counts, path):
    headers = {"X-Signature": "s", "X-Request-ID": "job 7"}
    expected, answer = ask(app, f"/plain{path}", **headers), ask(app, path, **headers)
    assert answer.status_code == expected.status_code
    if answer.is_success:
        assert answer.json() | {"thread": ""} == expected.json() | {"thread": ""}
    else:
        assert answer.headers["Content-Type"] == expected.headers["Content-Type"]
        fields, named = ([e["field"] for e in each.json()["errors"]] for each in (expected, answer))
        assert named == fields
    route = "/items/{item}" if path.startswith("/items") else "/numbers"
    assert counts[1] == ("GET", route, expected.status_code)


def test_a_parameter_is_read_from_its_own_place_only(app):
    assert ask(app, "/numbers?n=1").json()["signature"] == ""
    refused = ask(app, "/numbers?n=1&topic=t&X-Signature=s&unknown=3")
    assert [error["field"] for error in refused.json()["errors"]] == [
        "topic",
        "X-Signature",
        "unknown",
    ]
    assert "remove it, there are n, register, kind, when, hub.topic" in refused.json()["detail"]


def test_a_header_of_several_lines_is_one_list(app):
    lines = [("Authorization", "Bearer secret"), ("If-None-Match", "a"), ("If-None-Match", "b")]

    async def once() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.get("/numbers?n=1", headers=lines)

    assert asyncio.run(once()).json()["if_none_match"] == "a, b"


def test_only_an_endpoint_that_may_block_runs_in_a_thread(app):
    assert ask(app, "/items/7").json()["thread"] != threading.main_thread().name


def test_an_endpoint_gets_what_functions_of_the_request_return(app):
    answer = ask(app, "/read", **{"User-Agent": "me"}).json()
    assert answer == {"body": "", "agent": "me", "path": "/read"}


def test_a_call_without_a_key_is_refused_before_its_parameters_are_read(app):
    refused = ask(app, "/numbers?unknown=1", key="wrong")
    assert refused.status_code == 401
    assert refused.headers["Content-Type"] == "application/problem+json"


def test_long_answers_and_streams_are_compressed_as_the_client_likes(app):
    for path, plain_length in (("/long", 5_011), ("/streamed", 10)):
        answer = ask(app, path, **{"Accept-Encoding": "gzip"})
        assert answer.headers["Content-Encoding"] == "gzip"
        assert len(answer.content) == plain_length
        untouched = ask(app, path, **{"Accept-Encoding": "identity"})
        assert "Content-Encoding" not in untouched.headers
        assert untouched.content == answer.content
    short = ask(app, "/numbers?n=1", **{"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in short.headers


def test_a_fault_is_answered_without_a_trace_counted_and_raised_for_the_log(app, counts):
    answer = ask(app, "/broken", fails=True)
    assert (answer.status_code, answer.json()["title"]) == (500, "Internal error")
    assert "LookupError" not in answer.text
    assert "a fault of the service" not in answer.text
    with pytest.raises(LookupError):
        ask(app, "/broken")
    assert counts == [("GET", "/broken", 500)] * 2


def test_direct_routes_are_described_as_any_other_route(app):
    paths = app.openapi()["paths"]
    for path in PATHS:
        direct, plain = (paths[p]["get"] for p in (path, f"/plain{path}"))
        for operation in (direct, plain):
            operation.pop("operationId")
        assert direct == plain


def test_parameters_that_a_direct_route_cannot_read_are_refused_when_it_is_declared():
    async def with_body(body: Annotated[str, Body()]) -> Response: ...

    async def with_cookie(session: Annotated[str, Cookie()]) -> Response: ...

    async def with_tree(tag: Annotated[str, Depends(lambda request, n: n)]) -> Response: ...

    for endpoint, reason in (
        (with_body, "with_body has a parameter of the body or of a cookie"),
        (with_cookie, "with_cookie has a parameter of the body or of a cookie"),
        (with_tree, "must have one parameter, the request"),
    ):
        with pytest.raises(TypeError, match=reason):
            APIRouter(route_class=DirectRoute).get("/refused")(endpoint)
