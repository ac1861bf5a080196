"""`recrawl watch` and `recrawl websub`: documents of sites, passed on to a service."""

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
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
    addresses,
    connected,
    console,
    finite,
    outgoing,
)
from service.cli.output import AsJson, echo_lines
from service.model.words import counted

if TYPE_CHECKING:
    import httpx

    from recrawl_client import Client
    from service.connectors.guarded import Outgoing
    from service.connectors.watching import WatchStep
    from service.connectors.websub import HubTopic


Documents = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[URL…]",
        help="Sites, sitemaps, their indexes, or feeds; none: known feeds only",
        callback=addresses,
    ),
]
Interval = Annotated[
    float, typer.Option(min=1, callback=finite, help="Seconds from one round to the next")
]
Once = Annotated[
    bool, typer.Option("--once", help="One round; status 1 if a document failed or broke off")
]
Delay = Annotated[float, typer.Option(min=0, callback=finite, help="Seconds between two fetches")]
MaxBytes = Annotated[int, typer.Option(min=1, help="Largest document, as it is sent")]
CrossHost = Annotated[
    bool, typer.Option("--cross-host", help="Accept entries and children of other hosts too")
]
Www = Annotated[bool, typer.Option("--www", help="Accept those of the host with and without www.")]
Callback = Annotated[
    str | None,
    typer.Option(
        callback=address, help="Address of the service for hubs; feeds that name a hub use it"
    ),
]
StateFile = Annotated[
    Path, typer.Option(dir_okay=False, help="File for the state of the last fetches")
]


def watch(
    urls: Documents = None,
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
    callback: Callback = None,
    state: StateFile = Path("recrawl-watch.db"),
) -> None:
    """Read sitemaps and feeds repeatedly, and pass on new and changed pages.

    Sitemaps are fetched every interval, with those that robots.txt and indexes name. Feeds are
    read when they are due, by the rate of their new entries.
    """
    from service.connectors.feed_watch import FeedReader
    from service.connectors.visits import Manners
    from service.connectors.watch_rounds import rounds
    from service.connectors.watch_state import WatchState
    from service.connectors.watching import Watcher

    rules = outgoing(user_agent, proxy_guards=proxy_guards)
    manners = Manners(
        delay, max_bytes, cross_host, www, private, rules.user_agent, rules.proxy_guards
    )
    n_failed = 0
    with connected(to, api_key, waits=True) as client:
        watcher = Watcher(client, WatchState(state, to), manners)
        subscribes = None
        if callback is not None:
            subscribes = partial(_subscribe_feed, client, callback, private=private, rules=rules)
        reader = FeedReader(watcher, subscribes)
        for step in rounds(watcher, reader, urls or [], interval, 1 if once else None):
            _show(step)
            is_broken = step.answer is not None and step.answer.broke_off is not None
            n_failed += step.outcome == "failed" or is_broken
    if n_failed:
        raise typer.Exit(1)


def _subscribe_feed(
    service: "Client", callback: str, url: str, *, private: bool, rules: "Outgoing"
) -> str:
    """Subscribe at the hub of a feed; return the hub's address."""
    from service.connectors.websub import discover, patient_client

    with patient_client(private=private, outgoing=rules) as client:
        topic = discover(client, url)
        _ask_hub(service, client, topic, callback)
    return topic.hub


def _show(step: "WatchStep") -> None:
    """Print the outcome of one document."""
    answer = step.answer
    if step.outcome == "failed":
        _warn(f"{step.url}: {step.reason}")
    elif answer is not None:
        counts = (
            f"{answer.created} new, {answer.accepted - answer.created} newer than the last ping"
        )
        if answer.kind == "index":
            counts = counted(len(answer.children), "sitemap")
        typer.echo(
            f"{step.url}: {answer.kind}, {counts}, {answer.n_rejected} rejected, "
            f"{answer.n_crawl_now} to crawl as soon as the budget allows"
        )
        if answer.n_not_trusted:
            typer.echo(
                f"{step.url}: {counted(answer.n_not_trusted, 'page')} not_trusted: crawls have not "
                "shown so far that such dates announce changes, so they are crawled as planned"
            )
        for warning in answer.warnings:
            _warn(f"{step.url}: {warning}")
    else:
        by_index = "unchanged by its index"
        typer.echo(
            f"{step.url}: {step.reason or {'skipped': by_index}.get(step.outcome, 'unchanged')}"
        )


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
    from service.connectors.websub import discover, patient_client

    hosts = listed_host or []
    policy = host_policy or (Policy.listed if hosts else Policy.same)
    rules = outgoing(user_agent, proxy_guards=proxy_guards)
    with (
        patient_client(private=private, outgoing=rules) as client,
        connected(to, api_key) as service,
    ):
        topic = discover(client, url)
        _ask_hub(service, client, topic, callback, policy, hosts)
    typer.echo(f"{topic.url}: asked {topic.hub}; `recrawl websub list` shows its verification")


def _ask_hub(
    service: "Client",
    client: "httpx.Client",
    topic: "HubTopic",
    callback: str,
    policy: Policy = Policy.same,
    hosts: Sequence[str] = (),
) -> None:
    """Register a topic at the service, and ask its hub; raise `NotSubscribed`."""
    import secrets

    from service.connectors.websub import subscribe as ask
    from service.model.errors import HubRefused

    secret, public_url = secrets.token_urlsafe(32), callback.rstrip("/")
    registered = service.subscribe(
        topic.url,
        topic.hub,
        secret,
        public_url=public_url,
        host_policy=policy.value,
        listed_hosts=list(hosts),
    )
    try:
        ask(client, topic, public_url + registered.callback, secret)
    except HubRefused:  # after any other failure the hub may have taken the request
        service.unsubscribe(registered.id)
        raise


@websub.command(name="list")
def list_subscriptions(to: To = URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """List all subscriptions."""
    fields = ("id", "topic", "hub", "state", "expires_at", "n_taken", "n_rejected", "reason")
    with connected(to, api_key) as service:
        empty = "no subscriptions; `recrawl websub subscribe` makes one"
        echo_lines(service.subscriptions(), *fields, as_json=as_json, empty=empty)


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
