"""Admission of new pages in a replay, by the product's own rule (`service.core.worth`).

All URLs of the world are known to the lab, so the levels are fixed. A level without a registered
page has no evidence and no page that waits, and so changes nothing for others.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from service.budget.admission import SAMPLE_EVERY, SAMPLED
from service.core import worth
from service.model.arrays import Bools, Ints
from service.model.ladder import ladder, last_levels

UNKNOWN, WAITS, IN_FLIGHT, ANSWERED = range(4)
"""States of a page."""
NEVER = -(1 << 40)
"""Day of the last sample of a level without one."""


class Admission:
    """The pages of a world between their registration and the answer to their first crawl."""

    def __init__(self, urls: Sequence[str]) -> None:
        every = np.array(urls, object)
        _, first, last = np.unique(last_levels(every), return_index=True, return_inverse=True)
        ladders = [ladder(url).levels for url in every[first]]
        above = {one: parent for each in ladders for parent, one in pairwise((0, *each))}
        level = np.array(sorted(above), np.int64)
        parent = level.searchsorted([above[one] for one in level.tolist()])
        hosts = np.array([above[one] == 0 for one in level.tolist()], np.bool_)
        none = np.zeros(len(level), np.int64)
        self.last = level.searchsorted([each[-1] for each in ladders])[last.reshape(-1)]
        """(N,) position of each page's last level."""
        self.levels = worth.Levels(np.where(hosts, -1, parent), *[none] * 6)
        self.state = np.full(len(every), UNKNOWN, np.int8)
        self.seen: set[int] = set()
        """Digests of the corpus."""
        self.sampled_on = np.full(len(level), NEVER, np.int64)
        """Day of the last sample of each level."""

    @property
    def waiting(self) -> Ints:
        """(L,) pages that wait in each last level."""
        return self._counts(np.flatnonzero(self.state == WAITS))

    def enter(self, page: Ints) -> None:
        """Register pages, and admit what has a place."""
        self.state[page] = WAITS
        self._admit(worth.grants(self.levels, self.waiting))

    def answer(self, page: Ints, digest: Ints) -> None:
        """Judge first crawls by their digests, 0 for a crawl without content; admit more."""
        first = self.state[page] == IN_FLIGHT
        page, digest = page[first], digest[first]
        new = np.zeros(len(page), np.bool_)
        for k, each in enumerate(digest.tolist()):
            new[k] = each != 0 and each not in self.seen
            self.seen.add(each)
        self.state[page] = ANSWERED
        crawls = self._counts(page)
        self.levels = worth.answered(self.levels, crawls, self._counts(page[new]), crawls)
        self._admit(worth.grants(self.levels, self.waiting))

    def sample(self, budget: float, day: int) -> None:
        """Admit a page of stopped levels that had none for long, within the share of the budget."""
        waiting, stopped = self.waiting, worth.stopped(self.levels)
        ripe = self.sampled_on <= day - SAMPLE_EVERY.days
        due = np.flatnonzero(stopped & (waiting > 0) & ripe)
        left = max(int(SAMPLED * budget), 1) - np.count_nonzero(self.sampled_on == day)
        due = due[np.argsort(self.sampled_on[due], kind="stable")][: max(left, 0)]
        granted = np.zeros_like(waiting)
        granted[due], self.sampled_on[due] = 1, day
        self._admit(granted)

    def admitted(self, page: Ints) -> Bools:
        """Return which pages may be crawled."""
        may: Bools = self.state[page] >= IN_FLIGHT
        return may

    def _counts(self, page: Ints) -> Ints:
        return np.bincount(self.last[page], minlength=len(self.levels.parent)).astype(np.int64)

    def _admit(self, granted: Ints) -> None:
        """Admit the first pages of each last level."""
        if not granted.any():
            return
        page = np.flatnonzero(self.state == WAITS)
        page = page[np.argsort(self.last[page], kind="stable")]
        level = self.last[page]
        rank = np.arange(len(page)) - level.searchsorted(level)
        self.state[page[rank < granted[level]]] = IN_FLIGHT
        self.levels = worth.admitted(self.levels, granted)
