"""Open hours: time that counts only while a host may be crawled.

*Open time* runs while a host is open, and stands still while it is closed. An interval of T days
between two crawls of a page takes g(T) days of open time:

    g(T) = T W / (W + sum_i min(L_i, T))

W is the open time of many cycles, and L_i are their closures. From the longest closure on, g(T) is
T times the open share of the time, so a page keeps its rate. A page with a shorter interval makes
up for one crawl of each longer closure, and loses the rest. g is continuous and increasing, so a
page with a higher rate has more crawls.

Due times are instants of open time, so they are even over it. No crawls gather at an opening, also
after a long closure.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.core.checks import Floats

Instants = NDArray[np.datetime64]
Spans = NDArray[np.int64]

DAY_US = 86_400_000_000
"""Length of a day, microseconds."""
DAY = np.timedelta64(1, "D")
"""Length of a day."""
LAST = np.timedelta64(30, "s")
"""Time before a closing in which no crawl may begin."""
NEVER = np.datetime64("NaT", "us")


@dataclass(frozen=True, slots=True, eq=False)
class OpenHours:
    """Stretches in which crawls may begin, within a horizon.

    Outside of the horizon a host counts as open, and open time runs at its mean rate.

    Examples
    --------
    A host is open from 0 to 8 o'clock. A page with an interval of one day keeps its hour. A page
    with an interval of three hours makes up for one crawl of each night:

    >>> day = np.datetime64("2026-05-01", "us") + np.arange(10) * np.timedelta64(1, "D")
    >>> hours = OpenHours.of(day, day + np.timedelta64(8, "h"), day[0], day[-1])
    >>> round(hours.share, 3)
    0.333
    >>> last = np.array(["2026-05-02T06:00"] * 2, "M8[us]")
    >>> hours.due(last, np.array([1.0, 0.125])).astype("M8[m]").tolist()
    [datetime.datetime(2026, 5, 3, 6, 0), datetime.datetime(2026, 5, 3, 0, 11)]
    """

    opens: Instants
    """(K,) first instants of crawls, ascending."""
    closes: Instants
    """(K,) instants before which crawls begin; the closings are `LAST` later."""
    before: Spans
    """(K,) open time before each opening, microseconds."""
    share: float
    """Open share of the time, in the mean and without blackouts."""
    closures: Floats
    """(C,) closures without blackouts, ascending, days."""
    closed: Floats
    """(C + 1,) sums of the shortest closures, days."""
    open_days: float
    """Open time of the cycles of these closures, days."""
    begin: np.datetime64
    """Begin of the horizon."""
    until: np.datetime64
    """End of the horizon."""

    @classmethod
    def of(
        cls,
        openings: Instants,
        closings: Instants,
        begin: np.datetime64,
        until: np.datetime64,
        usual: tuple[Instants, Instants] | None = None,
    ) -> "OpenHours":
        """Return the hours of openings and closings between two instants.

        `usual` has the openings and closings without blackouts, which decide how much open time an
        interval takes; None: they are the same.
        """
        closes = closings - LAST
        opens, closes = openings[closes > openings], closes[closes > openings]
        length = _us(closes - opens)
        first, last = (openings, closings) if usual is None else usual
        closures = np.sort(_us(first[1:] - last[:-1] + LAST) / DAY_US)
        open_days = float(_us(last[1:] - LAST - first[1:]).sum() / DAY_US)
        share = open_days / (open_days + float(closures.sum())) if closures.size else 1.0
        return cls(
            opens=opens,
            closes=closes,
            before=np.cumsum(length) - length,
            share=share,
            closures=closures,
            closed=np.concatenate([[0.0], np.cumsum(closures)]),
            open_days=open_days,
            begin=begin,
            until=until,
        )

    # -- instants

    @property
    def is_never_open(self) -> bool:
        """True if the horizon has no opening."""
        return not self.opens.size

    def opens_from(self, at: np.datetime64) -> bool:
        """Return whether the horizon has time for a crawl from an instant on."""
        return bool((self.closes > at).any())

    def opening(self, at: Instants) -> Instants:
        """Return the first instants, from others on, at which a crawl may begin.

        Without any opening, return the end of the horizon.
        """
        inside = (at >= self.begin) & (at < self.until)
        place = self.closes.searchsorted(at, side="right")
        following = np.append(self.opens, self.until)[place]
        first: Instants = np.where(inside, np.maximum(at, following), at)
        return first

    def closing(self, at: Instants) -> Instants:
        """Return the closings of the windows in which instants lie; NaT: in none."""
        closings = self.closes + LAST
        place = closings.searchsorted(at, side="right")
        opens, ends = np.append(self.opens, NEVER)[place], np.append(closings, NEVER)[place]
        closing: Instants = np.where(opens <= at, ends, NEVER)
        return closing

    def spread(self, at: Instants) -> Instants:
        """Return instants, those of a closure in their order over the stretch that follows it."""
        place = self.closes.searchsorted(at, side="right")
        if len(self.opens) > 1:
            between = np.clip(place, 1, len(self.opens) - 1)
            closed_at, opens = self.closes[between - 1], self.opens[between]
            part = np.clip(_us(at - closed_at) / _us(opens - closed_at), 0.0, 1.0)
            later = opens + (part * _us(self.closes[between] - opens)).astype(np.int64).astype(
                "m8[us]"
            )
            at = np.where((place == between) & (at < opens), later, at)
        return self.opening(at)

    # -- open time

    def elapsed(self, at: Instants) -> Spans:
        """Return the open time from the first opening to instants, microseconds."""
        place = np.maximum(self.opens.searchsorted(at, side="right") - 1, 0)
        inside = self.before[place] + _us(np.minimum(at, self.closes[place]) - self.opens[place])
        ahead = self._scaled(at - self.opens[0])
        beyond = self._total + self._scaled(at - self.closes[-1])
        late = at > self.closes[-1]
        return np.where(at < self.opens[0], ahead, np.where(late, beyond, inside))

    def instant(self, elapsed: Spans) -> Instants:
        """Return the instants at which open time has elapsed; the inverse of `elapsed`."""
        place = np.maximum(self.before.searchsorted(elapsed, side="right") - 1, 0)
        inside = self.opens[place] + (elapsed - self.before[place]).astype("m8[us]")
        ahead = self.opens[0] + self._unscaled(elapsed)
        beyond = self.closes[-1] + self._unscaled(elapsed - self._total)
        late = elapsed >= self._total
        at: Instants = np.where(elapsed < 0, ahead, np.where(late, beyond, inside))
        return at

    def open_days_between(self, begin: np.datetime64, end: np.datetime64) -> float:
        """Return the open time between two instants, days."""
        if self.is_never_open:
            return 0.0
        return float(np.diff(self.elapsed(np.array([begin, end])))[0] / DAY_US)

    def passed(self, last: Instants, due: Instants, at: np.datetime64) -> Floats:
        """Return the shares of the open time from crawls to due times that have passed."""
        if self.is_never_open:
            return np.zeros(len(last))
        since = self.elapsed(last)
        span = np.maximum(self.elapsed(due) - since, 1)
        return np.asarray((self.elapsed(np.full(len(last), at)) - since) / span)

    @property
    def _total(self) -> int:
        return int(self.before[-1] + _us(self.closes[-1] - self.opens[-1]))

    def _scaled(self, span: NDArray[np.timedelta64]) -> Spans:
        return np.asarray(np.rint(_us(span) * self.share), np.int64)

    def _unscaled(self, span: Spans) -> NDArray[np.timedelta64]:
        return np.asarray(np.rint(span / self.share).astype(np.int64).astype("m8[us]"))

    # -- intervals

    def step(self, days: Floats) -> Floats:
        """Return the open time that intervals take, days."""
        if not self.closures.size:
            return days
        shorter = self.closures.searchsorted(days, side="right")
        made_up = self.closed[shorter] + (len(self.closures) - shorter) * days
        return np.asarray(days * self.open_days / (self.open_days + made_up))

    def interval(self, step: Floats) -> Floats:
        """Return the intervals that take an open time, days; the inverse of `step`."""
        if not self.closures.size:
            return step
        shorter = self.step(self.closures).searchsorted(step, side="right")
        rest = self.open_days - step * (len(self.closures) - shorter)
        return np.asarray(step * (self.open_days + self.closed[shorter]) / rest)

    def kept(self, rate: Floats) -> Floats:
        """Return the shares of their crawls that pages keep at crawl rates, 1/day.

        >>> day = np.datetime64("2026-05-01", "us") + np.arange(10) * np.timedelta64(1, "D")
        >>> hours = OpenHours.of(day, day + np.timedelta64(12, "h"), day[0], day[-1])
        >>> hours.kept(np.array([1.0, 24.0])).round(2).tolist()
        [1.0, 0.54]
        """
        rate = np.maximum(rate, 1e-9)
        return np.asarray(np.minimum(self.share / (rate * self.step(1.0 / rate)), 1.0))

    def spells(self, rate: Floats) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Return the intervals of pages at crawl rates, 1/day, and the share of the time in each.

        The first ones have some closures, or none, and the second ones have one more. A host that
        never opens is crawled once in its horizon.

        >>> day = np.datetime64("2026-05-01", "us") + np.arange(10) * np.timedelta64(1, "D")
        >>> hours = OpenHours.of(day, day + np.timedelta64(12, "h"), day[0], day[-1])
        >>> [[column.round(2).tolist() for column in each] for each in hours.spells(np.array([24]))]
        [[[0.04], [0.46]], [[0.54], [0.54]]]
        """
        if self.is_never_open:
            whole = np.full(len(rate), _us(self.until - self.begin) / DAY_US)
            return (whole, np.ones(len(rate))), (whole, np.zeros(len(rate)))
        step = self.step(1.0 / rate)
        each = len(self.closures) * step / self.open_days  # closures of an interval
        few, closure = np.floor(each), self.closures.mean() if len(self.closures) else 0.0
        short, whole = step + few * closure, step + each * closure
        more = short + closure
        return (short, (1.0 - each + few) * short / whole), (more, (each - few) * more / whole)

    def due(self, last: Instants, days: Floats, least: ArrayLike = 0) -> Instants:
        """Return due times, which are instants of open time, for intervals after the last crawls.

        `least` marks waits that are never shorter by the wall clock, such as those of retries.
        """
        if self.is_never_open:
            return np.where(np.isnat(last), last, self.until)
        start = np.where(np.isnat(last), self.opens[0], last)
        due = self.instant(self.elapsed(start) + (self.step(days) * DAY_US).astype(np.int64))
        wait = (days * DAY_US).astype(np.int64).astype("m8[us]")
        due = np.where(least, self.spread(np.maximum(due, start + wait)), due)
        after: Instants = np.where(np.isnat(last), last, due)
        return after


def _us(span: Any) -> Any:
    """Return spans of time in microseconds."""
    return np.asarray(span, "m8[us]").astype(np.int64)
