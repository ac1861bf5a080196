"""`recrawl changes`: print the feed of changes, and follow it."""

import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli import output
from service.cli.durations import read_moment
from service.cli.options import URL, ApiKey, To, connected
from service.cli.output import AsJson

if TYPE_CHECKING:
    from recrawl_client import ChangesAnswer, Client

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Wait for new changes, without end")]
CursorFile = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="File with the place from which to go on, kept up to date"),
]
Since = Annotated[
    datetime | None,
    typer.Option(
        parser=read_moment,
        metavar="TIME",
        help="Time at which to begin without a cursor: 1d, or 2026-05-01T12:00:00Z",
    ),
]
Host = Annotated[str | None, typer.Option(help="Only changes of this host")]
Prefix = Annotated[str | None, typer.Option(help="Only URLs that begin like this")]
Tag = Annotated[str | None, typer.Option(help="Only changes of pages with this tag now")]
Kind = Annotated[
    list[str] | None,
    typer.Option(help="Only new, changed, gone, back, moved, deleted; repeat for more"),
]

MinWeight = Annotated[
    float | None, typer.Option(min=0, max=1, help="Only changes of this weight and above")
]
Limit = Annotated[int | None, typer.Option(min=1, help="Most changes; with --follow, then end")]
PART = 1_000
"""Changes of one request."""


def changes(
    follow: Follow = False,
    cursor_file: CursorFile = None,
    since: Since = None,
    host: Host = None,
    prefix: Prefix = None,
    tag: Tag = None,
    kind: Kind = None,
    min_weight: MinWeight = None,
    limit: Limit = None,
    to: To = URL,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Print the changes of pages, a line each: new, changed, gone, back, moved, deleted.

    With `--cursor-file` the next run goes on where this one ended; a line is printed again if the
    command was killed before it kept the place.
    """
    from msgspec import json

    chosen: dict[str, Any] = {"since": since, "host": host, "prefix": prefix, "tag": tag}
    chosen |= {"kinds": kind, "min_weight": min_weight}
    filters = {name: value for name, value in chosen.items() if value is not None}
    with connected(to, api_key, waits=follow) as client:
        encoder = json.Encoder()
        n_printed = 0
        for part in _parts(client, _kept(cursor_file), filters, follow=follow, limit=limit):
            n_printed += len(part.items)
            if as_json or not output.on_terminal():
                sys.stdout.buffer.write(encoder.encode_lines(part.items))
                sys.stdout.buffer.flush()
            else:
                for change in part.items:
                    typer.echo(
                        f"{change.observed_at:%Y-%m-%d %H:%M:%SZ}  {change.kind:7}  {change.url}"
                    )
            if cursor_file is not None:
                _keep(cursor_file, part.next_cursor)
    if not n_printed and output.on_terminal() and not as_json:
        typer.echo("no changes: none were found, or none match the options")


def _parts(
    client: "Client",
    cursor: str | None,
    filters: dict[str, Any],
    *,
    follow: bool,
    limit: int | None = None,
) -> Iterator["ChangesAnswer"]:
    """Yield the parts of the feed up to its end, or to `limit` changes; wait at the end alone."""
    from recrawl_client.base import LONGEST_WAIT_S

    left, more = PART if limit is None else limit, True
    while left and (more or follow):
        wait_s = 0.0 if more else LONGEST_WAIT_S
        part = client.changes(cursor, limit=min(left, PART), wait_s=wait_s, **filters)
        cursor, more = part.next_cursor, part.more
        left -= len(part.items) if limit is not None else 0
        yield part


def _kept(file: Path | None) -> str | None:
    """Return the cursor of a file; None without one."""
    if file is None or not file.exists():
        return None
    return file.read_text("ascii").strip() or None


def _keep(file: Path, cursor: str) -> None:
    """Write a cursor in one step, so that a crash leaves a whole one."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(f"{cursor}\n", "ascii")
    new.replace(file)
