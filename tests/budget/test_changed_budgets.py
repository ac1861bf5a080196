"""Budgets that change in the course of a day, and what all views show of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from support.budget_cases import urls
from support.live_server import running

from service.budget.allotments import LOST, Terms
from service.budget.keeper import Keeper
from service.core.pace import TakenAmounts
from service.model.errors import AllotmentOver
from service.status.budget_today import budget_today

RUDE = {"host_delay_s": 0, "host_concurrency": 0}
MIDNIGHT = datetime(2026, 5, 1, tzinfo=UTC)
TERMS = Terms(24.0)


def ordered(live, budget):
    answer = live.client.put("/budget", json={"budget": budget})
    assert answer.status_code == 200, answer.text
    return answer.json()


def asked(live, count):
    return live.client.post("/leases", json={"count": count}).json()


def explained(live):
    return live.get("/leases", explain=True).json()["explanation"]


@pytest.mark.dear
def test_a_budget_that_is_lowered_and_raised_again_leases_as_before(database_url):
    with running(database_url, bandwidth=20_000.0, admission="all", **RUDE) as live:
        live.register(*urls(100))
        assert len(asked(live, 20)["items"]) == 20
        low = ordered(live, "10 crawls")
        assert (low["left_today"], low["next_at"]) == (0.0, "2026-05-02T00:00:00Z")
        empty = asked(live, 20)
        assert (empty["items"], empty["held_by"]) == ([], "budget")
        assert explained(live)["holds"][0]["hold"] == "budget"
        live.clock.advance(seconds=30)
        high = ordered(live, "20000 crawls")
        assert high["left_today"] == pytest.approx(19_980, abs=10)
        assert high["left_now"] == pytest.approx(19_980, abs=10)
        assert len(asked(live, 80)["items"]) == 80


@pytest.mark.dear
def test_an_income_that_is_used_up_is_a_hold_of_its_own(database_url):
    with running(database_url, bandwidth=8_640.0, admission="all", **RUDE) as live:
        live.register(*urls(100))
        assert len(asked(live, 100)["items"]) == 100
        live.service.keeper.give_back()
        with live.service.store.begin() as tx:  # as of a day that was spent evenly
            tx.save_pace(replace(tx.lock_pace(), tokens=0.0), "crawls")
        live.register(*(f"https://more.example/{n}" for n in range(30)))
        live.clock.advance(seconds=6)
        live.service.keeper.forget()
        empty = asked(live, 5)
        assert (empty["items"], empty["held_by"]) == ([], "income")
        assert empty["retry_after_s"] == pytest.approx(4.0, abs=0.5)
        explanation = explained(live)
        assert explanation["holds"][0]["hold"] == "income"
        assert "then one each 10 seconds" in explanation["sentence"]
        why = live.get("/pages", url="https://more.example/7").json()["why"]
        assert why["hold"] == "income"
        budget = live.get("/budget").json()
        state = live.get("/status").json()["budget"]
        assert state["spent_until"] is None
        assert state["next_at"] == budget["next_at"] == why["until"]
        assert budget["left_now"] < 1 < budget["left_today"]


def at(store, hours):
    store.clock = lambda: MIDNIGHT + timedelta(hours=hours)


def server(store, number):
    return Keeper(store, TERMS, seconds=lambda: 0.0, server=number)


def crawl(store, keeper, wish, count):
    """Draw a wish, and lease a number of it in a transaction."""
    with keeper.grant(wish) as grant:
        with store.begin() as tx:
            taken = TakenAmounts(float(min(count, grant.allotment.crawls(wish))))
            tx.use_allotment(grant.allotment.server, taken)
        grant.taken = taken
    return int(taken.total)


def seen(store):
    with store.begin(write=False) as tx:
        today = budget_today(tx, TERMS)
    return today.spent, today.held, today.left


@pytest.mark.usefixtures("no_timers")
def test_what_a_server_held_at_its_death_goes_back_and_is_shown_apart(sql_store):
    at(sql_store, 1)
    assert crawl(sql_store, server(sql_store, 1), 10, 4) == 4  # and dies
    assert seen(sql_store) == (4.0, 6.0, 20.0)
    other = server(sql_store, 2)
    assert crawl(sql_store, other, 24, 24) == 14
    assert seen(sql_store) == (18.0, 6.0, 6.0)
    at(sql_store, 1 + LOST / timedelta(hours=1))
    assert crawl(sql_store, other, 24, 24) == 6
    assert seen(sql_store) == (24.0, 0.0, 0.0)


@pytest.mark.usefixtures("no_timers")
def test_a_server_that_hung_cannot_lease_what_went_back(sql_store):
    at(sql_store, 1)
    late = server(sql_store, 1)
    with late.grant(24) as grant:
        at(sql_store, 2)
        assert crawl(sql_store, server(sql_store, 2), 24, 24) == 24
        with sql_store.begin() as tx, pytest.raises(AllotmentOver):
            tx.use_allotment(grant.allotment.server, TakenAmounts(1.0))
    with late.grant(24) as grant:
        assert grant.allotment.crawls(24) == 0
    assert seen(sql_store) == (24.0, 0.0, 0.0)


@pytest.mark.usefixtures("no_timers")
def test_a_loan_of_a_day_before_is_not_spent_today(sql_store):
    at(sql_store, 1)
    terms = Terms(24.0, 3.0)
    keeper = Keeper(sql_store, terms, seconds=lambda: 0.0)
    with keeper.grant(24, 12.0) as grant:
        grant.taken = TakenAmounts(36.0, on_loan=12.0)
    with sql_store.begin(write=False) as tx:
        assert budget_today(tx, terms).spent == 36.0
    at(sql_store, 25)
    with sql_store.begin(write=False) as tx:
        assert budget_today(tx, terms).spent == 0.0


@pytest.mark.usefixtures("no_timers")
def test_crawls_without_leases_are_seen_before_the_first_draw(sql_store):
    at(sql_store, 1)
    keeper = server(sql_store, 1)
    day = int((MIDNIGHT - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(days=1))
    keeper.count_unleased(day, TakenAmounts(5.0))
    with sql_store.begin(write=False) as tx:
        assert budget_today(tx, TERMS, keeper).spent == 5.0
    keeper.give_back()
    assert seen(sql_store)[0] == 5.0
    keeper.close()


WAYS = [["10 USD"], ["10000 crawls", "10 USD"], ["5 GB", "10 USD"], [None]]


@pytest.mark.dear
@pytest.mark.parametrize("way", WAYS)
def test_a_budget_of_crawls_that_comes_back_has_what_it_had(database_url, way):
    """Go through other units, larger budgets and none, late in a day that has 100 crawls."""
    with running(database_url, bandwidth=None, admission="all", **RUDE) as live:
        live.register(*urls(300))
        live.clock.advance(hours=11.5)
        assert ordered(live, "1000 crawls")["left_today"] == 1000
        assert len(asked(live, 100)["items"]) == 100
        live.clock.advance(minutes=1)
        for budget in way:
            if budget is None:
                live.client.delete("/budget").raise_for_status()
            else:
                body = {"budget": budget, "change_unit": True}
                live.client.put("/budget", json=body).raise_for_status()
            live.clock.advance(minutes=1)
        body = {"budget": "1000 crawls", "change_unit": True}
        back = live.client.put("/budget", json=body).json()
        assert back["spent_today"] == 100
        assert back["left_today"] == pytest.approx(900, abs=1)
        assert len(asked(live, 200)["items"]) == 200
