"""Examples of changes and webhooks."""

CHANGE = {
    "id": "1777636804123456-0",
    "kind": "changed",
    "page_id": 1,
    "url": "https://example.com/news",
    "observed_at": "2026-05-01T12:00:00Z",
    "changed_after": "2026-05-01T05:58:00Z",
    "last_modified": "2026-05-01T11:42:10Z",
    "digest": "9d1e2f4a5b6c7d80",
    "tags": ["docs"],
    "recorded_at": "2026-05-01T12:00:04.123456Z",
}
CHANGES_ANSWER = {
    "items": [CHANGE],
    "more": False,
    "next_cursor": "lKhjaGFuZ2VzMbA1ZjNhOWMwYjFkMmU0ZjYwzwAGUMOh3RUBAA",
}
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
