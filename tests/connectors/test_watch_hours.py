"""Windows in a watch: questions to the service, and documents that wait for an opening."""

from datetime import UTC, datetime, timedelta

import pytest

from recrawl_client.wire.hosts import OpenHoursAnswer
from service.connectors.watch_hours import HostClosed, WatchHours

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
OPENS = NOW + timedelta(minutes=5)


class Site:
    """The service's answers about a host that opens at a time."""

    def __init__(self):
        self.seconds, self.asked = 0.0, 0

    def now(self):
        return NOW + timedelta(seconds=self.seconds)

    def open_hours(self, host):
        self.asked += 1
        is_open = self.now() >= OPENS
        return OpenHoursAnswer(
            blackouts=[],
            is_open=is_open,
            opens_at=None if is_open else OPENS,
            closes_at=OPENS + timedelta(hours=1) if is_open else None,
            share=0.1,
            week=[],
        )


@pytest.fixture
def site():
    return Site()


@pytest.fixture
def hours(site):
    return WatchHours(site, lambda: site.seconds, site.now)


def test_a_closed_host_is_not_read_and_its_documents_wait(site, hours):
    with pytest.raises(HostClosed, match="window closed until 2026-05-01 12:05 UTC") as error:
        hours.check("a.example")
    hours.put_off("https://a.example/sitemap.xml", error.value.opens_at)
    assert list(hours.openings(100.0)) == []
    assert list(hours.openings(3_600.0)) == [(300.0, ["https://a.example/sitemap.xml"])]
    assert list(hours.openings(3_600.0)) == []
    site.seconds = 300.0
    hours.check("a.example")


def test_an_answer_is_valid_for_a_minute_or_up_to_the_edge(site, hours):
    for site.seconds in (0.0, 30.0, 59.0):
        with pytest.raises(HostClosed):
            hours.check("a.example")
    assert site.asked == 1
    site.seconds = 290.0
    with pytest.raises(HostClosed):
        hours.check("a.example")
    assert site.asked == 2
    site.seconds = 301.0  # an answer of eleven seconds ago would still say closed
    hours.check("a.example")
    assert site.asked == 3
