"""Windows of hosts in a watch: what the service answers, and what waits for an opening."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

from recrawl_client import Client, Refused
from service.model.errors import SitemapNotFetched
from service.model.words import moment

VALID_S = 60.0
"""Maximum time for which an answer about a host is valid, seconds."""

NO_RULES = (403, 404, 422)
"""Statuses for a host that the key may not name, and for a name that is none."""


class HostClosed(SitemapNotFetched):
    """The windows of the host are closed."""

    def __init__(self, opens_at: datetime | None) -> None:
        until = "for more than a year" if opens_at is None else f"until {moment(opens_at)}"
        super().__init__(f"window closed {until}")
        self.opens_at = opens_at


class HostHours(NamedTuple):
    """The answer of the service about a host."""

    is_open: bool
    opens_at: datetime | None
    valid_until: float
    """Time of the next question, seconds of the watch's clock."""


class WatchHours:
    """Open hours of the hosts of a watch, and documents that wait for them."""

    def __init__(
        self, client: Client, clock: Callable[[], float], now: Callable[[], datetime]
    ) -> None:
        self.client, self.clock, self.now = client, clock, now
        self._hosts: dict[str, HostHours] = {}
        self._waiting: dict[str, float] = {}
        """Documents of closed hosts, and when these open, seconds of the clock."""

    def check(self, host: str) -> None:
        """Raise `HostClosed` unless a host may be read now."""
        hours = self._hosts.get(host)
        if hours is None or hours.valid_until <= self.clock():
            hours = self._hosts[host] = self._ask(host)
        if not hours.is_open:
            raise HostClosed(hours.opens_at)

    def _ask(self, host: str) -> HostHours:
        try:
            hours = self.client.open_hours(host)
        except Refused as error:
            if error.status not in NO_RULES:
                raise
            return HostHours(is_open=True, opens_at=None, valid_until=self.clock() + VALID_S)
        edge, valid_s = hours.opens_at or hours.closes_at, VALID_S
        if edge is not None:
            valid_s = min(valid_s, max(self._wait_s(edge), 0.0))
        return HostHours(hours.is_open, hours.opens_at, self.clock() + valid_s)

    def put_off(self, url: str, opens_at: datetime | None) -> None:
        """Note that a document waits for an opening."""
        if opens_at is not None:
            self._waiting[url] = self.clock() + max(self._wait_s(opens_at), 0.0)

    def openings(self, end: float) -> Iterator[tuple[float, list[str]]]:
        """Yield openings before an instant of the clock, and the documents that waited for them."""
        while (at := min(self._waiting.values(), default=end)) < end:
            urls = [url for url, opens_at in self._waiting.items() if opens_at <= at]
            for url in urls:
                del self._waiting[url]
            yield at, urls

    def _wait_s(self, at: datetime) -> float:
        return (at - self.now()).total_seconds()
