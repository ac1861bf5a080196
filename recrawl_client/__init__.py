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
from recrawl_client.values import (
    Crawl,
    Decision,
    Epoch,
    Leased,
    Observation,
    Page,
    Ping,
    Pinged,
    Registered,
    Rejection,
    Reported,
    ScheduledPage,
    SitemapChild,
    SitemapRead,
)

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
