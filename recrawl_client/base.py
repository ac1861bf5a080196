"""The base of `Client` and `AsyncClient`: everything except sending and waiting."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Unpack

import httpx

from recrawl_client import calls
from recrawl_client.calls import CrawlEvidence, PageName
from recrawl_client.flows import Call
from recrawl_client.patience import Patience, log_wait
from recrawl_client.wire.evidence import Observation

EXAMPLE = "http://127.0.0.1:8000"
"""Address at which a service listens by default."""
BATCH = 1_000
"""Default number of items of one request."""
TIMEOUT = httpx.Timeout(60.0, connect=5.0)
"""Timeouts of a request and of a connection, seconds; a request may wait 30 s at the service."""


LONGEST_WAIT_S = 30.0
"""Maximum wait of a request at the service, seconds."""


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def checked_address(url: str) -> str:
    """Return the address of a service; raise `ValueError` for one that cannot be asked.

    >>> checked_address("https://recrawl.example/under/a/path")
    'https://recrawl.example/under/a/path'
    """
    try:
        parsed = httpx.URL(url)
        usable = parsed.scheme in ("http", "https") and bool(parsed.host)
    except httpx.InvalidURL:
        usable = False
    if not usable:
        raise ValueError(f"{url!r} is no http:// or https:// address; use one like {EXAMPLE}")
    return url


class BaseClient:
    """Settings of a client; parameters as in `Client`."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        patience_s: float,
        batch: int,
        now: Callable[[], datetime],
        on_wait: Callable[[str], object] = log_wait,
    ) -> None:
        self.base_url = checked_address(base_url).rstrip("/")
        self.headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.patience_s = patience_s
        self.batch = batch
        self.now = now
        self.on_wait = on_wait
        self.is_away = False
        """True from the notice of an outage until the next answer."""

    def observation(self, page: PageName, **evidence: Unpack[CrawlEvidence]) -> Observation:
        """Return an observation of a page, for `report_many`.

        Parameters
        ----------
        observed_at
            Time at which the crawler sent its request; without it the start of the lease, or now
            for a page without a lease. A ping that is newer leads to another crawl.
        changed, digest
            True if the page has changed since its last crawl; any string that changes with the
            content.
        change_weight
            Weight of the change by a comparison of your own, 0 to 1; without it 1.
        status
            HTTP status, 0 for no answer. A status over 599 counts as 599.
        last_modified, etag, retry_after_s, redirect_url
            Values of the answer's headers: see the functions `last_modified`, `etag`,
            `retry_after` and `redirect_url`.
        bytes, seconds, price
            Cost of the crawl in the unit of the budget; `price` reads a price from an answer.
        note
            JSON of at most 1,024 bytes, which the next lease of the page returns.
        """
        return calls.observation(page, self.now, **evidence)

    def _patience(self, call: Call) -> Patience:
        what = f"{call.method} {self.base_url}{call.path}"
        return Patience(what, self.patience_s, self._notice)

    def _notice(self, notice: str) -> None:
        # because other calls meet the same outage
        if not self.is_away:
            self.is_away = True
            self.on_wait(notice)
