"""A client of Recrawl for crawlers: take crawls that are due, report their results.

The client needs httpx, msgspec and protego, and no part of the service.

    with Client("http://127.0.0.1:8000") as recrawl, recrawl.reporter() as reporter:
        for crawl in reporter.lease(count=20, wait_s=10).items:
            page = fetch(crawl.url)
            reporter.report(crawl, status=page.status, digest=page.digest)

While the service is busy, restarting or out of reach, every call repeats its request for up to
`patience_s`. Evidence that arrives twice counts once. `AsyncClient` has the same methods for
asyncio.
"""

from recrawl_client.acts import AuditFilters
from recrawl_client.async_client import AsyncClient
from recrawl_client.batches import AsyncBatches, Batches
from recrawl_client.calls import (
    ChangeFilters,
    CrawlEvidence,
    HostSettings,
    LeaseOptions,
    ScheduleFilters,
    SubscriptionOptions,
    WebhookOptions,
)
from recrawl_client.client import Client
from recrawl_client.collection import CopyName, GroupSettings, PageChanges, PageFilters
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
from recrawl_client.headers import (
    conditions,
    etag,
    last_modified,
    price,
    redirect_url,
    retry_after,
)
from recrawl_client.reporter import AsyncReporter, Reporter
from recrawl_client.robots import AsyncRobots, Robots
from recrawl_client.robots_flows import Entry
from recrawl_client.sending import AsyncSentAt, SentAt
from recrawl_client.wire.access import AuditItem
from recrawl_client.wire.changes import Change, ChangesAnswer
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
from recrawl_client.wire.freshness import Copy, FreshnessAnswer, Verdict
from recrawl_client.wire.history import HistoryRow
from recrawl_client.wire.hosts import GroupAnswer, HostAnswer, ListedHost
from recrawl_client.wire.leases import Crawl, Leased
from recrawl_client.wire.listing import BulkAnswer, ListedPage
from recrawl_client.wire.orders import BudgetAnswer
from recrawl_client.wire.pages import Page, PageAnswer, Registered
from recrawl_client.wire.plan import (
    BudgetPlan,
    PlanAnswer,
    PlannedHost,
    PlannedTag,
    StarvedPage,
)
from recrawl_client.wire.savings import ComparedStaleness, SavingsAnswer
from recrawl_client.wire.schedule import Epoch, ScheduledPage
from recrawl_client.wire.status import AcceptedNeed, Need, StatusAnswer
from recrawl_client.wire.url_groups import UrlGroupItem
from recrawl_client.wire.webhooks import ChangeEvent, CreatedWebhook, WebhookItem

__all__ = [
    "AcceptedNeed",
    "AsyncBatches",
    "AsyncClient",
    "AsyncReporter",
    "AsyncRobots",
    "AsyncSentAt",
    "AuditFilters",
    "AuditItem",
    "Batches",
    "BudgetAnswer",
    "BudgetPlan",
    "BulkAnswer",
    "Change",
    "ChangeEvent",
    "ChangeFilters",
    "ChangesAnswer",
    "Client",
    "ClientError",
    "ComparedStaleness",
    "Copy",
    "CopyName",
    "Crawl",
    "CrawlEvidence",
    "CreatedWebhook",
    "CursorExpired",
    "Decision",
    "Entry",
    "Epoch",
    "FreshnessAnswer",
    "GroupAnswer",
    "GroupSettings",
    "HistoryRow",
    "HostAnswer",
    "HostSettings",
    "LeaseNotHeld",
    "LeaseOptions",
    "Leased",
    "ListedHost",
    "ListedPage",
    "Need",
    "NotFound",
    "Observation",
    "Page",
    "PageAnswer",
    "PageChanges",
    "PageFilters",
    "Ping",
    "Pinged",
    "PlanAnswer",
    "PlannedHost",
    "PlannedTag",
    "Problem",
    "Refused",
    "Registered",
    "Rejected",
    "Rejection",
    "Reported",
    "Reporter",
    "Robots",
    "SavingsAnswer",
    "ScheduleFilters",
    "ScheduledPage",
    "SentAt",
    "SitemapChild",
    "SitemapRead",
    "StarvedPage",
    "StatusAnswer",
    "SubscriptionOptions",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "Undelivered",
    "UrlGroupItem",
    "Verdict",
    "WebhookItem",
    "WebhookOptions",
    "conditions",
    "etag",
    "last_modified",
    "price",
    "redirect_url",
    "retry_after",
]
