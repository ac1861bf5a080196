"""`recrawl websub`: topics that their hubs tell of."""

import json
from typing import Annotated

import typer

from service.cli.options import URL, ApiKey, Private, To, address, connected

websub = typer.Typer(no_args_is_help=True, help="Subscribe to feeds at their hubs (WebSub).")


@websub.callback()
def common() -> None:
    """Subscribe to feeds at their hubs (WebSub)."""


@websub.command()
def subscribe(
    url: Annotated[str, typer.Argument(help="A feed or page that names a hub")],
    callback: Annotated[
        str, typer.Option(help="Where hubs reach the service: https://…", callback=address)
    ],
    to: To = URL,
    api_key: ApiKey = None,
    private: Private = False,
) -> None:
    """Find the hub of a feed, register the feed at the service, and ask the hub for its news.

    Run it again before `expires_at` to renew.
    """
    import secrets

    from service.connectors.websub import discover, patient_client
    from service.connectors.websub import subscribe as ask
    from service.model.errors import NotSubscribed

    secret = secrets.token_urlsafe(32)
    with patient_client(private=private) as client, connected(to, api_key) as service:
        topic = discover(client, url)
        registered = service.subscribe(topic.url, topic.hub, secret)
        try:
            ask(client, topic, callback.rstrip("/") + registered.callback, secret)
        except NotSubscribed:
            service.unsubscribe(registered.id)
            raise
    typer.echo(f"{topic.url}: asked {topic.hub}; `recrawl websub list` tells when it has verified")


@websub.command(name="list")
def list_(to: To = URL, api_key: ApiKey = None) -> None:
    """List all subscriptions, a line of JSON each."""
    from msgspec import to_builtins

    with connected(to, api_key) as service:
        for item in service.subscriptions():
            typer.echo(json.dumps(to_builtins(item)))
