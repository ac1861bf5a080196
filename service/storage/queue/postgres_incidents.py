"""Incidents of hosts in the SQL of Postgres."""

from typing_extensions import override

from service.model.arrays import INSTANT
from service.model.incidents import HostIncidents
from service.storage.postgres.dialect import PostgresDialect
from service.storage.postgres.words import given
from service.storage.queue.incidents import COLUMN_OF, WRITTEN, IncidentsSql


def _assignment(name: str) -> str:
    """Return the assignment that writes a column of an incident; -infinity becomes NULL."""
    value = f"given.{name}"
    return f"{name} = " + (f"nullif({value}, '-infinity')" if COLUMN_OF[name] == INSTANT else value)


SAVE_INCIDENTS = f"""
UPDATE host_incidents SET {", ".join(map(_assignment, WRITTEN))}
FROM {given(*COLUMN_OF)} WHERE host_incidents.host_id = given.host_id
"""


class PostgresIncidents(IncidentsSql, PostgresDialect):
    """The incidents of hosts in the SQL of Postgres."""

    @override
    def has_incidents(self) -> bool:
        self.number_in_force()
        return self.any_incidents

    @override
    def save_incidents(self, incidents: HostIncidents) -> None:
        if len(incidents):
            self.later(SAVE_INCIDENTS, **incidents.arrays())
