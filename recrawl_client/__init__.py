"""A client of Recrawl for crawlers: take crawls that are due, report what was seen.

It needs httpx and msgspec and nothing of the service.

    with Client("http://127.0.0.1:8000") as recrawl, recrawl.reporter() as reporter:
        for crawl in recrawl.lease(count=20, wait_s=10).items:
            page = fetch(crawl.url)
            reporter.report(crawl, status=page.status, digest=page.digest)

Every call waits, for as long as `patience_s`, while the service is busy, restarting or out of
reach, and then sends again: whatever arrives twice counts once.
"""

from recrawl_client.batches import Batches
from recrawl_client.calls import last_modified, retry_after
from recrawl_client.client import Client
from recrawl_client.errors import (
    ClientError,
    CursorExpired,
    LeaseNotHeld,
    NotFound,
    Refused,
    Rejected,
    TooLarge,
    Unauthorized,
    Unavailable,
    Undelivered,
)
from recrawl_client.reporter import Reporter
from recrawl_client.wire.common import Problem, Rejection
from recrawl_client.wire.evidence import (
    Decision,
    Observation,
    Ping,
    Pinged,
    Reported,
    SitemapChild,
    SitemapRead,
)
from recrawl_client.wire.leases import Crawl, Leased
from recrawl_client.wire.pages import Page, Registered
from recrawl_client.wire.schedule import Epoch, ScheduledPage

__all__ = [
    "Batches",
    "Client",
    "ClientError",
    "Crawl",
    "CursorExpired",
    "Decision",
    "Epoch",
    "LeaseNotHeld",
    "Leased",
    "NotFound",
    "Observation",
    "Page",
    "Ping",
    "Pinged",
    "Problem",
    "Refused",
    "Registered",
    "Rejected",
    "Rejection",
    "Reported",
    "Reporter",
    "ScheduledPage",
    "SitemapChild",
    "SitemapRead",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "Undelivered",
    "last_modified",
    "retry_after",
]
