"""The wire format of change hours: the hours at which the pages of a host change."""

from msgspec import Struct

from recrawl_client.wire.common import Instant


class BusiestAnswer(Struct, frozen=True, kw_only=True):
    """Shortest stretch of a day that holds half of the changes."""

    start: float
    """Start of the stretch, hour of the day in UTC, 0 to 24."""
    end: float
    """End of the stretch, hour of the day in UTC; below `start` when midnight lies between."""
    share: float
    """Share of the changes between the two hours, 0 to 1."""


class ChangeHoursAnswer(Struct, frozen=True, kw_only=True):
    """The hours at which the pages of a host, or of one URL group, change, learnt from crawls."""

    weight: float
    """Probability that the pages change by the hour at all, 0 to 1."""
    busiest: BusiestAnswer
    """Busiest part of the day."""
    intensity: list[float]
    """Change rates in the 24 hours of a day in UTC, as factors on the mean change rate."""
    learnt_at: Instant
    """Instant until which crawls are part of the evidence."""
    url_group: str | None = None
    """Host and directory of the pages that keep these hours; null for all other pages of the
    host."""
