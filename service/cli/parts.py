"""What the commands share."""

from typing import Annotated, Any

import typer
from rich.console import Console

console = Console(stderr=True)

URL = "http://127.0.0.1:8000"
"""Where a service listens."""

To = Annotated[str, typer.Option(help="Where the service listens", envvar="RECRAWL_URL")]
ApiKey = Annotated[
    str | None, typer.Option(help="One of the service's keys", envvar="RECRAWL_API_KEY")
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
