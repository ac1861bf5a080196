"""Agents: the client of the official SDK, in this process, over HTTP or over stdio."""

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from service.agents.server import Agents, http_app
from support.live_server import PATIENCE_S, PromptServer


def talk(server: Any, scenario: Callable[[Client], Awaitable[Any]]) -> Any:
    """Return the outcome of a scenario with a client of a server."""

    async def run() -> Any:
        async with Client(server) as client:
            return await scenario(client)

    return asyncio.run(run())


def ask(server: Any, *questions: tuple[str, dict[str, Any]]) -> list[Any]:
    """Call tools in their order; return their results."""

    async def scenario(client: Client) -> list[Any]:
        return [await client.call_tool(name, arguments) for name, arguments in questions]

    return talk(server, scenario)


def answer(result: Any) -> dict[str, Any]:
    """Return the answer of a tool, which text and data agree on."""
    (content,) = result.content
    assert not result.is_error, content.text
    assert json.loads(content.text) == result.structured_content
    return result.structured_content


def refusal(result: Any) -> str:
    """Return the sentence of a tool that has failed."""
    assert result.is_error
    (content,) = result.content
    return content.text


@contextmanager
def over_http(agents: Agents, host: str = "127.0.0.1") -> Iterator[str]:
    """Serve agents on a free port of this machine as if on a host; yield the address."""
    config = uvicorn.Config(http_app(agents, host), log_level="warning")
    server = PromptServer(config)
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    assert server.begun.wait(PATIENCE_S)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        server.end()
        thread.join()
        listening.close()


def ask_over_http(
    url: str, headers: dict[str, str], *questions: tuple[str, dict[str, Any]]
) -> list[Any]:
    """Call tools over streamable HTTP with these headers; return their results."""

    async def run() -> list[Any]:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            return [await client.call_tool(name, arguments) for name, arguments in questions]

    return asyncio.run(run())
