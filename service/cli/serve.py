"""`recrawl serve`: the HTTP API."""

import ipaddress
import os
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import DatabaseUrl, console, settings
from service.model.errors import InvalidSettings

if TYPE_CHECKING:
    import uvicorn

    from service.api.service import Service
    from service.runtime.settings import Settings

Host = Annotated[str, typer.Option(help="Address to listen on")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one")]


def serve(host: Host = "127.0.0.1", port: Port = 8000, database_url: DatabaseUrl = None) -> None:
    """Serve the HTTP API.

    On SQLite (the default, ./recrawl.db) this is all there is to run: the file is migrated and
    epochs run in a thread. On Postgres run `recrawl migrate` first and `recrawl worker` beside;
    any number of servers may share one database.
    """
    from service.api.server.graceful import GracefulServer
    from service.api.service import open_service
    from service.runtime.logs import configure_logging

    chosen = settings(database_url)
    refuse_strangers(host, chosen)
    configure_logging(chosen.log_level)
    service = open_service(chosen)
    config = server_config(service, chosen, host, port)
    server = GracefulServer(config, service, lambda url: console.print(f"Recrawl serves at {url}"))
    server.run()
    if not server.started:
        raise typer.Exit(3)


def server_config(service: "Service", chosen: "Settings", host: str, port: int) -> "uvicorn.Config":
    """Return the configuration of the HTTP server."""
    import uvicorn

    from service.api.app import create_app
    from service.api.server.descriptors import max_connections
    from service.api.server.graceful import GRACEFUL_S
    from service.api.server.protocol import Connection

    return uvicorn.Config(
        create_app(service),
        host=host,
        port=port,
        access_log=False,
        log_level="warning",
        http=Connection,
        proxy_headers=bool(chosen.trusted_proxies),
        forwarded_allow_ips=list(chosen.trusted_proxies),
        timeout_graceful_shutdown=GRACEFUL_S,
        server_header=False,
        limit_concurrency=max_connections(),
    )


def refuse_strangers(host: str, chosen: "Settings") -> None:
    """Raise `InvalidSettings` where a server without keys would serve everybody.

    Two settings show that: a key under the name that clients use, and an address that other
    machines reach.
    """
    if chosen.api_keys:
        return
    if os.environ.get("RECRAWL_API_KEY"):
        raise InvalidSettings(
            "RECRAWL_API_KEY is the key that clients show, and RECRAWL_API_KEYS, which the service "
            "asks for, is not set; set it too, or unset the other"
        )
    if not (chosen.open or is_loopback(host)):
        raise InvalidSettings(
            f"--host {host} admits other machines, and no key is set; set RECRAWL_API_KEYS, or "
            "RECRAWL_OPEN=true where everybody who reaches the port may read and write"
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address.

    >>> [is_loopback(host) for host in ("127.0.0.2", "::1", "localhost", "0.0.0.0", "::", "")]
    [True, True, True, False, False, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
