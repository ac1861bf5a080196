"""URL groups: what first crawls of new pages have brought, and which groups are stopped."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from recrawl_client.wire.common import Instant, Item

MOST_GROUP = 2_048
"""Maximum length of the name of a group, characters."""

GroupState = Literal["open", "stopped", "admitted", "held"]


class UrlGroupItem(Struct, frozen=True, kw_only=True):
    """A group of URLs, and the worth of its new pages."""

    group: str
    """Host, directory (`#` for an id), or shape of the last segment with its parameters."""
    state: GroupState
    """`open`; `stopped`: too few first crawls were new; by a rule: `admitted`, or `held`."""
    share_new: float
    """Share of first crawls that are expected to bring something new, 0 to 1."""
    n_first: int
    """Number of first crawls with an answer, in the group and below."""
    n_new: int
    """Number of these first crawls that brought content that no page had."""
    n_waiting: int
    """Number of pages, in the group and below, that wait for their first crawl."""
    n_in_flight: int
    """Number of pages, in the group and below, that may be crawled and have no answer yet."""
    since: Instant
    """Instant from which the group, on its own, is stopped or open, or has its rule."""


class UrlGroupsAnswer(Struct, frozen=True, kw_only=True):
    """A part of the list of URL groups, by name."""

    items: list[UrlGroupItem]
    """URL groups of this part."""
    next_cursor: str | None
    """`cursor` of the next part; null at the end."""


class UrlGroupBody(Item, frozen=True, kw_only=True):
    """The rule of an operator for a URL group."""

    group: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MOST_GROUP,
            description="the name of a listed group, or the URL of a directory with a slash at its "
            "end",
            examples=["https://example.com/calendar/"],
        ),
    ]
    """Name of a group that the list has, or URL of a directory, which ends with a slash."""
    rule: Annotated[
        Literal["admit", "stop"] | None,
        Meta(description="admit, stop, or null"),
    ]
    """`admit`: all pages of the group get a first crawl; `stop`: none does; null: what is learnt
    decides again."""
