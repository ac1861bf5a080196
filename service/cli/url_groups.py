"""`recrawl url-groups`: the worth of new pages, and rules of operators."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import URL, ApiKey, To, connected
from service.cli.output import AsJson, echo_act, echo_lines
from service.model.words import counted

if TYPE_CHECKING:
    from recrawl_client.wire.url_groups import UrlGroupItem

url_groups = typer.Typer(
    no_args_is_help=True, help="List groups of URLs; admit or stop their new pages."
)

STOPS = ("stopped", "held")
"""States of groups whose new pages wait."""


class GroupOrder(StrEnum):
    """Orders of the list."""

    waiting = "waiting"
    name = "name"


Group = Annotated[
    str, typer.Argument(help="Name of a listed group, or URL of a directory with a / at its end")
]


@url_groups.command(name="list")
def list_groups(
    prefix: Annotated[str, typer.Argument(help="First characters of the names")] = "",
    stopped: Annotated[
        bool, typer.Option("--stopped", help="Only groups that are stopped")
    ] = False,
    sort: Annotated[
        GroupOrder, typer.Option(help="By waiting pages, or all groups by name")
    ] = GroupOrder.waiting,
    limit: Annotated[int, typer.Option(min=1, help="Largest number of lines")] = 100,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """List groups of URLs, those with most waiting pages first.

    Groups below a stopped one that are stopped too are left out, but for the order by name.
    """
    fields = ("group", "state", "share_new", "n_first", "n_new", "n_waiting", "since")
    with connected(to, api_key) as service:
        listed = list(service.url_groups(prefix, stopped=stopped))
    if sort is GroupOrder.waiting:
        listed = by_waiting(listed)
    empty = "no group is stopped" if stopped else "no groups; they come with new pages"
    echo_lines(listed[:limit], *fields, as_json=as_json, empty=empty)
    if len(listed) > limit:
        more = counted(len(listed) - limit, "more group")
        typer.echo(f"{more}; --limit shows them, and a prefix fewer", err=True)


def by_waiting(groups: "list[UrlGroupItem]") -> "list[UrlGroupItem]":
    """Return groups by waiting pages, without those that share the stop of a group above."""
    stopped = {each.group: each.state for each in groups if each.state in STOPS}
    own = [each for each in groups if each.state not in STOPS or not _shares(each, stopped)]
    return sorted(own, key=lambda each: (-each.n_waiting, -each.n_first, each.group))


def _shares(group: "UrlGroupItem", stopped: Mapping[str, str]) -> bool:
    """Return whether a group above has the same state."""
    parts = group.group.partition("?")[0].split("/")
    above = {"/".join(parts[:n]) for n in range(1, len(parts) + ("?" in group.group))}
    return any(stopped.get(name) == group.state for name in above - {group.group})


@url_groups.command()
def admit(group: Group, to: To = URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """Admit all new pages of a group, and below, to their first crawl."""
    with connected(to, api_key) as service:
        answer = service.set_url_group(group, "admit")
    _echo(answer, f"{answer.group}: all new pages are admitted", as_json=as_json)


@url_groups.command()
def stop(group: Group, to: To = URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """Stop the first crawls of a group and of all below, as of a calendar without end."""
    with connected(to, api_key) as service:
        answer = service.set_url_group(group, "stop")
    _echo(answer, f"{answer.group}: no new page is crawled; crawled ones go on", as_json=as_json)


@url_groups.command()
def learn(group: Group, to: To = URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """End the rule of a group, so that what its first crawls bring decides again."""
    with connected(to, api_key) as service:
        answer = service.set_url_group(group, None)
    text = f"{answer.group}: what its first crawls bring decides; now it is {answer.state}"
    echo_act(answer, text, as_json=as_json)


def _echo(item: "UrlGroupItem", text: str, *, as_json: bool) -> None:
    """Print what a rule does, with a notice if the group's name may be a typing error."""
    echo_act(item, text, as_json=as_json)
    if not (item.n_first or item.n_waiting or item.n_in_flight):
        notice = "no new page has come to it yet, so check its name"
        typer.echo(f"{item.group} has this rule; {notice}", err=True)
