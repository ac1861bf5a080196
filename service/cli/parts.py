"""What the commands share."""

import math
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


def bearer(key: str | None) -> str | None:
    """Refuse a key that no header can carry, without showing it."""
    if key is not None and not (key.isascii() and key.isprintable()):
        raise typer.BadParameter("a key has only printable ASCII characters")
    return key


To = Annotated[
    str, typer.Option(help="Where the service listens", envvar="RECRAWL_URL", callback=address)
]
ApiKey = Annotated[
    str | None,
    typer.Option(help="One of the service's keys", envvar="RECRAWL_API_KEY", callback=bearer),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(help="sqlite:///FILE or postgresql://…; instead of RECRAWL_DATABASE_URL"),
]


def settings(database_url: str | None = None, **given: Any) -> Any:
    """Read the settings; an option that was given overrides its variable."""
    from service.config import read_settings

    if database_url is not None:
        given["database_url"] = database_url
    return read_settings(**given)
