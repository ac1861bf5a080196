"""Sets of hosts: the hosts of a part of an epoch, and how they are chosen. Pure.

A set is a range of host_ids and single hosts. Hosts of one group with a cap are in one set, because
they share the cap. A host with more pages than a set should have is a set of its own.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from service.model.arrays import Bools, Floats, Ints

MOST_NAMED = 10_000
"""Maximum number of hosts that sets name one by one; statements have all of them."""
NO_END = (1 << 63) - 1
"""End of the last range, above all ids."""


class HostSet(NamedTuple):
    """Some hosts of a database.

    >>> some = HostSet(10, 20, without=(12,), named=(3,))
    >>> some.has(np.array([3, 4, 10, 12, 19, 20])).tolist()
    [True, False, True, False, True, False]
    >>> some.condition
    'host_id >= 10 AND host_id < 20 AND host_id <> ALL (ARRAY[12]) OR host_id = ANY (ARRAY[3])'
    """

    first: int = 0
    """First host_id of the range."""
    end: int = NO_END
    """Host_id after the last one of the range; `first`: the range is empty."""
    without: tuple[int, ...] = ()
    """Hosts of the range that other sets have."""
    named: tuple[int, ...] = ()
    """Hosts beside the range."""

    def has(self, host_id: Ints) -> Bools:
        """Return which hosts the set has."""
        within = (host_id >= self.first) & (host_id < self.end) & ~np.isin(host_id, self.without)
        return within | np.isin(host_id, self.named)

    @property
    def condition(self) -> str:
        """The set as a condition in SQL."""
        parts = []
        if self.first < self.end:
            parts.append(f"host_id >= {self.first} AND host_id < {self.end}")
            if self.without:
                parts[0] += f" AND host_id <> ALL (ARRAY{list(self.without)})"
        if self.named:
            parts.append(f"host_id = ANY (ARRAY{list(self.named)})")
        return " OR ".join(parts) or "false"


EVERY_HOST = HostSet()


class HostSizes(NamedTuple):
    """(H,) hosts by ascending host_id with their numbers of pages; a sample may miss some."""

    host_id: Ints
    n_pages: Ints
    """Estimated numbers of pages."""


def host_sets(sizes: HostSizes, groups: Sequence[Ints], n: int) -> tuple[HostSet, ...]:
    """Return `n` sets of nearly as many pages each, or one set of all hosts.

    Each of the `groups` has hosts that must be in one set, and no host of another group. A host
    that is too large for a set beside others, and a group, are placed first, the largest into the
    emptiest set. Ranges of the other hosts fill the sets. Hosts that are not known are in a range.

    One set is the answer where more than `MOST_NAMED` hosts would have to be named.

    >>> sizes = HostSizes(np.array([1, 2, 3, 4, 5]), np.array([10, 10, 60, 10, 10]))
    >>> for each in host_sets(sizes, [], 2):
    ...     print(each.condition)
    host_id = ANY (ARRAY[3])
    host_id >= 0 AND host_id < 9223372036854775807 AND host_id <> ALL (ARRAY[3])
    """
    if n == 1 or sum(map(len, groups)) > MOST_NAMED:
        return (EVERY_HOST,)
    total = int(sizes.n_pages.sum())
    named: list[list[int]] = [[] for _ in range(n)]
    room = np.full(n, total / n)
    for hosts, n_pages in _placed(sizes, groups, -(-total // n)):
        emptiest = int(np.argmax(room))
        named[emptiest] += hosts
        room[emptiest] -= n_pages
    of_set = {host: k for k, hosts in enumerate(named) for host in hosts}
    rest = ~np.isin(sizes.host_id, list(of_set))
    firsts = _firsts(sizes.host_id[rest], sizes.n_pages[rest], np.maximum(room, 0.0))
    return tuple(
        HostSet(
            first,
            end,
            tuple(sorted(h for h, of in of_set.items() if of != k and first <= h < end)),
            tuple(sorted(h for h in hosts if not first <= h < end)),
        )
        for k, (hosts, first, end) in enumerate(zip(named, firsts, firsts[1:], strict=False))
    )


def _placed(sizes: HostSizes, groups: Sequence[Ints], share: int) -> list[tuple[list[int], int]]:
    """Return groups, and hosts of at least a share, with their numbers of pages, largest first."""
    grouped = np.concatenate([np.zeros(0, np.int64), *groups])
    alone = (sizes.n_pages >= max(share, 1)) & ~np.isin(sizes.host_id, grouped)
    units = [*(hosts for hosts in groups if len(hosts) > 1), *sizes.host_id[alone, np.newaxis]]
    each = [(hosts.tolist(), _n_pages(sizes, hosts)) for hosts in units]
    return sorted(each, key=lambda unit: (-unit[1], unit[0]))


def _n_pages(sizes: HostSizes, hosts: Ints) -> int:
    at = np.minimum(sizes.host_id.searchsorted(hosts), len(sizes.host_id) - 1)
    return int(sizes.n_pages[at[sizes.host_id[at] == hosts]].sum()) if len(sizes.host_id) else 0


def _firsts(host_id: Ints, n_pages: Ints, room: Floats) -> list[int]:
    """Return the first host_id of each range, and the end of the last one, by the room of each.

    A set without room has an empty range.
    """
    before = np.cumsum(n_pages) - n_pages / 2
    share = np.cumsum(room)[:-1] / max(room.sum(), 1e-300) * n_pages.sum()
    starts = np.append(host_id, NO_END)[before.searchsorted(share)]
    has_room = np.flatnonzero(room > 0)
    if has_room.size:  # the ends of the ids belong to sets with room
        starts = np.where(np.arange(1, len(room)) <= has_room[0], 0, starts)
        starts = np.where(np.arange(1, len(room)) > has_room[-1], NO_END, starts)
    return [0, *starts.tolist(), NO_END]
