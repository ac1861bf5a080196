"""The turns of a host between first crawls and pages that were crawled before. Pure.

While both are due, first crawls take the share φ of the host's turns, and the most overdue of the
others take the rest. If one kind alone is due, it takes all turns, and none is counted. The credit
of a host queue has the turns that its first crawls have earned: each counted turn adds φ, and each
first crawl takes 1. The next turn is that of a first crawl if it brings the credit to 1.
"""

from typing import NamedTuple

import numpy as np

from service.model.arrays import Bools, Floats, Ints
from service.storage.queue.columns import HostQueues

ROUNDING = 1e-9
"""Part of a turn that sums of shares may lack."""


class HostTurns(NamedTuple):
    """(Q,) shares and credits of first crawls on host queues."""

    share: Floats
    credit: Floats

    @classmethod
    def of(cls, host_queues: HostQueues, first_share: float) -> "HostTurns":
        """Return the turns of host queues; `first_share` is that of those without one."""
        own = host_queues.first_share
        return cls(np.where(np.isnan(own), first_share, own), host_queues.first_credit)

    def places(self, host_queue: Ints, first: Bools) -> Ints:
        """Return the turn of each of (N,) rows, from 1; rows of one kind are in their order.

        >>> turns = HostTurns(np.array([0.25]), np.array([0.75]))
        >>> turns.places(np.zeros(5, int), np.array([True, True, False, False, False])).tolist()
        [1, 5, 2, 3, 4]
        """
        share, credit = self.share[host_queue], self.credit[host_queue]
        return turns_of(ranks(2 * host_queue + first), first, share, credit)

    def after(self, host_queue: Ints, first: Bools) -> Floats:
        """Return the credits after turns that were counted."""
        n, n_first = (
            np.bincount(some, minlength=len(self.share)) for some in (host_queue, host_queue[first])
        )
        credit = np.clip(self.credit + n * self.share - n_first, 0.0, 1.0)
        return np.where(n > 0, credit, self.credit)


LAST_TURN = 2**53
"""Turn that never comes."""


def turns_of(n_before: Ints, first: Bools, share: Floats, credit: Floats) -> Ints:
    """Return the turns of rows that have so many others of their kind before them."""
    # the credit reaches n + 1 at a first crawl, and any other turn is one that adds no whole
    wanted = np.where(first, n_before + 1 - credit, n_before + credit)
    part = np.where(first, share, 1.0 - share)
    turn = np.divide(wanted, part, out=np.full(len(part), float(LAST_TURN)), where=part > 0)
    own = np.where(first, np.ceil(turn - ROUNDING), np.floor(turn + ROUNDING) + 1)
    turns: Ints = np.clip(own, 1, LAST_TURN).astype(np.int64)
    return turns


def n_turns_before(n_own: int, n_other: int, *, first: bool, share: float, credit: float) -> int:
    """Return how many crawls of its host come before a page, by the due pages of both kinds.

    >>> n_turns_before(3, 100, first=False, share=0.75, credit=0.0)
    12
    >>> n_turns_before(3, 2, first=False, share=0.75, credit=0.0)
    5
    """
    if not n_other:
        return n_own
    one = (np.array([each]) for each in (n_own, first, share, credit))
    return min(int(turns_of(*one)[0]) - 1, n_own + n_other)


def contested(host_queue: Ints, first: Bools, n: int) -> Bools:
    """Return which of n host queues have due rows of both kinds."""
    kinds = np.bincount(2 * host_queue + first, minlength=2 * n).reshape(n, 2)
    both: Bools = (kinds[:, 0] > 0) & (kinds[:, 1] > 0)
    return both


def ranks(group: Ints) -> Ints:
    """Return the number of earlier entries of the same group.

    >>> ranks(np.array([5, 7, 5, 5, 7])).tolist()
    [0, 0, 1, 2, 1]
    """
    # stable: within a group the first ones stay first
    by_group = np.argsort(group, kind="stable")
    ordered = group[by_group]
    place = np.empty(len(group), np.int64)
    place[by_group] = np.arange(len(group)) - np.searchsorted(ordered, ordered)
    return place
