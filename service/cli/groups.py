"""`recrawl groups`: groups of hosts that share a server."""

from typing import Annotated

import typer

from service.cli.confirming import DryRun, Yes, confirm
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

groups = typer.Typer(no_args_is_help=True, help="Show and set groups of hosts that share a server.")

OF_GROUPS = (
    *("group", "n_members", "host_queue.delay_s", "host_queue.concurrency", "max_crawl_rate"),
    *("host_queue.blocked_until", "host_queue.paused_until"),
)
"""Columns of the table of groups."""
GroupName = Annotated[str, typer.Argument(help="Such as shared-1")]


@groups.command(name="list")
def list_groups(to: To = URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """List groups of hosts."""
    with connected(to, api_key) as service:
        empty = "no groups; `recrawl groups set NAME --member HOST` makes one"
        echo_lines(service.groups(), *OF_GROUPS, as_json=as_json, empty=empty)


@groups.command()
def show(group: GroupName, to: To = URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """Show one group: settings, politeness in force and members."""
    with connected(to, api_key) as service:
        echo_item(service.group(group), as_json=as_json)


@groups.command(name="set")
def set_(
    group: GroupName,
    settings: Annotated[
        list[str] | None, typer.Argument(help="max_concurrency=2 min_delay_s=null …")
    ] = None,
    members: Annotated[
        list[str] | None,
        typer.Option("--member", help="Host of the group, in place of the present ones; repeat it"),
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
    """Change settings or members of a group, which may be new. NAME=null restores a default.

    The options are the fields members, min_delay_s, max_concurrency, max_crawl_rate,
    latency_factor, max_delay_s, windows and blackouts. Semicolons stand between several windows, or
    blackouts. `recrawl hosts set HOST group=NAME` adds one host.
    """
    options = delay, at_a_time, a_day, latency_factor, max_delay, windows, blackouts
    fields = fields_of(settings, *options, members)
    with connected(to, api_key) as service:
        answer = service.set_group(group, **fields)
    echo_act(answer, f"{group} is set: {values_of(answer, fields)}", as_json=as_json)
    if not answer.n_members:
        typer.echo(f"{group} has no host yet; --member adds hosts", err=True)


@groups.command()
def delete(
    group: GroupName,
    dry_run: DryRun = False,
    yes: Yes = False,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Delete a group, after a question; its hosts stay, and go by their own settings again."""
    with connected(to, api_key) as service:
        n_members = service.group(group).n_members
        if not dry_run:
            confirm(f"this deletes {group}, which {counted(n_members, 'host')} will leave", yes=yes)
            service.delete_group(group)
    hosts = counted(n_members, "host")
    text = f"deleted: {group}; {hosts} left it"
    if dry_run:
        text = f"would be deleted: {group}; {hosts} would leave it"
    answer = {"group": group, "dry_run": dry_run, "n_members": n_members}
    echo_act(answer, text, as_json=as_json)
