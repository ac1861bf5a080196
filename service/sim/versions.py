"""What crawls see: how often each page has changed by then."""

from typing import Self

import numpy as np

from service.arrays import Floats, Ints
from service.sim.world import World


class Versions:
    """Counts the changes of pages up to and including instants; exact, by one sorted table.

    Instants are compared by their rank among all changes of the world, so that page and rank fit
    one integer key.

    >>> from service.sim.world import synthetic_world
    >>> world = synthetic_world(3, 9.0, rng=np.random.default_rng(1))
    >>> Versions.of(world).at(np.array([0, 2]), np.array([0.0, 9.0]))
    array([0, 3])
    """

    def __init__(self, instant: Floats, key: Ints, first: Ints) -> None:
        self._instant = instant
        self._key = key
        self._first = first

    @classmethod
    def of(cls, world: World) -> Self:
        """Sort the changes of a world. O(M log M)."""
        instant = np.sort(world.changed_at)
        rank = np.searchsorted(instant, world.changed_at, side="right")
        return cls(instant, world.changed_page * (len(instant) + 1) + rank, world.first)

    def at(self, page: Ints, at: Floats) -> Ints:
        """Give the (K,) versions that crawls of pages find. O(K log M)."""
        rank = np.searchsorted(self._instant, at, side="right")
        key = page * (len(self._instant) + 1) + rank
        return np.searchsorted(self._key, key, side="right") - self._first[page]
