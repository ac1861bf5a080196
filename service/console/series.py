"""Lines over time: the same numbers as a picture, and as data for a chart with a cursor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from service.console.charts import (
    Dot,
    Picture,
    Rule,
    Shape,
    across,
    bars,
    compact,
    lines,
    time_ticks,
    up,
    value_ticks,
)
from service.console.render import number, percent

Scale = Callable[[float], float]

MANY_EPOCHS = 12
"""Number of epochs above which a picture marks none of them."""
FEW_POINTS = 60
"""Number of points up to which each one is marked, and joined to the next one with a value."""


class SeriesLine(NamedTuple):
    """One line of a series."""

    name: str
    colour: str
    """`a`, `b`, `c` or `d`."""
    values: Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class TimeSeries:
    """Lines over the same instants; a share has the unit `%`."""

    title: str
    at: Sequence[datetime]
    lines: Sequence[SeriesLine]
    unit: str = ""
    epochs: Sequence[datetime] = field(default_factory=tuple)
    """Instants at which an epoch came into force."""
    step_s: float = 0.0
    """Length of the time of a bar, seconds; 0: the values are lines."""
    nothing: str = ""
    """Sentence in place of a picture without any value but 0."""

    @property
    def is_empty(self) -> bool:
        """True if no line has a value but 0."""
        return not any(value for each in self.lines for value in each.values)

    @property
    def data(self) -> str:
        """The series as JSON, for the script."""
        content = {
            "unit": self.unit,
            "at": [at.timestamp() for at in self.at],
            "epochs": [at.timestamp() for at in self.epochs],
            "lines": [each._asdict() for each in self.lines],
            "step_s": self.step_s,
            "few": self._few,
            "whole": self._whole,
        }
        return msgspec.json.encode(content).decode()

    @property
    def picture(self) -> Picture:
        """The series as a picture."""
        picture = Picture(title=self.title, description=self._words())
        present = [v for each in self.lines for v in each.values if v is not None]
        highest = max(present, default=0.0) * 1.06 or 1.0
        start, end = self.at[0], self.at[-1] + timedelta(seconds=self.step_s)
        if start == end:
            start -= timedelta(minutes=10)
        x, y = across(start.timestamp(), end.timestamp()), up(0.0, highest)
        picture.shapes = [self._shape(each, x, y) for each in self.lines]
        picture.rules = [
            Rule("rule-epoch", x(at.timestamp()), f"epoch of {at:%Y-%m-%d %H:%M} UTC")
            for at in self.epochs
            if len(self.epochs) <= MANY_EPOCHS
        ]
        if self._few and not self.step_s:
            picture.dots = [dot for each in self.lines for dot in self._dots(each, x, y)]
        picture.x_ticks = time_ticks(start, end, x)
        label = (lambda share: f"{share:.0%}") if self.unit == "%" else compact
        picture.y_ticks = value_ticks(highest, y, label, whole=self._whole)
        return picture

    @property
    def _few(self) -> bool:
        return len(self.at) <= FEW_POINTS

    @property
    def _whole(self) -> bool:
        """True if each value is a whole number."""
        values = (v for each in self.lines for v in each.values if v is not None)
        return self.unit != "%" and all(float(value).is_integer() for value in values)

    def _shape(self, one: SeriesLine, x: Scale, y: Scale) -> Shape:
        """Return a line, or its values as bars."""
        instants = [at.timestamp() for at in self.at]
        if self.step_s:
            return Shape(f"fill-{one.colour}", bars(instants, one.values, self.step_s, x, y))
        return Shape(f"line-{one.colour}", lines(instants, one.values, x, y, joined=self._few))

    def _dots(self, one: SeriesLine, x: Scale, y: Scale) -> list[Dot]:
        """Return the points of a line."""
        return [
            Dot(
                f"fill-{one.colour}",
                x(at.timestamp()),
                y(value),
                3.0,
                f"{one.name} {self._write(value)}, {at:%Y-%m-%d %H:%M} UTC",
            )
            for at, value in zip(self.at, one.values, strict=True)
            if value is not None
        ]

    def _write(self, value: float | None) -> str:
        return percent(value) if self.unit == "%" else number(value)

    def _words(self) -> str:
        """Return the last value of each line."""
        last = (next((v for v in reversed(e.values) if v is not None), None) for e in self.lines)
        pairs = zip(self.lines, last, strict=True)
        return ", ".join(f"{each.name} {self._write(v)}" for each, v in pairs) + " at the end"
