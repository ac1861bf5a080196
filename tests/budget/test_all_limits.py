"""Windows, caps, delays by latency and a budget at once: all hold, and all crawls are counted."""

from datetime import timedelta
from itertools import pairwise

import pytest
from support.budget_cases import Fleet, service, urls

SLOW, CAPPED, SISTER, FREE = "slow.example", "capped.example", "sister.example", "free.example"
BUDGET, CAP, GROUP_CAP = 60, 5, 8
STEP = timedelta(minutes=10)


class TimedFleet(Fleet):
    """Two workers that state how long their crawls took, and note when hosts are crawled.

    From the second day on, one host takes ten times as long.
    """

    def __init__(self, live):
        super().__init__(live)
        self.slow_from = live.clock() + timedelta(days=1)
        self.at = {host: [] for host in (SLOW, CAPPED, SISTER, FREE)}

    def crawl(self, items):
        now = self.live.clock()
        for each in items:
            self.at[each["host"]].append(now)
        is_slow = now >= self.slow_from
        seconds = [2.0 if is_slow and each["host"] == SLOW else 0.2 for each in items]
        reports = super().crawl(items)
        return [{**one, "seconds": s} for one, s in zip(reports, seconds, strict=True)]


@pytest.mark.slow
def test_each_limit_holds_beside_all_others_and_every_crawl_is_counted(database_url):
    with service(database_url, bandwidth=float(BUDGET), host_delay_s=1.0) as live:
        live.client.put(f"/hosts/{SLOW}", json={"latency_factor": 1_000, "max_delay_s": 2_400})
        live.client.put(f"/hosts/{CAPPED}", json={"max_crawl_rate": CAP})
        group = {"windows": ["06:00-18:00 UTC"], "max_crawl_rate": GROUP_CAP}
        live.client.put("/groups/day", json={**group, "members": [CAPPED, SISTER]})
        live.register(*(url for host in (SLOW, CAPPED, SISTER, FREE) for url in urls(10, host)))
        fleet, begin = TimedFleet(live), live.clock()
        while live.clock() < begin + timedelta(days=3):
            live.service.runner.run_once()
            fleet.ask(count=10)
            live.clock.now += STEP
        live.service.store.counter.write()
        live.service.runner.keep_history()
        rows = live.get("/history", since=begin.isoformat(), step_s=86_400).json()["items"]
    assert max(fleet.days()) <= BUDGET
    assert fleet.days()[-1] >= 0.95 * BUDGET
    counted = [sum(row[name] for row in rows) for name in ("n_leased", "n_reported")]
    assert counted == [sum(fleet.days())] * 2
    both = [sum(pair) for pair in zip(fleet.of(CAPPED), fleet.of(SISTER), strict=True)]
    assert max(fleet.of(CAPPED)) <= CAP
    assert both == [GROUP_CAP] * 3
    assert all(6 <= at.hour < 18 for at in fleet.at[CAPPED] + fleet.at[SISTER])
    # after as many slow crawls as fast ones, the host is usual again
    slow = [at for at in fleet.at[SLOW] if at >= fleet.slow_from][10:18]
    waits = [later - at for at, later in pairwise(slow)]
    assert len(waits) == 7
    assert min(waits) >= timedelta(seconds=1_000)
    before = [at for at in fleet.at[SLOW] if at < fleet.slow_from]
    assert min(b - a for a, b in pairwise(before)) <= STEP
