"""One line of a file: a page, or a page with its state; from and to the columns of the store."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from recrawl_client.wire.common import Moment
from recrawl_client.wire.pages import Page
from service.model.arrays import COLUMN, EPOCH, INSTANT, KEY, UNSPECIFIED, Floats, Instants
from service.model.columns import PageColumns, PageStates
from service.model.domain import Observability
from service.model.errors import InvalidUrl
from service.model.urls import NormalUrl, normalise

Number = Annotated[float, Meta(ge=-1e300, le=1e300)]
Amount = Annotated[float, Meta(ge=0, le=1e300)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Interval = Annotated[float, Meta(ge=-1e7, le=1e7)]
Digest = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
MICROSECOND = timedelta(microseconds=1)
NAT = np.iinfo(np.int64).min
"""The bits of numpy's NaT."""


class StateLine(Page, frozen=True, kw_only=True):
    """A page and its state."""

    created_at: Moment
    estimator: str
    """Name of the estimator of `estimate`."""
    estimate: list[Number]
    interval_factor: Amount
    n_observations: Count
    n_changes: Count
    pings_since: Moment
    last_crawl_at: Moment | None = None
    last_observed_at: Moment | None = None
    digest: Digest = 0
    gone: bool = False
    n_pings: Count = 0
    pings_since_crawl: Count = 0
    last_ping_at: Moment | None = None
    requested_at: Moment | None = None
    ping_credit: Number = 0.0
    real_pings: Number = 0.0
    false_pings: Number = 0.0
    trust: Number = 0.0
    last_interval: Interval = 0.0
    n_failures: Annotated[int, Meta(ge=0, le=1_000)] = 0


class Parsed(NamedTuple):
    """The good items of a block, each page once, and the bad ones by their position."""

    lines: list[Any]
    position: list[int]
    pages: PageColumns
    rejected: list[tuple[int, str]]


def parse(items: Sequence[dict[str, Any]], kind: type[Page]) -> Parsed:
    """Check items and describe their pages; of several with one URL the newest counts."""
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
        if other is None or _evidence_at(line) >= _evidence_at(other[1]):
            pages[page.key] = position, line, page
    positions, newest, normal = zip(*pages.values(), strict=True) if pages else ((), (), ())
    described = _page_columns(list(newest), list(normal))
    return Parsed(list(newest), list(positions), described, rejected)


def _converted(
    items: Sequence[dict[str, Any]], kind: type[Page]
) -> tuple[list[tuple[int, Any]], list[tuple[int, str]]]:
    """Convert all items at once; where one is bad, each alone, without its nulls."""
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
            rejected.append((position, str(error)))
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
    us = [NAT if at is None else (at - EPOCH) // MICROSECOND for at in moments]
    return np.array(us, np.int64).view(INSTANT)


def states_of(lines: list[StateLine]) -> PageStates:
    """Return the states of lines; ids and rates in force, which no line has, are none."""
    n = len(lines)
    columns = {
        field.name: _column(field.type, [getattr(line, field.name) for line in lines])
        for field in fields(PageStates)
        if field.name in OF_STATES
    }
    return PageStates(
        page_id=np.zeros(n, np.int64),
        observability=np.full(n, UNSPECIFIED, np.int16),
        redirects_to=np.zeros(n, np.int64),
        crawl_rate=np.full(n, np.nan),
        crawl_probability=np.full(n, np.nan),
        **columns,
    )


def _column(kind: Any, values: list[Any]) -> Any:
    return instants(values) if kind == Instants else np.array(values, COLUMN[kind])


OF_STATES = frozenset(StateLine.__struct_fields__) - {"observability"}
"""Fields of a state that a line has; the observability is the page's."""
