"""Hot routes answer as any other route does, and are described as any other route is."""

import asyncio
from datetime import datetime
from typing import Annotated, Literal

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Header, Query, Request, Response
from msgspec import json

from service.api import problems
from service.api.hot import HotRoute
from service.api.queries import known_query
from service.api.service import authorised, hashed

N = Annotated[int, Query(ge=1, le=10, description="A number")]
Kind = Annotated[Literal["a", "b"] | None, Query()]
When = Annotated[datetime | None, Query()]
Tag = Annotated[str | None, Header()]


class Keys:
    """What `authorised` asks of a service."""

    key_hashes = (hashed("secret"),)


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


@pytest.fixture
def app() -> FastAPI:
    app = FastAPI()
    app.state.service = Keys()
    for route_class, endpoint in ((HotRoute, hot), (None, plain)):
        router = APIRouter(route_class=route_class) if route_class else APIRouter()
        router.get(f"/{endpoint.__name__}", summary="Numbers")(endpoint)
        app.include_router(router)
    problems.install(app)
    return app


def ask(app: FastAPI, path: str, key: str = "secret") -> httpx.Response:
    """Call the application without a socket."""

    async def once() -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}", "If-None-Match": 'W/"epoch-1"'}
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://x", headers=headers
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
def test_parameters_are_taken_and_refused_as_on_any_other_route(app, query):
    answers = [ask(app, f"/{path}?{query}") for path in ("hot", "plain")]
    assert answers[0].status_code == answers[1].status_code
    assert answers[0].headers == answers[1].headers
    assert answers[0].json() == answers[1].json()


def test_a_call_without_a_key_is_refused(app):
    refused = ask(app, "/hot?n=1", key="wrong")
    assert refused.status_code == 401
    assert refused.headers["Content-Type"] == "application/problem+json"


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
