"""The time of a spider's request: by turns of the event loop, and by its wait for a slot."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from scrapy import Request, signals
from scrapy.signalmanager import SignalManager
from support.live_server import PATIENCE_S, running
from support.local_site import LocalSite, page, serving
from support.processes import running_python

from recrawl_client import scrapy_times
from recrawl_client.scrapy_times import TURNS, SentTimes

T0 = datetime(2026, 5, 1, tzinfo=UTC)
SLOW_S = 1.0
SPIDER = """
from scrapy import Spider

class Plain(Spider):
    name = "plain"
    custom_settings = {
        "SCHEDULER": "recrawl_client.scrapy.Scheduler",
        "ROBOTSTXT_OBEY": False,
        "DOWNLOAD_DELAY": 0,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
        "RECRAWL_CLOSE_IDLE_S": 1,
    }

    def parse(self, response):
        pass
"""


class Sending:
    """A request of a leased page, and the signals of its way."""

    def __init__(self):
        self.signals, self.held = SignalManager(), {"7-1"}
        self.times = SentTimes(SimpleNamespace(signals=self.signals), self.held.__contains__)
        self.request = Request("http://a.example/", meta={"recrawl": SimpleNamespace(lease="7-1")})

    def enter(self):
        self.signals.send_catch_log(
            signals.request_reached_downloader, request=self.request, spider=None
        )

    def answer(self, **meta):
        self.request.meta.update(meta)
        self.signals.send_catch_log(
            signals.headers_received, request=self.request, headers={}, body_length=1, spider=None
        )

    @property
    def ago_s(self):
        return (datetime.now(UTC) - self.times.at["7-1"]).total_seconds()


async def busy(n_turns, seconds=0.01):
    """Keep the event loop busy in some turns of it."""
    for _ in range(n_turns):
        time.sleep(seconds)  # noqa: ASYNC251 - the loop is to be busy
        await asyncio.sleep(0)


def test_a_request_is_dated_after_the_turns_that_it_needs(monkeypatch):
    turn = 0
    monkeypatch.setattr(scrapy_times, "utc_now", lambda: T0 + timedelta(seconds=turn))

    async def sent():
        nonlocal turn
        one = Sending()
        one.enter()
        for turn in range(1, 2 * TURNS):  # noqa: B007 - the clock reads it
            await asyncio.sleep(0)
        return one.times.at["7-1"]

    # the turn in which the request enters, and those that it needs
    assert asyncio.run(sent()) == T0 + timedelta(seconds=1 + TURNS)


def test_an_answer_ends_the_turns_of_its_request():
    async def sent():
        one = Sending()
        one.enter()
        one.answer(download_latency=0.0)
        first = one.times.at["7-1"]
        await busy(TURNS)
        return one.times.at["7-1"] - first

    assert not asyncio.run(sent())


def test_a_request_that_waited_for_a_slot_is_dated_by_its_latency():
    async def sent():
        one = Sending()
        one.enter()
        entered = one.times.at["7-1"]
        await busy(TURNS, 0.0)
        await asyncio.sleep(0.1)
        one.answer(download_latency=0.02)
        return (one.times.at["7-1"] - entered).total_seconds(), one.ago_s

    waited_s, ago_s = asyncio.run(sent())
    assert waited_s > 0.07
    assert ago_s >= 0.02


def test_a_request_without_a_lease_in_hand_is_not_dated():
    async def sent():
        one = Sending()
        one.held.clear()
        one.enter()
        one.answer()
        return one.times.at

    assert not asyncio.run(sent())


class SlowSite(LocalSite):
    """A site that writes down when each request came, and answers late."""

    def answer(self, path, headers):
        came[path] = datetime.now(UTC)
        time.sleep(SLOW_S)
        return super().answer(path, headers)


came: dict[str, datetime] = {}


@pytest.mark.slow
def test_a_crawl_is_as_old_as_its_request_and_not_as_its_wait(tmp_path, sqlite_url, monkeypatch):
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    spider = tmp_path / "plain.py"
    spider.write_text(SPIDER)
    pages = {f"/{k}": page(str(k)) for k in range(3)}
    with (
        running(sqlite_url, clock=lambda: datetime.now(UTC)) as live,
        serving(pages, SlowSite) as site,
    ):
        live.register(*(site.url(path) for path in pages))
        options = ("-s", f"RECRAWL_URL={live.url}")
        with running_python(tmp_path, "-m", "scrapy", "runspider", spider, *options) as process:
            assert process.wait(PATIENCE_S) == 0
        for path in pages:
            crawled_at = live.get("/pages", url=site.url(path)).json()["last_crawl_at"]
            early_s = (came[path] - datetime.fromisoformat(crawled_at)).total_seconds()
            assert abs(early_s) < SLOW_S / 2
