"""Answers about incidents of hosts."""

from datetime import datetime
from typing import cast

from recrawl_client.wire.hosts import IncidentAnswer, IncidentKind
from service.model.incidents import SHOWN, Incident


def incident_answer(incident: Incident | None, now: datetime) -> IncidentAnswer | None:
    """Return an incident; None if there is none, or a day has ended it."""
    if incident is None or incident.until <= now:
        return None
    return IncidentAnswer(
        kind=cast("IncidentKind", incident.kind.name),
        since=incident.since,
        until=incident.until,
        n_pages=incident.n_pages,
    )


def incident_clause(host: str, incident: Incident) -> str:
    """Return the part of a sentence on an incident of a page's host."""
    # a name at the begin would get a capital where the clause begins a sentence
    return (
        f"the host {host} has an incident: {incident.n_pages} of its pages "
        f"{SHOWN[incident.kind]} since {incident.since:%Y-%m-%d %H:%M} UTC, which teaches nothing "
        "before "
        f"{incident.until:%Y-%m-%d %H:%M} UTC"
    )
