"""Examples of pages, their logs and verdicts."""

from typing import Any

PAGES: list[dict[str, Any]] = [
    {"url": "https://example.com/news", "importance": 10.0},
    {"url": "https://example.com/about", "observability": "complete"},
]
PAGES_ANSWER = {
    "accepted": 2,
    "duplicate": 0,
    "late": 0,
    "n_rejected": 0,
    "rejected": [],
    "created": 2,
    "page_ids": [1, 2],
}
PATCH = {"importance": 25.0, "max_crawl_rate": 24.0, "add_tags": ["news"]}
BULK_PATCH = {"importance": 5.0, "add_tags": ["archive"]}
BULK_ANSWER = {
    "dry_run": False,
    "matched": 1_200,
    "changed": 1_180,
    "n_rejected": 0,
    "rejected": [],
    "next_cursor": None,
}
RECRAWL: dict[str, Any] = {"urls": ["https://example.com/news"]}
LISTED_PAGE = {
    "page_id": 1,
    "url": "https://example.com/news",
    "state": "active",
    "tags": ["news"],
    "importance": 10.0,
    "observability": "auto",
    "min_crawl_rate": None,
    "max_crawl_rate": 24.0,
    "change_rate": 0.31,
    "crawl_rate": 0.42,
    "n_observations": 12,
    "n_changes": 5,
    "created_at": "2026-04-01T08:00:00Z",
    "last_crawl_at": "2026-05-01T12:00:00Z",
    "next_crawl_at": "2026-05-03T21:14:07Z",
}
LISTED_PAGES_ANSWER = {
    "items": [LISTED_PAGE],
    "count": 1_200,
    "count_is": "exact",
    "next_cursor": "kqZwYWdlczEB",
}
COPIES: list[dict[str, Any]] = [
    {"url": "https://example.com/news", "fetched_at": "2026-05-01T06:00:00Z", "max_stale": 0.2},
    {"url": "https://example.com/about"},
]
FRESHNESS_ANSWER = {
    "at": "2026-05-01T12:30:00Z",
    "n_fetch": 1,
    "n_rejected": 0,
    "rejected": [],
    "verdicts": [
        {
            "page_id": 1,
            "fetch": True,
            "stale": 0.37,
            "expected_changes": 0.46,
            "fetched_at": "2026-05-01T06:00:00Z",
            "last_crawl_at": "2026-05-01T12:00:00Z",
            "next_crawl_at": "2026-05-03T21:14:07Z",
            "gone": False,
        },
        {
            "page_id": 2,
            "fetch": False,
            "stale": 0.04,
            "expected_changes": 0.05,
            "fetched_at": "2026-05-01T12:00:02Z",
            "last_crawl_at": "2026-05-01T12:00:02Z",
            "next_crawl_at": "2026-05-09T03:00:00Z",
            "gone": False,
        },
    ],
}
LOG_ANSWER = {
    "items": [
        {
            "observed_at": "2026-05-01T12:00:00Z",
            "kind": "crawl",
            "changed": True,
            "interval": 2.4,
            "status": 200,
        }
    ],
    "next_cursor": "k6Rsb2cxzwAGM+Vz1gAAAA",
}
CLOCK = {
    "weight": 0.97,
    "busiest": {"start": 5.0, "end": 6.5, "share": 0.5187},
    "intensity": [0.1, 0.12, 0.12, 0.64, 4.55, 8.55, 6.58, 1.78, 0.1, 0.15, *[0.0936] * 14],
    "learnt_at": "2026-05-01T11:50:00Z",
}
PAGE_ANSWER = {
    "page_id": 1,
    "url": "https://example.com/news",
    "host": "example.com",
    "importance": 10.0,
    "observability": "incomplete",
    "min_crawl_rate": 0.1,
    "max_crawl_rate": 24.0,
    "tags": ["news"],
    "created_at": "2026-04-01T08:00:00Z",
    "gone": False,
    "n_failures": 0,
    "retired": False,
    "last_crawl_at": "2026-05-01T12:00:00Z",
    "estimate": {
        "change_rate": 0.31,
        "credible_interval": {"low": 0.12, "high": 0.58},
        "url_group_change_rate": 0.2,
        "estimator": "gamma",
        "n_observations": 12,
        "n_changes": 5,
        "n_pings": 1,
        "last_observed_at": "2026-05-01T12:00:00Z",
        "last_ping_at": "2026-04-30T09:15:00Z",
    },
    "schedule": {
        "epoch": 7,
        "change_rate": 0.31,
        "crawl_rate": 0.42,
        "crawl_probability": 0.0,
        "urgency": 0.95,
        "moved_s": 10_800.0,
        "next_crawl_at": "2026-05-03T21:14:07Z",
    },
    "why": {
        "sentence": "crawled every 2.4 days: it changes about every 3.2 days, pages of "
        "its URL group every 5.0 days, and its importance is 10; "
        "67% of all pages have lower crawl rates; "
        "its next crawl was moved 3.0 hours later, because 52% of the changes of example.com "
        "come between 05:00 and 06:30 UTC (certainty 97%)",
        "multiplier": 11.3,
        "crawled_more_often_than": 0.67,
        "next_change_expected_in_days": 3.2,
    },
    "clock": CLOCK,
    "last_crawls": [
        {
            "observed_at": "2026-05-01T12:00:00Z",
            "kind": "crawl",
            "changed": True,
            "interval": 2.4,
            "status": 200,
        }
    ],
}
