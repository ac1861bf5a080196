"""Types of several calls: how pages are named, what is rejected, what went wrong."""

from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType, structs

PageId = Annotated[int, Meta(ge=1, le=2**63 - 1, description="the service's number of the page")]

END = r"(?!\n)$"
"""The end of a text; `$` alone would let a line break through."""

Url = Annotated[
    str,
    Meta(
        min_length=1,
        description="an absolute http or https URL of at most 2,048 bytes",
        examples=["https://example.com/news"],
    ),
]

Moment = Annotated[
    datetime,
    Meta(
        tz=True,
        description="an RFC 3339 instant with a zone, such as 2026-05-01T12:00:00Z, "
        "at most 5 minutes ahead of the service's clock",
        examples=["2026-05-01T12:00:00Z"],
    ),
]


class Item(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One item of a batch; unknown fields are refused."""


class Rejection(Struct, frozen=True, kw_only=True):
    """Why one item of a batch was not taken."""

    index: int
    code: str
    detail: str
    field: str | None = None


class Counts(Struct, frozen=True, kw_only=True):
    """What became of the items of a batch."""

    accepted: int
    duplicate: int
    late: int
    n_rejected: int
    rejected: list[Rejection]
    """All of them, in order; of NDJSON in several blocks and of sitemaps the first 1,000."""


CountsT = TypeVar("CountsT", bound=Counts)


def empty(kind: type[CountsT]) -> CountsT:
    """Return the answer to no items.

    >>> empty(Counts).rejected
    []
    """
    zeros: dict[str, Any] = {n: [] if n in LISTS else 0 for n in kind.__struct_fields__}
    return kind(**zeros)


def added(total: CountsT, answer: CountsT, n_before: int = 0) -> CountsT:
    """Return the sum of two answers; each `index` of `answer` moves up by `n_before`.

    >>> one = structs.replace(empty(Counts), accepted=1)
    >>> added(one, one).accepted
    2
    """
    sums: dict[str, Any] = {}
    for name in total.__struct_fields__:
        more = getattr(answer, name)
        if name in INDEXED and n_before:
            more = [structs.replace(item, index=item.index + n_before) for item in more]
        sums[name] = getattr(total, name) + more
    return type(total)(**sums)


INDEXED = frozenset({"rejected", "decisions"})
"""Lists of answers whose items name the position of an item that was sent."""
LISTS = INDEXED | {"page_ids"}


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """RFC 9457: what went wrong and how to mend it."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    errors: list[Rejection] | UnsetType = UNSET
    accepted: int | UnsetType = UNSET
    duplicate: int | UnsetType = UNSET
    late: int | UnsetType = UNSET
    n_rejected: int | UnsetType = UNSET
    rejected: list[Rejection] | UnsetType = UNSET
    lines_taken: int | UnsetType = UNSET
    """Of NDJSON to POST /observations: so many lines, from the first, were dealt with for good."""
    check: Literal["connection", "schema", "writes"] | UnsetType = UNSET
    """Check of GET /readyz that failed."""
