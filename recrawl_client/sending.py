"""The time at which a request of httpx leaves, as its `trace` extension shows it.

A process may stand still between a look at the clock and the socket. Its host's next page would
come too early after a request that is dated too early. One dated after it left would hide changes.
So a request is dated before it leaves, and not at all if it may have left much later.
"""

import time
from collections.abc import Callable
from datetime import datetime

from recrawl_client.base import utc_now

PRECISION_S = 0.02
"""Longest time between the date and the end of the sending, seconds."""


class SentAt:
    """The time at which a request leaves; each further request replaces it.

    Without a date, leave `observed_at` out of the report: the service then takes the start of the
    lease, and counts the delay of the host from the report.

        sent_at = SentAt()
        response = web.get(crawl.url, extensions={"trace": sent_at})
        reporter.report(crawl, observed_at=sent_at.value, status=response.status_code)
    """

    def __init__(
        self,
        now: Callable[[], datetime] = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.now = now
        self.monotonic = monotonic
        self._began_s = 0.0
        self._date: datetime | None = None
        self.value: datetime | None = None
        """Time at which the request left; None: none has left, or nobody knows when."""

    def __call__(self, step: str, info: object) -> None:  # noqa: ARG002 - a signature of httpx
        """Note a step of the request."""
        if step.endswith("send_request_headers.started"):
            # the date may lie after this look at the clock, and never before it
            self._began_s, self._date, self.value = self.monotonic(), self.now(), None
        elif step.endswith("send_request_headers.complete"):
            in_time = self.monotonic() - self._began_s <= PRECISION_S
            self.value = self._date if in_time else None


class AsyncSentAt(SentAt):
    """The same for `httpx.AsyncClient`."""

    async def __call__(self, step: str, info: object) -> None:  # type: ignore[override]
        """Note a step of the request."""
        super().__call__(step, info)
