"""Delay by latency through the running service: a server that slows down, and recovers."""

import json
import math
from datetime import timedelta

import pytest
from support.live_server import lease_freely, running

pytestmark = pytest.mark.dear

HOST = "slow.example"
URLS = [f"https://{HOST}/{n}" for n in range(150)]


class Server:
    """A made-up server with one crawler, which leases, fetches and reports in simulated time."""

    def __init__(self, live, latency_s=0.2):
        self.live, self.latency_s = live, latency_s
        self.crawled = []

    def crawl(self, n):
        """Crawl until n requests were made; return the seconds that they took."""
        start = self.live.clock()
        for _ in range(n):
            while not (items := (answer := self.leased())["items"]):
                self.live.clock.advance(seconds=max(answer["retry_after_s"], 0.1))
            (item,) = items
            began = self.live.clock()
            self.live.clock.advance(seconds=self.latency_s)
            report = {
                "lease": item["lease"],
                "observed_at": began.isoformat(),
                "digest": "1",
                "seconds": self.latency_s,
            }
            answer = self.live.post("/observations", [report]).json()
            assert answer["accepted"] == 1, answer
            self.live.post("/pages/recrawl", {"urls": [item["url"]]})
        return (self.live.clock() - start).total_seconds()

    def leased(self):
        return self.live.post("/leases", {"count": 1}).json()


@pytest.fixture
def served(database_url):
    with running(database_url, host_delay_s=1.0) as live:
        lease_freely(live)
        live.register(*URLS)
        yield Server(live)


@pytest.mark.dear
def test_a_server_ten_times_as_slow_gets_a_fifth_of_the_requests_and_then_all_again(served):
    live = served.live
    answer = live.client.patch(f"/hosts/{HOST}", json={"latency_factor": 5})
    assert answer.status_code == 200, answer.text
    served.crawl(40)
    usual_s = served.crawl(20) / 20
    served.latency_s = 2.0
    served.crawl(10)
    slow_s = served.crawl(5) / 5
    assert slow_s >= 5 * usual_s
    host = live.get(f"/hosts/{HOST}").json()
    queue = host["host_queue"]
    assert queue["slowed"]
    assert queue["concurrency"] == 1
    assert queue["delay_s"] == pytest.approx(5 * queue["latency_s"])
    assert queue["usual_latency_s"] < 0.5
    assert "because its answers take" in live.get("/pages/150").json()["why"]["sentence"]
    served.latency_s = 0.2
    served.crawl(50)
    assert served.crawl(10) / 10 == pytest.approx(usual_s, rel=0.2)
    assert not live.get(f"/hosts/{HOST}").json()["host_queue"]["slowed"]


def test_one_slow_page_changes_nothing(served):
    live = served.live
    live.client.patch(f"/hosts/{HOST}", json={"latency_factor": 5})
    served.crawl(30)
    served.latency_s = 60.0
    served.crawl(1)
    queue = live.get(f"/hosts/{HOST}").json()["host_queue"]
    assert (queue["slowed"], queue["delay_s"]) == (False, 1.0)


def test_without_a_factor_nothing_is_watched(served):
    served.crawl(5)
    queue = served.live.get(f"/hosts/{HOST}").json()["host_queue"]
    assert (queue["latency_s"], queue["usual_latency_s"], queue["slowed"]) == (None, None, False)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("latency_factor", -1, "such as 5"),
        ("latency_factor", 1_001, "such as 5"),
        ("latency_factor", "fast", "such as 5"),
        ("latency_factor", math.nan, "such as 5"),
        ("latency_factor", True, "such as 5"),
        ("max_delay_s", 0, "such as 30"),
        ("max_delay_s", 1e6, "such as 30"),
    ],
)
@pytest.mark.parametrize("path", ["/hosts/a.example", "/groups/one"])
def test_a_wrong_value_is_refused_by_its_field_with_a_right_one(shared, path, field, value, says):
    body = json.dumps({field: value})
    headers = {"Content-Type": "application/json"}
    method = "PATCH" if path.startswith("/hosts") else "PUT"
    answer = shared.client.request(method, path, content=body, headers=headers)
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"] == field
    assert says in answer.json()["detail"]


def test_put_restores_the_default_and_groups_show_theirs(shared):
    name = "put.example"
    set_to = shared.client.put(f"/hosts/{name}", json={"latency_factor": 4, "max_delay_s": 20})
    assert (set_to.json()["latency_factor"], set_to.json()["max_delay_s"]) == (4, 20)
    cleared = shared.client.put(f"/hosts/{name}", json={}).json()
    assert (cleared["latency_factor"], cleared["max_delay_s"]) == (None, None)
    group = shared.client.put("/groups/g1", json={"latency_factor": 2, "members": [name]}).json()
    assert group["latency_factor"] == 2
    listed = shared.get("/groups").json()["items"]
    assert [one["latency_factor"] for one in listed if one["group"] == "g1"] == [2]


def test_a_slow_host_by_the_default_of_all(database_url):
    with running(database_url, host_delay_s=0, host_concurrency=4, latency_factor=5.0) as live:
        live.register(*URLS)
        at = live.clock()
        for i, url in enumerate(URLS[:60]):
            at += timedelta(seconds=1)
            live.clock.now = at
            item = {"url": url, "observed_at": at.isoformat(), "digest": "1"}
            seconds = 0.2 if i < 45 else 3.0
            live.post("/observations", [{**item, "seconds": seconds}])
        queue = live.get(f"/hosts/{HOST}").json()["host_queue"]
        assert (queue["slowed"], queue["concurrency"]) == (True, 1)
        assert queue["delay_s"] > 5
