"""The next lease of a host: the instant that the service names is that of the first lease."""

from datetime import datetime, timedelta

import pytest
from support.live_server import running

pytestmark = pytest.mark.dear

HOST = "slow.example"
URLS = [f"https://{HOST}/{n}" for n in range(3)]
SHORT = timedelta(milliseconds=10)


@pytest.fixture
def live(database_url):
    with running(database_url, bandwidth=None, host_delay_s=60.0, host_concurrency=1) as service:
        service.register(*URLS)
        yield service


def window(live, begin_h, end_h):
    """Return a daily window by hours from now."""
    begin, end = (live.clock() + timedelta(hours=hours) for hours in (begin_h, end_h))
    return f"{begin:%H:%M}-{end:%H:%M} UTC"


def change(live, host=HOST, **fields):
    answer = live.client.patch(f"/hosts/{host}", json=fields)
    assert answer.status_code == 200, answer.text


def lease(live, **body):
    return live.post("/leases", {"count": 1, **body}).json()["items"]


def report(live, item):
    live.post("/observations", [{"lease": item["lease"], "url": item["url"], "status": 200}])


def queue(live, host=HOST):
    """Return when the next lease begins, and why, as the host and the list of hosts show it."""
    shown = live.get(f"/hosts/{host}").json()["host_queue"]
    listed = {item["host"]: item for item in live.get("/hosts").json()["items"]}
    assert listed[host]["host_queue"] == shown
    at = shown["next_at"]
    return at and datetime.fromisoformat(at), shown["next_reason"]


def new_pages(live):
    pass


def ready_for_long(live):
    live.clock.advance(hours=3)


def closed_window(live):
    change(live, windows=[window(live, 2, 4)])


def blackout(live):
    change(live, blackouts=[f"{live.clock():%Y-%m-%d} UTC"])


def delay_past_the_closing(live):
    change(live, windows=[window(live, -1, 1)], min_delay_s=7_200)
    report(live, *lease(live))


def delay(live):
    report(live, *lease(live))


def a_longer_delay_of_old(live):
    delay(live)
    change(live, min_delay_s=600)
    live.clock.advance(seconds=30)


def running_lease(live):
    assert lease(live, ttl_s=600)


def extended_lease(live):
    (item,) = lease(live, ttl_s=600)
    live.client.patch(f"/leases/{item['lease']}", json={"ttl_s": 3_000})


def expired_lease(live):
    lease(live, ttl_s=600)
    live.clock.advance(seconds=630)


def pause(live):
    live.client.post(f"/hosts/{HOST}/pause", json={"for_s": 900})


def pause_by_the_site(live):
    (item,) = lease(live)
    body = {"lease": item["lease"], "url": item["url"], "status": 503, "retry_after_s": 700}
    live.post("/observations", [body])


def pause_of_all(live):
    live.post("/pause", {"for_s": 800})


def pause_that_ends_in_a_closure(live):
    change(live, windows=[window(live, 0, 1), window(live, 5, 6)])
    live.client.post(f"/hosts/{HOST}/pause", json={"for_s": 7_200})


def cap(live):
    change(live, max_crawl_rate=1.0)
    report(live, *lease(live))
    live.clock.advance(hours=1)
    assert lease(live) == []


def group_with_other_windows(live):
    members = [HOST, "other.example"]
    live.register("https://other.example/")
    live.client.put("/groups/g", json={"windows": [window(live, 2, 4)], "members": members})
    change(live, "other.example", windows=[window(live, 6, 8)])


CASES = {
    new_pages: "ready",
    ready_for_long: "ready",
    closed_window: "window",
    blackout: "window",
    delay_past_the_closing: "window",
    delay: "delay",
    a_longer_delay_of_old: "delay",
    running_lease: "lease",
    extended_lease: "lease",
    expired_lease: "lease",
    pause: "paused",
    pause_by_the_site: "paused",
    pause_of_all: "paused",
    pause_that_ends_in_a_closure: "window",
    cap: "cap",
    group_with_other_windows: "window",
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_first_lease_begins_at_the_instant_that_is_named(live, case):
    case(live)
    at, reason = queue(live)
    assert reason == CASES[case]
    wait = at - live.clock()
    if reason == "ready":
        assert abs(wait) < timedelta(seconds=1)
    else:
        live.clock.advance(seconds=(wait - SHORT).total_seconds())
        assert lease(live) == []
        live.clock.advance(seconds=SHORT.total_seconds() * 1.1)
    assert [item["host"] for item in lease(live)] == [HOST]


def test_no_instant_is_named_where_none_comes(live):
    assert queue(live)[1] == "ready"
    live.client.post(f"/hosts/{HOST}/pause", json={"until": "9000-01-01T00:00:00Z"})
    assert queue(live) == (None, "paused")
    live.client.delete(f"/hosts/{HOST}/pause")
    live.client.put("/hosts/empty.example", json={})
    assert queue(live, "empty.example") == (None, "nothing_queued")


def test_a_group_opens_with_the_first_of_its_hosts(live):
    group_with_other_windows(live)
    at, reason = queue(live, "other.example")
    assert (at - live.clock(), reason) >= (timedelta(hours=5), "window")
    shown = live.get("/groups/g").json()["host_queue"]
    assert shown["next_at"] == live.get(f"/hosts/{HOST}").json()["host_queue"]["next_at"]
