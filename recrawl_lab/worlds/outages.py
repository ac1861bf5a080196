"""Outages of a site: hours in which every page answers one status, and none shows its content."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from service.model.arrays import UNSPECIFIED, Bools, Codes, Floats

OUTAGE = 1.0 / 24.0
"""Length of an outage, days."""
OUTAGE_EVERY = 7.0
"""Mean time from the start of an outage to the start of the next one, days."""
STATUSES = (404, 503, 429, 0)
"""Statuses of the outages, in turn; 0: no answer."""


@dataclass(frozen=True, slots=True)
class Outages:
    """(K,) outages of a site, ascending and apart from each other."""

    start: Floats
    """Instant at which each outage begins, days since the start."""
    length: float = OUTAGE
    """Length of each outage, days."""

    @classmethod
    def drawn(cls, days: float, rng: np.random.Generator) -> Self:
        """Return outages at random times: exponential pauses, an hour a week in the mean."""
        pause = OUTAGE_EVERY - OUTAGE
        most = int(days / OUTAGE) + 1
        start = np.cumsum(rng.exponential(pause, most) + OUTAGE) - OUTAGE
        return cls(start[start < days])

    def __len__(self) -> int:
        return len(self.start)

    def status(self, at: Floats) -> Codes:
        """Return the (K,) statuses of crawls at instants; UNSPECIFIED outside of all outages.

        >>> outages = Outages(np.array([1.0, 5.0]), length=0.5)
        >>> outages.status(np.array([0.9, 1.0, 1.4, 1.5, 5.2])).tolist()
        [-1, 404, 404, -1, 503]
        """
        turn = np.searchsorted(self.start, at, side="right") - 1
        during = (turn >= 0) & (at < np.append(self.start, 0.0)[turn] + self.length)
        codes = np.array(STATUSES, np.int16)[turn % len(STATUSES)]
        return np.where(during, codes, UNSPECIFIED).astype(np.int16)

    def during(self, at: Floats) -> Bools:
        """Return which instants lie in an outage."""
        inside: Bools = self.status(at) != UNSPECIFIED
        return inside


NO_OUTAGES = Outages(np.zeros(0))
