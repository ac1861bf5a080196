"""Durations, rates, numbers and instants in words: the same digits in every view. Pure.

A sentence and a command write "3.6 minutes", a table of the console "3.6 min".
"""

from collections.abc import Callable
from datetime import datetime
from math import floor, isfinite, log10

NO_BREAK = "\N{NO-BREAK SPACE}"

YEAR_S = 31_557_600.0
UNITS = (
    (YEAR_S, "year", "y"),
    (86_400.0, "day", "d"),
    (3_600.0, "hour", "h"),
    (60.0, "minute", "min"),
)
"""Units of durations: seconds, name, sign. A duration is written in the first one that fits twice.
"""
TWICE = 1.96
"""Units that a duration has at least; 119.9 minutes are 2 hours."""
SHORT_S = 0.1
"""Duration below which milliseconds are written, seconds."""
LEAST_S = 1e-5
"""Duration below which no number is written, seconds."""
MOST_S = 1_000 * YEAR_S
"""Duration above which no number is written, seconds."""
SOON_S = 7_200.0
"""Time within which an instant is written to the second, seconds."""
LEAST_NUMBER = 1e-9
"""Positive number below which no digits are written."""


def number(value: float, digits: int = 3) -> str:
    """Return a number to some significant digits, with thousands separated, without an exponent.

    >>> [number(x) for x in (1234567, 0.123456, 12.345, 0.0, 0.0000234, 1e-10, float("inf"))]
    ['1,234,567', '0.123', '12.3', '0', '0.0000234', 'less than 0.000000001', '∞']
    """
    if not isfinite(value):
        return "∞" if value > 0 else "-∞"
    if isinstance(value, int) or abs(value) >= 10**digits:
        return f"{value:,.0f}"
    if not value:
        return "0"
    if abs(value) < LEAST_NUMBER:
        return f"less than {LEAST_NUMBER:.9f}" if value > 0 else f"-{number(-value)}"
    places = max(digits - 1 - floor(log10(abs(value))), 0)
    return trimmed(f"{value:,.{places}f}")


def trimmed(text: str) -> str:
    """Return a decimal number without zeros at its end.

    >>> trimmed("2.50"), trimmed("4.0"), trimmed("10")
    ('2.5', '4', '10')
    """
    return text.rstrip("0").rstrip(".") if "." in text else text


def span(seconds: float) -> str:
    """Return a duration for a sentence.

    >>> [span(s) for s in (0.025, 0.5, 1, 90, 119.9, 216, 172_800, 7e8, 1e20)]
    ['25 milliseconds', '0.5 seconds', '1 second', '90 seconds', '2 minutes', '3.6 minutes', \
'2 days', '22.2 years', 'over 1,000 years']
    """
    amount, name, _ = _parts(seconds)
    return f"{amount} {name}" if amount in {"1", "-1"} else f"{amount} {name}s"


def short_span(seconds: float) -> str:
    """Return a duration for a table.

    >>> [short_span(s).replace(NO_BREAK, " ") for s in (0.025, 90, 216, 172_800)]
    ['25 ms', '90 s', '3.6 min', '2 d']
    """
    amount, _, sign = _parts(seconds)
    return f"{amount}{NO_BREAK}{sign}"


def _parts(seconds: float) -> tuple[str, str, str]:
    """Return the digits of a duration, and the name and the sign of its unit."""
    size = abs(seconds)
    if size > MOST_S:
        return "over 1,000", "year", "y"
    for length, name, sign in UNITS:
        if size >= TWICE * length:
            return trimmed(f"{seconds / length:,.1f}"), name, sign
    if size >= SHORT_S or not size:
        return number(seconds), "second", "s"
    if size < LEAST_S:
        return "under 0.01", "millisecond", "ms"
    return number(1_000 * seconds), "millisecond", "ms"


def every(rate: float) -> str:
    """Return the interval of a rate a day, for a sentence.

    >>> every(0.25), every(400.0), every(86_400.0), every(1e-20), every(0.0)
    ('every 4 days', 'every 3.6 minutes', 'every second', 'less than once in 1,000 years', 'never')
    """
    if rate <= 0:
        return "never"
    seconds = 86_400.0 / rate
    if seconds > MOST_S:
        return "less than once in 1,000 years"
    return f"every {span(seconds).removeprefix('1 ')}"


def short_every(rate: float) -> str:
    """Return the interval of a rate a day, for a table.

    >>> short_every(0.5).replace(NO_BREAK, " "), short_every(0.0)
    ('2 d', 'never')
    """
    return short_span(86_400.0 / rate) if rate > 0 else "never"


def counted(n: int, noun: str, plural: str = "") -> str:
    """Return a number of things.

    >>> counted(1, "page"), counted(1_200, "page"), counted(2, "copy", "copies")
    ('1 page', '1,200 pages', '2 copies')
    """
    return f"{n:,} {noun if n == 1 else plural or f'{noun}s'}"


def ago(seconds: float, write: Callable[[float], str] = span) -> str:
    """Return how long ago an instant was, to the second; negative: how far ahead it is.

    `write` returns the words of a duration.

    >>> ago(0.119), ago(12.2), ago(-90), ago(216)
    ('now', '12 seconds ago', 'in 90 seconds', '3.6 minutes ago')
    """
    whole = round(seconds)
    if not whole:
        return "now"
    return f"{write(whole)} ago" if whole > 0 else f"in {write(-whole)}"


def moment(at: datetime) -> str:
    """Return an instant to the second, UTC; the seconds only where they are not 0.

    >>> from datetime import UTC
    >>> moment(datetime(2026, 5, 1, 12, tzinfo=UTC))
    '2026-05-01 12:00 UTC'
    """
    form = "%Y-%m-%d %H:%M:%S UTC" if at.second else "%Y-%m-%d %H:%M UTC"
    return at.strftime(form)


def ahead(at: datetime, now: datetime) -> str:
    """Return an instant and the time until it, or since it; seconds only within two hours.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    >>> ahead(noon, noon.replace(hour=10)), ahead(noon, noon.replace(hour=15)), ahead(noon, noon)
    ('in 2 hours, at 2026-05-01 12:00 UTC', '3 hours ago, at 2026-05-01 12:00 UTC', 'now')
    """
    seconds = round((at - now).total_seconds())
    if not seconds:
        return "now"
    relative = f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"
    shown = at if abs(seconds) < SOON_S else at.replace(second=0)
    return f"{relative}, at {moment(shown)}"
