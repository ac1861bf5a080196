"""What a day costs through a running service: two workers, pages of unlike costs, hard days.

One page in ten costs twenty times as much as another, and the service learns what each costs from
the reports alone. A price is known before its crawl, so money is never exceeded. The bytes of a
page are known after its crawl, and each crawl has more or fewer than the one before.
"""

from collections import Counter

import numpy as np
import pytest
from support.budget_cases import Fleet, service

N, DEAR, RATIO = 1_000, 100, 20.0
BUDGET = 580
"""Crawls of cheap pages that a day pays for; all pages together cost 2,900 of them."""
DAYS = 21
ASKS, ROUNDS = 4, 3
"""Requests of the fleet for crawls a day, and epochs between two of them."""


class PayingFleet(Fleet):
    """Two workers that report what each crawl cost, and pay no more than a lease permits."""

    def __init__(self, live, unit, cheap, jitter=0.0):
        super().__init__(live)
        self.unit, self.jitter = unit, jitter
        self.rng = np.random.default_rng(11)
        self.spent = Counter()
        """Amount that the crawls of each day cost."""
        ids = live.register(*(f"https://h{i % 40}.example/{i}" for i in range(N)))
        self.cost = {one: cheap * (RATIO if i < DEAR else 1.0) for i, one in enumerate(ids)}

    def crawl(self, items):
        report = super().crawl(items)
        for each, told in zip(items, report, strict=True):
            cost = self.cost[each["page_id"]] * (1 + self.jitter * self.rng.uniform(-1, 1))
            if self.unit == "price":
                told["price"] = f"USD {cost:.2f}"
                if float((each.get("max_price", "USD 0")).removeprefix("USD ")) < cost:
                    told |= {"status": 402}
                    del told["digest"]
                    continue
            else:
                told[self.unit] = cost
            self.spent[self.live.clock().date()] += cost
        return report


def shares(database_url, unit, cheap, jitter=0.0, budget_unit=None):
    """Return the share of the budget that each day of a trial has spent."""
    budget = BUDGET * cheap
    options = {"bandwidth": None, "budget": f"{budget:g} {budget_unit or unit}"}
    with service(database_url, **options) as live:
        fleet = PayingFleet(live, unit, cheap, jitter)
        live.clock.advance(seconds=-1)
        for _ in range(DAYS * ASKS):
            # a round counts the pages that may come forward, and the next one queues them
            for _ in range(ROUNDS):
                live.service.runner.run_once()
                live.clock.advance(hours=24 / ASKS / ROUNDS)
            fleet.ask()
        dates = fleet.dates()
    assert len(dates) == DAYS
    return np.array([fleet.spent[day] for day in dates]) / budget


@pytest.mark.slow
def test_a_day_spends_its_money_and_never_more(database_url):
    days = shares(database_url, "price", 0.01, budget_unit="USD")
    assert days.max() <= 1 + 1e-9, " ".join(map("{:.3f}".format, days))
    assert days[1:].min() >= 0.99 - RATIO / BUDGET, " ".join(map("{:.3f}".format, days))


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "cheap"), [("bytes", 10_000.0), ("seconds", 0.5)])
def test_a_day_spends_its_bytes_and_seconds_within_a_hundredth(database_url, unit, cheap):
    days = shares(database_url, unit, cheap, jitter=0.2)
    off = np.abs(days - 1)
    assert off[1:].max() <= 0.01 + RATIO / BUDGET, " ".join(map("{:.3f}".format, days))
    assert off[0] <= 0.3, "the first day must learn the costs, and not spend days at once"
