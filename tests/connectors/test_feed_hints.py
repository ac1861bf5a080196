"""What a feed states about itself: interval, window, hub."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from service.connectors.entries import HeadField
from service.connectors.feed_hints import FASTEST, LONGEST, hints, smallest_interval, window_rate
from service.connectors.sitemap import Sitemap

NOW = datetime(2026, 5, 11, tzinfo=UTC)


def read(text: str):
    feed = Sitemap(text.encode(), 100_000, "https://example.com/feed")
    dates = [entry.lastmod for entry in feed]
    return hints(feed.head, dates, NOW)


RSS = """<rss xmlns:sy="http://purl.org/rss/1.0/modules/syndication/"
 xmlns:atom="http://www.w3.org/2005/Atom"><channel><title>x</title>{}
 <item><link>/a</link><ttl>1</ttl><atom:link rel="hub" href="/no"/></item></channel></rss>"""


@pytest.mark.parametrize(
    ("head", "rate"),
    [
        ("", None),
        ("<ttl>60</ttl>", 24.0),
        ("<ttl> 60 </ttl>", 24.0),
        ("<ttl>0</ttl>", None),
        ("<ttl>-5</ttl><ttl>nan</ttl>", None),
        ("<ttl>inf</ttl>", None),
        ("<sy:updatePeriod> hourly </sy:updatePeriod>", 24.0),
        ("<sy:updatePeriod>daily</sy:updatePeriod><sy:updateFrequency>4</sy:updateFrequency>", 4.0),
        ("<sy:updatePeriod>hourly</sy:updatePeriod><ttl>120</ttl>", 12.0),
        ("<sy:updatePeriod>yearly</sy:updatePeriod>", 1 / LONGEST),
        ("<sy:updatePeriod>never</sy:updatePeriod>", None),
    ],
)
def test_the_smallest_interval_is_read(head, rate):
    found = read(RSS.format(head)).max_crawl_rate
    assert found is None if rate is None else found == pytest.approx(rate)


@pytest.mark.parametrize(
    ("text", "hub"),
    [
        (RSS.format('<atom:link rel="self hub" href="https://h.example/?a=1&amp;b"/>'), True),
        ('<feed><link href="https://h.example/?a=1&amp;b" rel="HUB"/><entry/></feed>', True),
        ('{"hubs": [{"type": "WebSub", "url": "https://h.example/?a=1&b"}], "items": []}', True),
        (RSS.format(""), False),
    ],
)
def test_the_hub_of_the_feed_is_read_and_not_that_of_an_entry(text, hub):
    assert read(text).hub == ("https://h.example/?a=1&b" if hub else "")


def test_the_first_of_several_statements_counts():
    fields = [HeadField("ttl", "", "60"), HeadField("ttl", "", "600")]
    assert smallest_interval(fields) == pytest.approx(1 / 24)


@pytest.mark.parametrize("n", [4, 10, 50, 500])
def test_reads_at_the_rate_of_the_window_hardly_ever_miss_an_entry(n):
    rng = np.random.default_rng(n)
    dates = [NOW - timedelta(days=10 * (k + 1) / n) for k in range(n)]
    rate = window_rate(dates, NOW)
    assert rate is not None
    arrivals = rng.poisson(n / 10 / rate, 20_000)
    assert (arrivals > n).mean() < 0.02
    assert rate < 10 * n / 10  # not more often than the entries themselves demand


def test_few_or_future_dates_show_no_window():
    assert window_rate([NOW] * 3, NOW) is None
    assert window_rate([NOW + timedelta(days=1)] * 50, NOW) is None


def test_no_feed_demands_more_than_the_fastest_rate():
    assert window_rate([NOW] * 50, NOW) == FASTEST
    assert window_rate([NOW - timedelta(seconds=1)] * 5, NOW) == FASTEST


def test_the_window_asks_for_no_more_than_the_interval_allows():
    now_dates = [NOW.isoformat()] * 10
    found = hints([HeadField("ttl", "", "1440")], now_dates, NOW)
    assert (found.max_crawl_rate, found.min_crawl_rate) == (1.0, 1.0)


def test_dates_that_are_none_count_for_nothing():
    assert hints([], [None, "soon", "1970-01-01", ""], NOW).min_crawl_rate is None
