"""Leased crawls, the order of an answer, and the requests that get them in turns."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import numpy as np

from service.core.pace import TakenAmounts
from service.leases.due import comes_first, ranking_rates, requested
from service.leases.picks import UNSCHEDULED_RATE
from service.model.arrays import INSTANT, Bools, Floats, Instants, Ints, days
from service.storage.queue.columns import DuePages, Leases


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """The request of a worker for a number of crawls."""

    worker: str
    count: int
    ttl: timedelta


class LeasedPages(NamedTuple):
    """(N,) leased crawls, the most overdue first."""

    pages: DuePages
    due_at: Instants
    leases: Leases
    overdue: Floats
    """(now - last crawl) x crawl rate; (now - registration) x crawl rate + 1 if never crawled."""

    @property
    def requested(self) -> Bools:
        """(N,) True where a ping or an operator has requested the crawl."""
        return requested(self.pages)

    @property
    def asked(self) -> Bools:
        """(N,) True where an operator has requested the crawl, with pings or without."""
        asked: Bools = ~np.isnat(self.pages.asked_at)
        return self.requested & asked & ~(self.pages.last_crawl_at >= self.pages.asked_at)

    def in_order(self, rows: Ints) -> "LeasedPages":
        """Return the crawls at these positions."""
        pages, leases = self.pages.in_order(rows), self.leases.in_order(rows)
        return LeasedPages(pages, self.due_at[rows], leases, self.overdue[rows])


NO_AMOUNTS: Floats = np.zeros(0)


class DealtPages(NamedTuple):
    """Crawls that one transaction has leased to several requests."""

    leased: LeasedPages
    to: Ints
    """(N,) position of each crawl's request."""
    more: bool
    """True if more pages may be due."""
    taken: TakenAmounts = TakenAmounts(0.0)
    """Amounts of the budget that the crawls take."""
    amount: Floats = NO_AMOUNTS
    """(N,) amount of each crawl."""
    urgent: float = 0.0
    """Amount of urgent pages that the allotment had no room for, even on loan."""
    short: Floats = NO_AMOUNTS
    """Amounts of other due pages that it had no room for, in the order of leases."""

    @classmethod
    def none(cls) -> "DealtPages":
        """Return no crawls."""
        leased = LeasedPages(DuePages.empty(), np.zeros(0, INSTANT), Leases.empty(), np.zeros(0))
        return cls(leased, np.zeros(0, np.int64), more=False)


def most_urgent_first(leased: LeasedPages) -> Ints:
    """Return the order of an answer: requested pages, then the most overdue."""
    urgency = np.where(comes_first(leased.pages), np.inf, leased.overdue)
    return np.lexsort((leased.pages.page_id, leased.due_at, -urgency))


def how_overdue(pages: DuePages, at: np.datetime64) -> Floats:
    """Return (now - last crawl) x crawl rate; a page never crawled is due from registration on."""
    rate = ranking_rates(pages)
    rate = np.where(rate > 0, rate, UNSCHEDULED_RATE)
    first = np.isnat(pages.last_crawl_at)
    since: Instants = np.where(first, pages.created_at, pages.last_crawl_at)
    return days(at - since) * rate + first


def deal(counts: Sequence[int], n: int) -> Ints:
    """Return (n,) request that gets each page, dealt in turns to requests for `counts` pages.

    >>> deal([1, 3, 2], 6).tolist()
    [0, 1, 2, 1, 2, 1]
    """
    who = np.repeat(np.arange(len(counts)), counts)
    turn = np.concatenate([np.arange(count) for count in counts])
    return who[np.lexsort((who, turn))][:n]
