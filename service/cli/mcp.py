"""`recrawl mcp`: tools for agents, which ask a running service."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import URL, ApiKey, To, console, heed_sigterm
from service.model.errors import InvalidSettings

if TYPE_CHECKING:
    from service.agents.server import Agents

INSTALL = "pip install 'recrawl[mcp]', or in a checkout pip install ./recrawl_client '.[mcp]'"


def mcp(
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port for streamable HTTP at /mcp, 0 for any free port; without it the command "
            "serves one client on standard input and output",
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on with --port; on others than 127.0.0.1, ::1 and localhost "
            "each caller must show a key of its own"
        ),
    ] = "127.0.0.1",
    to: To = URL,
    api_key: ApiKey = None,
) -> None:
    """Serve six tools to agents by the Model Context Protocol (recrawl[mcp]).

    The tools are freshness, page, changes, plan, recrawl and hosts. They ask the service at --to
    with the key of the caller, so its role decides what an agent may do.
    """
    try:
        from service.agents.server import LOOPBACK, Agents, serve_stdio
    except ImportError as error:
        raise InvalidSettings(
            f"`recrawl mcp` needs the package mcp ({error}); install it by: {INSTALL}"
        ) from error
    heed_sigterm()
    if port is None:
        with suppress(KeyboardInterrupt):
            asyncio.run(serve_stdio(Agents(to, api_key)))
        return
    shared = host not in LOOPBACK
    if shared and api_key:
        raise InvalidSettings(
            f"on {host} other machines would act with the key of RECRAWL_API_KEY; unset it, and "
            "let each caller show a key of its own"
        )
    listen(Agents(to, api_key, shared=shared), host, port)


def listen(agents: "Agents", host: str, port: int) -> None:
    """Serve agents over HTTP until a signal ends the command.

    Raises
    ------
    AddressUnavailable
        The port is in use, or the command may not listen there.
    """
    import uvicorn

    from service.agents.server import PATH, http_app
    from service.api.server import bind

    sockets = bind(host, port)
    address, own_port = sockets[0].getsockname()[:2]
    place = f"[{address}]" if ":" in address else address
    config = uvicorn.Config(http_app(agents, host), log_level="warning", server_header=False)
    console.print(f"Tools for agents are at http://{place}:{own_port}{PATH}", soft_wrap=True)
    uvicorn.Server(config).run(sockets=sockets)
