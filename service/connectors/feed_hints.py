"""Hints of a feed on how often to read it: its smallest interval, its window, its hub."""

from collections.abc import Iterable
from datetime import UTC, datetime
from math import isfinite, sqrt
from typing import NamedTuple

from service.connectors.dates import read_date
from service.connectors.entries import FIRST_YEAR, HeadField

PERIODS = {"hourly": 1 / 24, "daily": 1.0, "weekly": 7.0, "monthly": 30.0, "yearly": 365.0}
"""Values of `sy:updatePeriod`, days."""
A_MINUTE = 1 / 1_440
LONGEST = 7.0
"""Maximum interval that a feed may demand, days; a longer one is mostly a mistake."""
FEWEST = 4
"""Minimum number of dated entries that show how fast a feed fills its window."""
FASTEST = 96.0
"""Maximum rate for the sake of a window, 1/day, so that no feed takes the budget of the others."""


MEMORY = 0.9
"""Weight of the mean of earlier reads beside a new one."""
MOST_IMPORTANT = 1e4
DIFFERS_BY = 0.1
"""Relative difference from which a new value is sent."""


class FeedHints(NamedTuple):
    """Hints of one document."""

    max_crawl_rate: float | None
    """Maximum rate by its `ttl` and `sy:updatePeriod`, 1/day."""
    min_crawl_rate: float | None
    """Rate below which entries may leave the feed between two reads, 1/day; None: not known."""
    hub: str
    """Address of its WebSub hub; empty without one."""


def hints(head: Iterable[HeadField], dates: Iterable[str | None], now: datetime) -> FeedHints:
    """Return the hints of a feed by its head and by the dates of its entries.

    Examples
    --------
    >>> ttl = HeadField("ttl", "", "120")
    >>> round(hints([ttl], [], datetime(2026, 5, 1, tzinfo=UTC)).max_crawl_rate, 6)
    12.0
    """
    fields = list(head)
    interval = smallest_interval(fields)
    most = None if interval is None else 1 / interval
    least = window_rate([each for each in map(_instant, dates) if each is not None], now)
    if most is not None and least is not None:
        least = min(least, most)
    hubs = (each.value for each in fields if each.name == "link" and "hub" in each.rel.split())
    return FeedHints(most, least, next(filter(None, hubs), ""))


def smallest_interval(head: Iterable[HeadField]) -> float | None:
    """Return the longer of `ttl` and `sy:updatePeriod` by `sy:updateFrequency`, days.

    Examples
    --------
    >>> fields = [HeadField("updateperiod", "", "daily"), HeadField("updatefrequency", "", "4")]
    >>> smallest_interval(fields), smallest_interval([HeadField("ttl", "", "soon")])
    (0.25, None)
    """
    texts = {each.name: each.value.strip().lower() for each in reversed(list(head))}
    intervals = [(_number(texts.get("ttl", "")) or 0.0) * A_MINUTE]
    if (period := PERIODS.get(texts.get("updateperiod", ""))) is not None:
        intervals.append(period / (_number(texts.get("updatefrequency", "")) or 1.0))
    longest = min(max(intervals), LONGEST)
    return longest if longest >= A_MINUTE else None


def window_rate(dates: list[datetime], now: datetime) -> float | None:
    """Return the rate at which reads see each entry before newer ones push it out, 1/day.

    A feed with `n` entries since its oldest one gets `n` new ones in that time. Arrivals are taken
    as Poisson: an interval with `x` new ones in the mean has at most `x + 3 sqrt(x) = n` almost
    always.

    Examples
    --------
    >>> now = datetime(2026, 5, 11, tzinfo=UTC)
    >>> window_rate([now.replace(day=day) for day in range(1, 11)], now)
    0.25
    """
    past = [date for date in dates if date <= now]
    if len(past) < FEWEST:
        return None
    n, days = len(past), (now - min(past)).total_seconds() / 86_400
    room = ((sqrt(9 + 4 * n) - 3) / 2) ** 2
    return FASTEST if days * room <= n / FASTEST else n / (days * room)


def new_mean(mean: float, n_new: int) -> float:
    """Return the mean number of new entries of a read, after one more read."""
    return MEMORY * mean + (1 - MEMORY) * n_new


def importance(entries: float) -> float:
    """Return the importance of a feed by its mean number of new entries of a read.

    Take a page of importance `1 + x` with `x` new entries at each read. Its harmonic cost falls
    with its rate exactly as the sum of the delays of its entries. So all entries count alike.
    """
    return min(1.0 + entries, MOST_IMPORTANT)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) and number > 0 else None


def _instant(text: str | None) -> datetime | None:
    date = read_date(text or "")
    if date is None or date.begins.year < FIRST_YEAR:
        return None
    return date.begins.astimezone(UTC)
