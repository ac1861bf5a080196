"""A host with a window has its part of each hour, also where the day has begun without it."""

import pytest
from support.budget_cases import Fleet, service

HOSTS = ("a.example", "b.example", "c.example")
WINDOW = {"windows": ["00:00-23:50 UTC"]}
BUDGET = 2_400.0


class FastFleet(Fleet):
    """One worker that asks for few pages at a time, which change before each crawl."""

    def digest(self, crawl, at):
        return f"{crawl['page_id']} {at}"

    def ask_some(self, n):
        """Take `n` crawls, a few at a time."""
        report = []
        while n > 0:
            asked = {"count": min(n, 5), "worker": "w", "report": report}
            items = self.clients[0].post("/leases", json=asked).json()["items"]
            report, n = self.crawl(items), n - len(items)
            if not items:
                break
        self.clients[0].post("/leases", json={"count": 0, "report": report})


def begun(live):
    """Register pages of all hosts in turn, so that none of them has waited longest at a tie."""
    for n in range(200):
        live.clock.advance(seconds=1)
        live.register(*(f"https://{host}/{n}" for host in HOSTS))
    return FastFleet(live, live.client)


@pytest.mark.dear
def test_a_service_that_starts_in_the_afternoon_serves_all_hosts_alike(database_url):
    with service(database_url, bandwidth=BUDGET, admission="all") as live:
        live.clock.advance(hours=16)
        live.client.patch("/hosts/a.example", json=WINDOW)
        fleet = begun(live)
        live.service.runner.run_once()
        fleet.ask_some(60)
        live.clock.advance(minutes=2)
        fleet.ask_some(60)
    assert fleet.of("a.example")[0] <= 1.3 * 120 / 3, fleet.crawls


@pytest.mark.dear
def test_a_host_whose_window_is_new_has_had_its_part_of_the_day(database_url):
    with service(database_url, bandwidth=BUDGET, admission="all") as live:
        fleet = begun(live)
        live.service.runner.run_once()
        for _ in range(4):
            fleet.ask(count=20)
            live.clock.advance(hours=1)
        live.client.patch("/hosts/a.example", json=WINDOW)
        live.service.runner.run_once()
        with live.service.store.begin(write=False) as tx:
            pace = tx.pace()
        of_a, of_all = fleet.of("a.example")[0], sum(fleet.days())
        assert pace.in_windows == pytest.approx(of_a, abs=0.05 * of_all)
        live.client.patch("/hosts/a.example", json={"windows": None})
        live.service.runner.run_once()
        with live.service.store.begin(write=False) as tx:
            assert tx.pace().in_windows == 0.0
