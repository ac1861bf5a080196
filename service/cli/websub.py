"""`recrawl websub`: topics that their hubs tell of."""

import json
from typing import Annotated

import typer

from service.cli.parts import URL, ApiKey, Private, To, address

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

    from service.errors import NotSubscribed
    from service.sources.posting import Poster
    from service.sources.websub import discover, patient_client
    from service.sources.websub import subscribe as ask

    secret = secrets.token_urlsafe(32)
    with patient_client(private=private) as client, Poster(to, api_key) as service:
        topic = discover(client, url)
        asked = {"topic": topic.url, "hub": topic.hub, "secret": secret}
        registered = service.call("POST", "/websub", asked, "callback")
        try:
            ask(client, topic, callback.rstrip("/") + registered["callback"], secret)
        except NotSubscribed:
            service.call("DELETE", registered["callback"])
            raise
    typer.echo(f"{topic.url}: asked {topic.hub}; `recrawl websub list` tells when it has verified")


@websub.command(name="list")
def list_(to: To = URL, api_key: ApiKey = None) -> None:
    """List all subscriptions, a line of JSON each."""
    from service.sources.posting import Poster

    with Poster(to, api_key) as service:
        for item in service.listed("/websub"):
            typer.echo(json.dumps(item))
