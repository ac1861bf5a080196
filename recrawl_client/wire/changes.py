"""The wire format of the feed of changes."""

from typing import Literal

from msgspec import Struct

from recrawl_client.wire.common import Instant

ChangeName = Literal["new", "changed", "gone", "back", "moved", "deleted"]


class Change(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of a page that a crawl found, or the end of a page."""

    id: str
    """Name of the change, the same in every answer: a reader that has handled it may skip it."""
    kind: ChangeName
    """`new`: first content. `changed`: other content. `gone`: 404 or 410. `back`: content again
    after it was gone or had moved. `moved`: permanent redirect. `deleted`: deleted from the
    service, which no longer crawls it."""
    page_id: int
    """The service's number of the page."""
    url: str
    """Normalised URL of the page."""
    observed_at: Instant
    """Instant of the crawl; the change happened before. For `deleted`, that of the deletion."""
    changed_after: Instant | None = None
    """Instant of the last answer before, after which the change happened; absent for a first
    answer and for `deleted`."""
    last_modified: Instant | None = None
    """Instant of the change as the site dates it, between the two crawls; absent without such a
    date."""
    digest: str | None = None
    """Hash of the crawl's `digest`: BLAKE2b of 8 bytes in hexadecimal; absent where the crawl
    reported none."""
    moved_to: str | None = None
    """URL of the page to which this page has moved; absent where that is no registered page."""
    tags: list[str] = []
    """Tags that the page has when the change is read, not when it was found; absent without
    any. A deleted page has those of its end."""
    recorded_at: Instant
    """Instant of the commit; later changes in the feed never have an earlier one."""
    weight: float = 1.0
    """Weight of the change as the crawl reported it (`change_weight`), with six digits; absent for
    1, the weight of a change without one and of any kind other than `changed`."""


class ChangesAnswer(Struct, frozen=True, kw_only=True):
    """A part of the feed of changes."""

    items: list[Change]
    """Changes of this part; fewer than `limit`, even none, do not mean the end."""
    more: bool
    """True if the next part can be read at once; false at the present end of the feed."""
    next_cursor: str
    """`cursor` of the next part, never null, because the feed goes on."""


class ChangesPlace(Struct, frozen=True, kw_only=True):
    """A line of a stream of changes: the place up to here."""

    next_cursor: str
    """`cursor` from which another request continues."""
