"""Examples of hosts and groups."""

from service.api.examples.pages import CLOCK

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
HOST_LOAD = {
    "n_pages": 1_200,
    "n_overdue": 31,
    "asked_rate": 412.5,
    "measured_at": "2026-05-01T12:00:00Z",
    "sampled_share": 1.0,
}
HOSTS_ANSWER = {"items": [{**HOST_ITEM, "load": HOST_LOAD}], "next_cursor": "kqZob3N0czER"}
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
