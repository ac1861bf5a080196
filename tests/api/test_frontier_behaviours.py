"""What URL Frontier's own tests ask of a frontier, asked of this one over HTTP."""

import pytest
from support.live_server import Live, until
from support.processes import serving

DELAY_S = 1.0
HOSTS = [f"h{i}.example" for i in range(5)]


def add(live: Live, *hosts: str, n: int = 3) -> dict[int, str]:
    """Register n pages of each host; gives the host of each page."""
    urls = [f"https://{host}/{i}" for host in hosts for i in range(n)]
    of_page = [host for host in hosts for _ in range(n)]
    return dict(zip(live.register(*urls), of_page, strict=True))


def lease(client, **asked):
    response = client.post("/leases", json={"count": 100, **asked})
    assert response.status_code == 200, response.text
    return response.json()["items"]


def hosts_of(crawls):
    return sorted(crawl["host"] for crawl in crawls)


def report(live: Live, crawls):
    at = live.clock().isoformat()
    sent = [{"lease": crawl["lease"], "observed_at": at, "digest": "1"} for crawl in crawls]
    answer = live.post("/observations", sent).json()
    assert answer["leases_ended"] == len(crawls)


def test_rotation_serves_each_host_once_per_window(api):
    pages = add(api, *HOSTS)
    seen = []
    for _ in range(3):
        window = lease(api.client)
        assert hosts_of(window) == HOSTS
        assert lease(api.client) == []
        report(api, window)
        api.clock.advance(seconds=DELAY_S * 0.999)
        assert lease(api.client) == []
        api.clock.advance(seconds=DELAY_S * 0.001)
        seen += [crawl["page_id"] for crawl in window]
    assert sorted(seen) == sorted(pages)


@pytest.mark.dear
def test_small_requests_rotate_over_the_hosts_too(api):
    add(api, *HOSTS)
    window = [crawl for _ in HOSTS for crawl in lease(api.client, count=1)]
    assert hosts_of(window) == HOSTS
    assert lease(api.client, count=1) == []


def test_a_reservation_blocks_its_page_beyond_the_window_of_its_host(api):
    api.client.put("/hosts/a.example", json={"min_delay_s": DELAY_S, "max_concurrency": 10})
    add(api, "a.example", n=2)
    (reserved,) = lease(api.client, ttl_s=60)
    api.clock.advance(seconds=DELAY_S)
    (other,) = lease(api.client, ttl_s=600)
    assert other["page_id"] != reserved["page_id"]
    api.clock.advance(seconds=58.999)
    assert lease(api.client) == []
    api.clock.advance(seconds=0.001)
    assert lease(api.client) == []  # nobody reported the crawl, so the page waits
    api.clock.advance(hours=1)
    (again,) = lease(api.client)
    assert again["page_id"] == reserved["page_id"]
    assert again["lease"] != reserved["lease"]


@pytest.mark.dear
def test_a_reservation_blocks_a_host_that_is_crawled_by_one_worker_at_a_time(api):
    add(api, "a.example", n=2)
    lease(api.client, ttl_s=60)
    api.clock.advance(seconds=60 + DELAY_S * 0.999)
    assert lease(api.client) == []  # it may have been crawled at the last instant
    api.clock.advance(seconds=DELAY_S * 0.001)
    assert len(lease(api.client)) == 1


@pytest.mark.dear
def test_blocked_hosts_are_not_served(api):
    add(api, "a.example", "b.example")
    until_ = api.clock().replace(hour=13).isoformat()
    assert api.client.patch("/hosts/a.example", json={"blocked_until": until_}).is_success
    assert hosts_of(lease(api.client, ttl_s=30)) == ["b.example"]
    assert lease(api.client, hosts=["a.example"]) == []
    api.clock.advance(minutes=59)
    assert hosts_of(lease(api.client, ttl_s=30)) == ["b.example"]
    api.clock.advance(minutes=1)
    assert hosts_of(lease(api.client)) == ["a.example", "b.example"]


@pytest.mark.dear
def test_malformed_urls_are_skipped_while_others_pass(api):
    urls = ["https://a.example/", "not a url", "ftp://b.example/", "https://", "https://c.example/"]
    answer = api.post("/pages", [{"url": url} for url in urls]).json()
    assert (answer["created"], answer["n_rejected"]) == (2, 3)
    assert [item["index"] for item in answer["rejected"]] == [1, 2, 3]
    assert hosts_of(lease(api.client)) == ["a.example", "c.example"]


def test_deleted_pages_are_not_resurrected(api):
    pages = add(api, "a.example", n=1) | add(api, "b.example", n=1)
    leased = {crawl["page_id"]: crawl for crawl in lease(api.client, ttl_s=60)}
    gone = min(pages)
    assert api.client.delete(f"/pages/{gone}").status_code == 204
    sent = {"lease": leased[gone]["lease"], "observed_at": api.clock().isoformat(), "digest": "1"}
    answer = api.post("/observations", [sent])
    assert answer.json()["leases_ended"] == 1  # of a page that is deleted, but still leased
    api.epoch()
    api.clock.advance(hours=2)
    assert [crawl["page_id"] for crawl in lease(api.client)] == [max(pages)]
    assert api.get(f"/pages/{gone}").status_code == 404


@pytest.mark.dear
def test_duplicates_in_a_batch_are_skipped(api):
    urls = ["https://a.example/x", "https://a.example/x", "HTTPS://A.example:443/x#top"]
    answer = api.post("/pages", [{"url": url} for url in urls]).json()
    assert (answer["created"], answer["duplicate"]) == (1, 2)
    assert len(set(answer["page_ids"])) == 1
    assert len(lease(api.client, ttl_s=1)) == 1
    again = api.post("/pages", [{"url": urls[0]}]).json()
    assert again["created"] == 0
    api.clock.advance(seconds=0.5)
    assert lease(api.client) == []


@pytest.mark.slow
@pytest.mark.parametrize("n", [30])
def test_all_hosts_are_recovered_after_a_crash(database_url, tmp_path, n):
    names = [f"h{i:02}.example" for i in range(n)]
    settings = {"database_url": database_url, "epoch_interval_s": 86_400}
    with serving(tmp_path, **settings) as server:
        pages = [{"url": f"https://{name}/"} for name in names]
        server.post("/pages", pages)
        before = lease(server.client, count=n // 3, ttl_s=1)
        assert len(before) == n // 3
        server.kill()
    with serving(tmp_path, **settings) as server:
        listed = server.client.get("/hosts", params={"limit": n}).json()["items"]
        assert sorted(host["host"] for host in listed) == names
        found = {crawl["host"] for crawl in lease(server.client, ttl_s=600)}
        until(
            lambda: found.update(hosts_of(lease(server.client, ttl_s=600))) or len(found) == n,
            "those that were leased are served as well",
        )
    assert sorted(found) == names
