"""Types of several calls: names of pages, instants, rejections and problems.

The description of a type names values to send; an error appends it to "send". The docstring of a
field states the meaning of the field. The OpenAPI document shows the docstring, or else the
description.
"""

from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType, structs

PageId = Annotated[
    int, Meta(ge=1, le=2**63 - 1, description="the service's number of the page, 1 or more")
]

END = r"(?!\n)$"
"""Pattern of the end of a text; `$` alone would allow a line break."""

Lease = Annotated[
    str,
    Meta(
        pattern=rf"^[1-9][0-9]{{0,17}}-[0-7]?[0-9a-f]{{1,15}}{END}",
        description="the token of a lease, as POST /leases returned it",
        examples=["7-5f3a9c0b1d2e4f60"],
    ),
]

Etag = Annotated[
    str,
    Meta(
        pattern=rf"^[\x20-\x7e]{{1,512}}{END}",
        description="an ETag as the site sent it, 1 to 512 printable ASCII characters",
        examples=['"5f3a-61c0b2d8e5f40"'],
    ),
]

Url = Annotated[
    str,
    Meta(
        min_length=1,
        description="an absolute http or https URL of at most 2,048 bytes",
        examples=["https://example.com/news"],
    ),
]

Uri = Annotated[str, Meta(extra_json_schema={"format": "uri"})]
"""An address that follows RFC 3986; URLs of pages need not, because they may hold `|` or `[`."""

Instant = Annotated[datetime, Meta(tz=True)]
"""An instant of an answer, RFC 3339 in UTC."""

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


Note = Annotated[
    Any,
    Meta(description="any JSON value of at most 1,024 bytes; null removes the stored note"),
]


class Rejection(Struct, frozen=True, kw_only=True):
    """The reason why one item of a batch was rejected."""

    index: int
    """Position of the item in the request, from 0; of NDJSON without blank lines."""
    code: str
    """Short name of the reason, such as `invalid`, `unknown_field` or `page_not_found`."""
    detail: str
    """Sentence for people: the wrong value, and what to send instead."""
    field: str | None = None
    """Name of the wrong field; null when the item as a whole is wrong."""


class Counts(Struct, frozen=True, kw_only=True):
    """Outcomes of the items of a batch."""

    accepted: int
    """Number of items that changed the state of a page."""
    duplicate: int
    """Number of items that repeat stored evidence; these items change nothing."""
    late: int
    """Number of items older than the page's newest evidence. They teach nothing, and count as
    requests of their day unless they are sent again."""
    n_rejected: int
    """Number of rejected items."""
    rejected: list[Rejection]
    """Rejected items in their order. Several blocks of NDJSON, and sitemaps, list the first
    1,000."""
    hint: str | UnsetType = UNSET
    """Advice on late items; absent if there are none."""


def late_hint(n_late: int) -> str:
    """Return the advice on items that came out of order.

    >>> late_hint(1)
    '1 item is older than the newest evidence of its page and changed nothing: send the items of \
each page in the order of their times, such as a log sorted by time'
    """
    which = "1 item is" if n_late == 1 else f"{n_late:,} items are"
    its = "its page" if n_late == 1 else "their pages"
    return (
        f"{which} older than the newest evidence of {its} and changed nothing: send the items of "
        "each page in the order of their times, such as a log sorted by time"
    )


CountsT = TypeVar("CountsT", bound=Counts)


def empty(kind: type[CountsT]) -> CountsT:
    """Return the answer to no items.

    >>> empty(Counts).rejected
    []
    """
    names = (name for name in kind.__struct_fields__ if name != "hint")
    zeros: dict[str, Any] = {name: [] if name in LISTS else 0 for name in names}
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
        if name == "hint":
            n_late = total.late + answer.late
            sums[name] = late_hint(n_late) if n_late else UNSET
            continue
        if name in INDEXED and n_before:
            more = [structs.replace(item, index=item.index + n_before) for item in more]
        sums[name] = getattr(total, name) + more
    return type(total)(**sums)


INDEXED = frozenset({"rejected", "decisions", "left_out"})
"""Lists of answers whose items have the position of a request's item."""
LISTS = INDEXED | {"page_ids"}


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error by RFC 9457: what is wrong, and what to do."""

    type: Uri
    """Address of the documentation of the problem's kind; the name of the kind follows `#`."""
    title: str
    """Name of the problem's kind in words."""
    status: int
    """HTTP status of this answer."""
    detail: str
    """Sentence for people: what is wrong, with which value, and what to do."""
    field: str | None = None
    """Name of the wrong field or parameter; absent where no field is wrong."""
    errors: list[Rejection] | UnsetType = UNSET
    """Wrong parameters, one entry each; `index` counts these entries."""
    accepted: int | UnsetType = UNSET
    """Number of accepted items of a batch."""
    duplicate: int | UnsetType = UNSET
    """Number of items of a batch that repeat stored evidence."""
    late: int | UnsetType = UNSET
    """Number of items of a batch that are older than the page's newest evidence."""
    n_rejected: int | UnsetType = UNSET
    """Number of rejected items of a batch."""
    rejected: list[Rejection] | UnsetType = UNSET
    """Rejected items of a batch, in their order."""
    leases_ended: int | UnsetType = UNSET
    """Number of leases that the rejected reports of a batch ended."""
    lines_taken: int | UnsetType = UNSET
    """Number of committed lines of NDJSON, from the first."""
    retry_after_s: float | UnsetType = UNSET
    """Seconds until the key of the request may send items again."""
    check: Literal["connection", "schema", "writes"] | UnsetType = UNSET
    """Check of GET /readyz that failed."""
    database: str | UnsetType = UNSET
    """Name of the database that is away, of those of RECRAWL_CLUSTER."""
