"""The time of a request: of httpx, also where the process stands still before it leaves."""

import asyncio
from datetime import timedelta

import httpx
import pytest
from support.live_server import Clock, lease_freely, running
from support.local_site import page, serving

from recrawl_client import AsyncSentAt, Client, SentAt
from recrawl_client.sending import PRECISION_S

DELAY_S = 1.0


class Stalling:
    """A clock that goes on by some seconds between the date of a request and its sending."""

    def __init__(self, clock, stall_s):
        self.clock, self.stall_s = clock, stall_s
        self.n_looks = 0

    def __call__(self):
        self.n_looks += 1
        if self.n_looks % 2 == 0:
            self.clock.advance(seconds=self.stall_s)
        return self.clock.now.timestamp()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(scope="module")
def site():
    with serving({f"/{k}": page(str(k)) for k in range(2)}) as site:
        yield site


def sent(site, *, clock, stall_s):
    """Request a page; return its time, and that at which the request was on its way."""
    sent_at = SentAt(clock, Stalling(clock, stall_s))
    with httpx.Client() as web:
        web.get(site.url("/0"), extensions={"trace": sent_at})
    return sent_at.value, clock.now


def test_a_request_is_dated_before_it_leaves(site, clock):
    start = clock.now
    assert sent(site, clock=clock, stall_s=PRECISION_S / 2)[0] == start


def test_a_request_that_may_have_left_much_later_has_no_date(site, clock):
    assert sent(site, clock=clock, stall_s=2 * PRECISION_S)[0] is None


def test_so_it_is_for_asyncio(site, clock):
    async def dated(stall_s):
        sent_at = AsyncSentAt(clock, Stalling(clock, stall_s))
        async with httpx.AsyncClient() as web:
            await web.get(site.url("/0"), extensions={"trace": sent_at})
        return sent_at.value

    assert asyncio.run(dated(0.0)) == clock.now
    assert asyncio.run(dated(2 * PRECISION_S)) is None


def test_a_request_that_never_left_has_no_date(clock):
    sent_at = SentAt(clock)
    with httpx.Client() as web, pytest.raises(httpx.ConnectError):
        web.get("http://127.0.0.1:1/", extensions={"trace": sent_at})
    assert sent_at.value is None


def test_the_last_of_several_requests_counts(clock):
    sent_at = SentAt(clock, Stalling(clock, 0.0))
    for _ in range(2):
        for step in ("started", "complete"):
            sent_at(f"http11.send_request_headers.{step}", {})
        last = clock.now
        clock.advance(seconds=1)
    assert sent_at.value == last
    sent_at("http11.send_request_headers.started", {})
    sent_at("http11.send_request_headers.failed", {})
    assert sent_at.value is None


@pytest.fixture
def live(database_url):
    with running(database_url, host_delay_s=DELAY_S) as live:
        lease_freely(live)
        yield live


def leased(live):
    return live.post("/leases", {"count": 1}).json()["items"]


@pytest.mark.dear
@pytest.mark.parametrize("stall_s", [0.0, 0.6 * DELAY_S, 3 * DELAY_S])
def test_the_next_request_of_a_host_keeps_its_delay_after_a_stall(live, site, stall_s):
    live.register("http://a.example/0", "http://a.example/1")
    with Client(live.url, now=live.clock) as client:
        (crawl,) = client.lease(count=1).items
        live.clock.advance(seconds=0.1)
        sent_at, arrived = sent(site, clock=live.clock, stall_s=stall_s)
        client.report(crawl, observed_at=sent_at, status=200, digest="1")
    for early_s in (0.05, 0.001):
        live.clock.now = max(live.clock.now, arrived + timedelta(seconds=DELAY_S - early_s))
        assert not leased(live)
    live.clock.now = arrived + timedelta(seconds=DELAY_S)
    assert leased(live)


@pytest.mark.dear
def test_a_request_for_a_crawl_during_a_stall_is_not_lost(live, site):
    live.register("http://a.example/0")
    with Client(live.url, now=live.clock) as client:
        (crawl,) = client.lease(count=1).items
        live.clock.advance(seconds=0.1)
        sent_at, _ = sent(site, clock=live.clock, stall_s=3.0)
        live.clock.now -= timedelta(seconds=1)  # while the process stands still
        live.post("/pages/recrawl", {"urls": [crawl.url]})
        live.clock.advance(seconds=60)
        client.report(crawl, observed_at=sent_at, status=200, digest="1")
    live.clock.advance(seconds=60)
    assert [one["url"] for one in leased(live)] == [crawl.url]
