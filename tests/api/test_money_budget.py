"""A budget of money through a service: free shops, what a day has spent, and prices that wait."""

import pytest
from support.live_server import Live, running

from service.cli.acts import sentence
from service.cli.state import lines

pytestmark = pytest.mark.dear

FREE, PAID = "https://free.example/", "https://paid.example/"
RUDE = {"host_delay_s": 0, "host_concurrency": 0, "budget_loan": 0}


@pytest.fixture
def live(database_url):
    with running(database_url, budget="60 USD", **RUDE) as live:
        yield live


def lease(live: Live, count=20):
    return live.post("/leases", {"count": count}).json()["items"]


def report(live: Live, crawls, **found):
    at = live.clock.advance(seconds=1).isoformat()
    items = [{"lease": each["lease"], "observed_at": at, "digest": "1", **found} for each in crawls]
    answer = live.post("/observations", items).json()
    assert answer["accepted"] == len(items), answer


def urls(crawls):
    return {each["url"] for each in crawls}


def crawl_once(live: Live, price=10.0):
    """Crawl a free page and a paid one; both are due afterwards."""
    live.register(FREE, PAID)
    crawls = lease(live)
    report(live, [each for each in crawls if each["url"] == FREE], price=0)
    report(live, [each for each in crawls if each["url"] == PAID], price=price)
    live.epoch()
    live.clock.advance(hours=5)
    live.epoch()


def test_free_pages_go_on_under_a_spent_budget_of_money(live):
    crawl_once(live)
    set_to = live.client.put("/budget", json={"budget": "0.3 USD"})
    assert set_to.is_success
    assert urls(lease(live)) == {FREE}
    status = live.get("/status").json()
    assert status["budget"]["spent_until"] == "2026-05-02T00:00:00Z"
    shown = dict(lines({**status, "health": "ok", "address": ""}))["budget"]
    assert shown.startswith("0.3 USD a day; spent for today: crawls go on in 7 hours")
    assert shown.endswith(", except those that cost nothing")
    why = {url: live.get("/pages", url=url).json()["why"] for url in (FREE, PAID)}
    assert "the budget is spent until" in why[PAID]["sentence"]
    assert why[FREE]["hold"] == "leased"


def test_the_schedule_names_free_pages_under_a_spent_budget(live):
    crawl_once(live)
    live.client.put("/budget", json={"budget": "0.3 USD"})
    due = live.schedule(due_before="2026-05-01T18:00:00Z")
    assert FREE in {each["url"] for each in due}


def test_one_number_of_what_today_has_spent(live):
    live.register(*(f"{FREE}{n}" for n in range(10)))
    crawls = lease(live)
    report(live, crawls[:4], price=0)
    report(live, crawls[4:6], price="USD 0.25")
    budget, today = live.get("/budget").json(), live.get("/status").json()["today"]
    assert budget["spent_today"] == today["spent"] == pytest.approx(0.5)
    assert budget["held_today"] == pytest.approx(4 * 0.001)
    report(live, crawls[6:], price=0)
    budget = live.get("/budget").json()
    assert (budget["spent_today"], budget["held_today"]) == pytest.approx((0.5, 0.0))
    live.service.keeper.give_back()
    with live.service.store.begin(write=False) as tx:
        assert tx.pace().spent == pytest.approx(0.5)


def test_the_words_state_what_leases_hold_apart():
    from recrawl_client.wire.orders import BudgetAnswer

    answer = BudgetAnswer(
        budget="60 USD",
        amount=60.0,
        unit="USD",
        set_by="settings",
        set_at=None,
        by_settings="60 USD",
        spent_today=0.77,
        held_today=0.38,
    )
    assert "spent today: 0.77 USD, leases hold 0.38 more" in sentence(answer)


def test_a_page_whose_site_asks_a_price_is_not_active(live):
    live.register(PAID)
    report(live, lease(live), status=402, price="USD 0.002", digest=None)
    live.epoch()
    (listed,) = live.get("/pages", state="failing").json()["items"]
    assert (listed["state"], listed["outcome"]) == ("failing", "offered")
    assert live.get("/pages", state="active").json()["items"] == []
    why = live.get("/pages", url=PAID).json()["why"]["sentence"]
    assert "its site asks a price of 0.002 USD for a crawl, and it has had no content yet" in why
    assert "Run `recrawl pages recrawl --url URL` to pay it sooner" in why
    assert "rawled every" not in why


def test_a_spent_budget_is_named_before_and_after_a_request_that_got_nothing(live):
    """The request puts the paid pages off, and the views still name the budget."""
    crawl_once(live)
    live.client.put("/budget", json={"budget": "0.3 USD"})
    report(live, lease(live), price=0)  # the free page
    for _ in range(2):
        explained = live.get("/leases", explain=True).json()["explanation"]
        assert explained["sentence"].startswith("Wait, or raise the budget: ")
        assert "the budget is spent until 2026-05-02 00:00 UTC" in explained["sentence"]
        empty = live.post("/leases", {"count": 5}).json()
        assert (empty["items"], empty["held_by"]) == ([], "budget")
        assert empty["retry_after_s"] <= 120
    assert explained["sentence"].endswith("; pages whose crawls cost nothing go on.")
