"""A fleet that crawls five fast pages daily and fifteen slow ones every tenth day."""

from datetime import timedelta

from support.live_server import START, Live

URLS = [f"https://a.example/{n}" for n in range(20)]
FAST = 5


def crawl(api: Live, urls: list[str], version: int) -> None:
    at = api.clock.now.isoformat()
    items = [
        {"url": url, "observed_at": at, "digest": f"{n} {version if n < FAST else 0}"}
        for n, url in enumerate(urls)
    ]
    assert api.post("/observations", items).json()["accepted"] == len(urls)


def play(api: Live, days: int) -> None:
    """Crawl five pages that change each day every day, and the fifteen others every tenth."""
    api.register(*URLS)
    for day in range(days):
        api.clock.now = START + timedelta(days=day)
        crawl(api, URLS if day % 10 == 0 else URLS[:FAST], day)
    api.epoch()
