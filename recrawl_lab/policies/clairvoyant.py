"""A bound for all policies: crawls by a policy that knows all future changes.

The policy crawls a changed page as soon as the bandwidth allows. Among several waiting pages it
chooses the one whose crawl saves most until the page changes again. This is a practical bound, not
the optimum: the policy considers only the next change of each page, and never saves bandwidth for
later.
"""

from heapq import heappop, heappush, heapreplace

import numpy as np

from recrawl_lab.replay.staleness import Crawls, harmonic_numbers
from recrawl_lab.worlds.world import World

CARRIED_DAYS = 1.0
"""Maximum age of bandwidth that is spent late, days, as in a fleet with daily epochs."""


def clairvoyant(world: World, bandwidth: float) -> Crawls:
    """Return the crawls that save most, from all changes in order of time and a heap of pages.

    Parameters
    ----------
    bandwidth
        Crawls a day. The unused part of `CARRIED_DAYS`, or one crawl if more, is available later.
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
    """Pages with uncrawled changes, ordered by the savings of a crawl."""

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
        """Add a change, identified by its index in the world."""
        page = self._page[change]
        self._n_uncrawled[page] += 1
        self._until[page] = self._changes_at[change]
        heappush(self._heap, (-self._saved(page, self._changed_at[change]), page))

    def pop(self, at: float) -> int | None:
        """Return the page whose crawl saves most and mark it crawled; None if no crawl saves any.

        Until the page changes and is added again, the savings of a crawl only shrink. It is enough
        to evaluate the top of the heap again.
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
