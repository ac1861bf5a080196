"""Pictures as SVG: positions and texts, which a template draws. Pure.

A picture needs no script. Its colours are classes, because the policy of the pages forbids styles
within them. A screen reader reads the title and the description instead.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import ceil, floor, isfinite, log10
from typing import NamedTuple

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 30
"""Margins around the area of the data."""
STEPS_S = (60, 300, 900, 3_600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000)
"""Distances between the marks of a time axis, seconds."""
DAY = timedelta(days=1)
SMALLEST = -4
"""Power of ten below which an axis writes an exponent."""


class Tick(NamedTuple):
    """A mark of an axis."""

    at: float
    label: str


class Shape(NamedTuple):
    """A line or an area: the class of its colours, and its path."""

    kind: str
    path: str


class Dot(NamedTuple):
    """A point, a bar or a vertical line."""

    kind: str
    x: float
    y: float
    size: float
    title: str
    height: float = 0.0


@dataclass(kw_only=True)
class Picture:
    """An SVG picture."""

    title: str
    description: str
    width: int = WIDTH
    height: int = HEIGHT
    x_ticks: list[Tick] = field(default_factory=list)
    y_ticks: list[Tick] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    bars: list[Dot] = field(default_factory=list)
    rules: list[Dot] = field(default_factory=list)
    """Vertical lines over the whole height."""
    x_label: str = ""

    @property
    def left(self) -> int:
        """Left edge of the data."""
        return LEFT

    @property
    def right(self) -> int:
        """Right edge of the data."""
        return self.width - RIGHT

    @property
    def top(self) -> int:
        """Upper edge of the data."""
        return TOP

    @property
    def bottom(self) -> int:
        """Lower edge of the data."""
        return self.height - BOTTOM

    def across(self, low: float, high: float, *, log: bool = False) -> Callable[[float], float]:
        """Return the function from a value to its horizontal position."""
        return scale(low, high, self.left, self.right, log=log)

    def up(self, low: float, high: float) -> Callable[[float], float]:
        """Return the function from a value to its vertical position."""
        return scale(low, high, self.bottom, self.top)


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
) -> str:
    """Return a path through the points that have a value, with a gap at each that has none."""
    parts: list[list[tuple[float, float]]] = [[]]
    for at, value in zip(x, y, strict=True):
        if value is None or not isfinite(value):
            parts.append([])
        else:
            parts[-1].append((across(at), up(value)))
    drawn = [
        part if len(part) > 1 else [(part[0][0] - 1, part[0][1]), part[0]] for part in parts if part
    ]
    return "".join(map(line, drawn))


def area(path: str, floor_y: float) -> str:
    """Return the area between the one line of a path and a floor."""
    if not path:
        return ""
    points = path[1:].split("L")
    first, last = points[0].split()[0], points[-1].split()[0]
    return f"{path}L{last} {floor_y:g}L{first} {floor_y:g}Z"


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
    low: float, high: float, up: Callable[[float], float], label: Callable[[float], str] = compact
) -> list[Tick]:
    """Return the marks of an axis of values."""
    return [Tick(up(value), label(value)) for value in round_ticks(low, high)]


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


def decades(low: float, high: float, across: Callable[[float], float]) -> list[Tick]:
    """Return the marks of a logarithmic axis."""
    powers = range(ceil(log10(low)), floor(log10(high)) + 1)
    every = max(1, len(powers) // 7)
    return [Tick(across(10.0**p), compact(10.0**p) if p > SMALLEST else f"1e{p}") for p in powers][
        ::every
    ]


def steps(edges: Sequence[float], heights: Sequence[float], floor_y: float) -> str:
    """Return the outline of bars with shared edges."""
    path = f"M{edges[0]:g} {floor_y:g}"
    for (start, end), y in zip(pairwise(edges), heights, strict=True):
        path += f"L{start:g} {y:g}L{end:g} {y:g}"
    return f"{path}L{edges[-1]:g} {floor_y:g}"
