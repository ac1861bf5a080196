"""The days of a running service, whose fleet leases all it can."""

import pytest
from support.budget_cases import BUDGET, RUDE, Fleet, service, urls
from support.live_server import running

from service.budget import allotments, room_today


@pytest.mark.dear
def test_every_day_spends_its_budget_from_the_first_on(database_url):
    with service(database_url) as live:
        live.register(*urls(100))
        live.service.runner.run_once()
        assert Fleet(live).play(days=4) == [BUDGET] * 4


@pytest.mark.dear
def test_two_servers_of_one_database_share_the_budget(postgres_url):
    with (
        service(postgres_url) as one,
        running(postgres_url, clock=one.clock, bandwidth=BUDGET, budget_loan=0, **RUDE) as other,
    ):
        one.register(*urls(100))
        fleet = Fleet(one, one.client, other.client)
        assert fleet.play(days=2, every_h=3.0, epochs=False) == [BUDGET] * 2


def test_a_spent_budget_names_the_time_of_the_next_room(database_url):
    with service(database_url) as live:
        live.register(*urls(100))
        fleet = Fleet(live)
        live.clock.advance(hours=23.5)
        assert fleet.ask() == BUDGET
        assert fleet.answer.headers["Retry-After"] == str(86_400 // 30)
        assert fleet.answer.json()["retry_after_s"] == 86_400 / 30
        live.clock.advance(seconds=86_400 / 30)
        assert fleet.ask() == 1


def test_a_lease_that_is_returned_on_its_day_goes_back_to_the_budget(database_url):
    with service(database_url) as live:
        live.register(*urls(100))
        leased = live.client.post("/leases", json={"count": round(BUDGET)}).json()["items"]
        assert len(leased) == BUDGET
        for crawl in leased[:10]:
            assert live.client.delete(f"/leases/{crawl['lease']}").status_code == 204
        live.clock.advance(seconds=allotments.HELD_S + 1)
        assert len(live.client.post("/leases", json={"count": 100}).json()["items"]) == 10
        live.clock.advance(days=1)
        old = f"/leases/{leased[-1]['lease']}"
        assert live.client.delete(old).status_code in (204, 404)
        assert len(live.client.post("/leases", json={"count": 100}).json()["items"]) == BUDGET


def test_why_says_that_a_page_waits_for_the_budget(database_url):
    with service(database_url) as live:
        live.register(*urls(100))
        live.clock.advance(hours=1)
        Fleet(live).ask()
        pages = [live.get(f"/pages/{i}").json() for i in range(1, 101)]
        waiting = [page for page in pages if page["last_crawl_at"] is None]
        assert len(waiting) == 100 - BUDGET
        sentence = (
            "Wait, or raise the budget: the budget is spent until 2026-05-02 00:00 UTC, 23 hours "
            "from now."
        )
        assert {page["why"]["sentence"] for page in waiting} == {sentence}
        assert {page["why"]["hold"] for page in waiting} == {"budget"}
        assert "budget" not in {page["why"]["hold"] for page in pages if page not in waiting}
        live.clock.advance(hours=24)
        assert live.get(f"/pages/{waiting[0]['page_id']}").json()["why"]["hold"] == "no_crawler"


def test_why_counts_what_the_server_holds_of_the_budget(database_url):
    with service(database_url) as live:
        live.register(*urls(1))
        leased = live.client.post("/leases", json={"count": round(BUDGET)}).json()["items"]
        assert len(leased) == 1
        live.epoch()
        (late,) = live.register("https://late.example/")
        why = live.get(f"/pages/{late}").json()["why"]
        assert why["hold"] == "ready"
        assert len(live.client.post("/leases", json={"count": 5}).json()["items"]) == 1


def test_a_server_without_a_budget_leases_all(database_url):
    with service(database_url, bandwidth=None) as live:
        live.register(*urls(100))
        assert Fleet(live).ask() == 100


def test_crawls_without_leases_use_up_the_budget_of_their_day(database_url):
    with service(database_url) as live:
        ids = live.register(*urls(100))
        live.clock.advance(hours=12)
        at, long_ago = live.clock().isoformat(), "2026-04-01T00:00:00Z"
        seen = [{"page_id": i, "observed_at": at, "digest": "1"} for i in ids[:20]]
        seen += [{"page_id": i, "observed_at": long_ago, "digest": "1"} for i in ids[20:40]]
        assert live.post("/observations", seen).json()["accepted"] == 40
        assert Fleet(live).ask() == BUDGET - 20


def test_failed_crawls_use_up_the_budget_as_all_others_do(database_url):
    with service(database_url) as live:
        live.register(*urls(100))
        for _ in range(4):
            leases = live.post("/leases", {"count": 20}).json()["items"]
            at = live.clock().isoformat()
            live.post(
                "/observations",
                [{"lease": each["lease"], "observed_at": at, "status": 500} for each in leases],
            )
            live.clock.advance(hours=5)
        with live.service.store.begin(write=False) as tx:
            assert tx.pace().spent == BUDGET


@pytest.fixture
def eight_first_crawls(monkeypatch):
    """Let the epoch in force allow eight first crawls a day."""
    for module in (allotments, room_today):
        monkeypatch.setattr(module, "first_crawls_a_day", lambda _: 8.0)


@pytest.mark.dear
@pytest.mark.usefixtures("eight_first_crawls")
def test_first_crawls_have_their_maximum_on_every_day_and_others_the_rest(database_url):
    with service(database_url) as live:
        old = live.register(*urls(40))
        at = live.clock().isoformat()
        live.post("/observations", [{"page_id": i, "observed_at": at, "digest": "1"} for i in old])
        live.clock.advance(days=2)
        live.service.runner.run_once()
        live.register(*urls(200, "b.example"), *(f"https://a.example/new/{i}" for i in range(200)))
        fleet = Fleet(live)
        fleet.seen.update(old)
        days = fleet.play(days=3)
        firsts = [sum(n for (d, _), n in fleet.first.items() if d == day) for day in fleet.dates()]
        assert firsts == [8, 8, 8]
        assert days[0] == BUDGET


@pytest.mark.usefixtures("eight_first_crawls")
def test_used_up_first_crawls_are_ready_on_the_next_day(database_url):
    with service(database_url) as live:
        live.register(*urls(200))
        fleet = Fleet(live)
        live.clock.advance(hours=12)
        assert fleet.ask() == 8
        assert fleet.answer.json()["retry_after_s"] == 3600.0
        ready_at = live.get("/hosts/a.example").json()["host_queue"]["next_at"]
        assert ready_at == "2026-05-02T00:00:00Z"
        (waiting, *_) = live.get("/pages", state="never_crawled", limit=1).json()["items"]
        why = live.get(f"/pages/{waiting['page_id']}").json()["why"]
        assert (why["hold"], why["until"]) == ("budget", ready_at)
        assert why["sentence"].startswith("Wait, or raise the budget or RECRAWL_FIRST_SHARE: ")
        live.clock.advance(hours=12)
        assert fleet.ask() == 8
