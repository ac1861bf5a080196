"""Digests that pages of hosts have begun to show of late, in constant memory of one process.

A second page of a host that begins to show the same digest within an hour is a reason to doubt
it (`ingest.incidents`). A look-up in the database for each change would cost more than the change
itself. Therefore each process remembers its own reports. A place of the memory has one pair of host
and digest, which a later pair with the same place replaces. A forgotten pair is one doubt less.
"""

import threading
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import NO_TIME, Bools, Columns, Instants, Ints

BITS = 16
"""Logarithm of the number of places, which take 4.7 MB together."""
N_NAMED = 4
"""Number of pages whose ids a place has, so that none of them counts twice.

A page may change back and forth between a few digests. One of more pages than these counts again.
"""
WITHIN = np.timedelta64(1, "h")
"""Maximum time between two pages that begin to show the same digest."""
SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""Odd number near 2^64 / golden ratio, which spreads ids over all bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDigests(Columns):
    """(N,) crawls that found a new digest."""

    host_id: Ints
    page_id: Ints
    digest: Ints
    digest_before: Ints
    """Digest that the page had before."""
    at: Instants


class Shared(NamedTuple):
    """(N,) what other pages of the host have shown, for each new digest."""

    is_shared: Bools
    """True if another page began to show the digest within an hour, too."""
    is_doubtful: Bools
    """True if this is no change of twins, so that the crawl is doubtful."""
    n: Ints
    """Number of the other pages so far."""
    digest_before: Ints
    """Digest that the first page had before."""
    since: Ints
    """Time at which the first page began to show it, microseconds since 1970."""

    @classmethod
    def none(cls, n: int) -> "Shared":
        """Return that nothing is shared."""
        no, zero = np.zeros((2, n), np.bool_), np.zeros((3, n), np.int64)
        return cls(*no, *zero)

    def take(self, row: Ints) -> "Shared":
        """Return the rows of an index array."""
        return Shared(
            self.is_shared[row],
            self.is_doubtful[row],
            self.n[row],
            self.digest_before[row],
            self.since[row],
        )


class RecentDigests:
    """The memory of one process, for 2^bits pairs of host and digest."""

    def __init__(self, bits: int = BITS) -> None:
        self._shift = np.uint64(64 - bits)
        self._turn = threading.Lock()
        self._key = np.zeros(1 << bits, np.uint64)
        self._before, self._n, self._since = np.zeros((3, 1 << bits), np.int64)
        self._page_ids = np.zeros((1 << bits, N_NAMED), np.int64)
        self._at = np.full(1 << bits, NO_TIME)

    def add(self, new: NewDigests) -> Shared | None:
        """Remember new digests, and return which of them pages share; None: no two pages share one.

        Pages that had the same digest before are twins, such as two addresses of one document. That
        they change together is no reason to doubt.
        """
        key = new.digest.view(np.uint64) ^ (new.host_id.view(np.uint64) * SPREAD)
        with self._turn:
            if self._adds_apart(key, new):
                return None
            order = np.lexsort((new.page_id, new.at, key))
            shared = self._add(key[order], new.take(order))
        answer = Shared.none(len(new))
        for column, values in zip(answer, shared, strict=True):
            column[order] = values
        return answer

    def _adds_apart(self, key: NDArray[np.uint64], new: NewDigests) -> bool:
        """Remember digests that no two pages share, as in nearly every batch; return whether."""
        place = self._place(key)
        ordered = np.sort(key)
        if (self._key[place] == key).any() or (ordered[1:] == ordered[:-1]).any():
            return False
        self._key[place], self._page_ids[place, 0] = key, new.page_id
        self._before[place], self._at[place] = new.digest_before, new.at
        self._since[place] = new.at.view(np.int64)
        self._n[place] = 1
        return True

    def _place(self, key: NDArray[np.uint64]) -> Ints:
        return ((key * SPREAD) >> self._shift).astype(np.int64)

    def _add(self, key: NDArray[np.uint64], new: NewDigests) -> Shared:
        """Return what is shared among digests by key and time."""
        opens = np.ones(len(key), np.bool_)
        opens[1:] = (key[1:] != key[:-1]) | (new.at[1:] - new.at[:-1] > WITHIN)
        first, group = np.flatnonzero(opens), np.cumsum(opens) - 1
        last = np.append(first[1:], len(key)) - 1
        place = self._place(key[first])
        gap = np.abs(new.at[first] - self._at[place])
        is_stored = (self._key[place] == key[first]) & (gap <= WITHIN)
        before = np.where(is_stored, self._before[place], new.digest_before[first])
        page_id = np.where(is_stored, self._page_ids[place, 0], new.page_id[first])
        n_before = np.where(is_stored, self._n[place], 0)
        since = np.where(is_stored, self._since[place], new.at[first].view(np.int64))
        is_first = self._begins(new.page_id, group, place, n_before)
        n_pages = n_before[group] + _running(is_first, first, group)
        stays = _last_of_each(place)  # of several groups at one place the last one stays
        named = is_first & stays[group]
        self._name_pages(new.page_id[named], place[group[named]], n_pages[named] - 1)
        at = place[stays]
        self._key[at], self._before[at] = key[first][stays], before[stays]
        self._at[at], self._n[at] = new.at[last][stays], n_pages[last][stays]
        self._since[at] = since[stays]
        other = new.page_id != page_id[group]
        stranger = other & (new.digest_before != before[group])
        n_strangers = np.bincount(group, stranger & is_first)
        # in a batch the first page is doubtful too, and its twins where strangers are as many
        all_of_them = ~is_stored & (n_strangers > 0) & (2 * n_strangers >= n_pages[last] - 1)
        return Shared(
            is_shared=(n_pages[last] > 1)[group],
            is_doubtful=stranger | all_of_them[group],
            n=n_pages - 1,
            digest_before=before[group],
            since=since[group],
        )

    def _begins(self, page_id: Ints, group: Ints, place: Ints, n_before: Ints) -> Bools:
        """Return which rows are the first of their page with a digest, by group and time."""
        is_named = np.arange(N_NAMED) < n_before[group][:, np.newaxis]
        is_named &= self._page_ids[place[group]] == page_id[:, np.newaxis]
        is_first = ~np.asarray(is_named.any(axis=1))
        order = np.lexsort((page_id, group))  # a stable order: rows of a page stay by time
        again = np.zeros(len(order), np.bool_)
        again[1:] = (np.diff(group[order]) == 0) & (np.diff(page_id[order]) == 0)
        is_first[order[again]] = False
        return is_first

    def _name_pages(self, page_id: Ints, place: Ints, number: Ints) -> None:
        """Remember pages at their numbers, if there is room."""
        has_room = number < N_NAMED
        self._page_ids[place[has_room], number[has_room]] = page_id[has_room]


def _last_of_each(place: Ints) -> Bools:
    """Return which elements are the last ones with their value."""
    stays = np.zeros(len(place), np.bool_)
    _, back = np.unique(place[::-1], return_index=True)
    stays[len(place) - 1 - back] = True
    return stays


def _running(mask: Bools, first: Ints, group: Ints) -> Ints:
    """Return how many rows of a mask each group has so far, this row too."""
    total = np.cumsum(mask)
    return total - (total[first] - mask[first])[group]
