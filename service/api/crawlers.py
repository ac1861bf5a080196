"""Signs of crawlers at this server: requests for leases, and reports."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(slots=True)
class CrawlerWatch:
    """The newest sign of a crawler."""

    since: datetime
    """Begin of the server."""
    seen_at: datetime | None = None
    """Time of the newest sign; None: none yet."""

    def saw(self, now: datetime) -> None:
        """Note a request of a crawler; from any thread."""
        self.seen_at = now
