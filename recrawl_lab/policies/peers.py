"""Policies of today's operators: each heuristic as shipped, and tuned to the bandwidth."""

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Self

import numpy as np

from recrawl_lab.policies.heuristics import Segment, State, play
from recrawl_lab.policies.nutch import MODIFIED, NOT_MODIFIED, UNKNOWN, Nutch, NutchState
from recrawl_lab.policies.plain import Policy
from recrawl_lab.policies.stormcrawler import StormCrawler
from recrawl_lab.policies.tuning import tuned
from recrawl_lab.worlds.simulated_time import START
from service.model.arrays import Bools, Floats, Ints

MS_PER_DAY = 86_400_000
MINUTES_PER_DAY = 1_440
SEGMENT_DAYS = 1.0
START_MS = round(START.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Crawls of every page at one constant interval, days."""

    interval: float
    segment: None = field(default=None, init=False)

    def discover(self, at: Floats) -> tuple[State, Floats]:
        """Return an empty state and the due instants."""
        return (), at + self.interval

    def crawl(self, state: State, at: Floats, changed: Bools) -> tuple[State, Floats]:  # noqa: ARG002
        """Return the state and the due instants, regardless of changes."""
        return state, at + self.interval

    def scaled(self, factor: float) -> Self:
        """Return the policy with a stretched interval."""
        return type(self)(factor * self.interval)


@dataclass(frozen=True, slots=True)
class ByNutch:
    """Nutch: each day the most important of the pages due within the day (generate -topN).

    As in CrawlDb, a page is found with an unknown outcome, and later crawls compare signatures.
    """

    schedule: Nutch

    @property
    def segment(self) -> Segment:
        """Return a day's crawls; pages due too far ahead are due now, until they are crawled."""

        def review(state: State, due: Floats, now: float) -> tuple[State, Floats]:
            reviewed, again = self.schedule.refetch(
                NutchState(*state), _ms(due), int(_ms(np.float64(now)))
            )
            return tuple(reviewed), _day(again)

        return Segment(SEGMENT_DAYS, review)

    def discover(self, at: Floats) -> tuple[State, Floats]:
        """Return the state after one crawl, at the default interval."""
        state, due = self.schedule.update(Nutch.init(len(at)), _ms(at), UNKNOWN)
        return tuple(state), _day(due)

    def crawl(self, state: State, at: Floats, changed: Bools) -> tuple[State, Floats]:
        """Return the state after the outcomes."""
        outcome = np.where(changed, MODIFIED, NOT_MODIFIED)
        after, due = self.schedule.update(NutchState(*state), _ms(at), outcome)
        return tuple(after), _day(due)

    def scaled(self, factor: float) -> Self:
        """Return the policy with all intervals stretched; the segment remains a day."""
        return type(self)(self.schedule.scaled(factor))


@dataclass(frozen=True, slots=True)
class ByStormCrawler:
    """StormCrawler: the spout takes the most overdue pages first."""

    scheduler: StormCrawler
    segment: None = field(default=None, init=False)

    def discover(self, at: Floats) -> tuple[State, Floats]:
        """Return the state after one crawl, at the default interval."""
        interval = self.scheduler.init(len(at))
        return (interval,), at + interval / MINUTES_PER_DAY

    def crawl(self, state: State, at: Floats, changed: Bools) -> tuple[State, Floats]:
        """Return the state after crawls with or without changes."""
        interval = self.scheduler.update(state[0], changed)
        return (interval,), at + interval / MINUTES_PER_DAY

    def scaled(self, factor: float) -> Self:
        """Return the policy with all intervals stretched."""
        return type(self)(self.scheduler.scaled(factor))


def _ms(day: Floats | np.float64) -> Ints:
    return np.rint(day * MS_PER_DAY).astype(np.int64) + START_MS


def _day(ms: Ints) -> Floats:
    return (ms - START_MS) / MS_PER_DAY


# -- the list


class Peer(NamedTuple):
    """A policy for comparison with its description."""

    policy: Policy
    description: str


NUTCH = ByNutch(Nutch())
NUTCH_IN_TIME = ByNutch(Nutch(refetch_after_s=Nutch().max_interval_s))
"""Nutch without its daily crawl of pages due in more than 90 days, as a tuned Nutch runs."""
STORMCRAWLER = ByStormCrawler(StormCrawler())
STORMCRAWLER_NEWS = ByStormCrawler(
    StormCrawler(
        decrease=0.2, default_interval_min=720, min_interval_min=90, max_interval_min=129_600
    )
)

PEERS: dict[str, Peer] = {
    "fixed": Peer(
        partial(play, Fixed(1.0)),
        "every page daily, the most overdue first (Frontera's default)",
    ),
    "fixed-tuned": Peer(
        partial(tuned, Fixed(1.0)),
        "every page at the one interval that uses the bandwidth up, about n/R days",
    ),
    "nutch": Peer(
        partial(play, NUTCH),
        "Apache Nutch's AdaptiveFetchSchedule as shipped, the most important due pages each day",
    ),
    "nutch-tuned": Peer(
        partial(tuned, NUTCH_IN_TIME),
        "the same, intervals scaled to use the bandwidth up, nothing refetched before its time",
    ),
    "stormcrawler": Peer(
        partial(play, STORMCRAWLER),
        "Apache StormCrawler's AdaptiveScheduler as shipped, the most overdue first",
    ),
    "stormcrawler-tuned": Peer(
        partial(tuned, STORMCRAWLER),
        "the same, intervals scaled to use the bandwidth up",
    ),
    "stormcrawler-news": Peer(
        partial(play, STORMCRAWLER_NEWS),
        "StormCrawler as Common Crawl's news crawler sets it: 90 minutes to 90 days",
    ),
    "stormcrawler-news-tuned": Peer(
        partial(tuned, STORMCRAWLER_NEWS),
        "the same, intervals scaled to use the bandwidth up",
    ),
}
"""Policies by the name in commands and reports."""
