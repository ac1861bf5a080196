"""Examples of reports, pings, leases, sitemaps and subscriptions."""

from typing import Any

OBSERVATIONS: list[dict[str, Any]] = [
    {"url": "https://example.com/news", "observed_at": "2026-05-01T12:00:00Z", "digest": "5f3a9c"},
    {"url": "https://example.com/about", "observed_at": "2026-05-01T12:00:02Z", "changed": False},
    {"url": "https://example.com/old", "observed_at": "2026-05-01T12:00:04Z", "status": 404},
]
BATCH_ANSWER = {"accepted": 3, "duplicate": 0, "late": 0, "n_rejected": 0, "rejected": []}
OBSERVATIONS_ANSWER = {**BATCH_ANSWER, "leases_ended": 0}
LEASE = {"worker": "crawler-1", "count": 2, "ttl_s": 120, "wait_s": 5}
LEASES_ANSWER = {
    "items": [
        {
            "lease": "1-5f3a9c0b1d2e4f60",
            "page_id": 1,
            "url": "https://example.com/news",
            "host": "example.com",
            "reason": "due",
            "due_at": "2026-05-01T11:58:00Z",
            "last_crawl_at": "2026-05-01T05:58:00Z",
            "overdue": 1.0056,
            "expires_at": "2026-05-01T12:02:00Z",
        },
    ],
}
RUNNING_LEASES = {
    "items": [
        {
            "page_id": 1,
            "url": "https://example.com/news",
            "host": "example.com",
            "worker": "crawler-1",
            "requested": False,
            "leased_at": "2026-05-01T12:00:00Z",
            "expires_at": "2026-05-01T12:02:00Z",
        },
    ],
    "next_cursor": None,
}
LEASE_PATCH = {"ttl_s": 600}
LEASE_ANSWER = {
    "lease": "1-5f3a9c0b1d2e4f60",
    "page_id": 1,
    "expires_at": "2026-05-01T12:10:00Z",
}
PINGS: list[dict[str, Any]] = [
    {"url": "https://example.com/about", "changed_at": "2026-05-01T12:30:00Z"}
]
PINGS_ANSWER = {
    "accepted": 1,
    "duplicate": 0,
    "late": 0,
    "n_rejected": 0,
    "rejected": [],
    "decisions": [{"index": 0, "page_id": 2, "crawl": True, "reason": "credit"}],
}
INDEXNOW = {
    "host": "example.com",
    "key": "0123abcd-4567-ef89",
    "urlList": ["https://example.com/news", "https://example.com/about"],
}
INDEXNOW_ANSWER = {"status": "taken", "n_urls": 2, "n_taken": 2}
INDEXNOW_PENDING = {"status": "pending", "n_urls": 2, "n_taken": 0}
SITEMAP = """<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
  <url><loc>https://example.com/news</loc><lastmod>2026-05-01T12:30:00Z</lastmod></url>
  <url><loc>https://example.com/imprint</loc></url>
</urlset>
"""
SITEMAP_URL = "https://example.com/sitemap.xml"
SITEMAP_ANSWER = {
    "accepted": 2,
    "duplicate": 0,
    "late": 0,
    "n_rejected": 0,
    "rejected": [],
    "kind": "urlset",
    "created": 1,
    "n_crawl_now": 1,
    "children": [],
    "warnings": [],
    "complete": True,
}
SUBSCRIPTION = {
    "topic": "https://example.com/feed",
    "hub": "https://hub.example.net/",
    "secret": "a-long-random-word",
}
SUBSCRIPTION_ID = "Xq3vTn0aQ5mZk8rYb1sLpA"
SUBSCRIPTION_ANSWER = {"id": SUBSCRIPTION_ID, "callback": f"/websub/{SUBSCRIPTION_ID}"}
SUBSCRIPTIONS_ANSWER = {
    "items": [
        {
            **SUBSCRIPTION_ANSWER,
            "topic": "https://example.com/feed",
            "hub": "https://hub.example.net/",
            "signed": True,
            "requested_at": "2026-05-01T12:00:00Z",
            "verified_at": "2026-05-01T12:00:02Z",
            "expires_at": "2026-05-11T12:00:02Z",
        },
    ],
    "next_cursor": "kqd3ZWJzdWIxtlhxM3ZUbjBhUTVtWms4clliMXNMcEE",
}
FEED = """<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom">
  <entry><link href="https://example.com/news"/><updated>2026-05-01T12:30:00Z</updated></entry>
</feed>
"""
