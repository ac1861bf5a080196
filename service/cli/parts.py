"""What the commands share."""

import math
import signal
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

console = Console(stderr=True)

URL = "http://127.0.0.1:8000"
"""Where a service listens."""


def finite(number: float | None) -> float | None:
    """Refuse NaN and infinities, which the bounds of an option let pass."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is not a finite number")
    return number


def address(url: str | None) -> str | None:
    """Refuse what is no address of a service."""
    if url is not None and not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{url!r} is no http:// or https:// address, such as {URL}")
    return url


def header(words: str | None) -> str | None:
    """Refuse what no header can carry, without showing it."""
    if words is not None and not (words.isascii() and words.isprintable()):
        raise typer.BadParameter("it may have only printable ASCII characters")
    return words


To = Annotated[
    str, typer.Option(help="Where the service listens", envvar="RECRAWL_URL", callback=address)
]
ApiKey = Annotated[
    str | None,
    typer.Option(help="One of the service's keys", envvar="RECRAWL_API_KEY", callback=header),
]
Private = Annotated[
    bool,
    typer.Option(
        "--private", help="Allow addresses that are not public, such as those of your own network"
    ),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(help="sqlite:///FILE or postgresql://…; instead of RECRAWL_DATABASE_URL"),
]


def heed_sigterm() -> None:
    """Let SIGTERM end a command as Ctrl-C does: in order, with the processes that it has begun."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def settings(database_url: str | None = None, **given: Any) -> Any:
    """Read the settings; an option that was given overrides its variable."""
    from service.config import read_settings

    if database_url is not None:
        given["database_url"] = database_url
    return read_settings(**given)
