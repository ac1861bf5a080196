"""One example of every body and answer; tests send the bodies and compare the answers' shapes."""

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
CHANGE = {
    "id": "1777636804123456-0",
    "kind": "changed",
    "page_id": 1,
    "url": "https://example.com/news",
    "observed_at": "2026-05-01T12:00:00Z",
    "changed_after": "2026-05-01T05:58:00Z",
    "last_modified": "2026-05-01T11:42:10Z",
    "digest": "9d1e2f4a5b6c7d80",
    "recorded_at": "2026-05-01T12:00:04.123456Z",
}
CHANGES_ANSWER = {
    "items": [CHANGE],
    "more": False,
    "next_cursor": "lKhjaGFuZ2VzMbA1ZjNhOWMwYjFkMmU0ZjYwzwAGUMOh3RUBAA",
}
SCHEDULE_ITEM = {
    "page_id": 1,
    "url": "https://example.com/news",
    "importance": 10.0,
    "change_rate": 0.31,
    "crawl_rate": 0.42,
    "crawl_probability": 0.0,
    "next_crawl_at": "2026-05-03T21:14:07Z",
}
SCHEDULE_ANSWER = {
    "epoch": 7,
    "published_at": "2026-05-01T12:10:00Z",
    "bandwidth": 0.6,
    "items": [SCHEDULE_ITEM],
    "next_cursor": "k6lzY2hlZHVsZTEHAQ",
}
CALIBRATION = {
    "estimator": "bursty",
    "n": 3990,
    "n_changed": 890,
    "sum_predicted": 901.2,
    "calibration_error": 0.011,
    "log_loss": 0.42,
    "log_loss_constant": 0.53,
    "bins": [
        {"up_to": 0.0625, "n": 2900, "sum_predicted": 81.2, "n_changed": 80},
        {"up_to": 1.0, "n": 1090, "sum_predicted": 820.0, "n_changed": 810},
    ],
}
HISTORY_ANSWER = {
    "step_s": 600,
    "host": None,
    "items": [
        {
            "at": "2026-05-01T12:00:00Z",
            "complete": True,
            "epoch": 412,
            "n_leased": 4100,
            "n_reported": 4050,
            "n_failed": 31,
            "n_changed": 900,
            "n_wasted": 3100,
            "n_pings": 120,
            "n_true_pings": 70,
            "n_false_pings": 30,
            "n_missed": 12,
            "bandwidth": 600000.0,
            "n_asked": 4166.7,
            "measured_at": "2026-05-01T12:10:02Z",
            "n_pages": 1000000,
            "n_never_crawled": 2100,
            "n_overdue": 350,
            "fresh_share": 0.83,
            "fresh_share_plain": 0.79,
            "harmonic_staleness": 0.31,
            "harmonic_staleness_plain": 0.38,
            "sampled_share": 1.0,
            "n_paused_by_trouble": 3,
            "n_paused_by_hand": 1,
            "calibration": [CALIBRATION],
        }
    ],
    "next_cursor": "kqhoaXN0b3J5Mc5p9JfY",
}
EPOCH_ANSWER = {
    "epoch": 7,
    "status": "published",
    "requested_at": "2026-05-01T12:09:59Z",
    "started_at": "2026-05-01T12:09:59Z",
    "finished_at": "2026-05-01T12:10:00Z",
    "reason": None,
    "bandwidth": 0.6,
    "bandwidth_used": 0.6,
    "multiplier": 11.3,
    "harmonic_cost": 5.7,
    "binary_cost": 3.9,
    "kkt_residual": 2.2e-16,
    "duality_gap": 1.3e-15,
    "passes": 4,
    "n_pages": 3,
    "budget_factor": 1.04,
    "prior": {
        "a": 0.5,
        "b": 15.0,
        "within_shape": 1.8,
        "between_shape": 0.9,
        "dispersion": 5.0,
        "seen_pages": 3.0,
        "seen_changes": 7.0,
        "seen_days": 210.0,
        "seen_squares": 21.0,
    },
    "seconds": {"load": 0.002, "estimate": 0.001, "allocate": 0.001, "publish": 0.004},
    "calibration": [CALIBRATION],
}
EPOCHS_ANSWER = {"items": [{**EPOCH_ANSWER, "calibration": None}], "next_cursor": "kqdlcG9jaHMxBw"}
PLAN_ANSWER = {
    "epoch": 7,
    "at": "2026-05-01T12:11:30Z",
    "n_pages": 3,
    "n_hosts": 1,
    "min_bandwidth": 0.1,
    "in_force": {
        "bandwidth": 0.6,
        "feasible": True,
        "bandwidth_used": 0.6,
        "multiplier": 11.3,
        "harmonic_cost": 5.7,
        "binary_cost": 3.9,
        "fresh_share": 0.675,
        "hosts": [
            {
                "host": "example.com",
                "n_pages": 3,
                "crawl_rate": 0.6,
                "max_crawl_rate": None,
                "at_cap": False,
            }
        ],
        "tags": [{"tag": "news", "n_pages": 1, "crawl_rate": 0.42}],
    },
    "items": [
        {
            "bandwidth": 0.08,
            "feasible": False,
            "reason": "minimum crawl rates need 0.1 crawls a day, 0.02 more than this bandwidth; "
            "an epoch would fail",
            "n_starved": 1,
            "starved": [{"page_id": 1, "min_crawl_rate": 0.1}],
        }
    ],
}
REQUESTED = {
    "epoch": 8,
    "status": "requested",
    "requested_at": "2026-05-01T12:15:00Z",
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
        "67% of all pages are crawled less often; "
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
HOST = {"min_delay_s": 2.0, "max_concurrency": 4, "max_crawl_rate": 500.0, "group": "shared-1"}
HOST_PATCH = {"robots_delay_s": 5.0}
HOST_QUEUE_ANSWER = {
    "delay_s": 5.0,
    "concurrency": 4,
    "blocked_until": None,
    "ready_at": "2026-05-01T12:00:05Z",
    "next_at": "2026-05-01T12:00:05Z",
    "n_failures": 0,
}
HOST_ITEM = {
    "host": "example.com",
    "group": None,
    "min_delay_s": 2.0,
    "robots_delay_s": 5.0,
    "max_concurrency": 4,
    "max_crawl_rate": 500.0,
    "host_queue": HOST_QUEUE_ANSWER,
}
HOST_ANSWER = {
    **HOST_ITEM,
    "n_pages": 1_200,
    "n_queued": 31,
    "n_leased": 1,
    "crawl_rate": 412.5,
    "feed": {
        "n_pages": 800,
        "n_pings": 5_120,
        "ping_rate": 96.4,
        "real": 0.91,
        "false": 0.09,
        "trust": 3.2,
        "last_ping_at": "2026-05-01T11:58:00Z",
        "silent_days": 0.0014,
        "silent": False,
    },
    "clock": CLOCK,
}
HOSTS_ANSWER = {"items": [HOST_ITEM], "next_cursor": "kqZob3N0czER"}
GROUP = {"min_delay_s": 1.0, "max_crawl_rate": 900.0, "members": ["example.com", "example.org"]}
GROUP_ANSWER = {
    "group": "shared-1",
    "min_delay_s": 1.0,
    "robots_delay_s": 5.0,
    "max_concurrency": None,
    "max_crawl_rate": 900.0,
    "host_queue": {**HOST_QUEUE_ANSWER, "concurrency": 1},
    "n_members": 2,
    "members": ["example.com", "example.org"],
}
GROUPS_ANSWER = {
    "items": [
        {
            "group": "shared-1",
            "min_delay_s": 1.0,
            "max_concurrency": None,
            "max_crawl_rate": 900.0,
            "n_members": 2,
            "host_queue": {**HOST_QUEUE_ANSWER, "concurrency": 1},
        }
    ],
    "next_cursor": None,
}
HEALTH = {"status": "ok", "version": "0.1.0"}
WEBHOOK = {
    "url": "https://hooks.example.net/recrawl",
    "kinds": ["new", "changed", "gone", "back", "moved"],
    "prefix": "https://example.com/docs/",
    "max_items": 100,
}
WEBHOOK_ID = "b2Zq9cXw4TnS7mLk1rYd0g"
WEBHOOK_ITEM = {
    **WEBHOOK,
    "id": WEBHOOK_ID,
    "status": "active",
    "created_at": "2026-05-01T12:00:00Z",
    "cursor": CHANGES_ANSWER["next_cursor"],
    "lag_s": 0.0,
    "n_attempts": 0,
    "next_at": "2026-05-01T12:00:04Z",
}
WEBHOOK_CREATED = {**WEBHOOK_ITEM, "secret": "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"}
WEBHOOK_ANSWER = {
    **WEBHOOK_ITEM,
    "parked": [
        {
            "page_id": 7,
            "change_id": "1777636804123456-0",
            "reason": "the address answered 422",
            "parked_at": "2026-05-01T12:00:24Z",
        },
    ],
}
WEBHOOK_PATCH = {"paused": True}
WEBHOOKS_ANSWER = {"items": [WEBHOOK_ITEM], "next_cursor": None}
REDELIVERY = {"release": True}
DELIVERY_TEST = {
    "number": 12,
    "delivery": "msg_w3aYcQ2nH0Zk5dLq8sTf1xRv",
    "sent_at": "2026-05-01T12:00:05Z",
    "n_items": 0,
    "status": 204,
    "latency_s": 0.041,
}
DELIVERIES_ANSWER = {
    "items": [
        {**DELIVERY_TEST, "number": 11, "n_items": 3, "first_id": "1777636804123456-0"},
    ],
    "next_cursor": None,
}
EVENT = {
    "specversion": "1.0",
    "id": CHANGE["id"],
    "source": "urn:recrawl:5f3a9c0b1d2e4f60",
    "type": "io.github.recrawl.page.changed",
    "subject": CHANGE["url"],
    "time": CHANGE["observed_at"],
    "datacontenttype": "application/json",
    "partitionkey": "1",
    "data": CHANGE,
}
"""Body of a request to a webhook."""

KEY: dict[str, Any] = {
    "name": "crawler fleet",
    "role": "crawl",
    "expires_at": "2027-05-01T12:00:00Z",
}
KEY_ITEM: dict[str, Any] = {
    "key_id": "5f3a9c0b1d",
    "name": "crawler fleet",
    "role": "crawl",
    "created_at": "2026-05-01T12:00:00Z",
    "expires_at": "2027-05-01T12:00:00Z",
    "last_used_at": None,
    "revoked_at": None,
    "items_per_s": None,
    "hosts": [],
    "url_prefixes": [],
}
CREATED_KEY = {
    **KEY_ITEM,
    "key": "rcr_5f3a9c0b1d_a-secret-of-48-hexadecimal-digits",
}
KEYS_ANSWER = {"items": [KEY_ITEM], "next_cursor": None}
ROTATION = {"grace_s": 86_400}
AUDIT_ANSWER = {
    "items": [
        {
            "entry": 7,
            "at": "2026-05-01T12:00:00Z",
            "key": "5f3a9c0b1d",
            "act": "host.change",
            "object": "example.com",
            "before": {"min_delay_s": None},
            "after": {"min_delay_s": 2.0},
            "request_id": "nightly-42",
        }
    ],
    "next_cursor": None,
}
