"""Filters of requests for leases: the contract, and the SQL that both databases share.

By them a host that no crawler asks for is known. A row stands for one filter, which many crawlers
may send. Each server writes the last request of each filter about once a minute (`status.asked`).
The names of its hosts are written once. Rows that nobody asks with for `KEPT` are deleted, and the
oldest ones beyond `MOST_ROWS`.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from service.storage.dialect import Dialect, Subject
from service.storage.queue.columns import LeaseFilter
from service.storage.queue.signs import Asked

KEPT = timedelta(days=7)
"""Time after its last request for which a filter is kept."""
MOST_ROWS = 200_000
"""Maximum number of filters and of names of their hosts, together."""
SINCE = "askers_since"
"""Name of the entry of `meta` with the time from which all requests are known."""


class Asker(NamedTuple):
    """The newest request of filters that name a host, or of those for all hosts."""

    host: str | None
    """None: filters for all hosts."""
    slice: int
    slices: int
    asked: Asked

    def takes(self, queue_id: int) -> bool:
        """Return whether a host queue is in the slice of the filters."""
        return abs(queue_id) % self.slices == self.slice


class Askers(NamedTuple):
    """The newest requests for hosts."""

    since: datetime | None
    """Time from which all requests are known; None: no request is."""
    each: Sequence[Asker]

    def newest(self, host: str, queue_id: int) -> Asked | None:
        """Return the newest request that may get pages of a host; None: none since `since`."""
        own = (one.asked for one in self.each if one.host in (None, host) and one.takes(queue_id))
        return max(own, default=None, key=lambda asked: asked.until)


class AskerStatements(Subject):
    """The part of a transaction that works on filters of requests for leases."""

    @abstractmethod
    def askers(self, hosts: Sequence[str]) -> Askers:
        """Return the newest requests for all hosts, and for each of `hosts`."""

    @abstractmethod
    def save_askers(self, requests: Iterable[tuple[LeaseFilter, Asked]]) -> None:
        """Write the last requests of filters at a server."""


def number_of(of: LeaseFilter) -> int:
    """Return the number of a filter, the same at all servers."""
    text = f"{of.slice} {of.slices} {' '.join(of.hosts)}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True)


SAVE_ASKER = """
INSERT INTO lease_filters (filter_id, slice, slices, n_hosts, asked_at, until_at)
VALUES (%(filter_id)s, %(slice)s, %(slices)s, %(n_hosts)s, %(asked_at)s, %(until_at)s)
ON CONFLICT (filter_id) DO UPDATE SET
    asked_at = {greatest}(lease_filters.asked_at, excluded.asked_at),
    until_at = {greatest}(lease_filters.until_at, excluded.until_at)
"""
ADD_HOSTS = """
INSERT INTO filtered_hosts (host, filter_id) SELECT value, %(filter_id)s FROM {names} WHERE true
ON CONFLICT DO NOTHING
"""
KNOWN = "SELECT filter_id FROM lease_filters WHERE filter_id IN (SELECT value FROM {ids})"
DROP_OLD = "DELETE FROM lease_filters WHERE asked_at < %(long_ago)s"
DROP_MOST = f"""
DELETE FROM lease_filters WHERE filter_id IN (
    SELECT filter_id FROM (
        SELECT filter_id, sum(n_hosts + 1) OVER (ORDER BY asked_at DESC, filter_id) AS n
        FROM lease_filters
    ) AS newest WHERE n > {MOST_ROWS}
)
"""
DROP_HOSTS = """
DELETE FROM filtered_hosts WHERE filter_id NOT IN (SELECT filter_id FROM lease_filters)
"""
OLDEST = "SELECT min(asked_at) AS asked_at FROM lease_filters"
ASKERS = """
SELECT NULL AS host, slice, slices, max(asked_at) AS asked_at, max(until_at) AS until_at
FROM lease_filters WHERE n_hosts = 0 GROUP BY slice, slices
UNION ALL
SELECT host, slice, slices, max(asked_at) AS asked_at, max(until_at) AS until_at
FROM filtered_hosts JOIN lease_filters ON lease_filters.filter_id = filtered_hosts.filter_id
WHERE host IN (SELECT value FROM {names}) GROUP BY host, slice, slices
"""


class AskersSql(Dialect, AskerStatements):
    """The statements on filters that Postgres and SQLite share."""

    @override
    def askers(self, hosts: Sequence[str]) -> Askers:
        since = self.get_meta(SINCE)
        rows = self.read(ASKERS, names=np.array(hosts, object))
        each = [Asker(row["host"], row["slice"], row["slices"], _asked(row)) for row in rows]
        return Askers(datetime.fromisoformat(since) if since else None, each)

    @override
    def save_askers(self, requests: Iterable[tuple[LeaseFilter, Asked]]) -> None:
        named = [(number_of(of), of, asked) for of, asked in requests]
        named.sort(key=lambda each: each[0])  # no two servers wait for each other
        stored = set(self.ids(KNOWN, ids=np.array([each[0] for each in named])).tolist())
        for number, of, (asked_at, until_at) in named:
            own = {"slice": of.slice, "slices": of.slices, "n_hosts": len(of.hosts)}
            times = {"asked_at": asked_at, "until_at": until_at}
            self.run(SAVE_ASKER, filter_id=number, **own, **times)
            if of.hosts and number not in stored:
                self.run(ADD_HOSTS, filter_id=number, names=np.array(of.hosts, object))
        if len(stored) < len(named):
            first_at, newest_at = (end(asked.at for *_, asked in named) for end in (min, max))
            self.add_meta(SINCE, first_at.isoformat())
            self._drop(newest_at - KEPT)

    def _drop(self, long_ago: datetime) -> None:
        """Delete old filters, and the oldest ones of too many."""
        n_old = self.run(DROP_OLD, long_ago=long_ago).rowcount
        if n_most := self.run(DROP_MOST).rowcount:
            (row,) = self.read(OLDEST)
            self.put_meta(SINCE, row["asked_at"].isoformat())
        if n_old or n_most:
            self.run(DROP_HOSTS)


def _asked(row: dict[str, Any]) -> Asked:
    return Asked(row["asked_at"], row["until_at"])
