"""`recrawl sitemap` and `websub`: documents of sites, passed on to a service."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import (
    URL,
    ApiKey,
    Private,
    ProxyGuards,
    To,
    UserAgent,
    address,
    connected,
    console,
    finite,
    outgoing,
)
from service.cli.output import AsJson, echo_lines

if TYPE_CHECKING:
    from service.connectors.watching import SitemapStep


sitemap = typer.Typer(no_args_is_help=True, help="Fetch sitemaps and pass them on.")


@sitemap.callback()
def common() -> None:
    """Fetch sitemaps and pass them on."""


Sitemaps = Annotated[list[str], typer.Argument(metavar="URL…", help="Sitemaps, or their indexes")]
Interval = Annotated[
    float, typer.Option(min=1, callback=finite, help="Seconds from one round to the next")
]
Once = Annotated[
    bool, typer.Option("--once", help="One round; status 1 if a sitemap failed or broke off")
]
Delay = Annotated[float, typer.Option(min=0, callback=finite, help="Seconds between two fetches")]
MaxBytes = Annotated[int, typer.Option(min=1, help="Largest document, as it is sent")]
CrossHost = Annotated[
    bool, typer.Option("--cross-host", help="Accept entries and children of other hosts too")
]
Www = Annotated[bool, typer.Option("--www", help="Accept those of the host with and without www.")]
StateFile = Annotated[
    Path, typer.Option(dir_okay=False, help="File for the state of the last fetches")
]


@sitemap.command()
def watch(
    urls: Sitemaps,
    to: To = URL,
    api_key: ApiKey = None,
    interval: Interval = 3_600,
    once: Once = False,
    delay: Delay = 1.0,
    max_bytes: MaxBytes = 52_428_800,
    cross_host: CrossHost = False,
    www: Www = False,
    private: Private = False,
    user_agent: UserAgent = None,
    proxy_guards: ProxyGuards = False,
    state: StateFile = Path("recrawl-sitemaps.json"),
) -> None:
    """Fetch sitemaps repeatedly, pass on the changed ones, and print a line for each.

    The command fetches one document at a time, with a conditional request, and respects
    Retry-After. Children of an index are fetched too.
    """
    from service.connectors.watching import Manners, State, Watcher

    rules = outgoing(user_agent, proxy_guards=proxy_guards)
    manners = Manners(
        delay, max_bytes, cross_host, www, private, rules.user_agent, rules.proxy_guards
    )
    n_failed = 0
    with connected(to, api_key, waits=True) as client:
        watcher = Watcher(client, State(state, to), manners)
        for step in watcher.rounds(urls, interval, 1 if once else None):
            _show(step)
            is_broken = step.answer is not None and step.answer.broke_off is not None
            n_failed += step.outcome == "failed" or is_broken
    if n_failed:
        raise typer.Exit(1)


def _show(step: "SitemapStep") -> None:
    """Print the outcome of one sitemap."""
    answer = step.answer
    if answer is None:
        if step.outcome == "unchanged":
            typer.echo(f"{step.url}: unchanged")
        else:
            _warn(f"{step.url}: {step.reason}")
        return
    counts = f"{answer.created} new, {answer.accepted - answer.created} changed"
    if answer.kind == "index":
        counts = f"{len(answer.children)} sitemaps"
    typer.echo(
        f"{step.url}: {answer.kind}, {counts}, {answer.n_rejected} rejected, "
        f"{answer.n_crawl_now} to crawl now"
    )
    for warning in answer.warnings:
        _warn(f"{step.url}: {warning}")


def _warn(sentence: str) -> None:
    console.print(sentence, highlight=False, markup=False, soft_wrap=True)


class Policy(StrEnum):
    """Hosts whose pages are taken."""

    same = "same"
    listed = "listed"
    any = "any"


websub = typer.Typer(no_args_is_help=True, help="Subscribe to feeds at their hubs (WebSub).")


@websub.command()
def subscribe(
    url: Annotated[str, typer.Argument(help="A feed or page that names a hub")],
    callback: Annotated[
        str, typer.Option(help="Address of the service for hubs: https://…", callback=address)
    ],
    host_policy: Annotated[
        Policy | None,
        typer.Option(
            help="Hosts whose pages are taken: that of the feed, also those listed, or any  "
            "[default: same]"
        ),
    ] = None,
    listed_host: Annotated[
        list[str] | None,
        typer.Option(help="One more host whose pages are taken; may be given several times"),
    ] = None,
    to: To = URL,
    api_key: ApiKey = None,
    private: Private = False,
    user_agent: UserAgent = None,
    proxy_guards: ProxyGuards = False,
) -> None:
    """Find the hub of a feed, register the feed at the service, and subscribe at the hub.

    The worker of the service renews the subscription before its lease ends.
    """
    import secrets

    from service.connectors.websub import discover, patient_client
    from service.connectors.websub import subscribe as ask
    from service.model.errors import HubRefused

    secret, hosts = secrets.token_urlsafe(32), listed_host or []
    policy = host_policy or (Policy.listed if hosts else Policy.same)
    rules = outgoing(user_agent, proxy_guards=proxy_guards)
    with (
        patient_client(private=private, outgoing=rules) as client,
        connected(to, api_key) as service,
    ):
        topic = discover(client, url)
        registered = service.subscribe(
            topic.url,
            topic.hub,
            secret,
            public_url=callback.rstrip("/"),
            host_policy=policy.value,
            listed_hosts=hosts,
        )
        try:
            ask(client, topic, callback.rstrip("/") + registered.callback, secret)
        except HubRefused:  # after any other failure the hub may have taken the request
            service.unsubscribe(registered.id)
            raise
    typer.echo(f"{topic.url}: asked {topic.hub}; `recrawl websub list` shows its verification")


@websub.command(name="list")
def list_subscriptions(to: To = URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """List all subscriptions."""
    fields = ("id", "topic", "hub", "state", "expires_at", "n_taken", "n_rejected", "reason")
    with connected(to, api_key) as service:
        echo_lines(service.subscriptions(), *fields, as_json=as_json)


SubscriptionId = Annotated[str, typer.Argument(help="`id` of the subscription, as listed")]


@websub.command()
def show(subscription_id: SubscriptionId, to: To = URL, api_key: ApiKey = None) -> None:
    """Show one subscription as JSON, with the last entries that were taken and rejected."""
    import msgspec

    with connected(to, api_key) as service:
        shown = service.subscription(quoted(subscription_id))
    typer.echo(msgspec.json.format(msgspec.json.encode(shown)).decode())


@websub.command()
def unsubscribe(subscription_id: SubscriptionId, to: To = URL, api_key: ApiKey = None) -> None:
    """Delete a subscription; the worker asks its hub to end it."""
    with connected(to, api_key) as service:
        service.unsubscribe(quoted(subscription_id))


def quoted(name: str) -> str:
    """Return a name as a segment of a path."""
    from urllib.parse import quote

    return quote(name, safe="")
