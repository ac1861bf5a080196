"""Caps of host queues by day in the store: the contract, and the SQL that both databases share.

A host queue with a cap has a row with its crawls of a UTC day. So has a host with a cap of its own
inside a group, under the id of the host. Only the holder of the host queue's lock reads and writes
the rows, for a group those of its hosts too.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from typing_extensions import override

from service.model.arrays import COLUMN, Columns, Floats, Ints
from service.storage.dialect import Dialect, Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class CappedDays(Columns):
    """(N,) host queues with a cap by ascending queue_id, and what they took on a day."""

    queue_id: Ints
    """Id of a host, or minus the id of a group."""
    max_crawl_rate: Floats
    """Cap, crawls a day."""
    first_share: Floats
    """Maximum share of the cap for first crawls; NaN: that of the settings."""
    day: Ints
    """Days from 1970 to the day UTC of the counts; `NO_DAY`: none yet."""
    n_crawls: Floats
    """Crawls of the day."""
    n_first: Floats
    """Crawls of the day that were the first of their page."""
    carried: Floats
    """Part of a crawl that the day before left to the day."""


NO_DAY = -1


class CapStatements(Subject):
    """The statements on caps by day."""

    @abstractmethod
    def ask_capped(self, queue_id: Ints) -> Callable[[], CappedDays]:
        """Return a function that returns those of these host queues that have a cap.

        Hosts in groups are left out, because their host queue is that of the group. A store can
        send the question with its next statement.
        """

    @abstractmethod
    def capped_members(self, host_id: Ints) -> CappedDays:
        """Return those of these hosts that are in a group and have a cap of their own."""

    @abstractmethod
    def save_capped(self, days: CappedDays) -> None:
        """Write the counts of host queues."""


DAYS = """
SELECT caps.queue_id, max_crawl_rate, first_share, coalesce(day, -1) AS day,
    coalesce(n_crawls, 0.0) AS n_crawls, coalesce(n_first, 0.0) AS n_first,
    coalesce(carried, 0.0) AS carried
FROM ({caps}) AS caps LEFT JOIN crawl_days ON crawl_days.queue_id = caps.queue_id
ORDER BY caps.queue_id
"""
CAPPED = """
    SELECT host_id AS queue_id, max_crawl_rate, first_share FROM hosts
    WHERE host_id IN (SELECT value FROM {ids}) AND max_crawl_rate IS NOT NULL AND group_id IS NULL
    UNION ALL
    SELECT -group_id, max_crawl_rate, NULL FROM host_groups
    WHERE group_id IN (SELECT -value FROM {ids}) AND max_crawl_rate IS NOT NULL
"""
MEMBERS = """
    SELECT host_id AS queue_id, max_crawl_rate, first_share FROM hosts
    WHERE host_id IN (SELECT value FROM {ids}) AND max_crawl_rate IS NOT NULL
        AND group_id IS NOT NULL
"""
CAPPED_DAYS, MEMBER_DAYS = DAYS.replace("{caps}", CAPPED), DAYS.replace("{caps}", MEMBERS)
COUNTS_OF_DAY = ("queue_id", "day", "n_crawls", "n_first", "carried")
SAVE_DAYS = f"""
INSERT INTO crawl_days ({", ".join(COUNTS_OF_DAY)}) {{rows}}
ON CONFLICT (queue_id) DO UPDATE SET day = excluded.day, n_crawls = excluded.n_crawls,
    n_first = excluded.n_first, carried = excluded.carried
"""


KINDS = {field.name: COLUMN[field.type] for field in fields(CappedDays)}
"""Type of each column."""
NO_DAYS = CappedDays.empty()


def capped_days(rows: Iterable[Any]) -> CappedDays:
    """Return the rows of a statement as columns."""
    cells = list(zip(*rows, strict=True))
    if not cells:  # most leases
        return NO_DAYS
    columns: dict[str, Any] = {
        name: np.array(column, kind)
        for (name, kind), column in zip(KINDS.items(), cells, strict=True)
    }
    return CappedDays(**columns)


class CapsSql(Dialect, CapStatements):
    """The statements on caps by day that Postgres and SQLite share."""

    @override
    def ask_capped(self, queue_id: Ints) -> Callable[[], CappedDays]:
        days = capped_days(self.run(CAPPED_DAYS, ids=queue_id))
        return lambda: days

    @override
    def capped_members(self, host_id: Ints) -> CappedDays:
        return capped_days(self.run(MEMBER_DAYS, ids=host_id))
