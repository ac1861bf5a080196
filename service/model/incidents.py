"""Incidents of hosts: most pages of a host show the same sign within an hour."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import NamedTuple

from service.model.arrays import Codes, Columns, Instants, Ints


class Sign(IntEnum):
    """The sign that most pages of a host show in an incident."""

    none = 0
    absent = 1
    """Pages that answered before are gone."""
    refused = 2
    """The site refuses pages."""
    alike = 3
    """Pages with different contents show one new digest."""
    moved = 4
    """Pages that answered before redirect for good to other addresses."""


SHOWN = {
    Sign.absent: "are absent",
    Sign.refused: "are refused",
    Sign.alike: "have the same new content",
    Sign.moved: "have moved to other addresses",
}
"""Verb of a sentence on the pages of a host, by what they show."""
WITHIN = timedelta(hours=1)
"""Time within which the pages of an incident show its sign."""
LONGEST = timedelta(days=1)
"""Maximum duration of an incident. After it, what the pages show is taken as it is."""


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident of a host."""

    kind: Sign
    since: datetime
    """Time of the first crawl that showed the sign, of `alike` with the digest of the incident."""
    n_pages: int
    """Number of pages that have shown the sign."""

    @property
    def until(self) -> datetime:
        """Time at which the incident ends at the latest."""
        return self.since + LONGEST


class EndedIncident(NamedTuple):
    """An incident of absent or moved pages that content, or an operator, has ended."""

    host_id: int
    since: datetime
    """Time since which no page, or hardly any, had content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostIncidents(Columns):
    """(H,) hosts under suspicion or with an incident, by ascending host_id.

    The counts are those of an hour, which begins with the first sign. They count pages, each by its
    last crawl in the hour.
    """

    host_id: Ints
    opened_at: Instants
    """Start of the hour; NaT: no hour runs."""
    n_crawled: Ints
    """Pages that were crawled in the hour."""
    n_absent: Ints
    n_refused: Ints
    n_alike: Ints
    n_moved: Ints
    digest: Ints
    """Digest that pages of the hour, or of the incident, have in common; 0: none."""
    digest_before: Ints
    """Digest that the first of these pages had before; 0: none."""
    n_before: Ints
    """Pages that were crawled only before the hour, in the hour until `counted_at`; -1: not
    counted."""
    counted_at: Instants
    kind: Codes
    """`Sign` of the last incident; 0: none."""
    since: Instants
    """First crawl that showed the sign of the last incident."""
    shown_at: Instants
    """Time of the newest crawl that showed the sign of the last incident."""
    ended_at: Instants
    """End of the last incident; NaT: in force."""
    n_pages: Ints
    """Pages that have shown the sign of the last incident."""
    absent_at: Instants
    """First crawl of the hour that showed its page newly absent; NaT: none."""
    refused_at: Instants
    """The same for refused pages."""
    alike_at: Instants
    """The same for pages with `digest`; this crawl may have come before the hour."""
    moved_at: Instants
    """The same for pages that have newly moved."""
    no_content_since: Instants
    """First crawl since the last content of any page that showed its page newly absent or moved;
    NaT: none."""
