"""Pages that an incident has made gone are crawled again as soon as it ends."""

from datetime import timedelta

import pytest
from support.live_server import Live, lease_freely

pytestmark = pytest.mark.dear

N = 12
HOST = "broken.example"
URLS = [f"https://{HOST}/{i}" for i in range(N)]
FAST, LONG_GONE = URLS[:3], URLS[3]


def report(api: Live, minutes_ago: float, urls=URLS, **shown):
    at = (api.clock() - timedelta(minutes=minutes_ago)).isoformat()
    items = [
        {"url": url, "observed_at": at, **(shown or {"status": 200, "digest": url})} for url in urls
    ]
    assert api.post("/observations", items).json()["accepted"] == len(urls)


def outage(api: Live, **shown):
    """Let three pages be gone before other pages show the incident, and one long before."""
    api.register(*URLS)
    api.clock.advance(days=6)
    for days in (5, 4):
        report(api, days * 1440)
    report(api, 3 * 1440, [LONG_GONE], status=404)
    report(api, 2 * 1440, [LONG_GONE], status=404)
    report(api, 120)
    report(api, 110, [LONG_GONE], status=404)
    report(api, 45, [LONG_GONE], status=404)
    for minutes in (70, 5):  # the second look comes before five pages show the sign
        report(api, minutes, FAST, **shown)
    report(api, 4, URLS[4:], **shown)
    assert gone(api) == [*FAST, LONG_GONE]


def gone(api: Live) -> list[str]:
    return sorted(page["url"] for page in api.get("/pages", state="gone").json()["items"])


def leased(api: Live) -> list[str]:
    lease_freely(api)
    lease = api.post("/leases", {"limit": 50, "hosts": [HOST]}).json()
    return sorted(crawl["url"] for crawl in lease["items"])
