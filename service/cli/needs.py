"""`recrawl needs`: accept what needs somebody, for some time."""

from typing import Annotated

import typer

from service.cli.durations import read_duration
from service.cli.options import URL, ApiKey, To, connected
from service.cli.output import AsJson, echo_act, echo_lines

needs = typer.Typer(no_args_is_help=True, help="Accept what `recrawl status` shows, for some time.")

Kind = Annotated[str, typer.Argument(help="Kind, such as window_too_narrow")]
Subject = Annotated[str, typer.Argument(help="Subject, such as example.com")]


@needs.command()
def accept(
    kind: Kind,
    subject: Subject,
    length: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="Such as 7d; 90d at most")
    ] = "30d",
    reason: Annotated[str, typer.Option(help="Words for others who read it")] = "",
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Accept a need that `recrawl status` shows: it counts no more, for some time.

    It comes back at the end, and before if its condition begins anew.
    """
    for_s = read_duration(length).total_seconds()
    with connected(to, api_key) as service:
        accepted = service.accept_need(kind, subject, for_s=for_s, reason=reason)
    text = f"{kind} of {subject} is accepted until {accepted.until:%Y-%m-%d %H:%M:%SZ}"
    echo_act(accepted, text, as_json=as_json)


@needs.command(name="accepted")
def list_accepted(to: To = URL, api_key: ApiKey = None, as_json: AsJson = False) -> None:
    """List the needs that are accepted; one without `since` does not hold now."""
    fields = ("kind", "subject", "since", "accepted_at", "until", "reason")
    with connected(to, api_key) as service:
        listed = service.status().accepted
    echo_lines(listed, *fields, as_json=as_json, empty="no need is accepted")


@needs.command()
def withdraw(
    kind: Kind, subject: Subject, to: To = URL, api_key: ApiKey = None, as_json: AsJson = False
) -> None:
    """Withdraw the acceptance of a need, which counts again while it holds."""
    with connected(to, api_key) as service:
        service.withdraw_acceptance(kind, subject)
    answer = {"kind": kind, "subject": subject, "accepted": False}
    echo_act(answer, f"{kind} of {subject} is no more accepted", as_json=as_json)
