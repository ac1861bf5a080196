"""`recrawl hosts`: the politeness of hosts, over HTTP."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.options import URL, ApiKey, To, connected

hosts = typer.Typer(no_args_is_help=True, help="Show and set how hosts are crawled.")

HostName = Annotated[str, typer.Argument(help="Such as example.com")]


@hosts.command()
def robots(
    files: Annotated[
        list[Path], typer.Argument(help="robots.txt files: HOST.txt or HOST/robots.txt; - is stdin")
    ],
    host: Annotated[str | None, typer.Option(help="Whose robots.txt the one file is")] = None,
    url: Annotated[str | None, typer.Option(help="Where the one file was fetched from")] = None,
    user_agent: Annotated[str, typer.Option(help="What your crawler calls itself")] = "*",
    to: To = URL,
    api_key: ApiKey = None,
) -> None:
    """Report what robots.txt files ask of your crawler: Crawl-delay and Request-rate.

    The longer of the two becomes the host's robots_delay_s; a file that asks for neither clears
    it. Who must not be fetched at all is your crawler's business.
    """
    from service.connectors.robots import host_of, requested_delay
    from service.model.errors import InvalidUrl
    from service.model.urls import normalise

    if host and url:
        raise typer.BadParameter("give one of --host and --url", param_hint="--host")
    if (host or url) and len(files) > 1:
        raise typer.BadParameter("names the host of one file only", param_hint="--host, --url")
    try:
        named = normalise(url).host if url else host
    except InvalidUrl as error:
        raise typer.BadParameter(error.detail, param_hint="--url") from error
    delays = {
        named or host_of(file): requested_delay(_read(file), user_agent) for file in files
    }  # every file is read before anything is sent
    with connected(to, api_key) as service:
        for name, delay_s in delays.items():
            service.set_host(name, robots_delay_s=delay_s)
            typer.echo(f"{name}: {'no delay' if delay_s is None else f'{delay_s:g} s'}")


@hosts.command(name="list")
def list_(to: To = URL, api_key: ApiKey = None) -> None:
    """List all hosts, a line of JSON each."""
    from msgspec import to_builtins

    with connected(to, api_key) as service:
        for item in service.hosts():
            typer.echo(json.dumps(to_builtins(item)))


@hosts.command()
def show(host: HostName, to: To = URL, api_key: ApiKey = None) -> None:
    """Show one host: settings, politeness in force, state, rates and feed."""
    with connected(to, api_key) as service:
        typer.echo(json.dumps(service.host(host), indent=2))


@hosts.command(name="set")
def set_(
    host: HostName,
    settings: Annotated[
        list[str], typer.Argument(help="min_delay_s=2 group=shared-1 blocked_until=null …")
    ],
    to: To = URL,
    api_key: ApiKey = None,
) -> None:
    """Change settings of a host, seen or not, and show it; null sets one back."""
    fields = dict(_setting(setting) for setting in settings)
    with connected(to, api_key) as service:
        typer.echo(json.dumps(service.set_host(host, **fields), indent=2))


def _setting(text: str) -> tuple[str, Any]:
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
