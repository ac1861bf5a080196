"""The trials of a budget through a running service: two workers, hard days, simulated time.

The worlds are those of `benchmarks.budget.trials`, with fewer pages and an earlier disturbance. A
corpus begins without copies, so the first days pay for first crawls. The fleet asks at the end of
each step, so the first day spends its budget at 6 h, in advance of its income. The next days must
not lack it.
"""

from datetime import timedelta

import numpy as np
import pytest
from support.budget_cases import Fleet, service

from benchmarks.budget.trials import (
    Trial,
    capped,
    dead,
    flickering,
    pinged,
    quiet,
    renewed,
    tenfold,
)
from recrawl_lab.worlds.versions import Versions
from service.model.arrays import UNSPECIFIED

ASKS = 4
"""Requests of the fleet for crawls a day."""
A_MOMENT = 1e-6
"""Time before the end of a step at which the fleet asks, days."""
NEAR = 5
"""Days after a change of the budget that may be off by 3 % in place of 1 %."""
N = 100
TRIALS = {
    "quiet": lambda: quiet(N, 1, 15.0),
    "false pings": lambda: pinged(N, 1, 21.0, 10.0),
    "new pages each week": lambda: renewed(N, 1, 15.0),
    "dead pages": lambda: dead(N, 1, 21.0, 9.0),
    "crawls that time out": lambda: flickering(N, 1, 21.0, 9.0),
    "caps": lambda: capped(2 * N, 1, 16.0, 8.0),
    "ten times the budget": lambda: tenfold(N, 1, 25.0, 8.0, 15.0),
}


class TrialFleet(Fleet):
    """Two workers on the pages of a trial, which come, end, time out, ping and have caps."""

    def __init__(self, live, trial: Trial):
        super().__init__(live)
        self.trial, self.world = trial, trial.world
        self.versions = Versions(trial.world)
        self.start = live.clock()
        self.page_of, self.id_of = {}, {}
        self.caps, self.budget = {}, trial.budget(0.0)

    @property
    def day(self):
        """Days since the start of the trial."""
        return (self.live.clock() - self.start) / timedelta(days=1)

    def crawl(self, items):
        super().crawl(items)
        day, at = self.day, self.live.clock().isoformat()
        page = np.array([self.page_of[each["page_id"]] for each in items])
        when = np.full(len(page), day)
        version, status = self.versions.at(page, when), self.trial.status(page, when)
        status = np.where((status == UNSPECIFIED) & (self.world.ended[page] <= day), 404, status)
        found = [
            {"digest": f"{one} {version}"} if code == UNSPECIFIED else {"status": int(code)}
            for one, version, code in zip(page, version, status, strict=True)
        ]
        return [
            {"lease": each["lease"], "observed_at": at, **seen}
            for each, seen in zip(items, found, strict=True)
        ]

    def register(self, begin, end):
        """Register the pages that come in a time."""
        created = self.world.created
        page = np.flatnonzero((created >= begin) & (created < end)).tolist()
        if page:
            ids = self.live.register(*(self.world.url[one] for one in page))
            self.page_of |= dict(zip(ids, page, strict=True))
            self.id_of |= dict(zip(page, ids, strict=True))

    def ping(self, begin, end):
        """Send the pings of a time."""
        if self.trial.notices is None:
            return
        page, at = self.trial.notices
        some = np.flatnonzero((at >= begin) & (at < end)).tolist()
        pings = [
            {
                "page_id": self.id_of[page[one]],
                "changed_at": (self.start + timedelta(days=at[one])).isoformat(),
            }
            for one in some
        ]
        if pings:
            assert self.live.post("/pings", pings).status_code == 200

    def order(self, day):
        """Give the orders of an operator on a day: caps and the budget."""
        for host, cap in self.trial.caps(day).items():
            if host not in self.caps:
                settings = {"max_crawl_rate": cap}
                assert self.live.client.put(f"/hosts/{host}", json=settings).status_code == 200
                self.caps[host] = cap
        if (budget := self.trial.budget(day)) != self.budget:
            order = {"budget": f"{budget} crawls"}
            assert self.live.client.put("/budget", json=order).status_code == 200
            self.budget = budget

    def play_trial(self):
        """Play all days; return the crawls of each day, and the budgets."""
        days = round(self.world.days)
        for step in range(days * ASKS):
            begin, end = step / ASKS, (step + 1) / ASKS
            self.live.clock.now = self.start + timedelta(days=begin)
            self.order(begin)
            self.register(begin if step else -np.inf, end - 0.5 / ASKS)
            # a round counts the pages that may come forward, and the next one queues them
            for part in (0.0, 0.5, 0.9):
                self.live.clock.now = self.start + timedelta(days=begin + part / ASKS)
                self.live.service.runner.run_once()
            self.live.clock.now = self.start + timedelta(days=end - A_MOMENT)
            self.ping(begin, end)
            self.ask()
            self.register(end - 0.5 / ASKS, end)
        return np.array(self.days(), float), np.array([self.trial.budget(d) for d in range(days)])


def played(database_url, trial, **options):
    """Return a fleet that has played a trial, the crawls of each day, and the budgets."""
    with service(database_url, bandwidth=trial.budget(0.0), **options) as live:
        fleet = TrialFleet(live, trial)
        return fleet, *fleet.play_trial()


def near(trial, n_days):
    """Return which days lie shortly after a change of the budget."""
    day = np.arange(n_days)
    return np.any([(day >= each) & (day < each + NEAR) for each in trial.breaks] or [day < 0], 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIALS)
def test_days_and_weeks_of_a_trial_keep_the_budget(database_url, name):
    trial = TRIALS[name]()
    fleet, days, budget = played(database_url, trial)
    assert len(days) == len(budget)
    off, close = np.abs(days - budget), near(trial, len(days))
    allowed = np.where(close, 0.03, 0.01) * budget + 1
    assert (off <= allowed).all(), days.tolist()
    for begin in range(0, len(days) - 6, 7):
        week = slice(begin, begin + 7)
        if not close[week].any():
            assert abs((days - budget)[week].sum()) <= 0.005 * budget[week].sum() + 1, begin
    for host, cap in fleet.caps.items():
        since = fleet.start.date() + timedelta(days=8)
        of_host = [fleet.crawls[day, host] for day in fleet.dates() if day >= since]
        assert max(of_host) <= np.ceil(cap), host
        assert sum(of_host) <= cap * len(of_host) + 1, host


@pytest.mark.slow
def test_with_a_loan_days_in_a_row_have_at_most_three_budgets_more(database_url):
    trial = TRIALS["false pings"]()
    _, days, budget = played(database_url, trial, budget_loan=3)
    beyond = np.concatenate([[0.0], np.cumsum(days - budget)])
    assert (beyond - np.minimum.accumulate(beyond)).max() <= 3 * budget[0] + 1
    weeks = (days / budget)[:21].reshape(-1, 7).mean(1)
    assert weeks == pytest.approx(np.ones(3), abs=0.015)
