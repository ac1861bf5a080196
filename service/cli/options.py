"""Options and connections that several commands share."""

import math
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from service.model.quotes import unquoted

if TYPE_CHECKING:
    from recrawl_client import Client
    from service.connectors.guarded import Outgoing
    from service.runtime.settings import Settings

console = Console(stderr=True)

URL = "http://127.0.0.1:8000"
"""Address at which a service listens by default."""
PATIENCE_S = 60.0
"""Maximum wait of `import` and `watch` while the service is away, seconds."""
SOON_S = 1.0
"""Maximum wait of other commands while the service is away, seconds."""
BATCH = 5_000
"""Maximum number of pages of one request."""


def finite(number: float | None) -> float | None:
    """Return a finite number; refuse NaN and infinity, because the bounds of options allow them."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is not a finite number")
    return number


def address(url: str | None) -> str | None:
    """Return the URL; refuse one that is no http or https address."""
    from recrawl_client.base import checked_address

    url = unquoted(url)
    try:
        return None if url is None else checked_address(url)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def header(value: str | None) -> str | None:
    """Return the value of a header; refuse other characters than ASCII without showing them."""
    value = unquoted(value)
    if value is not None and not (value.isascii() and value.isprintable()):
        raise typer.BadParameter("the value has a character that is not printable ASCII; remove it")
    return value


def key(value: str | None) -> str | None:
    """Return the key of the option; without it, that of the environment or of its file."""
    is_option = value not in (None, "", os.environ.get("RECRAWL_API_KEY"))
    if os.environ.get("RECRAWL_API_KEY_FILE") and not is_option:
        from service.runtime.secret_files import from_files

        value = from_files(("RECRAWL_API_KEY",), os.environ)["RECRAWL_API_KEY"]
    return header(value)


To = Annotated[
    str, typer.Option(help="Address of the service", envvar="RECRAWL_URL", callback=address)
]
ApiKey = Annotated[
    str | None,
    typer.Option(help="One of the service's keys", envvar="RECRAWL_API_KEY", callback=key),
]
Private = Annotated[
    bool,
    typer.Option(
        "--private", help="Allow addresses that are not public, such as those of your own network"
    ),
]
UserAgent = Annotated[
    str | None,
    typer.Option(
        callback=header,
        envvar="RECRAWL_USER_AGENT",
        help="User-Agent for sites; include an address for complaints",
    ),
]
ProxyGuards = Annotated[
    bool,
    typer.Option(
        "--proxy-guards",
        envvar="RECRAWL_PROXY_GUARDS",
        help="Go through the proxies of HTTP_PROXY and HTTPS_PROXY, because they refuse addresses "
        "of your own network",
    ),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(help="sqlite:///FILE or postgresql://…; instead of RECRAWL_DATABASE_URL"),
]


def missing_file(database_url: str) -> Path | None:
    """Return the path of the SQLite file that an address names, if there is none yet."""
    if not database_url.startswith("sqlite"):
        return None
    file = Path(database_url.partition("///")[2].partition("?")[0]).absolute()
    return None if file.exists() else file


def print_new(file: Path | None, consequence: str) -> None:
    """Print that a command has made a new database, which the address may name by mistake."""
    if file is not None:
        _show(f"made a new database {file}; {consequence}")


def heed_sigterm() -> None:
    """Make SIGTERM end a command like Ctrl-C: in order, with the processes of the command."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def addresses(urls: list[str] | None) -> list[str] | None:
    """Return URLs; refuse each that is no http or https address."""
    for url in urls or ():
        address(url)
    return urls


def settings(database_url: str | None = None, **overrides: Any) -> "Settings":
    """Return the settings; `database_url` and `overrides` replace their variables."""
    from service.runtime.settings import read_settings

    if database_url is not None:
        overrides["database_url"] = database_url
    return read_settings(**overrides)


def outgoing(user_agent: str | None, *, proxy_guards: bool) -> "Outgoing":
    """Return the rules of requests to sites; print a line if a proxy is not used."""
    from service.connectors.guarded import USER_AGENT, Outgoing

    rules = Outgoing(user_agent or USER_AGENT, proxy_guards)
    if (notice := rules.notice()) is not None:
        _show(notice)
    return rules


def _show(sentence: str) -> None:
    console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def _silent(_notice: str) -> None:
    """Drop the client's notice, because the command prints its own notice."""


@contextmanager
def connected(to: str, api_key: str | None, *, waits: bool = False) -> Iterator["Client"]:
    """Yield a client of a running service; errors of the client become `UnexpectedAnswer`.

    While the service is away, the client waits for `SOON_S`, or for `PATIENCE_S` with `waits`.
    """
    from recrawl_client import Client, ClientError
    from service.cli.remedies import Notice, explained

    patience_s = PATIENCE_S if waits else SOON_S
    sentence = f"waiting for {to}, which has not answered yet; Ctrl-C ends the command"
    notice = Notice(sentence, _show)
    with (
        Client(to, api_key, patience_s=patience_s, batch=BATCH, on_wait=_silent) as client,
        notice.watching(client.http),
    ):
        try:
            yield client
        except ClientError as error:
            raise explained(error, notice) from error
