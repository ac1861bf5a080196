"""5,000 URLs come at once to a running service: junk in four places, and good pages."""

import pytest
from support.budget_cases import FirstCrawlFleet, service

from benchmarks.budget.trials import JUNK_PLACES, sites

N = 5_000
A_DAY = 200
MOST = {"directory": 40, "among": 40, "directories": 40, "hosts": 150}
"""Maximum first crawls on the first day, by the place of junk."""
REAL = 100


class Site(FirstCrawlFleet):
    """A fleet beside URLs that come later: junk of one content, or good pages."""

    is_junk = True

    def digest(self, crawl, at):
        is_junk = self.is_junk and crawl["url"] not in self.real
        return "junk" if is_junk else super().digest(crawl, at)


def with_copies(live):
    """Return a fleet that has crawled all real pages, on its first day."""
    fleet = Site(live, sites(REAL))
    fleet.register(sorted(fleet.real))
    fleet.play(days=1, every_h=6.0)
    assert len(fleet.first_of) == REAL
    return fleet


@pytest.mark.slow
@pytest.mark.parametrize("place", MOST)
def test_junk_costs_few_crawls_on_its_first_day_and_then_a_sample(database_url, place):
    with service(database_url, bandwidth=A_DAY, admission="learned") as live:
        fleet = with_copies(live)
        fleet.register([JUNK_PLACES[place](i) for i in range(N)])
        # each request sees what the ones before have found
        fleet.play(days=1, every_h=1.0)
        fleet.play(days=4, every_h=6.0)
        first = fleet.first_by_day()
        assert 9 <= first[1] <= MOST[place]
        assert max(first[day] for day in range(2, 6)) <= 0.01 * A_DAY
        assert max(fleet.days()) <= A_DAY + 1


@pytest.mark.slow
def test_good_pages_come_at_the_pace_of_first_crawls(database_url):
    budget, share = 1_000.0, 0.5
    days = 1.1 * N / (share * budget)
    with service(database_url, bandwidth=budget, first_share=share, admission="learned") as live:
        fleet = with_copies(live)
        fleet.is_junk = False
        fleet.register(sites(N, begin=REAL, folder="new"))
        fleet.play(days=round(days), every_h=6.0)
        first = fleet.first_by_day()
    assert first.total() == N
    assert max(first.values()) <= share * budget + 1
