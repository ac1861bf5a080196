"""Pictures as SVG: positions and texts, which a template draws. Pure.

A picture needs no script. Positions are percentages of the area of the data, so a picture fits any
width, and its texts, dots and lines keep their size. Its colours are classes, because the policy of
the pages forbids styles within them. A screen reader reads the title and the description instead.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import ceil, floor, isfinite, log10
from typing import NamedTuple

HEIGHT = 178
"""Height of the area of the data, CSS pixels."""
FLOOR = 100.0
"""Lower edge of the area of the data; positions are percentages of its width and height."""
STEPS_S = (60, 300, 900, 3_600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000)
"""Distances between the marks of a time axis, seconds."""
DAY = timedelta(days=1)
PACES = (
    ("century", 1 / 36_525),
    ("ten years", 1 / 3_652.5),
    ("year", 1 / 365.25),
    ("month", 1 / 30.4375),
    ("week", 1 / 7),
    ("day", 1.0),
    ("hour", 24.0),
    ("minute", 1_440.0),
    ("second", 86_400.0),
)
"""Rates a day that an axis marks, by the time between two events."""


class Tick(NamedTuple):
    """A mark of an axis."""

    at: float
    label: str


class Shape(NamedTuple):
    """A line or an area: the class of its colours, and its path."""

    kind: str
    path: str


class Dot(NamedTuple):
    """A point; its size is the radius in CSS pixels."""

    kind: str
    x: float
    y: float
    size: float
    title: str


class Rule(NamedTuple):
    """A vertical line, by default over the whole height."""

    kind: str
    x: float
    title: str
    start: float = 0.0
    end: float = FLOOR


@dataclass(kw_only=True)
class Picture:
    """An SVG picture."""

    title: str
    description: str
    height: int = HEIGHT
    x_ticks: list[Tick] = field(default_factory=list)
    y_ticks: list[Tick] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    x_label: str = ""


def across(low: float, high: float, *, log: bool = False) -> Callable[[float], float]:
    """Return the function from a value to its distance from the left edge, percent."""
    return scale(low, high, 0.0, 100.0, log=log)


def up(low: float, high: float) -> Callable[[float], float]:
    """Return the function from a value to its distance from the upper edge, percent."""
    return scale(low, high, FLOOR, 0.0)


def scale(
    low: float, high: float, start: float, end: float, *, log: bool = False
) -> Callable[[float], float]:
    """Return a function that maps [low, high] to [start, end].

    >>> [scale(0, 10, 0, 100)(x) for x in (0, 2.5)], scale(1, 100, 0, 100, log=True)(10)
    ([0.0, 25.0], 50.0)
    """
    place: Callable[[float], float] = log10 if log else float
    first, width = place(low), (place(high) - place(low)) or 1.0
    return lambda value: round(start + (place(value) - first) / width * (end - start), 2)


def line(points: Iterable[tuple[float, float]]) -> str:
    """Return the path through points.

    >>> line([(0, 1), (2, 3.5)])
    'M0 1L2 3.5'
    """
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def lines(
    x: Sequence[float],
    y: Sequence[float | None],
    across: Callable[[float], float],
    up: Callable[[float], float],
    *,
    joined: bool = False,
) -> str:
    """Return a path through the points that have a value.

    A point without a value is a gap, unless the points beside it are joined. A point alone has no
    line.

    >>> lines([0, 1, 2], [5, None, 7], float, float)
    ''
    >>> lines([0, 1, 2], [5, None, 7], float, float, joined=True)
    'M0 5L2 7'
    """
    parts: list[list[tuple[float, float]]] = [[]]
    for at, value in zip(x, y, strict=True):
        if value is not None and isfinite(value):
            parts[-1].append((across(at), up(value)))
        elif not joined:
            parts.append([])
    return "".join(line(part) for part in parts if len(part) > 1)


def bars(
    x: Sequence[float],
    y: Sequence[float | None],
    width: float,
    across: Callable[[float], float],
    up: Callable[[float], float],
) -> str:
    """Return the outlines of bars that begin at x and fill most of a width.

    >>> bars([0.0], [5.0], 10.0, lambda x: 10 * x, lambda y: 100 - y)
    'M10 100L10 95L90 95L90 100Z'
    """
    path = ""
    for at, value in zip(x, y, strict=True):
        if value:
            left, right, top = across(at + width / 10), across(at + width * 0.9), up(value)
            path += f"M{left:g} {FLOOR:g}L{left:g} {top:g}L{right:g} {top:g}L{right:g} {FLOOR:g}Z"
    return path


def area(path: str) -> str:
    """Return the area between the one line of a path and the floor."""
    if not path:
        return ""
    points = path[1:].split("L")
    first, last = points[0].split()[0], points[-1].split()[0]
    return f"{path}L{last} {FLOOR:g}L{first} {FLOOR:g}Z"


def round_ticks(low: float, high: float, n: int = 4) -> list[float]:
    """Return round values between two, about n.

    >>> round_ticks(0, 1), round_ticks(0, 37_000)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 10000.0, 20000.0, 30000.0])
    """
    rough = (high - low) / n if high > low else 1.0
    power = 10.0 ** floor(log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.8)
    return [round(i * step, 12) for i in range(ceil(low / step), floor(high / step + 1e-9) + 1)]


def compact(value: float) -> str:
    """Return a number for an axis.

    >>> [compact(x) for x in (0.0, 0.25, 1500, 2_000_000)]
    ['0', '0.25', '1.5k', '2M']
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def value_ticks(
    high: float,
    up: Callable[[float], float],
    label: Callable[[float], str] = compact,
    *,
    whole: bool = False,
) -> list[Tick]:
    """Return the marks of an axis of values from 0; of counts, the whole numbers alone.

    >>> [tick.label for tick in value_ticks(2.1, float, whole=True)]
    ['0', '1', '2']
    """
    values = round_ticks(0.0, high)
    return [Tick(up(v), label(v)) for v in values if not whole or float(v).is_integer()]


def time_ticks(
    start: datetime, end: datetime, across: Callable[[float], float], n: int = 6
) -> list[Tick]:
    """Return the marks of an axis of time, UTC."""
    seconds = (end - start).total_seconds()
    step = next(
        (s for s in STEPS_S if seconds / s <= n), STEPS_S[-1] * ceil(seconds / STEPS_S[-1] / n)
    )
    first = ceil(start.timestamp() / step) * step
    instants = [first + i * step for i in range(int((end.timestamp() - first) // step) + 1)]
    form = "%d %b" if step >= DAY.total_seconds() else "%H:%M"
    return [Tick(across(at), f"{datetime.fromtimestamp(at, UTC):{form}}") for at in instants]


def pace_ticks(low: float, high: float, across: Callable[[float], float]) -> list[Tick]:
    """Return the marks of a logarithmic axis of rates a day, in words for people.

    >>> [tick.label for tick in pace_ticks(0.01, 30.0, float)]
    ['month', 'week', 'day', 'hour']
    """
    return [Tick(across(rate), word) for word, rate in PACES if low <= rate <= high]


def steps(edges: Sequence[float], heights: Sequence[float]) -> str:
    """Return the outline of bars with shared edges."""
    path = f"M{edges[0]:g} {FLOOR:g}"
    for (start, end), y in zip(pairwise(edges), heights, strict=True):
        path += f"L{start:g} {y:g}L{end:g} {y:g}"
    return f"{path}L{edges[-1]:g} {FLOOR:g}"
