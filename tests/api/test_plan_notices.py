"""Notices about the plan in force: another budget, minima above it, and costs that are assumed."""

from datetime import timedelta

import pytest
from support.live_server import START, Live, running

from recrawl_client import Client
from service.cli.acts import sentence
from service.cli.state import lines

pytestmark = pytest.mark.dear


@pytest.fixture
def live(database_url):
    with running(database_url, budget="10 crawls") as live:
        live.register(*(f"https://a.example/{n}" for n in range(1, 5)), min_crawl_rate=0.5)
        crawl(live, 3, 2)
        live.epoch()
        yield live


def crawl(live: Live, *days, n=4, **found):
    at = [(START - timedelta(days=day)).isoformat() for day in days]
    crawls = [
        {"page_id": page, "observed_at": each, "digest": each, **found}
        for page in range(1, n + 1)
        for each in at
    ]
    assert live.post("/observations", crawls).json()["accepted"] == len(crawls)


def notices(live: Live) -> list[list[str]]:
    """Return the notices of all views, which must agree, and those of a page's `why`."""
    with Client(live.url) as client:
        budget, state = client.budget(), live.get("/status").json()
    shown = dict(lines({**state, "health": "ok", "address": ""}))["epoch"]
    assert all(each in sentence(budget) for each in budget.plan_notices)
    assert all(each in shown for each in state["epoch"]["plan_notices"])
    own = live.get("/plan", bandwidth=5).json()["plan_notices"]
    assert all(each in live.get("/pages/1").json()["why"]["sentence"] for each in own)
    return [budget.plan_notices, state["epoch"]["plan_notices"], own]


def set_budget(live: Live, amount: str):
    body = {"budget": amount, "change_unit": True}
    assert live.client.put("/budget", json=body).is_success


def test_a_plan_of_the_budget_in_force_has_no_notice(live):
    assert notices(live) == [[], [], []]
    assert live.get("/epochs/latest").json()["min_bandwidth"] == pytest.approx(2.0)


def test_a_budget_that_no_epoch_has_planned_with_is_named_everywhere(live):
    set_budget(live, "20 crawls")
    of_budget, of_status, of_plan = notices(live)
    assert of_budget == of_status == of_plan
    (notice,) = of_plan
    assert "epoch 1, with 10 crawls a day; the budget has changed since (20 crawls a day)" in notice
    answer = live.get("/plan", bandwidth=5).json()
    assert answer["in_force"]["bandwidth"] == 20
    live.epoch()
    assert notices(live) == [[], [], []]


def test_minima_above_the_budget_need_somebody_before_an_epoch_fails_and_after(live):
    set_budget(live, "1 crawls")
    of_budget, of_status, of_plan = notices(live)
    assert len(of_plan) == 1
    assert of_budget == of_status
    assert of_budget[1].startswith("minimum crawl rates need 2 crawls a day, more than the budget")
    (need,) = live.get("/status").json()["needs_you"]
    assert need["kind"] == "minima_exceed_budget"
    assert "they need 2 crawls a day, and the budget is 1" in need["sentence"]
    assert live.epoch()["status"] == "failed"
    of_budget, of_status, of_plan = notices(live)
    assert of_budget[0].startswith("the plan in force stays that of epoch 1: the last one failed")
    assert of_budget == [of_budget[0], *of_status] == [*of_plan, of_status[1]]
    (need,) = live.get("/status").json()["needs_you"]
    assert need["kind"] == "epoch_failing"
    plan = live.get("/plan", bandwidth=5).json()
    assert (plan["in_force"]["bandwidth"], plan["in_force"]["feasible"]) == (1, False)
    set_budget(live, "2.5 crawls")
    assert live.epoch()["status"] == "published"
    assert notices(live) == [[], [], []]


def test_a_plan_in_bytes_names_the_costs_that_it_assumes(live):
    set_budget(live, "5 MB")
    plan = live.get("/plan", bandwidth=5e6).json()
    assert (plan["unit"], plan["in_force"]["bandwidth"]) == ("bytes", 5e6)
    assert plan["n_assumed_costs"] == 4
    live.epoch()
    (notice,) = notices(live)[0]
    assert notice.startswith("no crawl has reported its cost, so this plan assumes 100,000 bytes")
    crawl(live, 1, n=1, bytes=2_000)
    live.epoch()
    (notice,) = notices(live)[0]
    assert notice == "the costs of 3 of 4 pages are assumed, so this plan in bytes is uncertain"
    assert live.get("/epochs/latest").json()["n_assumed_costs"] == 3
    crawl(live, 0.9, bytes=2_000)
    live.epoch()
    assert notices(live) == [[], [], []]
    assert live.get("/plan", bandwidth=5e6).json()["n_assumed_costs"] == 0


def test_the_command_prints_what_a_plan_in_bytes_rests_on(live, recrawl):
    set_budget(live, "5 MB")
    ended = recrawl("plan", url=live.url)
    assert ended.status == 0, ended.err
    text = " ".join(ended.out.split())
    assert "no crawl has reported its cost, so this plan assumes 100,000 bytes a crawl" in text
    assert "epoch 1, with 10 crawls a day; the budget has changed since (5,000,000 bytes" in text
    assert "5 now" in text
