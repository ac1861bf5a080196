"""`recrawl hosts`, `sitemap` and `websub`: documents of sites, passed on to a service."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from service.cli.options import (
    URL,
    ApiKey,
    Private,
    To,
    address,
    connected,
    console,
    finite,
    header,
)

if TYPE_CHECKING:
    from recrawl_client.wire.hosts import HostOrder
    from service.connectors.watching import SitemapStep


hosts = typer.Typer(no_args_is_help=True, help="Show and set how hosts are crawled.")

HostName = Annotated[str, typer.Argument(help="Such as example.com")]


@hosts.command()
def robots(
    files: Annotated[
        list[Path], typer.Argument(help="robots.txt files: HOST.txt or HOST/robots.txt; - is stdin")
    ],
    host: Annotated[str | None, typer.Option(help="Host of the one file")] = None,
    url: Annotated[str | None, typer.Option(help="URL of the one file")] = None,
    user_agent: Annotated[str, typer.Option(help="Name of your crawler")] = "*",
    to: To = URL,
    api_key: ApiKey = None,
) -> None:
    """Report the delays in robots.txt files to the service: Crawl-delay and Request-rate.

    The longer delay becomes the host's robots_delay_s; a file without a delay clears the field.
    Your crawler itself must obey Disallow.
    """
    from service.connectors.robots import host_of, requested_delay
    from service.model.errors import InvalidUrl
    from service.model.urls import normalise

    if host and url:
        raise typer.BadParameter("both --host and --url; use only one", param_hint="--host")
    if (host or url) and len(files) > 1:
        raise typer.BadParameter("several files; name each by HOST.txt", param_hint="--host, --url")
    try:
        named = normalise(url).host if url else host
    except InvalidUrl as error:
        raise typer.BadParameter(error.detail, param_hint="--url") from error
    delays = {
        named or host_of(file): requested_delay(_read(file), user_agent) for file in files
    }  # all files are read before the first request
    with connected(to, api_key) as service:
        for name, delay_s in delays.items():
            service.set_host(name, robots_delay_s=delay_s)
            typer.echo(f"{name}: {'no delay' if delay_s is None else f'{delay_s:g} s'}")


@hosts.command(name="list")
def list_hosts(
    sort: Annotated[
        str,
        typer.Option(
            help="Order: host_id, host, n_pages, n_overdue or asked_rate; a minus reverses it"
        ),
    ] = "host_id",
    blocked: Annotated[bool, typer.Option("--blocked", help="Only hosts that are blocked")] = False,
    to: To = URL,
    api_key: ApiKey = None,
) -> None:
    """List hosts, a line of JSON each: all of them, or the blocked ones."""
    with connected(to, api_key) as service:
        # the service names the orders that it knows
        echo_lines(service.hosts(cast("HostOrder", sort), blocked=blocked))


@hosts.command()
def show(host: HostName, to: To = URL, api_key: ApiKey = None) -> None:
    """Show one host: settings, politeness in force, state, rates and feed."""
    with connected(to, api_key) as service:
        echo_indented(service.host(host))


@hosts.command(name="set")
def set_(
    host: HostName,
    settings: Annotated[
        list[str], typer.Argument(help="min_delay_s=2 group=shared-1 blocked_until=null …")
    ],
    to: To = URL,
    api_key: ApiKey = None,
) -> None:
    """Change settings of a host, new or registered, and show the host; null restores a default."""
    fields = dict(setting(text) for text in settings)
    with connected(to, api_key) as service:
        echo_indented(service.set_host(host, **fields))


def setting(text: str) -> tuple[str, Any]:
    """Return the name and the value of NAME=VALUE; a value that is no JSON is a text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="SETTINGS")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _read(file: Path) -> bytes:
    from service.model.errors import UnreadableFile

    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"{file}: {error.strerror}") from error


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
UserAgent = Annotated[
    str | None,
    typer.Option(callback=header, help="User-Agent for sites; include an address for complaints"),
]
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
    state: StateFile = Path("recrawl-sitemaps.json"),
) -> None:
    """Fetch sitemaps repeatedly, pass on the changed ones, and print a line for each.

    The command fetches one document at a time, with a conditional request, and respects
    Retry-After. Children of an index are fetched too.
    """
    from service.connectors.watching import Manners, State, Watcher

    agent = user_agent or Manners().user_agent
    manners = Manners(delay, max_bytes, cross_host, www, private, agent)
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


websub = typer.Typer(no_args_is_help=True, help="Subscribe to feeds at their hubs (WebSub).")


@websub.command()
def subscribe(
    url: Annotated[str, typer.Argument(help="A feed or page that names a hub")],
    callback: Annotated[
        str, typer.Option(help="Address of the service for hubs: https://…", callback=address)
    ],
    to: To = URL,
    api_key: ApiKey = None,
    private: Private = False,
) -> None:
    """Find the hub of a feed, register the feed at the service, and subscribe at the hub.

    Run the command again before `expires_at` to renew the subscription.
    """
    import secrets

    from service.connectors.websub import discover, patient_client
    from service.connectors.websub import subscribe as ask
    from service.model.errors import HubRefused

    secret = secrets.token_urlsafe(32)
    with patient_client(private=private) as client, connected(to, api_key) as service:
        topic = discover(client, url)
        registered = service.subscribe(topic.url, topic.hub, secret)
        try:
            ask(client, topic, callback.rstrip("/") + registered.callback, secret)
        except HubRefused:  # after any other failure the hub may have taken the request
            service.unsubscribe(registered.id)
            raise
    typer.echo(f"{topic.url}: asked {topic.hub}; `recrawl websub list` shows its verification")


@websub.command(name="list")
def list_subscriptions(to: To = URL, api_key: ApiKey = None) -> None:
    """List all subscriptions, a line of JSON each."""
    with connected(to, api_key) as service:
        echo_lines(service.subscriptions())


def echo_indented(item: Any) -> None:
    """Print an answer as indented JSON."""
    from msgspec import to_builtins

    typer.echo(json.dumps(to_builtins(item), indent=2))


def echo_lines(items: Iterable[Any]) -> None:
    """Print items, a line of JSON each."""
    from msgspec import to_builtins

    for item in items:
        typer.echo(json.dumps(to_builtins(item)))
