"""What is known of a host: the politeness in force, and whether its feed of pings lives."""

from dataclasses import dataclass
from datetime import datetime

import numpy as np

from service.arrays import days, instant
from service.core.pings import PingQuality, PingState
from service.core.trust import dead_feeds
from service.domain import HostPages, Lane
from service.lanes import LONGEST_DELAY_S, Politeness


@dataclass(frozen=True, slots=True)
class Feed:
    """The pings of a host's `auto` pages."""

    n_pages: int
    """Pages that have had one."""
    n_pings: int
    ping_rate: float
    """1/day."""
    real: float
    """Share of the pings that announce a change."""
    trust: float
    """Mean log-likelihood ratio of "pings announce nearly all changes"."""
    last_ping_at: datetime
    silent_days: float
    dead: bool
    """So long a silence is too improbable: the pages are crawled as if they had no pings."""


def in_force(lane: Lane, polite: Politeness) -> Politeness:
    """Give what a lane is held to: at least the delay that robots.txt asks."""
    said = polite.delay_s if lane.min_delay_s is None else lane.min_delay_s
    delay_s = min(max(said, lane.robots_delay_s or 0.0), LONGEST_DELAY_S)
    return Politeness(delay_s, lane.max_concurrency or polite.concurrency)


def feed_of(pages: HostPages, now: datetime) -> Feed | None:
    """Judge a host's feed as an epoch does; None where no `auto` page has a ping that counts."""
    if pages.last_ping_at is None or pages.trust is None:
        return None
    evidence = PingState(0.0, 0.0, pages.real_pings, pages.false_pings, pages.n_pings, 0.0)
    silent = np.maximum(days(np.array([instant(now) - instant(pages.last_ping_at)])), 0.0)
    return Feed(
        n_pages=pages.n_pinged,
        n_pings=pages.n_pings,
        ping_rate=pages.ping_rate,
        real=float(PingQuality().estimate(evidence).precision),
        trust=pages.trust,
        last_ping_at=pages.last_ping_at,
        silent_days=float(silent[0]),
        dead=bool(dead_feeds([0], [pages.ping_rate], silent)[0]),
    )
