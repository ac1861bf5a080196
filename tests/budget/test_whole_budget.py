"""Gate, plan and worth together: a trap opens on a site whose pages all have copies."""

from collections import Counter
from datetime import timedelta

import pytest
from support.budget_cases import Fleet, service, urls

HOSTS = [f"h{i}.example" for i in range(5)]
A_DAY = 40
PLACES = {
    "one directory": lambda i: f"https://h0.example/search/list?id={i}",
    "a directory each": lambda i: f"https://h0.example/{'abcdefghij'[i % 10]}{i}/list",
}


class Site(Fleet):
    """A fleet on a site whose real pages change every other day, and whose junk is all alike."""

    def __init__(self, live, real):
        super().__init__(live)
        self.real = set(real)
        self.junk = Counter()
        """Number of crawls of junk by day."""
        self.pages = Counter()
        """Number of crawls of each real page by day."""

    def digest(self, crawl, at):
        page, day = crawl["page_id"], self.live.clock().date()
        if page not in self.real:
            self.junk[day] += 1
            return "junk"
        self.pages[day, page] += 1
        return f"{page} {(day.toordinal() + page) // 2}"


class SlowFleet(Site):
    """A fleet whose workers take three crawls at a time."""

    def ask(self, count=3):
        taken = 0
        for n, client in enumerate(self.clients):
            answer = client.post("/leases", json={"count": count, "worker": f"w{n}"})
            if items := answer.json()["items"]:
                report = self.crawl(items)
                assert client.post("/observations", json=report).json()["n_rejected"] == 0
            taken += len(items)
        return taken


def with_copies(live):
    """Register 200 real pages, and report a crawl of each before the first day."""
    ids = live.register(*(url for host in HOSTS for url in urls(40, host)))
    before = [(live.clock() - timedelta(days=1 + n % 5)).isoformat() for n in range(len(ids))]
    first = [
        {"page_id": page, "observed_at": at, "digest": f"first {page}"}
        for page, at in zip(ids, before, strict=True)
    ]
    assert live.post("/observations", first).json()["accepted"] == len(ids)
    live.service.runner.run_once()
    return ids


def played(fleet, place, every_h):
    """Play eight days, junk from the third on; return the crawls of junk on each day."""
    clock, start = fleet.live.clock, fleet.live.clock()
    for day in range(8):
        if day == 2:
            fleet.live.register(*(PLACES[place](i) for i in range(500)))
        # what is left over at the end of a day brings pages forward
        for hour in (*range(0, 24, every_h), 23.9):
            clock.now = start + timedelta(days=day, hours=hour)
            fleet.live.service.runner.run_once()
            fleet.ask()
    days = fleet.days()
    assert len(days) == 8
    assert days == pytest.approx([A_DAY] * 8, abs=0.01 * A_DAY + 1)
    return [fleet.junk[day] for day in fleet.dates()]


def crawled(fleet):
    """Return the crawls of real pages on each day, and the pages of the last five days."""
    dates = fleet.dates()
    sums = [sum(n for (day, _), n in fleet.pages.items() if day == date) for date in dates]
    return sums, {page for day, page in fleet.pages if day in dates[3:]}


@pytest.mark.slow
def test_junk_costs_one_day_where_first_crawls_have_room_for_it(database_url):
    with service(database_url, bandwidth=A_DAY, first_share=0.75, admission="learned") as live:
        fleet = SlowFleet(live, with_copies(live))
        junk = played(fleet, "one directory", every_h=3)
        assert junk[:2] == [0, 0]
        assert 12 <= junk[2] <= 40
        assert max(junk[3:]) <= 2
        assert sum(junk[3:]) > 0, "a sample goes on"
        assert min(crawled(fleet)[0]) >= A_DAY / 4, (
            "first crawls have three quarters of a day at most"
        )


@pytest.mark.dear
@pytest.mark.parametrize("place", PLACES)
def test_junk_costs_forty_crawls_where_a_fleet_spends_each_day_at_once(database_url, place):
    """The first lease of a day takes its budget, so that verdicts come on the next days."""
    with service(database_url, bandwidth=A_DAY, admission="learned") as live:
        fleet = Site(live, with_copies(live))
        junk = played(fleet, place, every_h=8)
        assert junk[:2] == [0, 0]
        assert 12 <= sum(junk[2:]) <= 40
        assert max(junk[6:]) <= 2
        sums, pages = crawled(fleet)
        assert max(junk) <= A_DAY / 2, "first crawls have half of a day at most"
        days = [real + first for real, first in zip(sums, junk, strict=True)]
        assert min(days) >= A_DAY - 1, "real pages have the rest"
        assert len(pages) >= 0.8 * len(fleet.real)
