"""What needs somebody because of windows, through the running service."""

from datetime import timedelta

import pytest
from support.live_server import lease_freely, running

from service.model.calendars import HourRules

HOST = "a.example"


@pytest.fixture
def live(sqlite_url):
    with running(sqlite_url, host_delay_s=3_600.0) as service:
        lease_freely(service)
        service.register(f"https://{HOST}/1", f"https://{HOST}/2")
        yield service


def needs(live):
    return {need["kind"]: need for need in live.get("/status").json()["needs_you"]}


def test_a_host_that_loses_its_crawls_is_named_with_the_cause(live):
    opens = live.clock() + timedelta(hours=2)
    window = f"{opens:%H:%M}-{opens + timedelta(hours=1):%H:%M} UTC"
    live.client.patch(f"/hosts/{HOST}", json={"windows": [window]})
    live.client.put("/budget", json={"budget": "1000 crawls"})
    live.epoch()
    need = needs(live)["window_too_narrow"]
    assert need["subject"] == HOST
    assert "because its delay leaves no time for more" in need["sentence"]
    live.clock.advance(hours=1)
    live.epoch()
    assert needs(live)["window_too_narrow"]["since"] == need["since"]
    live.client.patch(f"/hosts/{HOST}", json={"windows": None, "min_delay_s": 1})
    live.epoch()
    assert "window_too_narrow" not in needs(live)


def test_a_host_that_its_delay_alone_holds_back_needs_nothing(live):
    live.client.patch(f"/hosts/{HOST}", json={"windows": ["00:00-23:50 UTC"]})
    live.client.put("/budget", json={"budget": "100000 crawls"})
    live.epoch()
    assert "window_too_narrow" not in needs(live)
    (plan,) = live.get("/plan", bandwidth=100_000).json()["items"]
    assert plan["bandwidth_used"] < 24.1
    assert plan["window_losses"] == []


def test_a_change_of_windows_has_an_epoch_at_once_which_ends_the_need(live):
    opens = live.clock() + timedelta(hours=2)
    window = f"{opens:%H:%M}-{opens + timedelta(hours=1):%H:%M} UTC"
    live.client.patch(f"/hosts/{HOST}", json={"windows": [window]})
    live.client.put("/budget", json={"budget": "1000 crawls"})
    assert live.service.runner.run_once() is not None
    assert "window_too_narrow" in needs(live)
    live.client.patch(f"/hosts/{HOST}", json={"windows": [window], "first_share": 0.5})
    assert live.service.runner.run_once() is None
    live.client.patch(f"/hosts/{HOST}", json={"windows": None, "min_delay_s": 1})
    assert live.service.runner.run_once() is not None
    assert "window_too_narrow" not in needs(live)
    live.client.put("/groups/g", json={"windows": [window], "members": [HOST]})
    assert live.service.runner.run_once() is not None


def test_a_page_in_a_blackout_is_held_by_the_blackouts(live):
    today = f"{live.clock():%Y-%m-%d} UTC"
    live.client.patch(f"/hosts/{HOST}", json={"blackouts": [today]})
    why = live.get("/pages", url=f"https://{HOST}/1").json()["why"]
    assert why["hold"] == "window_closed"
    assert f"by the blackouts of {HOST}" in why["sentence"]
    assert f"by the blackouts of {HOST}" in live.get("/leases", explain="true").text
    live.client.patch(f"/hosts/{HOST}", json={"windows": ["00:00-24:00 UTC"]})
    why = live.get("/pages", url=f"https://{HOST}/1").json()["why"]
    assert f"by the windows and blackouts of {HOST}" in why["sentence"]


def test_blackouts_that_leave_no_opening_together_are_refused(live):
    live.client.patch(f"/hosts/{HOST}", json={"windows": ["Sun 02:00-03:00 UTC"]})
    since = live.clock()
    blackout = {"blackouts": ["2020-01-01/2090-01-01 UTC"], "members": [HOST]}
    refused = live.client.put("/groups/g", json=blackout)
    assert refused.status_code == 422
    # each alone leaves an opening, and both together none
    first = {"blackouts": [f"{since:%Y-%m-%d}/{since + timedelta(days=200):%Y-%m-%d} UTC"]}
    late = since + timedelta(days=199)
    rest = {"blackouts": [f"{late:%Y-%m-%d}/{late + timedelta(days=400):%Y-%m-%d} UTC"]}
    assert live.client.put("/groups/g", json={**first, "members": [HOST]}).status_code == 200
    assert live.client.patch(f"/hosts/{HOST}", json=rest).status_code == 422
    assert "window_never_opens" not in needs(live)
    # a start with blackouts of all hosts cannot be refused for the sake of one
    live.service.store.calendars.of_all = HourRules(None, ("2020-01-01/2090-01-01 UTC",))
    assert needs(live)["window_never_opens"]["subject"] in (HOST, "g")
