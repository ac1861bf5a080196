"""Counts of due pages agree: status, explained leases and the census of the queue."""

from datetime import timedelta
from typing import NamedTuple

import pytest
from support.live_server import running

pytestmark = pytest.mark.dear

URLS = [f"https://{host}.example/{n}" for host in "ab" for n in range(4)]


class Counts(NamedTuple):
    """Due pages at one moment by each view."""

    overdue: int
    explained: int
    census: int
    leased: int


@pytest.fixture
def live(database_url):
    with running(database_url, bandwidth=None, host_delay_s=0.0, host_concurrency=0) as service:
        service.register(*URLS)
        service.clock.advance(seconds=1)
        yield service


def counts(live):
    explained = live.get("/leases", explain="true").json()["explanation"]
    with live.service.store.begin(write=False) as tx:
        census = tx.queue_census(tx.now())
    assert census.n_leased == explained["n_leased"]
    n_overdue = live.get("/status").json()["n_overdue"]
    return Counts(n_overdue, explained["n_due"], census.n_due, census.n_leased)


def lease(live, n, **body):
    return live.post("/leases", {"count": n, **body}).json()["items"]


def test_each_view_counts_what_it_says(live):
    assert counts(live) == (8, 8, 8, 0)
    items = lease(live, 3, ttl_s=60)
    assert counts(live) == (8, 5, 5, 3)
    for item in items[:2]:
        live.post("/observations", [{"lease": item["lease"], "url": item["url"], "status": 200}])
    assert counts(live) == (6, 5, 5, 1)
    live.clock.advance(seconds=61)
    assert counts(live) == (6, 6, 6, 0), "an expired lease holds its page no more"
    live.client.patch("/hosts/a.example", json={"blackouts": [f"{live.clock():%Y-%m-%d} UTC"]})
    assert counts(live)[1] == counts(live)[2], "a closed host has due pages too"


def test_a_feed_is_due_in_no_count_of_leases(live):
    live.post("/pages", [{"url": "https://a.example/feed", "feed": True}])
    live.clock.advance(seconds=1)
    at = counts(live)
    assert at.explained == at.census == 8


def test_a_page_that_falls_due_now_is_due(live):
    lease(live, 8, ttl_s=60)
    assert counts(live)[1:] == (0, 0, 8)
    live.clock.now += timedelta(seconds=60)
    assert counts(live)[1:] == (8, 8, 0)
