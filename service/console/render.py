"""HTML: templates that escape every value, and how values are written for people."""

import json
from collections.abc import Mapping
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from recrawl_client.wire.hosts import HostQueueAnswer, NextReason
from service.model import words
from service.model.amounts import DEFAULT

FOLDER = Path(__file__).parent
DASH = "\N{EN DASH}"


def number(value: float | None, digits: int = 3) -> str:
    """Return a number to some significant digits, with thousands separated.

    >>> number(12.345), number(None) == DASH
    ('12.3', True)
    """
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return DASH
    return words.number(value, digits)


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share as a percentage.

    >>> percent(0.12345)
    '12.3%'
    """
    return DASH if share is None else f"{share:.{digits}%}"


def span(seconds: float | None) -> str:
    """Return a duration."""
    return DASH if seconds is None else words.short_span(seconds)


def every(rate: float | None) -> str:
    """Return the mean interval of a rate a day."""
    return DASH if rate is None else words.short_every(rate)


def instant(at: datetime | None, now: datetime) -> Markup:
    """Return an instant relative to now; its title and its attribute have the exact instant."""
    if at is None:
        return Markup(DASH)  # noqa: S704 - a constant
    relative = words.ago((now - at).total_seconds(), words.short_span)
    exact = at.isoformat(timespec="seconds").replace("+00:00", "Z")
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(exact, relative)


def clock_time(at: datetime | None) -> str:
    """Return an instant to the minute, UTC."""
    return DASH if at is None else f"{at:%Y-%m-%d %H:%M}"


def web_link(url: str) -> Markup:
    """Return a link to a page of the web; text for any other scheme, such as javascript."""
    if not url.startswith(("https://", "http://")):
        return Markup("")
    link = '<a class="out" href="{}" rel="noopener noreferrer" target="_blank">open</a>'
    return Markup(link).format(url)  # noqa: S704 - `format` escapes


NEXT_REASONS: dict[NextReason, str] = {
    "ready": "a page is ready",
    "due": "a page falls due then",
    "delay": "the delay ends then",
    "lease": "a lease ends then, or by a report before",
    "cap": "its cap of today is used up",
    "paused": "it is paused",
    "window": "its window opens then",
    "nothing_queued": "nothing queued",
    "never_opens": "no window opens within a year",
}
"""Clauses on what the next lease of a host waits for."""


def pause_end(queue: HostQueueAnswer) -> datetime | None:
    """Return the end of the pauses of a host queue; None for none."""
    ends = (queue.blocked_until, queue.paused_until)
    return max((end for end in ends if end is not None), default=None)


def hidden(name: str, value: str) -> Markup:
    """Return a hidden field of a form."""
    return Markup('<input type="hidden" name="{}" value="{}">').format(name, value)


def json_text(value: Any) -> str:
    """Return a value as JSON, for people; templates escape it."""
    return json.dumps(value, ensure_ascii=False, default=str)


def query(changes: Mapping[str, Any]) -> str:
    """Return the query of a link, without parameters that have no value."""
    return urlencode({name: value for name, value in changes.items() if value not in {None, ""}})


def path_segment(text: str) -> str:
    """Return a text as one segment of a path."""
    return quote(text, safe="")


def static_files() -> dict[str, bytes]:
    """Return the content of each file that browsers load."""
    return {path.name: path.read_bytes() for path in sorted((FOLDER / "static").iterdir())}


def environment(files: Mapping[str, bytes], root: str = "") -> Environment:
    """Return the templates, whose links begin with `root`.

    The address of a file changes with its content.
    """
    versions = {
        name: blake2b(content, digest_size=6).hexdigest() for name, content in files.items()
    }
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "counted": words.counted,
        "number": number,
        "percent": percent,
        "span": span,
        "every": every,
        "clock_time": clock_time,
        "web_link": web_link,
        "segment": path_segment,
        "query": query,
        "json": json_text,
        "pause_end": pause_end,
        "next_reason": NEXT_REASONS.__getitem__,
    }
    made.globals["root"] = root
    made.globals["no_budget"] = DEFAULT
    made.globals["file"] = lambda name: f"{root}/console/static/{name}?v={versions[name]}"
    return made
