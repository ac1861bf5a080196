"""Feeds: pages of their own kind, which only requests for feeds lease."""

import pytest
from support.live_server import Live, lease_freely, running

PAGE, FEED = "https://a.example/1", "https://a.example/feed"


@pytest.fixture
def live(sqlite_url):
    """A service whose time a test sets; that of Postgres is the server's."""
    with running(sqlite_url, host_concurrency=0, host_delay_s=0) as live:
        lease_freely(live)
        yield live


@pytest.fixture
def either(database_url):
    with running(database_url, host_concurrency=0, host_delay_s=0) as live:
        lease_freely(live)
        yield live


def leased(live: Live, kind: str = "page", **wish) -> list[str]:
    """Return the URLs that a request gets."""
    items = live.post("/leases", {"kind": kind, **wish}).json()["items"]
    return [item["url"] for item in items]


def test_a_feed_is_leased_by_requests_for_feeds_alone(either):
    either.register(PAGE)
    either.register(FEED, kind="feed")
    assert either.get("/pages", url=FEED).json()["kind"] == "feed"
    assert either.get("/pages", url=PAGE).json()["kind"] == "page"
    assert leased(either) == [PAGE]
    either.clock.advance(hours=1)
    for _ in range(3):
        assert FEED not in leased(either)
    assert leased(either, "feed") == [FEED]
    assert leased(either, "feed") == []


def test_a_request_for_feeds_gets_nothing_else(either):
    either.register(PAGE)
    assert leased(either, "feed") == []
    answer = either.post("/leases", {"kind": "feed"}).json()
    assert answer["retry_after_s"] == 60.0  # no feed is queued
    assert leased(either) == [PAGE]


def test_a_waiting_request_for_pages_is_not_woken_by_feeds(either):
    either.register(FEED, kind="feed")
    answer = either.post("/leases", {}).json()
    assert (answer["items"], answer["retry_after_s"]) == ([], 60.0)
    answer = either.post("/leases", {}).json()
    assert (answer["items"], answer["retry_after_s"]) == ([], 60.0)


def test_feeds_and_pages_of_a_host_share_its_delay(live):
    live.client.put("/hosts/a.example", json={"min_delay_s": 10})
    live.register(PAGE)
    live.register(FEED, kind="feed")
    assert leased(live) == [PAGE]
    assert leased(live, "feed") == []
    assert live.post("/leases", {"kind": "feed"}).json()["retry_after_s"] == 10.0
    live.clock.advance(seconds=10)
    assert leased(live, "feed") == [FEED]
    live.register("https://a.example/2")
    assert leased(live) == []
    live.clock.advance(seconds=10)
    assert leased(live) == ["https://a.example/2"]


def test_a_pause_that_a_feed_has_earned_holds_the_pages_too(live):
    live.register(PAGE)
    live.register(FEED, kind="feed")
    (crawl,) = live.post("/leases", {"kind": "feed"}).json()["items"]
    report = [{"lease": crawl["lease"], "status": 429, "retry_after_s": 600}]
    assert live.post("/observations", report).json()["accepted"] == 1
    live.clock.advance(minutes=9)
    assert leased(live) == []
    live.clock.advance(minutes=2)
    assert leased(live) == [PAGE]


def test_paused_hosts_do_not_hide_other_feeds(live):
    for n in range(12):
        live.register(f"https://h{n}.example/feed", kind="feed")
        live.post(f"/hosts/h{n}.example/pause", {"for_s": 3600})
    live.clock.advance(minutes=1)
    live.register(FEED, kind="feed")
    assert leased(live, "feed", count=1) == [FEED]


def test_a_page_becomes_a_feed_and_a_page_again(live):
    live.register(PAGE, FEED)
    live.register(FEED, kind="feed")
    assert leased(live, count=5) == [PAGE]
    live.register(FEED)  # a registration without a kind keeps it
    assert live.get("/pages", url=FEED).json()["kind"] == "feed"
    assert leased(live) == []
    live.register(FEED, kind="page")
    assert leased(live, "feed") == []
    assert leased(live) == [FEED]


def test_a_lease_of_a_feed_that_expires_gives_it_to_the_next_reader(live):
    live.register(FEED, kind="feed")
    assert leased(live, "feed", ttl_s=60) == [FEED]
    live.clock.advance(seconds=59)
    assert leased(live, "feed") == []
    live.clock.advance(days=1)
    assert leased(live) == []
    leased(live, "feed")  # counts the lease that has expired, and the page waits
    live.clock.advance(days=1)
    assert leased(live, "feed") == [FEED]


def test_the_reads_of_a_feed_teach_its_rate(live):
    live.register(FEED, kind="feed")
    for _ in range(20):
        (crawl,) = live.post("/leases", {"kind": "feed"}).json()["items"]
        report = [{"lease": crawl["lease"], "status": 200, "changed": True}]
        assert live.post("/observations", report).json()["accepted"] == 1
        live.clock.advance(hours=6)
        live.post("/pages/recrawl", {"urls": [FEED]})
    assert live.get("/pages", url=FEED).json()["estimate"]["change_rate"] > 2.0
    assert live.epoch()["status"] != "failed"
    live.clock.advance(days=1)
    assert leased(live, "feed") == [FEED]


def test_reads_of_feeds_count_in_the_budget(sqlite_url):
    with running(sqlite_url, bandwidth=2) as live:
        for n in range(4):
            live.register(f"https://h{n}.example/feed", kind="feed")
        live.epoch()
        first = leased(live, "feed", count=10)
        assert 1 <= len(first) <= 2
        live.clock.advance(days=1)
        assert 1 <= len(leased(live, "feed", count=10)) <= 2


def test_hosts_and_slices_choose_among_feeds(live):
    hosts = [f"h{n}.example" for n in range(6)]
    live.client.put("/groups/shared", json={"members": hosts[:3]})
    for host in hosts:
        live.register(f"https://{host}/feed", kind="feed")
        live.register(f"https://{host}/page")
    assert leased(live, "feed", hosts=[hosts[1]]) == [f"https://{hosts[1]}/feed"]
    rest = [leased(live, "feed", slice=n, slices=2) for n in range(2)]
    assert sorted(rest[0] + rest[1]) == [f"https://{h}/feed" for h in hosts if h != hosts[1]]


def test_what_holds_a_feed_is_its_reader(either):
    either.register(FEED, kind="feed")
    why = either.get("/pages", url=FEED).json()["why"]
    assert (why["hold"], "recrawl watch" in why["sentence"]) == ("ready", True)


def test_readers_of_feeds_are_no_crawlers(live):
    live.register(PAGE)
    live.register(FEED, kind="feed")
    assert leased(live, "feed") == [FEED]
    live.clock.advance(hours=1)
    assert live.get("/pages", url=PAGE).json()["why"]["hold"] == "no_crawler"


def test_a_kind_is_one_of_two(either):
    refused = either.post("/pages", [{"url": PAGE, "kind": "blog"}]).json()
    (rejection,) = refused["rejected"]
    assert (rejection["field"], "one of page, feed" in rejection["detail"]) == ("kind", True)
    assert either.post("/leases", {"kind": "blog"}).status_code == 422


def test_a_limited_key_registers_no_feed(sqlite_url):
    with running(sqlite_url, api_keys=("secret",)) as live:
        key = live.post("/keys", {"name": "a", "role": "report", "hosts": ["a.example"]}).json()[
            "key"
        ]
        refused = live.client.post(
            "/pages",
            json=[{"url": FEED, "kind": "feed"}],
            headers={"Authorization": f"Bearer {key}"},
        )
        assert "cannot set kind" in refused.text


def test_a_host_that_joins_a_group_keeps_its_feeds_apart(live):
    live.register(PAGE)
    live.register(FEED, kind="feed")
    live.client.put("/groups/shared", json={"members": ["a.example", "b.example"]})
    assert leased(live) == [PAGE]
    live.clock.advance(seconds=10)
    assert leased(live) == []
    assert leased(live, "feed") == [FEED]


def test_feeds_are_due_again_after_the_queue_is_filled(live):
    live.register(FEED, kind="feed")
    (crawl,) = live.post("/leases", {"kind": "feed"}).json()["items"]
    live.post("/observations", [{"lease": crawl["lease"], "status": 200, "changed": True}])
    live.epoch()
    page = live.get("/pages", url=FEED).json()
    assert page["schedule"]["crawl_rate"] > 0
    assert leased(live, "feed") == []
    live.clock.advance(days=2 / page["schedule"]["crawl_rate"])
    live.epoch()
    assert leased(live, "feed") == [FEED]


def test_entries_of_a_json_feed_are_counted_as_those_of_feeds(live):
    content = (
        b'{"version": "https://jsonfeed.org/version/1.1", "items": [{"id": "1", "url": "/1"}]}'
    )
    answer = live.client.post(
        "/sitemaps",
        params={"url": "https://a.example/feed.json"},
        content=content,
        headers={"Content-Type": "application/feed+json"},
    ).json()
    assert (answer["kind"], answer["created"], answer["complete"]) == ("json", 1, True)
    metrics = live.client.get("/metrics").text
    assert 'recrawl_items_total{kind="feed",outcome="accepted"} 1.0' in metrics
