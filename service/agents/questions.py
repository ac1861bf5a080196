"""Arguments of the tools: one struct for each, which is its JSON Schema too."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from recrawl_client.wire.changes import ChangeName
from recrawl_client.wire.hosts import HostOrder

MOST_URLS, MOST_ITEMS, MOST_BUDGETS = 50, 50, 5
"""Maximum number of URLs, of items of a list and of budgets of one call."""
MOST_URL = 8_192
"""Maximum length of a URL, characters."""

Url = Annotated[str, Meta(min_length=1, max_length=MOST_URL)]
Urls = Annotated[
    list[Url], Meta(min_length=1, max_length=MOST_URLS, description=f"1 to {MOST_URLS} URLs")
]
Time = Annotated[
    str,
    Meta(
        max_length=64,
        description="how long ago, such as 2h or 7d, or an instant such as 2026-05-01T12:00:00Z",
    ),
]
Limit = Annotated[
    int, Meta(ge=1, le=MOST_ITEMS, description="most items of the answer; a long one has fewer")
]
Cursor = Annotated[
    str, Meta(max_length=2_048, description="next_cursor of the answer before, for the next part")
]


class Question(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of one call."""


class FreshnessQuestion(Question, frozen=True, kw_only=True):
    """Arguments of `freshness`."""

    urls: Urls
    fetched_at: (
        Annotated[Time, Meta(description="when your copies were fetched; as since of changes")]
        | None
    ) = None
    max_stale: Annotated[
        float, Meta(ge=0, le=1, description="highest probability of a stale copy to accept")
    ] = 0.5


class PageQuestion(Question, frozen=True, kw_only=True):
    """Arguments of `page`."""

    url: Url


class ChangesQuestion(Question, frozen=True, kw_only=True):
    """Arguments of `changes`."""

    since: Time = "1d"
    host: Annotated[str, Meta(max_length=255, description="only pages of this host")] | None = None
    url_prefix: Annotated[Url, Meta(description="only URLs that begin so")] | None = None
    tag: Annotated[str, Meta(max_length=100, description="only pages with this tag")] | None = None
    kinds: Annotated[list[ChangeName], Meta(max_length=5)] | None = None
    limit: Limit = 20
    cursor: Cursor | None = None


class PlanQuestion(Question, frozen=True, kw_only=True):
    """Arguments of `plan`."""

    budgets: (
        Annotated[
            list[Annotated[float, Meta(gt=0)]],
            Meta(
                min_length=1,
                max_length=MOST_BUDGETS,
                description="budgets a day; without them half, once and twice the one in force",
            ),
        ]
        | None
    ) = None


class RecrawlQuestion(Question, frozen=True, kw_only=True):
    """Arguments of `recrawl`."""

    urls: Urls
    dry_run: Annotated[bool, Meta(description="only check what would be crawled")] = False


class HostsQuestion(Question, frozen=True, kw_only=True):
    """Arguments of `hosts`."""

    host: Annotated[str, Meta(max_length=255, description="one host, in detail")] | None = None
    blocked: Annotated[bool, Meta(description="only hosts that are paused now")] = False
    sort: HostOrder = "-n_overdue"
    limit: Limit = 20
    cursor: Cursor | None = None


LISTS = ("urls", "kinds", "budgets")
"""Arguments that are lists; some agents write them as text."""


def read(kind: type[Question], arguments: dict[str, Any]) -> Any:
    """Return the arguments of a call.

    Raises
    ------
    msgspec.ValidationError
        An argument is unknown, missing, or outside of its domain.

    >>> read(PageQuestion, {"url": "https://a.example/", "cursor": None}).url
    'https://a.example/'
    >>> [read(RecrawlQuestion, {"urls": text}).urls for text in ("https://a.example/", '["a"]')]
    [['https://a.example/'], ['a']]
    """
    present = {name: value for name, value in arguments.items() if value is not None}
    for name in LISTS:
        if isinstance(text := present.get(name), str):
            present[name] = _listed(text)
    return msgspec.convert(present, kind)


def _listed(text: str) -> list[Any]:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return [text]
    return value if isinstance(value, list) else [value]


def schema(kind: type[Question]) -> dict[str, Any]:
    """Return the JSON Schema of the arguments of a tool."""
    _, kinds = msgspec.json.schema_components([kind])
    own: dict[str, Any] = kinds[kind.__name__]
    return {name: value for name, value in own.items() if name not in ("title", "description")}
