"""Parts of uvicorn that are private, and that the server builds on: why its minor is pinned."""

import asyncio
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import uvicorn
from packaging.requirements import Requirement
from packaging.version import Version
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import Server, ServerState

PROJECT = Path(__file__).parents[2] / "pyproject.toml"

OF_A_CONNECTION = {
    *("config", "app", "app_state", "loop", "parser", "limit_concurrency"),
    *("server_state", "connections", "transport", "flow", "pipeline", "headers", "cycle"),
    *("connection_made", "data_received", "connection_lost", "pause_writing", "resume_writing"),
    *("on_headers_complete", "on_body", "on_message_complete", "send_400_response", "shutdown"),
    "_unset_keepalive_if_required",
}
"""Attributes of a connection that `service.api.protocol` reads, sets or overrides."""
OF_A_REQUEST = {
    *("response_started", "response_complete", "keep_alive", "waiting_for_100_continue"),
}
OF_THE_FLOW = {"read_paused", "pause_reading", "resume_reading"}
OF_THE_SERVER = {
    *("config", "server_state", "servers", "started", "should_exit", "startup", "shutdown", "run"),
}
OF_THE_STATE = {"connections", "tasks", "default_headers"}


def names(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("__")}


def test_one_minor_of_uvicorn_is_allowed_and_it_is_the_installed_one():
    listed = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    (line,) = (each for each in listed if each.startswith("uvicorn"))
    allowed, here = Requirement(line).specifier, Version(version("uvicorn"))
    assert allowed.contains(here)
    assert allowed.contains(f"{here.major}.{here.minor}.999")
    assert not allowed.contains(f"{here.major}.{here.minor + 1}.0")
    assert not allowed.contains(f"{here.major}.{here.minor - 1}.999")


async def a_connection() -> httptools_impl.HttpToolsProtocol:
    async def app(_scope: object, _receive: object, _send: object) -> None:
        pass

    config = uvicorn.Config(app)
    return httptools_impl.HttpToolsProtocol(config, ServerState(), {})


def test_connections_have_the_parts():
    assert names(asyncio.run(a_connection())) >= OF_A_CONNECTION


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        (httptools_impl.RequestResponseCycle.__init__, OF_A_REQUEST),
        (FlowControl.__init__, {"read_paused"}),
        (Server.__init__, {"config", "server_state", "started", "should_exit"}),
        (ServerState.__init__, OF_THE_STATE),
    ],
)
def test_objects_set_the_parts(source, parts):
    assert set(source.__code__.co_names) >= parts


def test_classes_have_the_parts():
    assert names(FlowControl) >= OF_THE_FLOW - {"read_paused"}
    assert names(Server) >= {"startup", "shutdown", "run"}
    assert httptools_impl.STATUS_LINE[408] == b"HTTP/1.1 408 Request Timeout\r\n"
