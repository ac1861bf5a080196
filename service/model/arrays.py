"""Columns: element types, instants, one array per field, groups of entries.

In arrays, "none" is NaT for an instant, NaN for a number, and 0 for an id or digest. In single
values it is None. Instants are UTC in microseconds, intervals are days, rates are per day.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

Instants = NDArray[np.datetime64]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Codes = NDArray[np.int16]
Bools = NDArray[np.bool_]
UrlGroups = NDArray[np.int32]
UrlGroupRates = NDArray[np.float32]
Keys = NDArray[np.void]
Texts = NDArray[np.object_] | None
"""Optional texts, "" where a row has none; None: no row has a text."""
Marks = NDArray[np.int16] | None
"""Optional codes, UNSPECIFIED where a row has none; None: no row has a code."""
Numbers = NDArray[np.float64] | None
"""Optional numbers, NaN where a row has none; None: no row has a number."""
ATTACHED = {"attached": True}
"""Metadata of a field of columns that no database has."""
INSTANT = np.dtype("M8[us]")
KEY = np.dtype("V16")
DAY = np.timedelta64(86_400_000_000, "us")
NO_TIME = np.datetime64("NaT", "us")
UNSPECIFIED = -1
"""Code in a column: the caller did not specify a value."""

Labels = Bools | Floats
"""True where a page has changed; of changes with a weight, the part that counts."""

COLUMN: dict[Any, np.dtype[Any]] = {
    Instants: INSTANT,
    Floats: np.dtype(np.float64),
    Ints: np.dtype(np.int64),
    Codes: np.dtype(np.int16),
    Bools: np.dtype(np.bool_),
    UrlGroups: np.dtype(np.int32),
    Keys: KEY,
    NDArray[np.object_]: np.dtype(object),
    Texts: np.dtype(object),
    Marks: np.dtype(np.int16),
    Numbers: np.dtype(np.float64),
    Labels: np.dtype(np.bool_),
}
"""Element type of each annotation."""

SHARD_BITS = 42
"""Number of bits of an id below its logical shard; a store that was never sharded is shard 0."""

LOW_BITS = (1 << 20) - 1
"""Mask of the low bits of ids, by which most hosts differ."""

UNIX_ZERO = datetime(1970, 1, 1, tzinfo=UTC)
OLDEST, LATEST = datetime(1900, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
"""Range of instants that callers may state, so that sums and time zones stay within datetimes."""
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_000_000
"""Range of datetimes to whole seconds, microseconds since 1970."""


def instant(moment: datetime) -> np.datetime64:
    """Return an aware datetime as an array element."""
    delta = moment - UNIX_ZERO
    return np.datetime64(
        (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds, "us"
    )


def moment(value: np.datetime64) -> datetime | None:
    """Return an array element as an aware datetime; None for NaT."""
    if np.isnat(value):
        return None
    plain = value.astype(INSTANT).item()
    return plain.replace(tzinfo=UTC) if isinstance(plain, datetime) else None


def datetime_at(us: int) -> datetime:
    """Return microseconds since 1970 as a datetime, or the nearest one."""
    return UNIX_ZERO + timedelta(microseconds=min(max(us, FIRST_US), LAST_US))


def plausible(instants: Instants) -> Instants:
    """Return instants, with NaT for those outside of `OLDEST` to `LATEST`."""
    within = (instants >= instant(OLDEST)) & (instants <= instant(LATEST))
    return np.where(within, instants, NO_TIME)


def moments(instants: Instants) -> list[datetime | None]:
    """Return instants as datetimes, or the nearest ones; exact until the year 2223.

    >>> moments(np.array(["2026-05-01T12:00:00.000001", "NaT"], "M8[us]"))
    [datetime.datetime(2026, 5, 1, 12, 0, 0, 1, tzinfo=datetime.timezone.utc), None]
    """
    us = instants.astype(INSTANT).view(np.int64)
    seconds = np.minimum(np.maximum(us, FIRST_US), LAST_US) / 1e6
    never = np.isnat(instants)
    if never.any():
        seconds = seconds.astype(object)
        seconds[never] = None
    return msgspec.convert(seconds.tolist(), list[datetime | None], strict=False)


def days(span: NDArray[np.timedelta64]) -> Floats:
    """Return (N,) time spans as float days; NaN for NaT."""
    return np.asarray(span / DAY, np.float64)


def distinct(ids: Ints) -> Ints:
    """Return each id once, ascending; ten times as fast as `np.unique`, which hashes the ids.

    O(N) if the ids lie close together.
    """
    if len(ids) and (most := int(ids.max())) - (least := int(ids.min())) < len(ids):
        seen = np.zeros(most - least + 1, np.bool_)
        seen[ids - least] = True
        return seen.nonzero()[0].astype(ids.dtype) + ids.dtype.type(least)
    ordered = ids.copy()
    ordered.sort()
    return ordered[_first(ordered)]


def positions(mask: Bools) -> Ints:
    """Return the positions of True; for a few rows six times as fast as `np.flatnonzero`."""
    return mask.nonzero()[0]


def is_among(ids: Ints, others: Ints) -> Bools:
    """Return which ids are among `others`, ascending; for a few ids ten times as fast as `np.isin`.

    >>> is_among(np.array([3, 1, 9]), np.array([1, 3, 5])).tolist()
    [True, True, False]
    """
    if not len(others):
        return np.zeros(len(ids), np.bool_)
    place = np.minimum(others.searchsorted(ids), len(others) - 1)
    among: Bools = others[place] == ids
    return among


def places(ids: Ints, others: Ints) -> Ints:
    """Return the place of each id among `others`, ascending and distinct; -1 where it has none.

    O(N) if the others lie close together. Otherwise most ids should have none: the low bits exclude
    most of these at once.

    >>> places(np.array([7, 3, 9]), np.array([3, 7])).tolist()
    [1, 0, -1]
    """
    if not others.size:
        return np.broadcast_to(np.int64(-1), len(ids))
    least, most = int(others[0]), int(others[-1])
    if most - least < len(ids):
        # one entry on each side is for the ids outside
        table = np.full(most - least + 3, -1)
        table[others - (least - 1)] = np.arange(others.size)
        return np.asarray(table[np.clip(ids, least - 1, most + 1) - (least - 1)])
    place = np.full(len(ids), -1)
    may = np.zeros(LOW_BITS + 1, np.bool_)
    may[others & LOW_BITS] = True
    row = np.flatnonzero(may[ids & LOW_BITS])
    at = np.minimum(others.searchsorted(ids[row]), others.size - 1)
    place[row] = np.where(others[at] == ids[row], at, -1)
    return place


def nothing(kind: Any, n: int) -> NDArray[Any]:
    """Return a column of n zeros, or of n times `NO_TIME`."""
    return np.full(n, NO_TIME) if kind == Instants else np.zeros(n, COLUMN[kind])


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Arrays of one length, one per field; only `Texts`, `Marks` and `Numbers` may be None."""

    def __len__(self) -> int:
        return len(getattr(self, next(iter(self.__dataclass_fields__))))

    @classmethod
    def empty(cls, **shapes: tuple[int, ...]) -> Self:
        """Return columns without rows; `shapes` has the further dimensions of fields."""
        types = element_types(cls).items()
        return cls(**{name: np.zeros((0, *shapes.get(name, ())), kind) for name, kind in types})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the columns by name, without those that are None."""
        columns = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: column for name, column in columns.items() if column is not None}

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts, one after the other."""
        if not parts:
            return cls.empty()
        if len(parts) == 1:
            return parts[0]
        names = {name for part in parts for name in part.arrays()}
        return cls(**{name: np.concatenate([_filled(p, name) for p in parts]) for name in names})

    def take(self, where: NDArray[Any] | slice) -> Self:
        """Return the rows that a mask, an index array or a slice selects."""
        return type(self)(**{name: column[where] for name, column in self.arrays().items()})

    def in_order(self, rows: Ints) -> Self:
        """Return rows by position; these columns themselves if those are all rows, in order."""
        are_all = len(rows) == len(self) and (rows == np.arange(len(rows))).all()
        return self if are_all else self.take(rows)

    def where(self, mask: Bools) -> Self:
        """Return the rows that a mask selects; these columns themselves if it selects all."""
        return self if mask.all() else self.take(mask)


def element_types(columns: type[Columns]) -> Mapping[str, np.dtype[Any]]:
    """Return the element type of each column that a database has, by name and in order."""
    types = _ELEMENT_TYPES.get(columns)
    if types is None:
        types = _ELEMENT_TYPES[columns] = {
            f.name: COLUMN[f.type] for f in fields(columns) if f.metadata != ATTACHED
        }
    return types


_ELEMENT_TYPES: dict[Any, Mapping[str, np.dtype[Any]]] = {}
"""Answers of `element_types`, because `fields` calls a function for each field."""


def _filled(columns: Columns, name: str) -> NDArray[Any]:
    """Return a column; if it is None, with "", `UNSPECIFIED` or NaN in each row."""
    column: NDArray[Any] | None = getattr(columns, name)
    if column is not None:
        return column
    kind = element_types(type(columns)).get(name, np.dtype(object))
    none = {"O": "", "f": np.nan}.get(kind.kind, UNSPECIFIED)
    return np.full(len(columns), none, kind)


S = TypeVar("S", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Groups:
    """(N,) entries of P pages, each page with at least one, ordered by page and time.

    Each entry starts from the state after the entry before it in its group. Most of that state is
    "the last value that was set", which one scan over all groups computes. Values that must be
    computed step by step use `rounds`, one entry of each page at a time.
    """

    page: Ints
    """(N,) index of each entry's page: 0 … P-1, ascending."""
    start: Ints
    """(P,) position of each page's first entry."""
    end: Ints
    """(P,) position of each page's last entry."""

    @classmethod
    def of(cls, page: Ints) -> "Groups":
        """Return the groups of ordered entries by page; `page` may have any ascending numbers."""
        first = _first(page)
        start = positions(first)
        if len(start) == len(page):
            return cls(start, start, start)
        return cls(np.cumsum(first) - 1, start, np.append(start[1:], len(page)) - 1)

    @property
    def single(self) -> bool:
        """True if each page has one entry, as in nearly every batch."""
        return self.start.size == self.page.size

    def before(self, initial: NDArray[S], sets: Bools, value: NDArray[S]) -> NDArray[S]:
        """Return (N,) values before each entry: the last value set, else the page's `initial`."""
        if self.single:
            return initial
        latest = np.append(-1, self._latest(sets)[:-1])
        return np.where(latest >= self.start[self.page], value[latest], initial[self.page])

    def after(self, initial: NDArray[S], sets: Bools, value: NDArray[S]) -> NDArray[S]:
        """Return (P,) values after all entries: the last value set, else the page's `initial`."""
        if self.single:
            return np.where(sets, value, initial)
        latest = self._latest(sets)[self.end]
        return np.where(latest >= self.start, value[latest], initial)

    def count(self, mask: Bools) -> Ints:
        """Return (P,) numbers of entries that a mask selects."""
        return np.add.reduceat(mask, self.start, dtype=np.int64)

    def _latest(self, sets: Bools) -> Ints:
        """Return (N,) positions of the last entry that sets a value, up to each; -1 for none."""
        return np.maximum.accumulate(np.where(sets, np.arange(len(sets)), -1))


def rounds(page: Ints) -> Iterator[Ints]:
    """Yield the positions of ordered entries in rounds: round k has the k-th entry of each page."""
    position = np.arange(len(page))
    first = _first(page)
    if first.all():
        yield from [position] if len(page) else []
        return
    rank = position - np.maximum.accumulate(np.where(first, position, 0))
    ends = np.cumsum(np.bincount(rank))[:-1]
    yield from np.split(np.argsort(rank, kind="stable"), ends)


def _first(page: Ints) -> Bools:
    first = np.ones(len(page), np.bool_)
    np.not_equal(page[1:], page[:-1], out=first[1:])
    return first
