"""Worlds whose pages change and ping, played through a running service by two workers."""

from datetime import timedelta

import numpy as np

from recrawl_lab.replay.staleness import Crawls
from recrawl_lab.worlds.versions import Versions
from support.budget_cases import Fleet

ASKS, EPOCHS = 8, 8
"""Requests of the fleet for crawls, and epochs, a day."""
A_MOMENT = 1e-6
"""Time before the end of a step at which the fleet asks, days."""


class TrialFleet(Fleet):
    """Two workers that crawl the pages of a world, and pay what each crawl costs."""

    def __init__(self, live, world, cost=None):
        super().__init__(live)
        self.world, self.cost = world, cost
        self.versions = Versions(world)
        self.start = live.clock()
        ids = live.register(*world.url)
        self.page = {page_id: page for page, page_id in enumerate(ids)}
        self.ids = ids
        self.made = []
        """Page and instant of each crawl."""
        # copies of several ages, so that some pages are due or nearly so from the first day on
        ago = [(self.start - timedelta(days=2 + n % 5)).isoformat() for n in range(len(ids))]
        known = [self.seen_at(page, at, 0.0) for page, at in enumerate(ago)]
        assert live.post("/observations", known).json()["accepted"] == len(ids)

    @property
    def day(self):
        """Days since the start of the trial."""
        return (self.live.clock() - self.start) / timedelta(days=1)

    def seen_at(self, page, at, day):
        """Return a report of a page as it is on some day."""
        version = int(self.versions.at(np.array([page]), np.array([day]))[0])
        seen = {"page_id": self.ids[page], "observed_at": at, "digest": f"{page} {version}"}
        return seen if self.cost is None else seen | {"bytes": float(self.cost[page])}

    def crawl(self, items):
        super().crawl(items)
        at, day = self.live.clock().isoformat(), self.day
        pages = [self.page[each["page_id"]] for each in items]
        self.made += [(page, day) for page in pages]
        seen = [self.seen_at(page, at, day) for page in pages]
        return [
            {"lease": each["lease"]} | {k: v for k, v in one.items() if k != "page_id"}
            for each, one in zip(items, seen, strict=True)
        ]

    def ping(self, notices, begin, end):
        """Send the pings of a time, each at its instant."""
        first, last = notices.at.searchsorted([begin, end])
        pings = [
            {
                "page_id": self.ids[page],
                "changed_at": (self.start + timedelta(days=at)).isoformat(),
            }
            for page, at in zip(
                notices.page[first:last].tolist(), notices.at[first:last].tolist(), strict=True
            )
        ]
        if pings:
            answer = self.live.post("/pings", pings)
            assert answer.status_code == 200, answer.text

    def play_trial(self, notices):
        """Play all days; return the crawls."""
        steps = round(self.world.days * ASKS)
        for step in range(steps):
            if step % (ASKS // EPOCHS) == 0:
                self.live.service.runner.run_once()
            begin, end = step / ASKS, (step + 1) / ASKS
            self.live.clock.now = self.start + timedelta(days=end - A_MOMENT)
            self.ping(notices, begin, end)
            self.ask()
        page, at = zip(*self.made, strict=True)
        return Crawls(np.array(page), np.array(at))

    def spent(self):
        """Return what the crawls of each day cost."""
        page, at = zip(*self.made, strict=True)
        return np.bincount(np.array(at).astype(int), np.array(self.cost)[list(page)])
