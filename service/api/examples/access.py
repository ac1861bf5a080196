"""Examples of keys and the audit."""

from typing import Any

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
