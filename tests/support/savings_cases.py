"""A fleet that crawls five fast pages daily and fifteen slow ones every tenth day."""

from datetime import datetime, timedelta
from itertools import chain

from support.live_server import START, Live

URLS = [f"https://a.example/{n}" for n in range(20)]
FAST = 5


def crawled(at: datetime, urls: list[str], version: int) -> list[dict[str, str]]:
    """Return the report of crawls at an instant."""
    return [
        {"url": url, "observed_at": at.isoformat(), "digest": f"{n} {version if n < FAST else 0}"}
        for n, url in enumerate(urls)
    ]


def report(api: Live, items: list[dict[str, str]]) -> None:
    assert api.post("/observations", items).json()["accepted"] == len(items)


def crawl(api: Live, urls: list[str], version: int) -> None:
    report(api, crawled(api.clock.now, urls, version))


def play(api: Live, days: int) -> None:
    """Crawl five pages that change each day every day, and the fifteen others every tenth."""
    api.register(*URLS)
    at = [START + timedelta(days=day) for day in range(days)]
    api.clock.now = at[-1]
    parts = (crawled(at[k], URLS if k % 10 == 0 else URLS[:FAST], k) for k in range(days))
    report(api, list(chain.from_iterable(parts)))
    api.epoch()
