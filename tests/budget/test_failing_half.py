"""A budget that is shared with pages whose answers often time out."""

from collections import Counter

import numpy as np
import pytest
from support.budget_cases import Fleet, service

N_EACH, DAYS = 10, 10


class Flaky(Fleet):
    """A fleet on hosts of one page, half of which do not answer every second request."""

    def __init__(self, live):
        super().__init__(live)
        self.rng = np.random.default_rng(5)
        self.start = live.clock()
        hosts = [f"{kind}{k}.example" for kind in ("well", "flaky") for k in range(N_EACH)]
        self.changes = {host: np.cumsum(self.rng.exponential(1.0, 100)) for host in hosts}
        self.n = Counter()

    @property
    def day(self):
        return (self.live.clock() - self.start).total_seconds() / 86_400

    def crawl(self, items):
        report = []
        for each in items:
            is_flaky = each["host"].startswith("flaky")
            if self.day >= DAYS / 2:
                self.n[is_flaky] += 1
            found = {"status": 0}
            if not is_flaky or self.rng.random() < 0.5:
                version = self.changes[each["host"]].searchsorted(self.day)
                found = {"status": 200, "digest": f"{each['host']} {version}"}
            sent_at = self.live.clock().isoformat()
            report.append({"lease": each["lease"], "observed_at": sent_at, **found})
        return report


@pytest.mark.slow
def test_pages_that_time_out_half_the_time_take_no_more_than_those_that_answer(database_url):
    with service(database_url, bandwidth=2 * N_EACH * 0.8) as live:
        fleet = Flaky(live)
        live.register(*(f"https://{host}/" for host in fleet.changes))
        live.service.runner.run_once()
        for quarter in range(4 * 24 * DAYS):
            fleet.ask()
            live.clock.advance(minutes=15)
            if quarter % 8 == 0:
                live.service.runner.run_once()
        assert sum(fleet.n.values()) == pytest.approx(0.8 * 2 * N_EACH * DAYS / 2, rel=0.05)
        assert fleet.n[True] <= 1.3 * fleet.n[False], fleet.n
