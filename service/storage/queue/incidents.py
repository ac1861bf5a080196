"""Incidents of hosts: the contract, and the SQL that both databases share.

A host has a row only while it is under suspicion or has had an incident, so the table is small.
**Locks.** Rows are locked after the states of pages and the rows of the queue, and before host
queues, by ascending host_id.
"""

from abc import abstractmethod
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from typing_extensions import override

from service.model.arrays import INSTANT, NO_TIME, Ints, element_types, instant
from service.model.incidents import LONGEST, WITHIN, HostIncidents, Incident, Sign
from service.storage.dialect import Dialect, Subject

MOST_LOOKED_AT = 20_000
"""Maximum number of a host's pages among which `crawled_between` counts."""
KEPT = timedelta(days=30)
"""Time after which the last incident of a host that is no longer crawled is forgotten."""


class IncidentStatements(Subject):
    """The part of a transaction that works on incidents of hosts."""

    @abstractmethod
    def has_incidents(self) -> bool:
        """Return whether any host has a row; on Postgres the answer comes with the epoch."""

    @abstractmethod
    def lock_incidents(self, host_id: Ints, suspected: Ints) -> HostIncidents:
        """Lock the rows of hosts (ascending, unique), and return those that exist.

        The `suspected` ones of the hosts get an empty row if they have none.
        """

    @abstractmethod
    def save_incidents(self, incidents: HostIncidents) -> None:
        """Write locked rows."""

    @abstractmethod
    def drop_incidents(self, host_id: Ints) -> None:
        """Delete the rows of hosts."""

    @abstractmethod
    def crawled_between(
        self, host_id: int, after: datetime, before: datetime, without: Ints
    ) -> int:
        """Return the number of pages of a host whose last crawl lies in after <= t < before.

        The pages `without` do not count, and at most `MOST_LOOKED_AT` pages are looked at.
        """

    @abstractmethod
    def gone_since(self, host_id: int, since: datetime) -> Ints:
        """Return the gone pages of a host that were not found absent before `since`, ascending."""

    @abstractmethod
    def incident_of(self, host_id: int) -> Incident | None:
        """Return the last incident of a host that no content has ended."""

    @abstractmethod
    def incidents_in_force(self, now: datetime, limit: int) -> list[tuple[str, Incident]]:
        """Return the incidents in force with their hosts, at most `limit`, the largest first."""

    @abstractmethod
    def forget_incidents(self, now: datetime) -> None:
        """Delete old rows of hosts that no crawl has reached since, without waiting for locks."""


COLUMN_OF = element_types(HostIncidents)
"""Element type of each column of a row; instants are NULL where they are NaT."""
WRITTEN = tuple(name for name in COLUMN_OF if name != "host_id")

SUSPECT = """
INSERT INTO host_incidents (host_id) SELECT value FROM {ids} WHERE true
ORDER BY value ON CONFLICT DO NOTHING
"""
LOCK_INCIDENTS = f"""
SELECT {", ".join(COLUMN_OF)} FROM host_incidents WHERE host_id IN (SELECT value FROM {{ids}})
ORDER BY host_id {{lock_rows}}
"""
DROP_INCIDENTS = "DELETE FROM host_incidents WHERE host_id IN (SELECT value FROM {ids})"
CRAWLED_BETWEEN = f"""
SELECT count(*) FROM (
    SELECT page_id FROM pages WHERE host_id = %(host_id)s LIMIT {MOST_LOOKED_AT}
) AS of_host
JOIN page_states ON page_states.page_id = of_host.page_id
WHERE last_crawl_at >= %(after)s AND last_crawl_at < %(before)s
    AND of_host.page_id NOT IN (SELECT value FROM {{ids}})
"""
GONE_SINCE = """
SELECT pages.page_id FROM pages JOIN page_states ON page_states.page_id = pages.page_id
WHERE pages.host_id = %(host_id)s AND gone AND absent_since >= %(since)s ORDER BY pages.page_id
"""
IS_OPEN = f"host_incidents.kind <> {Sign.none.value} AND host_incidents.ended_at IS NULL"
"""Condition of an incident that no content has ended."""
INCIDENT_OF = f"""
SELECT kind, since, n_pages FROM host_incidents WHERE host_id = %(host_id)s AND {IS_OPEN}
"""
IN_FORCE = f"""
SELECT hosts.host, kind, since, host_incidents.n_pages
FROM host_incidents CROSS JOIN hosts
WHERE hosts.host_id = host_incidents.host_id AND {IS_OPEN} AND since > %(day_ago)s
ORDER BY host_incidents.n_pages DESC, hosts.host LIMIT %(limit)s
"""
"""Statement that reads hosts by their ids: SQLite keeps the order of a CROSS JOIN."""
FORGET_INCIDENTS = f"""
DELETE FROM host_incidents WHERE host_id IN (
    SELECT host_id FROM host_incidents WHERE (opened_at IS NULL OR opened_at < %(hour_ago)s)
        AND (kind = {Sign.none.value} OR since < %(long_ago)s)
    ORDER BY host_id {{lock_free_rows}}
)
"""


class IncidentsSql(Dialect, IncidentStatements):
    """The statements on incidents that Postgres and SQLite share."""

    @override
    def lock_incidents(self, host_id: Ints, suspected: Ints) -> HostIncidents:
        # First the new rows, because a transaction that waits for the new row of another one must
        # hold no old row.
        if len(suspected):
            self.run(SUSPECT, ids=suspected)
        return _columns(self.read(LOCK_INCIDENTS, ids=host_id))

    @override
    def drop_incidents(self, host_id: Ints) -> None:
        if len(host_id):
            self.run(DROP_INCIDENTS, ids=host_id)

    @override
    def crawled_between(
        self, host_id: int, after: datetime, before: datetime, without: Ints
    ) -> int:
        between = {"host_id": host_id, "after": after, "before": before}
        return int(self.scalar(CRAWLED_BETWEEN, **between, ids=without))

    @override
    def gone_since(self, host_id: int, since: datetime) -> Ints:
        return self.ids(GONE_SINCE, host_id=host_id, since=since)

    @override
    def incident_of(self, host_id: int) -> Incident | None:
        for row in self.read(INCIDENT_OF, host_id=host_id):
            return incident_in(row)
        return None

    @override
    def incidents_in_force(self, now: datetime, limit: int) -> list[tuple[str, Incident]]:
        rows = self.read(IN_FORCE, day_ago=now - LONGEST, limit=limit)
        return [(row["host"], incident_in(row)) for row in rows]

    @override
    def forget_incidents(self, now: datetime) -> None:
        self.run(FORGET_INCIDENTS, hour_ago=now - WITHIN, long_ago=now - KEPT)


def new_incidents(host_id: Ints) -> HostIncidents:
    """Return empty rows of hosts."""
    n = len(host_id)
    columns: dict[str, Any] = {
        name: np.full(n, NO_TIME) if dtype == INSTANT else np.zeros(n, dtype)
        for name, dtype in COLUMN_OF.items()
    }
    return HostIncidents(**columns | {"host_id": host_id, "n_before": np.full(n, -1)})


def incident_in(row: dict[str, Any]) -> Incident:
    """Return the incident in a row with its kind, begin and number of pages."""
    return Incident(Sign(row["kind"]), row["since"], row["n_pages"])


def _columns(rows: list[dict[str, Any]]) -> HostIncidents:
    columns: dict[str, Any] = {}
    for name, dtype in COLUMN_OF.items():
        cells = [row[name] for row in rows]
        if dtype == INSTANT:
            cells = [NO_TIME if cell is None else instant(cell) for cell in cells]
        columns[name] = np.array(cells, dtype)
    return HostIncidents(**columns)
