"""A new directory of a running service begins at what its parent is worth."""

from collections import Counter

import pytest
from support.budget_cases import FirstCrawlFleet, service

A_DAY = 200
GOOD = 30
"""Number of pages of a good directory."""


def letters(number):
    return "".join(chr(97 + int(digit)) for digit in str(number))


class Site(FirstCrawlFleet):
    """A fleet on a site with junk of one content; all other pages differ."""

    def digest(self, crawl, at):
        return "junk" if "/junk/" in crawl["url"] else super().digest(crawl, at)

    def first_crawls(self, part):
        """Return the number of first crawls of URLs with a part, by day."""
        return Counter(day for url, day in self.first_of.items() if part in url)


def site_with_copies(live):
    """Return a fleet that has crawled 50 good pages in five directories."""
    fleet = Site(live)
    fleet.register([f"https://h0.example/d{i % 5}/p{i}" for i in range(50)])
    fleet.play(days=1, every_h=6.0)
    assert len(fleet.first_of) == 50
    return fleet


@pytest.mark.parametrize(
    "n",
    [
        pytest.param(500, id="500", marks=pytest.mark.slow),
        pytest.param(5_000, id="5,000", marks=pytest.mark.slow),
    ],
)
def test_a_new_directory_begins_at_the_worth_of_its_parent(database_url, n):
    with service(database_url, bandwidth=A_DAY, admission="learned") as live:
        fleet = site_with_copies(live)
        fleet.register([f"https://h0.example/junk/{letters(i)}/x?id={i}" for i in range(n)])
        fleet.play(days=2, every_h=6.0)
        junk = fleet.first_crawls("/junk/")
        assert 12 <= junk[1] <= 40
        assert junk[2] <= 0.01 * A_DAY

        fleet.register([f"https://h0.example/fresh/p{i}" for i in range(GOOD)])
        fleet.ask()
        assert fleet.first_crawls("/fresh/")[3] >= 12, "a good parent: at once"
        fleet.play(days=1, every_h=6.0)
        assert fleet.first_crawls("/fresh/").total() == GOOD

        fleet.register([f"https://h0.example/junk-not/p{i}" for i in range(GOOD)])
        fleet.register([f"https://h0.example/junk/good/p{i}" for i in range(GOOD)])
        fleet.digest = lambda crawl, at: (
            "junk" if "/junk/" in crawl["url"] and "/good/" not in crawl["url"] else crawl["url"]
        )
        fleet.play(days=1, every_h=6.0)
        assert fleet.first_crawls("/junk-not/").total() == GOOD
        assert fleet.first_crawls("/good/").total() <= 1, "a bad parent: a sample"
        fleet.play(days=13, every_h=12.0)
        assert fleet.first_crawls("/good/").total() == GOOD
        later = fleet.first_crawls("/junk/") - fleet.first_crawls("/good/")
        assert max(later[day] for day in range(5, 17)) <= 0.01 * A_DAY + 9
