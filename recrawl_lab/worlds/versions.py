"""Versions of pages at crawls: the number of changes so far."""

import numpy as np

from recrawl_lab.worlds.world import World
from service.model.arrays import Floats, Ints


class Versions:
    """Exact counts of the changes of pages up to and including instants.

    >>> from recrawl_lab.worlds.world import synthetic_world
    >>> world = synthetic_world(3, 9.0, rng=np.random.default_rng(1))
    >>> Versions(world).at(np.array([0, 2]), np.array([0.0, 9.0]))
    array([0, 3])
    """

    def __init__(self, world: World) -> None:
        self._changed_at = np.append(world.changed_at, np.inf)
        self._first = world.first

    def at(self, page: Ints, at: Floats) -> Ints:
        """Return the (K,) versions that crawls of pages find, by bisection. O(K log M)."""
        first, end = self._first[page], self._first[page + 1]
        place = first.copy()
        for power in reversed(range(int((end - first).max(initial=0)).bit_length())):
            ahead = place + (1 << power)
            past = self._changed_at[np.minimum(ahead, end) - 1] <= at
            place = np.where((ahead <= end) & past, ahead, place)
        return place - first
