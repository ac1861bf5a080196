"""Acts without a restart: the budget, the pause of all hosts, and that of one host."""

from datetime import timedelta
from unittest.mock import ANY

import pytest
from support.budget_cases import urls
from support.live_server import START, Live, running, until

A, B = "https://a.example/", "https://b.example/"


def audit_of(live, *acts):
    """The acts of the audit with their values, oldest first."""
    items = reversed(live.get("/audit").json()["items"])
    return [(item["act"], item["before"], item["after"]) for item in items if item["act"] in acts]


def lease(live, count=100, **wish):
    answer = live.client.post("/leases", json={"count": count, **wish})
    assert answer.status_code == 200, answer.text
    return answer


def n_leased(live, count=100):
    return len(lease(live, count).json()["items"])


RUDE = {"host_delay_s": 0, "host_concurrency": 0}


def test_a_budget_wins_over_the_settings_and_orders_outlive_a_restart(database_url):
    with running(database_url, bandwidth=30.0, **RUDE) as live:
        live.register(*urls(200))
        assert live.get("/budget").json() == {
            "budget": "30 crawls",
            "amount": 30.0,
            "unit": "crawls",
            "set_by": "settings",
            "set_at": None,
            "by_settings": "30 crawls",
            "spent_today": 0.0,
            "held_today": 0.0,
            "left_today": 30.0,
            "left_now": 30.0,
            "left_in_windows": 0.0,
            "next_at": None,
            "plan_notices": [],
        }
        assert n_leased(live) == 30
        told = live.client.put("/budget", json={"budget": "50 crawls a day"}).json()
        assert (told["budget"], told["set_by"]) == ("50 crawls", "operator")
        live.clock.advance(hours=6)
        # half a day of 20 crawls more
        assert n_leased(live) == 10
        assert live.get("/epochs").json()["items"][0]["status"] == "requested"
        live.service.runner.run_once()
        assert live.get("/epochs/latest").json()["bandwidth"] == 50.0
        live.client.post("/pause", json={"for_s": 3600})
        clock = live.clock
    with running(database_url, bandwidth=40.0, clock=clock, **RUDE) as live:
        told = live.get("/budget").json()
        assert (told["budget"], told["by_settings"]) == ("50 crawls", "40 crawls")
        assert lease(live).json()["paused_until"] == "2026-05-01T19:00:00Z"
        live.client.delete("/pause")
        assert told["spent_today"] == 30.0 + 10.0
        assert n_leased(live) == 0
        told = live.client.delete("/budget").json()
        assert (told["budget"], told["set_by"], told["set_at"]) == ("40 crawls", "settings", None)
        assert live.client.put("/budget", json={"budget": "60 crawls"}).is_success
        assert audit_of(live, "budget.set", "budget.unset") == [
            ("budget.set", {"budget": None}, {"budget": "50 crawls"}),
            ("budget.unset", {"budget": "50 crawls"}, {"budget": None}),
            ("budget.set", {"budget": None}, {"budget": "60 crawls"}),
        ]


def test_a_budget_changes_its_unit_without_a_restart(database_url):
    """Costs in the old unit count no more, and the runner forgets them."""
    with running(database_url, budget="1000 bytes", **RUDE) as live:
        (page, other) = live.register(A, B)
        at = live.clock().isoformat()
        crawl = {"page_id": page, "observed_at": at, "digest": "1", "bytes": 400.0}
        assert live.post("/observations", [crawl]).json()["accepted"] == 1
        assert set_in_another_unit(live, "30 USD")["unit"] == "USD"
        live.clock.advance(seconds=6)
        live.service.runner.run_once()
        assert live.get("/epochs/latest").json()["unit"] == "USD"
        assert live.get(f"/pages/{page}").json().get("cost") is None
        leased = {each["page_id"]: each for each in lease(live).json()["items"]}[other]
        at = live.clock.advance(seconds=1).isoformat()
        paid = {"lease": leased["lease"], "observed_at": at, "digest": "2", "price": "USD 0.5"}
        assert live.post("/observations", [paid]).json()["accepted"] == 1
        assert live.client.delete("/budget").status_code == 409
        live.client.delete("/budget", params={"change_unit": True})
        assert live.get("/budget").json()["budget"] == "1,000 bytes"


def set_in_another_unit(live, budget):
    """Set a budget that is refused, with both amounts, unless the change of units is wanted."""
    before = live.get("/budget").json()["budget"]
    refused = live.client.put("/budget", json={"budget": budget})
    assert (refused.status_code, refused.json()["title"]) == (409, "Budget unit changes")
    assert f"from {before} to {budget} a day" in refused.json()["detail"]
    assert live.get("/budget").json()["budget"] == before
    return live.client.put("/budget", json={"budget": budget, "change_unit": True}).json()


def test_the_day_of_a_change_of_unit_states_no_spending_that_nobody_knows(database_url):
    with running(database_url, bandwidth=100.0, **RUDE) as live:
        live.register(*urls(200))
        assert n_leased(live) == 100
        assert live.get("/budget").json()["spent_today"] == 100.0
        body = {"budget": "30 USD", "change_unit": True}
        told = live.client.put("/budget", json=body).json()
        assert (told["spent_today"], told["held_today"]) == (None, None)
        assert "price 0" in told["notice"]
        assert live.get("/status").json()["today"]["spent"] is None
        live.clock.advance(days=1)
        assert live.get("/budget").json()["spent_today"] == 0.0
        body = {"budget": "50 crawls", "change_unit": True}
        told = live.client.put("/budget", json=body).json()
        assert (told["spent_today"], "notice" in told) == (0.0, False)


@pytest.mark.parametrize(("budget", "n_more"), [(100, 0), (150, 30)])
def test_a_budget_that_begins_counts_the_crawls_of_today(database_url, budget, n_more):
    with running(database_url, bandwidth=None, admission="all", **RUDE) as live:
        live.register(*urls(200))
        assert n_leased(live, 120) == 120
        answer = live.client.put("/budget", json={"budget": f"{budget} crawls"}).json()
        assert answer["spent_today"] == 120.0
        assert n_leased(live) == n_more
        live.client.delete("/budget")
        n_free = n_leased(live, 10)
        answer = live.client.put("/budget", json={"budget": f"{budget} crawls"}).json()
        assert answer["spent_today"] == 120.0 + n_more + n_free
        for amount in ("5 GB", "7 crawls", "50 MB"):  # shares of the day are no crawls
            live.client.put("/budget", json={"budget": amount, "change_unit": True})
        again = {"budget": f"{budget} crawls", "change_unit": True}
        assert live.client.put("/budget", json=again).json() == answer | {"set_at": ANY}


def test_the_first_budget_may_have_any_unit_and_so_may_none_after_it(sqlite_url):
    with running(sqlite_url) as live:
        assert live.client.put("/budget", json={"budget": "50 GB"}).is_success
        assert live.client.put("/budget", json={"budget": "10 MB"}).is_success
        assert live.client.delete("/budget").json()["set_by"] == "default"


def test_costs_in_another_unit_are_not_forgotten_unasked_after_no_budget(database_url):
    with running(database_url, **RUDE) as live:
        (page,) = live.register(A)
        assert live.client.put("/budget", json={"budget": "50 GB"}).is_success
        live.clock.advance(seconds=6)
        live.service.runner.run_once()
        at = live.clock().isoformat()
        crawl = {"page_id": page, "observed_at": at, "digest": "1", "bytes": 400.0}
        assert live.post("/observations", [crawl]).json()["accepted"] == 1
        assert live.client.delete("/budget").is_success
        refused = live.client.put("/budget", json={"budget": "30 USD"})
        assert refused.status_code == 409
        assert "from no budget to 30 USD a day" in refused.json()["detail"]
        assert "costs of pages in bytes are forgotten" in refused.json()["detail"]
        assert live.client.put("/budget", json={"budget": "1000 crawls"}).is_success
        assert live.client.delete("/budget").is_success
        assert live.client.put("/budget", json={"budget": "60 GB"}).is_success
        live.clock.advance(seconds=6)
        live.service.runner.run_once()
        assert live.get(f"/pages/{page}").json()["cost"] == 400.0


def test_a_wrong_budget_is_refused_with_its_field_and_examples(sqlite_url):
    with running(sqlite_url, objective="binary") as live:
        for body, words in (
            ({"budget": "10 dogs"}, "10000 crawls, 50 GB"),
            ({"budget": "0 crawls"}, "from 0.000000001 to"),
            ({"budget": 10_000}, "such as 10000 crawls"),
            ({"budget": "50 GB"}, "RECRAWL_OBJECTIVE=harmonic"),
        ):
            refused = live.client.put("/budget", json=body)
            assert (refused.status_code, refused.json()["field"]) == (422, "budget")
            assert words in refused.json()["detail"]
        assert live.get("/budget").json()["set_by"] == "default"


def test_no_lease_is_given_while_all_hosts_are_paused(database_url):
    with running(database_url, **RUDE) as live:
        live.register(A, B)
        (running_one,) = lease(live, 1).json()["items"]
        end = live.client.post("/pause", json={"for_s": 7200}).json()["paused_until"]
        assert end == live.get("/pause").json()["paused_until"] == "2026-05-01T14:00:00Z"
        empty = lease(live)
        assert empty.json() == {"items": [], "retry_after_s": 60.0, "paused_until": end}
        assert empty.headers["Retry-After"] == "60"
        report = {"lease": running_one["lease"], "observed_at": START.isoformat(), "digest": "1"}
        with_report = lease(live, report=[report]).json()
        assert (with_report["reported"]["leases_ended"], with_report["items"]) == (1, [])
        assert "items" in lease(live, wait_s=0.05).json()
        live.clock.advance(hours=2)
        assert live.get("/pause").json() == {"paused_until": None}
        assert n_leased(live) == 1
        assert audit_of(live, "service.pause")[0][2] == {"paused_until": end}


def test_a_waiting_worker_is_served_when_the_pause_ends_early(sqlite_url):
    with running(sqlite_url, **RUDE) as live:
        live.register(A)
        live.client.post("/pause", json={"until": "2026-05-02T00:00:00Z"})
        assert n_leased(live) == 0
        assert live.client.delete("/pause").json() == {"paused_until": None}
        assert len(lease(live, wait_s=5).json()["items"]) == 1
        assert [act for act, *_ in audit_of(live, "service.pause", "service.resume")] == [
            "service.pause",
            "service.resume",
        ]


def test_a_host_is_paused_for_a_time_and_resumed(database_url):
    with running(database_url, **RUDE) as live:
        live.register(A, B)
        told = live.client.post("/hosts/a.example/pause", json={"for_s": 7200}).json()
        assert told["host_queue"]["blocked_until"] == "2026-05-01T14:00:00Z"
        items = lease(live).json()["items"]
        assert [each["host"] for each in items] == ["b.example"]
        told = live.client.delete("/hosts/a.example/pause").json()
        assert told["host_queue"]["blocked_until"] is None
        assert n_leased(live) == 1
        assert audit_of(live, "host.pause", "host.resume") == [
            (
                "host.pause",
                {"blocked_until": None},
                {"blocked_until": "2026-05-01T14:00:00Z"},
            ),
            (
                "host.resume",
                {"blocked_until": "2026-05-01T14:00:00Z"},
                {"blocked_until": None},
            ),
        ]


def test_the_pause_of_a_site_ends_by_hand_only_if_that_is_asked_for(sqlite_url):
    with running(sqlite_url, **RUDE) as live:
        live.register(A)
        crawl = {"url": A, "observed_at": START.isoformat(), "status": 429, "retry_after_s": 600}
        live.post("/observations", [crawl])
        by_site = (START + timedelta(seconds=600)).isoformat().replace("+00:00", "Z")
        queue = live.client.delete("/hosts/a.example/pause").json()["host_queue"]
        assert (queue["blocked_until"], queue["paused_until"]) == (None, by_site)
        assert [each["host"] for each in live.get("/hosts", blocked=True).json()["items"]]
        queue = live.client.delete("/hosts/a.example/pause?site=true").json()["host_queue"]
        assert (queue["blocked_until"], queue["paused_until"]) == (None, None)


@pytest.mark.parametrize("path", ["/pause", "/hosts/a.example/pause"])
def test_a_wrong_pause_is_refused_with_its_field_and_remedy(api: Live, path):
    for body, field, words in (
        ({}, "until", "for_s, such as 3600"),
        ({"for_s": 60, "until": "2026-06-01T00:00:00Z"}, "until", "both for_s and until"),
        ({"until": "2026-04-01T00:00:00Z"}, "until", "is not after now (2026-05-01T12:00:00Z)"),
        ({"until": "2026-06-01T00:00:00"}, "until", "zone"),
        ({"for_s": 0}, "for_s", "1 to 31,536,000"),
        ({"for_s": "1h"}, "for_s", "a number of seconds"),
    ):
        refused = api.client.post(path, json=body)
        assert (refused.status_code, refused.json()["field"]) == (422, field), body
        assert words in refused.json()["detail"]
    assert api.client.delete("/hosts/nobody.example/pause").status_code == 404


def test_two_servers_of_one_database_follow_the_orders_of_either(postgres_url):
    with (
        running(postgres_url, bandwidth=30.0, **RUDE) as first,
        running(postgres_url, bandwidth=30.0, **RUDE) as second,
    ):
        first.register(*urls(200))
        assert n_leased(first, 10) == 10
        first.client.post("/pause", json={"for_s": 3600})
        until(second.service.keeper.pause_in_force, "the other server pauses")
        assert lease(second).json()["paused_until"] == "2026-05-01T13:00:00Z"
        second.client.delete("/pause")
        until(lambda: not first.service.keeper.pause_in_force(), "the first server resumes")
        second.client.put("/budget", json={"budget": "50 crawls"})
        until(lambda: first.service.keeper.terms.budget == 50.0, "the first has the budget")
        for live in (first, second):
            live.clock.advance(hours=6)
        # the rest of the old day's budget, and half a day of 20 crawls more
        assert n_leased(first, 15) + n_leased(second) == 20 + 10
        second.client.delete("/budget")
        until(lambda: first.service.keeper.terms.budget == 30.0, "the first has the settings'")
        assert n_leased(first) == n_leased(second) == 0
        # a worker process reads the orders at its next round
        second.client.put("/budget", json={"budget": "70 crawls"})
        first.service.runner.run_once()
        assert first.get("/epochs/latest").json()["bandwidth"] == 70.0


def test_the_next_lease_of_a_paused_host_is_after_its_pause(api: Live):
    api.register(A)
    told = api.client.post("/hosts/a.example/pause", json={"for_s": 7200}).json()
    assert told["host_queue"]["next_at"] == "2026-05-01T14:00:00Z"
    told = api.client.delete("/hosts/a.example/pause").json()
    assert told["host_queue"]["next_at"] == "2026-05-01T12:00:00Z"
