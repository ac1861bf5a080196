"""Hosts with different windows have their shares of each day while a fleet is behind."""

import pytest
from support.budget_cases import Fleet, service

WINDOWS = {
    "always.example": None,
    "too.example": None,
    "day.example": "06:00-18:00 UTC",
    "evening.example": "20:00-24:00 UTC",
}
BUDGET, N = 60.0, 60


class PlainFleet(Fleet):
    """A fleet on pages that change before each crawl, each for itself."""

    def digest(self, crawl, at):
        return f"{crawl['page_id']} {at}"


def registered(live):
    """Set the windows, register pages of the hosts in turns, and plan."""
    for host, windows in WINDOWS.items():
        if windows:
            live.client.patch(f"/hosts/{host}", json={"windows": [windows]})
    live.register(*(f"https://{host}/{n}" for n in range(N) for host in WINDOWS))
    live.service.runner.run_once()
    return PlainFleet(live)


def play(fleet, days):
    """Ask each hour, without epochs."""
    for _ in range(24 * days):
        fleet.live.service.runner.fill_queue()
        fleet.ask()
        fleet.live.clock.advance(hours=1)


@pytest.mark.dear
def test_new_pages_of_hosts_that_open_late_have_their_share_of_the_first_days(database_url):
    with service(database_url, bandwidth=BUDGET, admission="all") as live:
        fleet = registered(live)
        play(fleet, days=2)
    assert fleet.days() == [BUDGET] * 2
    for host in WINDOWS:
        assert sum(fleet.of(host)) == pytest.approx(2 * BUDGET / 4, rel=0.1), host


@pytest.mark.slow
def test_each_host_has_its_share_of_half_of_the_planned_budget(database_url):
    with service(database_url, bandwidth=2 * BUDGET, admission="all", change_hours=False) as live:
        fleet = registered(live)
        play(fleet, days=3)  # all pages have their first copy
        live.service.runner.run_once()
        answer = live.client.put("/budget", json={"budget": f"{BUDGET:g} crawls"})
        assert answer.status_code < 300, answer.text
        play(fleet, days=10)
    for host in WINDOWS:
        assert sum(fleet.of(host)[-5:]) == pytest.approx(5 * BUDGET / 4, rel=0.1), host
    assert fleet.days()[-5:] == [BUDGET] * 5
