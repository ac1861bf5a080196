"""`recrawl hosts`: how hosts are crawled, their pauses and their end."""

import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, cast

import typer

from service.cli import output
from service.cli.confirming import DryRun, Yes, confirm
from service.cli.durations import read_end
from service.cli.options import URL, ApiKey, To, connected
from service.cli.output import AsJson, echo_act, echo_item, echo_lines
from service.cli.queue_settings import (
    ADay,
    AtATime,
    Blackouts,
    Delay,
    LatencyFactor,
    MaxDelay,
    Windows,
    fields_of,
    values_of,
)
from service.model.words import counted

if TYPE_CHECKING:
    from recrawl_client.wire.hosts import HostItem, HostOrder

hosts = typer.Typer(no_args_is_help=True, help="Show and set how hosts are crawled.")

OF_HOSTS = (
    *("host", "group", "load.n_pages", "load.n_overdue", "load.asked_rate", "host_queue.delay_s"),
    *("host_queue.blocked_until", "host_queue.paused_until", "host_queue.n_failures"),
)
"""Columns of the table of hosts."""
HostName = Annotated[str, typer.Argument(help="Such as example.com")]

HostT = TypeVar("HostT", bound="HostItem")

NO_PAGE = "; no page has this host yet"


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
    blocked: Annotated[
        bool, typer.Option("--blocked", "--paused", help="Only hosts that are paused")
    ] = False,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """List hosts: all of them, or those that an operator or their site has paused."""
    with connected(to, api_key) as service:
        # the service names the orders that it knows
        listed = service.hosts(cast("HostOrder", sort), blocked=blocked)
        empty = "no host is paused" if blocked else "no hosts yet; they come with their pages"
        if output.on_terminal() and not as_json:
            listed = _with_pauses_that_run(listed, datetime.now(UTC))
        echo_lines(listed, *OF_HOSTS, as_json=as_json, empty=empty)


def _with_pauses_that_run(listed: Iterable[HostT], now: datetime) -> Iterator[HostT]:
    """Yield hosts without the ends of pauses that are over, which programs get."""
    from msgspec.structs import replace

    for host in listed:
        queue = host.host_queue
        ends = {name: getattr(queue, name) for name in ("blocked_until", "paused_until")}
        over = dict.fromkeys(name for name, at in ends.items() if at is not None and at <= now)
        yield replace(host, host_queue=replace(queue, **over)) if over else host


@hosts.command()
def show(host: HostName, to: To = URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """Show one host: settings, politeness in force, state, rates and feed."""
    with connected(to, api_key) as service:
        shown = service.host(host)
        if output.on_terminal() and not as_json:
            (shown,) = _with_pauses_that_run([shown], datetime.now(UTC))
        echo_item(shown, as_json=as_json)


@hosts.command(name="set")
def set_(
    host: HostName,
    settings: Annotated[
        list[str] | None, typer.Argument(help="group=shared-1 first_share=0.5 min_delay_s=null …")
    ] = None,
    delay: Delay = None,
    at_a_time: AtATime = None,
    a_day: ADay = None,
    latency_factor: LatencyFactor = None,
    max_delay: MaxDelay = None,
    windows: Windows = None,
    blackouts: Blackouts = None,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Change settings of a host, which may be new. NAME=null restores a default.

    The options are the fields min_delay_s, max_concurrency, max_crawl_rate, latency_factor,
    max_delay_s, windows and blackouts. Semicolons stand between several windows, or blackouts.
    """
    options = delay, at_a_time, a_day, latency_factor, max_delay, windows, blackouts
    fields = fields_of(settings, *options)
    with connected(to, api_key) as service:
        answer = service.set_host(host, **fields)
    echo_act(answer, f"{host} is set: {values_of(answer, fields)}", as_json=as_json)
    if not answer.n_pages:
        typer.echo(f"{host} is set{NO_PAGE}", err=True)


@hosts.command()
def pause(
    host: HostName,
    length: Annotated[str, typer.Argument(metavar="DURATION", help="Such as 30min, 2h or 1d")],
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Pause a host, and all hosts of its group; leases that run may be reported."""
    with connected(to, api_key) as service:
        paused = service.pause_host(host, read_end(length))
    until = paused.host_queue.blocked_until
    text = f"{host} is paused until {until:%Y-%m-%d %H:%M:%SZ}{'' if paused.n_pages else NO_PAGE}"
    echo_act({"host": host, "blocked_until": until}, text, as_json=as_json)


@hosts.command()
def resume(
    host: HostName,
    site: Annotated[
        bool, typer.Option("--site", help="End the pause that the site asked for, too")
    ] = False,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """End the operator's pause of a host, and of all hosts of its group."""
    with connected(to, api_key) as service:
        queue = service.resume_host(host, site=site).host_queue
    until, text = queue.paused_until, f"{host} is crawled again"
    if until is not None and until > datetime.now(UTC):
        text = f"{host} is paused by its site until {until:%Y-%m-%d %H:%M:%SZ}; end it by --site"
    echo_act({"host": host, "paused_until": until}, text, as_json=as_json)


@hosts.command(name="end-incident")
def end_incident(
    host: HostName, to: To = URL, api_key: ApiKey = None, as_json: AsJson = False
) -> None:
    """End the incident of a host, and the pause that its site asked for.

    Use it once the site shows its own pages again: the next crawl of each page counts.
    """
    with connected(to, api_key) as service:
        incident = service.host(host).incident
        service.end_incident(host)
    text = f"{host} has no incident"
    if incident is not None:
        begin, pages = f"{incident.since:%Y-%m-%d %H:%M:%SZ}", counted(incident.n_pages, "page")
        text = f"the incident of {host} is ended; it began at {begin}, with {pages}"
    echo_act({"host": host, "ended": incident is not None}, text, as_json=as_json)


@hosts.command()
def delete(
    host: HostName,
    dry_run: DryRun = False,
    yes: Yes = False,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Delete a host with its settings and all its pages, after a question.

    A pause that runs comes back with the host, if the host is registered again.
    """
    with connected(to, api_key) as service:
        n_pages = service.host(host).n_pages
        if not dry_run:
            act = f"this deletes {host} and its {counted(n_pages, 'page')} with their logs"
            confirm(act, yes=yes)
            n_pages = service.delete_pages(host=host).changed if n_pages else 0
            service.delete_host(host)
    text = f"{'would be deleted' if dry_run else 'deleted'}: {host}, {counted(n_pages, 'page')}"
    echo_act({"host": host, "dry_run": dry_run, "n_pages": n_pages}, text, as_json=as_json)


def _read(file: Path) -> bytes:
    from service.model.errors import UnreadableFile

    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"{file}: {error.strerror}") from error
