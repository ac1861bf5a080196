"""One line of a file: a page, or a page with its state; from and to the columns of the store."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta, Struct

from service.arrays import COLUMN, EPOCH, INSTANT, KEY, UNSAID, Floats, Instants
from service.columns import PageColumns, PageStates
from service.domain import Observability
from service.errors import InvalidUrl
from service.urls import NormalUrl, normalise

Importance = Annotated[float, Meta(ge=1e-9, le=1e9)]
MinRate = Annotated[float, Meta(ge=0, le=1e6)]
MaxRate = Annotated[float, Meta(ge=1e-9, le=1e6)]
Watched = Literal["incomplete", "complete", "auto"]
Moment = Annotated[datetime, Meta(tz=True)]
Number = Annotated[float, Meta(ge=-1e300, le=1e300)]
Amount = Annotated[float, Meta(ge=0, le=1e300)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Interval = Annotated[float, Meta(ge=-1e7, le=1e7)]
Digest = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
MICROSECOND = timedelta(microseconds=1)
NAT = np.iinfo(np.int64).min
"""The bits of numpy's NaT."""


class PageLine(Struct, forbid_unknown_fields=True, kw_only=True):
    """A page as POST /pages takes it."""

    url: str
    importance: Importance | None = None
    observability: Watched | None = None
    min_crawl_rate: MinRate | None = None
    max_crawl_rate: MaxRate | None = None


class StateLine(PageLine, kw_only=True):
    """A page and all that is known of it."""

    created_at: Moment
    estimator: str
    """Whose numbers `estimate` holds."""
    estimate: list[Number]
    gap: Amount
    n_observations: Count
    n_changes: Count
    pings_since: Moment
    last_crawl_at: Moment | None = None
    last_observed_at: Moment | None = None
    digest: Digest = 0
    gone: bool = False
    n_pings: Count = 0
    recent_pings: Count = 0
    last_ping_at: Moment | None = None
    wanted_at: Moment | None = None
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


def parse(items: Sequence[dict[str, Any]], kind: type[PageLine]) -> Parsed:
    """Check items and describe their pages; of several with one URL the newest counts."""
    found, rejected = _converted(items, kind)
    pages: dict[bytes, tuple[int, Any, NormalUrl]] = {}
    for position, line in found:
        try:
            page = normalise(line.url)
        except InvalidUrl as error:
            rejected.append((position, error.detail))
            continue
        low, high = line.min_crawl_rate, line.max_crawl_rate
        if low is not None and high is not None and low > high:
            reason = f"min_crawl_rate {low:g} lies above max_crawl_rate {high:g}; lower or drop it"
            rejected.append((position, reason))
            continue
        known = pages.get(page.key)
        if known is None or _told(line) >= _told(known[1]):
            pages[page.key] = position, line, page
    kept = [*pages.values()]
    lines = [line for _, line, _ in kept]
    described = _page_columns(lines, [page for _, _, page in kept])
    return Parsed(lines, [position for position, _, _ in kept], described, rejected)


def _converted(
    items: Sequence[dict[str, Any]], kind: type[PageLine]
) -> tuple[list[tuple[int, Any]], list[tuple[int, str]]]:
    """Convert all at once; where one is bad, each alone."""
    for item in items:
        if isinstance(cell := item.get("estimate"), str):
            item["estimate"] = cell.split()
    try:
        return list(enumerate(msgspec.convert(items, list[kind], strict=False))), []  # type: ignore[valid-type]
    except msgspec.ValidationError:
        found, rejected = [], []
    for position, item in enumerate(items):
        try:
            line = msgspec.convert(item, kind, strict=False)
        except msgspec.ValidationError as error:
            rejected.append((position, str(error)))
        else:
            found.append((position, line))
    return found, rejected


def _told(line: PageLine) -> list[datetime]:
    """Give the instants of a line's newest evidence, the later one first."""
    if not isinstance(line, StateLine):
        return []
    return sorted(filter(None, (line.last_crawl_at, line.last_ping_at)), reverse=True)


def _page_columns(lines: list[PageLine], pages: list[NormalUrl]) -> PageColumns:
    watched = [UNSAID if x.observability is None else Observability[x.observability] for x in lines]
    return PageColumns(
        key=np.frombuffer(b"".join(page.key for page in pages), KEY),
        url=np.array([page.url for page in pages], object),
        host=np.array([page.host for page in pages], object),
        importance=_numbers([line.importance for line in lines]),
        observability=np.array(watched, np.int16),
        min_crawl_rate=_numbers([line.min_crawl_rate for line in lines]),
        max_crawl_rate=_numbers([line.max_crawl_rate for line in lines]),
    )


def _numbers(values: list[float | None]) -> Floats:
    return np.array(values, np.float64)  # None becomes NaN


def instants(moments: Sequence[datetime | None]) -> Instants:
    """Give (N,) moments as instants, to the microsecond; None is NaT."""
    us = [NAT if at is None else (at - EPOCH) // MICROSECOND for at in moments]
    return np.array(us, np.int64).view(INSTANT)


def states_of(lines: list[StateLine]) -> PageStates:
    """Give the states of some lines; what is not in a line (ids, rates in force) is none."""
    n = len(lines)
    given = {
        field.name: _column(field.type, [getattr(line, field.name) for line in lines])
        for field in fields(PageStates)
        if field.name in OF_STATES
    }
    return PageStates(
        page_id=np.zeros(n, np.int64), observability=np.full(n, UNSAID, np.int16),
        redirects_to=np.zeros(n, np.int64), crawl_rate=np.full(n, np.nan),
        crawl_probability=np.full(n, np.nan), **given,
    )  # fmt: skip


def _column(kind: Any, values: list[Any]) -> Any:
    return instants(values) if kind == Instants else np.array(values, COLUMN[kind])


OF_STATES = frozenset(StateLine.__struct_fields__) - {"observability"}
"""What of a state stands in a line; the observability is the page's."""
