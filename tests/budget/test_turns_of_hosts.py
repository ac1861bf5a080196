"""Turns of a host whose delay is scarce: first crawls have their share of them, and no more."""

import pytest
from support.budget_cases import service, urls

pytestmark = pytest.mark.dear

HOST = "a.example"
SLOW = {"bandwidth": 100_000.0, "host_delay_s": 1, "host_concurrency": 1, "admission": "all"}
OFTEN = 8_640.0
"""Minimum rate of a page that is due every ten seconds, 1/day."""


def known(live, n):
    """Crawl n pages of the host that are due every ten seconds; return their ids."""
    live.clock.advance(hours=12)
    ids = set(live.register(*urls(n, HOST), min_crawl_rate=OFTEN))
    assert set(crawled(live, n)) == ids
    live.epoch()
    return ids


def crawled(live, n, links=0):
    """Crawl n pages, one each second; register new links after each; return the pages."""
    pages = []
    for _ in range(n):
        live.clock.advance(seconds=1)
        items = live.post("/leases", {"count": 1}).json()["items"]
        report = [
            {"lease": each["lease"], "observed_at": live.clock().isoformat(), "digest": each["url"]}
            for each in items
        ]
        answer = live.post("/observations", report)
        assert answer.json()["accepted"] == len(items) == 1
        pages += [each["page_id"] for each in items]
        if links:
            at = live.clock().timestamp()
            live.register(*(f"https://{HOST}/new/{at}/{i}" for i in range(links)))
    return pages


def test_endless_links_leave_pages_of_the_host_their_minimum_rate(database_url):
    with service(database_url, **SLOW) as live:
        ids = known(live, 3)
        crawled(live, 12, links=2)
        pages = crawled(live, 40, links=2)
        assert len(pages) == 40
        for page in ids:
            assert pages.count(page) >= 3


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_a_host_gives_first_crawls_their_share_of_its_turns(database_url, share):
    with service(database_url, **SLOW) as live:
        ids = known(live, 9)
        live.client.put(f"/hosts/{HOST}", json={"first_share": share})
        live.clock.advance(seconds=60)
        pages = crawled(live, 40, links=2)
        n_first = sum(page not in ids for page in pages)
        assert abs(n_first - 40 * share) <= 1


def test_first_crawls_take_all_turns_while_nothing_else_is_due(database_url):
    with service(database_url, **SLOW) as live:
        live.clock.advance(hours=12)
        live.register(*urls(20, HOST))
        assert len(set(crawled(live, 20))) == 20
