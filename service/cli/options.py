"""What the commands share."""

import math
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from recrawl_client import Client
    from service.runtime.settings import Settings

console = Console(stderr=True)

URL = "http://127.0.0.1:8000"
"""Address at which a service listens by default."""
PATIENCE_S = 60.0
"""How long commands wait for a service that is busy, restarting or out of reach, seconds."""
BATCH = 5_000
"""Most pages of one request."""
STRANGER = "; is that the service?"


def finite(number: float | None) -> float | None:
    """Return the number; refuse NaN and infinities, which lie within the bounds of an option."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is not a finite number")
    return number


def address(url: str | None) -> str | None:
    """Return the URL; refuse any other scheme than http and https."""
    if url is not None and not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{url!r} is no http:// or https:// address, such as {URL}")
    return url


def header(value: str | None) -> str | None:
    """Return the value of a header; refuse other characters than ASCII without showing them."""
    if value is not None and not (value.isascii() and value.isprintable()):
        raise typer.BadParameter("it may have only printable ASCII characters")
    return value


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
    """Make SIGTERM end a command as Ctrl-C does: in order, with the processes that it began."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def settings(database_url: str | None = None, **overrides: Any) -> "Settings":
    """Return the settings; `database_url` and `overrides` replace their variables."""
    from service.runtime.settings import read_settings

    if database_url is not None:
        overrides["database_url"] = database_url
    return read_settings(**overrides)


@contextmanager
def connected(to: str, api_key: str | None) -> Iterator["Client"]:
    """Open a client of a running service; its errors become `UnexpectedAnswer`."""
    from recrawl_client import Client, ClientError, Refused
    from service.model.errors import UnexpectedAnswer

    with Client(to, api_key, patience_s=PATIENCE_S, batch=BATCH) as client:
        try:
            yield client
        except Refused as error:
            raise UnexpectedAnswer(f"{error}{'' if error.code else STRANGER}") from error
        except ClientError as error:
            doubt = "" if str(error).endswith("?") else "; is it running?"
            raise UnexpectedAnswer(f"{error}{doubt}") from error
