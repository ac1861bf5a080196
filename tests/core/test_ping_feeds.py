"""Feeds of pings: numbers by hand, page by page, and one verdict whoever asks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.checks import InvalidInput
from service.core.ping_feeds import PingFeeds

NOW = np.datetime64("2026-05-01", "us")
HOUR = np.timedelta64(1, "h")


def test_twenty_pages_of_a_weekly_ping_are_silent_after_three_and_a_quarter_days():
    newest = np.repeat(NOW, 20)
    feeds = PingFeeds.of(np.full(20, 9), np.full(20, 1 / 7), newest)
    assert feeds.ping_rate.tolist() == pytest.approx([20 / 7])
    # 9.21 pings expected, P(none) = 1/10,000, after 9.21 * 7 / 20 = 3.224 days
    hours = np.array([77, 78]) * HOUR
    verdicts = [feeds.silent(np.array([9]), newest[:1], NOW + after)[0] for after in hours]
    assert verdicts == [False, True]


def test_no_feed_is_silent_within_two_days():
    feeds = PingFeeds.of(np.array([9]), np.array([1e6]), np.array([NOW]))
    verdicts = [feeds.silent(np.array([9]), np.array([NOW]), NOW + h * HOUR)[0] for h in (47, 49)]
    assert verdicts == [False, True]


pages = st.lists(
    st.tuples(st.integers(1, 5), st.floats(0.0, 3.0), st.integers(0, 400)), min_size=1, max_size=40
)


def columns(rows):
    host, rate, hours = (np.array(column) for column in zip(*rows, strict=True))
    return host.astype(np.int64), rate.astype(float), NOW - hours * HOUR


@given(pages)
def test_verdicts_are_those_of_each_page_by_hand(rows):
    host, rate, newest = columns(rows)
    verdicts = PingFeeds.of(host, rate, newest).silent(host, newest, NOW)
    for h, verdict in zip(host, verdicts, strict=True):
        of_host = [row for row in rows if row[0] == h]
        silence = min(hours for _, _, hours in of_host) / 24
        expected = sum(rate for _, rate, _ in of_host) * silence
        if abs(expected - 4 * np.log(10)) > 1e-9:
            assert verdict == (expected > 4 * np.log(10) and silence > 2)


@given(pages, st.lists(st.integers(0, 39), min_size=1, max_size=5))
def test_a_page_has_one_verdict_whichever_others_are_judged(rows, asked):
    host, rate, newest = columns(rows)
    feeds, some = PingFeeds.of(host, rate, newest), np.array(asked) % len(rows)
    together = feeds.silent(host, newest, NOW)[some]
    alone = [feeds.silent(host[[i]], newest[[i]], NOW)[0] for i in some]
    assert together.tolist() == alone


@given(pages)
def test_parts_and_packed_numbers_are_the_whole(rows):
    host, rate, newest = columns(rows)
    whole = PingFeeds.of(host, rate, newest)
    parts = [PingFeeds.of(host[own], rate[own], newest[own]) for own in (host > 2, host <= 2)]
    for other in (PingFeeds.of_all(parts), PingFeeds.unpacked(whole.packed())):
        for ours, theirs in zip(whole, other, strict=True):
            np.testing.assert_array_equal(theirs, ours)


def test_a_host_without_sums_is_not_silent():
    long_ago = np.array([NOW - 9_999 * HOUR])
    for feeds in (PingFeeds.none(), PingFeeds.of(np.array([1, 3]), np.ones(2), long_ago[[0, 0]])):
        assert not feeds.silent(np.array([2]), long_ago, NOW).any()
    assert PingFeeds.of_all([]).host_id.size == 0
    with pytest.raises(InvalidInput, match="4 numbers"):
        PingFeeds.unpacked(np.zeros(4, np.int64))
