"""What needs somebody because a host's delay costs much freshness, through the running service."""

import pytest
from support.live_server import lease_freely, running

pytestmark = pytest.mark.dear

HOST = "slow.example"
URLS = [f"https://{HOST}/{n}" for n in range(200)]


@pytest.fixture
def live(database_url):
    with running(database_url, host_delay_s=1.0) as service:
        lease_freely(service)
        service.register(*URLS)
        service.client.put("/budget", json={"budget": "1000 crawls"})
        yield service


def need_of(live):
    needs = {need["kind"]: need for need in live.get("/status").json()["needs_you"]}
    return needs.get("delay_too_long")


def why(live):
    return live.get("/pages", url=URLS[0]).json()["why"]


def test_a_delay_of_an_operator_is_named_with_its_crawls_and_the_command(live):
    live.epoch()
    assert need_of(live) is None, "a second permits 86,400 crawls a day"
    live.client.patch(f"/hosts/{HOST}", json={"min_delay_s": 3_600})
    assert need_of(live) is None, "no epoch has counted with it"
    live.epoch()
    need = need_of(live)
    assert need["subject"] == HOST
    cause = f"set a delay of 60 minutes for {HOST}, which leaves 24 crawls a day of 1,000"
    assert cause in need["sentence"]
    assert need["remedy"] == f"recrawl hosts set {HOST} --delay 86.4s"
    assert need["since"] == live.clock().isoformat().replace("+00:00", "Z")
    (loss,) = live.get("/plan", bandwidth=1_000).json()["items"][0]["delay_losses"]
    assert (loss["host"], loss["permitted"]) == (HOST, 24.0)
    live.clock.advance(hours=1)
    live.epoch()
    assert need_of(live)["since"] == need["since"]
    at = live.clock().isoformat()
    report = {"url": URLS[0], "status": 200, "observed_at": at, "changed": False}
    assert live.post("/observations", [report]).json()["rejected"] == []
    shown = why(live)
    assert cause in shown["sentence"]
    assert shown["sentence"].startswith(f"Run `{need['remedy']}` if its site allows it")
    live.client.patch(f"/hosts/{HOST}", json={"min_delay_s": 80})
    assert need_of(live) is None, "it ends at once"
    assert cause not in why(live)["sentence"]


def test_a_delay_of_robots_txt_is_the_sites(live):
    live.client.patch(f"/hosts/{HOST}", json={"robots_delay_s": 7_200})
    live.epoch()
    need = need_of(live)
    cause = f"robots.txt of {HOST} asks for a delay of 2 hours, which leaves 12 crawls"
    assert cause in need["sentence"]
    assert need["sentence"].startswith(f"Ask the site of {HOST}")
    assert need["remedy"] == f"recrawl needs accept delay_too_long {HOST}"
    live.client.put("/needs/accepted", json={"kind": "delay_too_long", "subject": HOST})
    assert need_of(live) is None


def test_a_delay_of_a_group_is_changed_at_the_group(live):
    live.client.put("/groups/shared", json={"members": [HOST], "min_delay_s": 3_600})
    live.epoch()
    need = need_of(live)
    assert "for its group shared, which leaves 24 crawls" in need["sentence"]
    assert need["remedy"] == "recrawl groups set shared --delay 86.4s"


def test_a_delay_of_the_settings_is_named_by_its_variable(database_url):
    with running(database_url, host_delay_s=3_600.0) as live:
        live.register(*URLS)
        live.client.put("/budget", json={"budget": "1000 crawls"})
        live.epoch()
        assert "RECRAWL_HOST_DELAY_S sets a delay of 60 minutes" in need_of(live)["sentence"]


def test_a_delay_that_leaves_pages_fresh_needs_nobody(live):
    # 24 crawls a day of two pages in place of 500 each
    live.client.request("DELETE", "/pages", params={"host": HOST})
    live.register("https://small.example/1", "https://small.example/2")
    live.client.patch("/hosts/small.example", json={"min_delay_s": 3_600})
    live.clock.advance(minutes=1)
    live.epoch()
    assert need_of(live) is None
