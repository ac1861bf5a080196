"""A bound for all policies: crawls by one that knows when every page will change.

It crawls a changed page as soon as the bandwidth allows; when several wait, the one whose crawl
saves most until the page changes again. It is a bound in spirit, not the optimum: it looks no
farther than the next change of each page, and never keeps bandwidth for a worse day to come.
"""

from heapq import heappop, heappush, heapreplace

import numpy as np

from recrawl_lab.replay.staleness import Crawls, harmonic_numbers
from recrawl_lab.worlds.world import World

CARRIED_DAYS = 1.0
"""Bandwidth left over can be spent so much later, as by a fleet with daily epochs."""


def clairvoyant(world: World, bandwidth: float) -> Crawls:
    """Crawl what saves most, knowing all changes; goes through the changes with a heap.

    Parameters
    ----------
    bandwidth
        Crawls a day. What is left over of `CARRIED_DAYS`, at least one crawl, can be spent later.
    """
    waiting, done = _Waiting(world), []
    most = max(1.0, bandwidth * CARRIED_DAYS)
    credit, now = 1.0, 0.0
    order = np.argsort(world.changed_at, kind="stable")
    instants = world.changed_at[order].tolist()
    for change, at in zip([*order.tolist(), None], [*instants, world.days], strict=True):
        while waiting and credit + bandwidth * (at - now) > 1.0:
            ready = now + max(0.0, 1.0 - credit) / bandwidth
            page = waiting.pop(ready)
            if page is not None:
                done.append((page, ready))
                credit, now = min(most, credit + bandwidth * (ready - now)) - 1.0, ready
        credit, now = min(most, credit + bandwidth * (at - now)), at
        if change is not None:
            waiting.push(change)
    return Crawls(np.array([p for p, _ in done], np.int64), np.array([t for _, t in done], float))


class _Waiting:
    """Pages with changes not crawled yet, by what a crawl saves."""

    def __init__(self, world: World) -> None:
        page = world.changed_page
        last = np.append(page[1:] != page[:-1], True)[: len(page)]
        following = np.append(world.changed_at[1:], 0.0)[: len(page)]
        self._page = page.tolist()
        self._changed_at = world.changed_at.tolist()
        self._changes_at = np.where(last, world.ended[page], following).tolist()
        self._importance = world.importance.tolist()
        self._penalty = harmonic_numbers(np.arange(len(page) + 1)).tolist()
        self._n_uncrawled = [0] * len(world)
        self._until = [0.0] * len(world)
        self._heap: list[tuple[float, int]] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(self, change: int) -> None:
        """Take in a change, by its place in the world."""
        page = self._page[change]
        self._n_uncrawled[page] += 1
        self._until[page] = self._changes_at[change]
        heappush(self._heap, (-self._saved(page, self._changed_at[change]), page))

    def pop(self, at: float) -> int | None:
        """Return the page whose crawl saves most, now crawled; None if no crawl saves anything.

        What a crawl saves only shrinks until the page changes and is entered again, so it is enough
        to weigh anew what stands at the top.
        """
        while self._heap:
            expected, page = self._heap[0]
            cost = -self._saved(page, at)
            if cost >= 0:
                heappop(self._heap)
            elif cost > expected:
                heapreplace(self._heap, (cost, page))
            else:
                heappop(self._heap)
                self._n_uncrawled[page] = 0
                return page
        return None

    def _saved(self, page: int, at: float) -> float:
        """Return importance x penalty x days to the next change or the end."""
        penalty = self._penalty[self._n_uncrawled[page]]
        return float(self._importance[page] * penalty * (self._until[page] - at))
