"""Hot routes answer as any other route does, and are described as any other route is."""

import asyncio
from datetime import datetime
from typing import Annotated, Literal

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from msgspec import json
from starlette.types import ASGIApp

from service.api import problems
from service.api.hot import HotPaths, HotRoute
from service.api.queries import known_query
from service.api.service import authorised, hashed

N = Annotated[int, Query(ge=1, le=10, description="A number")]
Kind = Annotated[Literal["a", "b"] | None, Query()]
When = Annotated[datetime | None, Query()]
Tag = Annotated[str | None, Header()]


class Keys:
    """What `authorised` asks of a service."""

    key_hashes = (hashed("secret"),)


class Counted(list):
    """What `HotPaths` asks of telemetry: each request's method, route and status."""

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        assert seconds >= 0
        self.append((method, route, status))


def told(**values) -> Response:
    return Response(json.encode(values), media_type="application/json")


async def hot(
    request: Request,
    n: N,
    register: Annotated[bool, Query()] = True,
    kind: Kind = None,
    when: When = None,
    if_none_match: Tag = None,
) -> Response:
    return told(n=n, register=register, kind=kind, when=when, if_none_match=if_none_match)


def plain(
    request: Request,
    n: N,
    register: Annotated[bool, Query()] = True,
    kind: Kind = None,
    when: When = None,
    if_none_match: Tag = None,
) -> Response:
    authorised(request)
    known_query(request)
    return told(n=n, register=register, kind=kind, when=when, if_none_match=if_none_match)


async def long(request: Request) -> Response:
    return told(text="word " * 1_000)


async def streamed(request: Request) -> Response:
    return StreamingResponse(iter([b"word ", b"word "]), media_type="text/plain")


async def broken(request: Request) -> Response:
    raise LookupError("a fault of the service")


HOT = APIRouter(route_class=HotRoute)
for endpoint in (hot, long, streamed, broken):
    HOT.get(f"/{endpoint.__name__}", summary="Numbers")(endpoint)


@pytest.fixture
def app() -> FastAPI:
    app = FastAPI()
    app.state.service = Keys()
    app.include_router(HOT)
    app.get("/plain", summary="Numbers")(plain)
    problems.install(app)
    return app


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def first(app, counted) -> HotPaths:
    """The application behind its hot paths, as it is served."""
    return HotPaths(app, HOT.routes, counted)


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
    "query",
    [
        "n=1",
        "n=10&register=false&kind=b&when=2026-05-01T12:00:00Z",
        "n=1&n=2",
        "n=1&unknown=3&m=4",
        "",
        "n=",
        "n=0",
        "n=11",
        "n=1.5",
        "n=1&register=maybe",
        "n=1&kind=c",
        "n=x&when=soon&kind=",
        "n=1&when=%ff",
    ],
)
def test_parameters_are_taken_and_refused_as_on_any_other_route(app, first, counted, query):
    expected = ask(app, f"/plain?{query}")
    for answer in (ask(first, f"/hot?{query}"), ask(app, f"/hot?{query}")):
        assert answer.status_code == expected.status_code
        assert answer.headers == expected.headers
        assert answer.json() == expected.json()
    assert counted == [("GET", "/hot", expected.status_code)]


def test_a_call_without_a_key_is_refused(first):
    refused = ask(first, "/hot?n=1", key="wrong")
    assert refused.status_code == 401
    assert refused.headers["Content-Type"] == "application/problem+json"


def test_other_paths_and_methods_are_the_applications_own(app, first, counted):
    assert ask(first, "/plain?n=1").json()["n"] == 1
    assert ask(first, "/nowhere").json() == ask(app, "/nowhere").json()
    assert counted == []


def test_long_answers_and_streams_are_compressed_as_the_client_likes(first):
    for path, plain_length in (("/long", 5_011), ("/streamed", 10)):
        answer = ask(first, path, **{"Accept-Encoding": "gzip"})
        assert answer.headers["Content-Encoding"] == "gzip"
        assert len(answer.content) == plain_length
        untouched = ask(first, path, **{"Accept-Encoding": "identity"})
        assert "Content-Encoding" not in untouched.headers
        assert untouched.content == answer.content
    assert "Content-Encoding" not in ask(first, "/hot?n=1", **{"Accept-Encoding": "gzip"}).headers


def test_a_fault_is_answered_without_a_trace_counted_and_raised_for_the_log(first, counted):
    answer = ask(first, "/broken", fails=True)
    assert (answer.status_code, answer.json()["title"]) == (500, "Internal error")
    assert "LookupError" not in answer.text
    assert "a fault of the service" not in answer.text
    with pytest.raises(LookupError):
        ask(first, "/broken")
    assert counted == [("GET", "/broken", 500)] * 2


def test_hot_routes_are_described_as_any_other_route(app):
    paths = app.openapi()["paths"]
    described = [paths[f"/{path}"]["get"] for path in ("hot", "plain")]
    assert len(described[0]["parameters"]) == 5
    for operation in described:
        operation.pop("operationId")
    assert described[0] == described[1]


def test_an_endpoint_that_would_block_the_event_loop_cannot_be_hot():
    with pytest.raises(TypeError, match="must be async"):
        APIRouter(route_class=HotRoute).get("/plain")(plain)


def test_what_a_hot_route_cannot_give_is_told_when_it_is_declared():
    async def endpoint(request: Request, service: str) -> Response: ...

    with pytest.raises(TypeError, match="service of endpoint is neither"):
        APIRouter(route_class=HotRoute).get("/endpoint")(endpoint)
