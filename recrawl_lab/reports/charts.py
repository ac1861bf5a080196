"""Figures of the report as SVG text: a few hundred bytes each, coloured by the page's style sheet.

The style sheet sets colours by class, so that a figure follows the reader's light or dark mode:
`policy-0` … for the series, `axis`, `grid`, `ink`. All figures are 400 wide, about their size on a
phone.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

WIDTH = 400
BAR_LIMIT = 3.0
"""Maximum length of a bar, multiples of the median; a longer bar would flatten all others."""
LETTER = 6.2
"""Width of a letter of the text, for the space of labels."""


class Bar(NamedTuple):
    """A value with its confidence interval."""

    label: str
    value: float
    low: float
    high: float
    ink: int


class Series(NamedTuple):
    """A line or points."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    ink: int


class Frame(NamedTuple):
    """Axes from 0 to `x_most` and `y_most`, in a box of the figure."""

    left: float
    top: float
    right: float
    bottom: float
    x_most: float
    y_most: float

    def x(self, value: float) -> float:
        """Return the horizontal position of a value."""
        return self.left + (self.right - self.left) * value / self.x_most

    def y(self, value: float) -> float:
        """Return the vertical position of a value."""
        return self.bottom - (self.bottom - self.top) * value / self.y_most


def bars(rows: Sequence[Bar], title: str) -> str:
    """Return horizontal bars with whiskers, one a row; an arrow marks a value beyond the end."""
    room = LETTER * max(len(row.label) for row in rows) + 12
    height = 22 * len(rows) + 26
    limit = BAR_LIMIT * float(np.median([row.value for row in rows]))
    most = ceiling(min(limit, max(row.high for row in rows)))
    frame = Frame(room, 4, WIDTH - 54, height - 22, most, 1)
    return _figure(title, height, [*_across(frame), *_bars(rows, frame)])


def lines(series: Sequence[Series], title: str, x_label: str, height: float = 260) -> str:
    """Return lines from day 0 on, with a `y` axis from 0 on."""
    x_most = max(max(one.x) for one in series)
    frame = Frame(44, 8, WIDTH - 12, height - 34, x_most, ceiling(max(max(s.y) for s in series)))
    drawn = [*_across(frame), *_up(frame), _x_title(frame, x_label)]
    for one in series:
        points = " ".join(
            f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in zip(one.x, one.y, strict=True)
        )
        drawn.append(
            f'<polyline class="line policy-{one.ink}" points="{points}">'
            f"<title>{escape(one.label)}</title></polyline>"
        )
    return _figure(title, height, drawn)


def reliability(series: Sequence[Series], title: str, height: float = 300) -> str:
    """Return a plot of observed shares over predicted probabilities, with the ideal diagonal."""
    most = ceiling(max(max(*one.x, *one.y) for one in series))
    frame = Frame(44, 8, WIDTH - 12, height - 34, most, most)
    drawn = [*_across(frame), *_up(frame), _x_title(frame, "predicted probability of a change")]
    drawn.append(
        f'<line class="diagonal" x1="{frame.x(0):.1f}" y1="{frame.y(0):.1f}" '
        f'x2="{frame.x(most):.1f}" y2="{frame.y(most):.1f}"/>'
    )
    for one in series:
        drawn += [
            f'<circle class="point policy-{one.ink}" cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" '
            f'r="4"><title>{escape(one.label)}: predicted {x:.3f}, was {y:.3f}</title></circle>'
            for x, y in zip(one.x, one.y, strict=True)
        ]
    return _figure(title, height, drawn)


def ceiling(value: float) -> float:
    """Return the next 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6 or 8 times a power of ten.

    >>> [ceiling(value) for value in (0.0, 0.013, 0.4, 7.0, 1.0)]
    [1.0, 0.015, 0.4, 8.0, 1.0]
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(value))
    steps = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
    return float(f"{next(s * power for s in steps if s * power >= value * (1 - 1e-12)):.6g}")


def _bars(rows: Sequence[Bar], frame: Frame) -> Iterator[str]:
    for turn, row in enumerate(rows):
        top = frame.top + 22 * turn
        middle = top + 10
        value, low, high = (frame.x(min(v, frame.x_most)) for v in (row.value, row.low, row.high))
        arrow = " \N{RIGHTWARDS ARROW}" if row.value > frame.x_most else ""
        yield (
            f'<text class="label" x="{frame.left - 6:.1f}" y="{middle + 4:.1f}" '
            f'text-anchor="end">{escape(row.label)}</text>'
            f'<rect class="bar policy-{row.ink}" x="{frame.left:.1f}" y="{top + 3:.1f}" '
            f'width="{value - frame.left:.1f}" height="14" rx="2"/>'
            f'<path class="whisker" d="M{low:.1f} {middle:.1f}H{high:.1f}'
            f'M{low:.1f} {middle - 3:.1f}v6M{high:.1f} {middle - 3:.1f}v6"/>'
            f'<text class="label" x="{high + 5:.1f}" y="{middle + 4:.1f}">'
            f"{row.value:.3g}{arrow}</text>"
        )


def _across(frame: Frame) -> Iterator[str]:
    for value in _ticks(frame.x_most):
        x = frame.x(value)
        yield (
            f'<line class="grid" x1="{x:.1f}" y1="{frame.top}" x2="{x:.1f}" y2="{frame.bottom}"/>'
            f'<text class="tick" x="{x:.1f}" y="{frame.bottom + 14}" text-anchor="middle">'
            f"{value:,g}</text>"
        )


def _up(frame: Frame) -> Iterator[str]:
    for value in _ticks(frame.y_most):
        y = frame.y(value)
        yield (
            f'<line class="grid" x1="{frame.left}" y1="{y:.1f}" x2="{frame.right}" y2="{y:.1f}"/>'
            f'<text class="tick" x="{frame.left - 5}" y="{y + 4:.1f}" text-anchor="end">'
            f"{value:,g}</text>"
        )


def _ticks(most: float) -> list[float]:
    """Return 0 and three to five round values up to the end of an axis."""
    step = ceiling(most / 5)
    return [float(f"{k * step:.6g}") for k in range(int(most / step + 1e-9) + 1)]


def _x_title(frame: Frame, text: str) -> str:
    return (
        f'<text class="tick" x="{(frame.left + frame.right) / 2:.1f}" y="{frame.bottom + 29}" '
        f'text-anchor="middle">{escape(text)}</text>'
    )


def _figure(title: str, height: float, drawn: list[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'
        f"{''.join(drawn)}</svg>"
    )
