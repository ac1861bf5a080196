"""The HTTP server of one process, and the refusal to serve without a key by mistake."""

import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING

from service.model.errors import InvalidSettings

if TYPE_CHECKING:
    import uvicorn

    from service.api.assembly import Service
    from service.runtime.settings import Settings


def server_config(service: "Service", chosen: "Settings", host: str, port: int) -> "uvicorn.Config":
    """Return the configuration of the HTTP server."""
    import uvicorn

    from service.api.protocol import BoundedConnection
    from service.api.server import GRACEFUL_S, max_connections
    from service.console.app import create_app_with_console

    return uvicorn.Config(
        create_app_with_console(service),
        host=host,
        port=port,
        access_log=False,
        log_level="warning",
        http=BoundedConnection,
        proxy_headers=bool(chosen.trusted_proxies),
        forwarded_allow_ips=list(chosen.trusted_proxies),
        timeout_graceful_shutdown=GRACEFUL_S,
        server_header=False,
        limit_concurrency=max_connections(),
    )


def mistake_without_keys(host: str, chosen: "Settings") -> InvalidSettings | None:
    """Return the refusal of a server that has no key by mistake; None where that may be intended.

    Two settings indicate a mistake: a key under the client's variable, or an address that other
    machines reach.
    """
    for end in ("", "_FILE"):
        if os.environ.get(f"RECRAWL_API_KEY{end}"):
            return InvalidSettings(
                f"RECRAWL_API_KEY{end} (for clients) is set, but RECRAWL_API_KEYS{end} (for the "
                f"service) is not; set RECRAWL_API_KEYS{end} too, or unset RECRAWL_API_KEY{end}"
            )
    if not (chosen.open or is_loopback(host)):
        return InvalidSettings(
            f"--host {host} admits other machines, and there is no key; make one by `recrawl keys "
            "create`, set RECRAWL_API_KEYS, or RECRAWL_OPEN=true to allow everybody on the network "
            "to read and write"
        )
    return None


def may_have_keys(chosen: "Settings") -> bool:
    """Return whether there are keys, or a database that may have some."""
    from sqlalchemy import make_url

    url = make_url(chosen.database_url.get_secret_value())
    is_file = url.get_backend_name() == "sqlite"
    return (
        bool(chosen.api_keys or chosen.tokens()) or not is_file or Path(str(url.database)).exists()
    )


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable only from this machine.

    >>> [is_loopback(host) for host in ("127.0.0.2", "::1", "localhost", "0.0.0.0", "::", "")]
    [True, True, True, False, False, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
