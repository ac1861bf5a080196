"""Items of files: pages, and pages with their states; conversion to columns of the store."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from recrawl_client.wire.common import Etag, Moment
from recrawl_client.wire.pages import Page
from service.model.arrays import (
    COLUMN,
    INSTANT,
    KEY,
    UNIX_ZERO,
    UNSPECIFIED,
    Floats,
    Instants,
    plausible,
)
from service.model.columns import PageColumns, PageStates
from service.model.domain import Observability
from service.model.errors import InvalidUrl
from service.model.field_faults import fault_of, worded
from service.model.urls import NormalUrl, normalise
from service.storage.pages.kinds import FEED, KindRows
from service.storage.pages.tagging import TaggedRows
from service.storage.pages.validators import MOST_NOTE_BYTES, NO_NOTE, ValidatorChanges

Number = Annotated[float, Meta(ge=-1e300, le=1e300)]
Amount = Annotated[float, Meta(ge=0, le=1e300)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Interval = Annotated[float, Meta(ge=-1e7, le=1e7)]
Digest = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Note = Annotated[str, Meta(max_length=MOST_NOTE_BYTES, description="JSON of a note")]
MICROSECOND = timedelta(microseconds=1)
NAT = np.iinfo(np.int64).min
"""Integer value of numpy's NaT."""


class StateLine(Page, frozen=True, kw_only=True):
    """A page and its state; the fields have the order of a file's columns."""

    created_at: Moment
    estimator: str
    """Name of the estimator of `estimate`."""
    estimate: list[Number]
    interval_factor: Amount
    n_observations: Count
    n_changes: Count
    last_crawl_at: Moment | None = None
    last_observed_at: Moment | None = None
    digest: Digest = 0
    gone: bool = False
    pings_since: Moment
    n_pings: Count = 0
    recent_pings: Number = 0.0
    pings_since_crawl: Count = 0
    last_ping_at: Moment | None = None
    requested_at: Moment | None = None
    renewed_at: Moment | None = None
    ping_credit: Number = 0.0
    real_pings: Number = 0.0
    false_pings: Number = 0.0
    trust: Number = 0.0
    n_failures: Annotated[int, Meta(ge=0, le=1_000)] = 0
    outcome: Annotated[int, Meta(ge=0, le=9)] = 0
    """Outcome of the last crawl (`service.model.outcomes`)."""
    absent_since: Moment | None = None
    hops: Annotated[int, Meta(ge=-5, le=5)] = 0
    """Redirects from a page that was asked for (`service.model.columns.PageStates`)."""
    n_targets: Annotated[int, Meta(ge=0, le=1_000)] = 0
    retry_rate: Amount = 0.0
    """Crawl rate by which the page is due without a share, 1/day; 0: none."""
    cost: Amount = 0.0
    """Mean cost of the page's crawls, in the unit of the budget; 0: none is known."""
    last_interval: Interval = 0.0
    last_age: Annotated[float, Meta(ge=0, le=1e7)] | None = None
    """Days from the last modification that the site reported to the crawl that reported it."""
    born_at: Moment | None = None
    """Birth of the page (`service.model.columns.EpochColumns`)."""
    etag: Etag | None = None
    last_modified: Moment | None = None
    note: Note | None = None
    """JSON of the note."""


class Parsed(NamedTuple):
    """The good items of a block, each page once, and the bad items by their positions."""

    lines: list[Any]
    position: list[int]
    pages: PageColumns
    rejected: list[tuple[int, str]]

    @property
    def tags(self) -> TaggedRows | None:
        """Tags of the lines that state tags; None if no line does."""
        stated = {
            row: line.tags
            for row, line in enumerate(self.lines)
            if not isinstance(line.tags, UnsetType)
        }
        return TaggedRows.of(stated) if stated else None

    @property
    def kinds(self) -> KindRows | None:
        """Kinds of the lines that state one; None if no line does."""
        stated = {
            row: line.kind == FEED
            for row, line in enumerate(self.lines)
            if not isinstance(line.kind, UnsetType)
        }
        return KindRows.of(stated) if stated else None


def parse(items: Sequence[dict[str, Any]], kind: type[Page]) -> Parsed:
    """Return the checked items with their pages; of items with one URL, keep the newest."""
    lines, rejected = _converted(items, kind)
    pages: dict[bytes, tuple[int, Any, NormalUrl]] = {}
    for position, line in lines:
        try:
            page = normalise(line.url)
        except InvalidUrl as error:
            rejected.append((position, error.detail))
            continue
        low, high = line.min_crawl_rate, line.max_crawl_rate
        if low is not UNSET and high is not UNSET and low > high:
            reason = f"min_crawl_rate {low:g} lies above max_crawl_rate {high:g}; lower or drop it"
            rejected.append((position, reason))
            continue
        other = pages.get(page.key)
        # `>=`: of lines without evidence the last one counts
        if other is None or _evidence_at(line) >= _evidence_at(other[1]):
            pages[page.key] = position, line, page
    positions, newest, normal = zip(*pages.values(), strict=True) if pages else ((), (), ())
    described = _page_columns(list(newest), list(normal))
    return Parsed(list(newest), list(positions), described, rejected)


def _converted(
    items: Sequence[dict[str, Any]], kind: type[Page]
) -> tuple[list[tuple[int, Any]], list[tuple[int, str]]]:
    """Return all items converted at once; after a failure, each item alone without its nulls."""
    for item in items:
        if isinstance(cell := item.get("estimate"), str):
            item["estimate"] = cell.split()
    try:
        return list(enumerate(msgspec.convert(items, list[kind], strict=False))), []  # type: ignore[valid-type]
    except msgspec.ValidationError:
        lines, rejected = [], []
    for position, item in enumerate(items):
        fields = {name: value for name, value in item.items() if value is not None}
        try:
            line = msgspec.convert(fields, kind, strict=False)
        except msgspec.ValidationError as error:
            rejected.append((position, worded(fault_of(error), fields, kind)))
        else:
            lines.append((position, line))
    return lines, rejected


def _evidence_at(line: Page) -> list[datetime]:
    """Return the instants of a line's newest evidence, the later one first."""
    if not isinstance(line, StateLine):
        return []
    return sorted(filter(None, (line.last_crawl_at, line.last_ping_at)), reverse=True)


def _page_columns(lines: list[Page], pages: list[NormalUrl]) -> PageColumns:
    observability = [
        UNSPECIFIED
        if isinstance(line.observability, UnsetType)
        else Observability[line.observability]
        for line in lines
    ]
    return PageColumns(
        key=np.frombuffer(b"".join(page.key for page in pages), KEY),
        url=np.array([page.url for page in pages], object),
        host=np.array([page.host for page in pages], object),
        importance=_numbers([line.importance for line in lines]),
        observability=np.array(observability, np.int16),
        min_crawl_rate=_numbers([line.min_crawl_rate for line in lines]),
        max_crawl_rate=_numbers([line.max_crawl_rate for line in lines]),
    )


def _numbers(values: list[float | UnsetType]) -> Floats:
    return np.array([np.nan if value is UNSET else value for value in values], np.float64)


def instants(moments: Sequence[datetime | None]) -> Instants:
    """Return (N,) moments as instants, to the microsecond; None is NaT."""
    us = [NAT if at is None else (at - UNIX_ZERO) // MICROSECOND for at in moments]
    return np.array(us, np.int64).view(INSTANT)


def states_of(lines: list[StateLine]) -> PageStates:
    """Return the states of lines without ids and rates in force, which no line contains."""
    n = len(lines)
    columns = {
        field.name: _column(field.type, [getattr(line, field.name) for line in lines])
        for field in fields(PageStates)
        if field.name in OF_STATES
    }
    return PageStates(
        page_id=np.zeros(n, np.int64),
        observability=np.full(n, UNSPECIFIED, np.int16),
        host_id=np.zeros(n, np.int64),
        redirects_to=np.zeros(n, np.int64),
        held=np.zeros(n, np.int64),
        crawl_rate=np.full(n, np.nan),
        crawl_probability=np.full(n, np.nan),
        **columns,
    )


def _column(kind: Any, values: list[Any]) -> Any:
    return instants(values) if kind == Instants else np.array(values, COLUMN[kind])


def validators_of(lines: list[StateLine]) -> ValidatorChanges:
    """Return the validators and notes of lines, which replace the stored ones."""
    return ValidatorChanges(
        page_id=np.zeros(len(lines), np.int64),
        etag=np.array([line.etag or "" for line in lines], object),
        last_modified=plausible(instants([line.last_modified for line in lines])),
        note=np.array([line.note or NO_NOTE for line in lines], object),
        resets=np.ones(len(lines), np.bool_),
    )


OF_STATES = frozenset(StateLine.__struct_fields__) - {"observability"}
"""Fields of a state in a line, without the observability, which belongs to the page."""
