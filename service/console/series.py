"""Lines over time: the same numbers as a picture, and as data for a chart with a cursor."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from service.console.charts import Dot, Picture, Shape, compact, lines, time_ticks, value_ticks
from service.console.render import number, percent

MANY_EPOCHS = 40
"""Number of epochs above which a picture marks none of them."""


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

    @property
    def is_empty(self) -> bool:
        """True if no line has a value."""
        return all(value is None for each in self.lines for value in each.values)

    @property
    def data(self) -> str:
        """The series as JSON, for the script."""
        content = {
            "unit": self.unit,
            "at": [at.timestamp() for at in self.at],
            "epochs": [at.timestamp() for at in self.epochs],
            "lines": [each._asdict() for each in self.lines],
        }
        return msgspec.json.encode(content).decode()

    @property
    def picture(self) -> Picture:
        """The series as a picture."""
        picture = Picture(title=self.title, description=self._words())
        present = [v for each in self.lines for v in each.values if v is not None]
        highest = max(present, default=0.0) * 1.06 or 1.0
        start, end = self.at[0], self.at[-1]
        if start == end:
            start = datetime.fromtimestamp(start.timestamp() - 600, UTC)
        across = picture.across(start.timestamp(), end.timestamp())
        up = picture.up(0.0, highest)
        instants = [at.timestamp() for at in self.at]
        picture.shapes = [
            Shape(f"line-{each.colour}", lines(instants, each.values, across, up))
            for each in self.lines
        ]
        picture.rules = [
            Dot("rule-epoch", across(at.timestamp()), 0, 0, f"epoch of {at:%Y-%m-%d %H:%M} UTC")
            for at in self.epochs
            if len(self.epochs) <= MANY_EPOCHS
        ]
        picture.x_ticks = time_ticks(start, end, across)
        label = (lambda share: f"{share:.0%}") if self.unit == "%" else compact
        picture.y_ticks = value_ticks(0.0, highest, up, label)
        return picture

    def _words(self) -> str:
        """Return the last value of each line."""
        write = percent if self.unit == "%" else number
        last = (next((v for v in reversed(e.values) if v is not None), None) for e in self.lines)
        pairs = zip(self.lines, last, strict=True)
        return ", ".join(f"{each.name} {write(value)}" for each, value in pairs) + " at the end"
