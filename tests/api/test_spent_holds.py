"""What holds pages that are not due yet, while the budget of the day is spent."""

import pytest
from support.live_server import Live, running

pytestmark = pytest.mark.dear

URLS = [f"https://h{n}.example/" for n in range(4)]
MIDNIGHT = "2026-05-02T00:00:00Z"
SPENT = "the budget is spent until 2026-05-02 00:00 UTC, 12 hours from now"
AGAIN = (
    "its last crawl failed with status 503; it has had no content yet, and is tried again in 60 "
    "minutes, at 2026-05-01 13:00 UTC"
)


def explained(live: Live):
    return live.client.get("/leases", params={"explain": True}).json()["explanation"]


def why(live: Live):
    return live.get("/pages", url=URLS[0]).json()["why"]


def set_budget(live: Live, budget: str):
    assert live.client.put("/budget", json={"budget": budget, "change_unit": True}).is_success


def fail_all(live: Live):
    """Crawl all pages, which fail and so are due again in an hour."""
    live.register(*URLS)
    crawls = live.client.post("/leases", json={"count": len(URLS)}).json()["items"]
    assert len(crawls) == len(URLS)
    at = live.clock().isoformat()
    reports = [{"lease": crawl["lease"], "observed_at": at, "status": 503} for crawl in crawls]
    assert live.post("/observations", reports).json()["accepted"] == len(URLS)


def test_a_budget_that_is_spent_is_named_before_a_page_is_due(database_url):
    with running(database_url, bandwidth=1_440.0) as live:
        fail_all(live)
        room = explained(live)
        assert "the next crawl may begin in" in room["sentence"]
        assert room["next_at"] < MIDNIGHT
        assert (why(live)["hold"], why(live)["sentence"]) == ("not_due", f"Nothing to do: {AGAIN}.")
        set_budget(live, "2 crawls")
        spent, held = explained(live), why(live)
        assert (spent["n_due"], spent["holds"], spent["next_at"]) == (0, [], MIDNIGHT)
        assert live.get("/budget").json()["next_at"] == MIDNIGHT
        assert spent["sentence"] == (
            f"Wait, or raise the budget: no page within reach is due; {SPENT}."
        )
        assert (held["hold"], held["until"]) == ("budget", MIDNIGHT)
        assert held["sentence"] == f"Wait, or raise the budget: {AGAIN}; {SPENT}."
        live.clock.advance(minutes=1)  # the instant stays
        assert explained(live)["next_at"] == MIDNIGHT
        live.clock.advance(hours=1)  # pages are due
        live.service.runner.run_once()
        assert (explained(live)["n_due"], explained(live)["next_at"]) == (len(URLS), MIDNIGHT)
        set_budget(live, "1,440 crawls")
        assert "budget" not in explained(live)["sentence"]


def test_a_spent_budget_of_money_may_have_free_pages_next(database_url):
    with running(database_url, bandwidth=1_440.0) as live:
        fail_all(live)
        set_budget(live, "0.000001 USD")
        assert explained(live)["sentence"].endswith("; pages whose crawls cost nothing go on.")
        assert explained(live)["next_at"] < MIDNIGHT
