"""History, metrics and status count the same crawls, and rows have the epoch of their end."""

from datetime import timedelta

import pytest
from support.live_server import Live, running

pytestmark = pytest.mark.dear

LINE = 'recrawl_step_crawls{outcome="reported"} '


@pytest.fixture
def live(database_url):
    with running(database_url, budget="50 crawls") as live:
        yield live


def rows(live: Live, **query) -> list[dict]:
    live.service.store.counter.write()
    return live.get("/history", **query).json()["items"]


def report(live: Live, page_id: int, **before) -> dict:
    at = (live.clock() - timedelta(**before)).isoformat()
    crawls = [{"page_id": page_id, "observed_at": at, "digest": at}]
    return live.post("/observations", crawls).json()


def end_step(live: Live):
    """End the running step, and let its row be written."""
    live.clock.advance(minutes=10)
    live.service.store.counter.write()
    live.service.runner.history.keep()


def in_metrics(live: Live) -> float:
    lines = live.client.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(LINE)).removeprefix(LINE))


def today(live: Live) -> int:
    live.service.store.counter.write()
    return live.get("/status").json()["today"]["n_reported"]


def test_all_views_count_a_report_of_yesterday_in_yesterday(live):
    live.register("https://a.example/1", "https://a.example/2")
    live.clock.advance(hours=12, minutes=30)
    report(live, 1, hours=2)
    report(live, 2, minutes=5)
    assert today(live) == 1
    midnight = live.clock().replace(minute=0)
    own = rows(live, since=midnight.isoformat())
    assert [row["n_reported"] for row in own] == [1]
    end_step(live)
    assert in_metrics(live) == 1
    assert today(live) == 1
    day = rows(live, since=(midnight - timedelta(days=1)).isoformat(), step_s=86_400)
    assert [row["n_reported"] for row in day] == [1, 1]


def test_rows_have_the_epoch_at_their_end_and_the_running_one_that_of_now(live):
    live.register("https://a.example/1")
    live.service.runner.history.keep()
    assert {row["epoch"] for row in rows(live)} <= {None}
    report(live, 1, minutes=1)
    live.clock.advance(minutes=2)
    live.epoch()
    assert rows(live)[-1]["epoch"] == 1
    live.clock.advance(minutes=1)
    live.epoch()
    assert rows(live)[-1]["epoch"] == 2
    live.clock.advance(minutes=10)
    live.epoch()
    live.service.runner.history.keep()
    own = [(row["complete"], row["epoch"]) for row in rows(live)]
    assert own[-1] == (True, 2), "the third epoch came after its end"
    assert own[0] == (True, None), "before the first epoch"


def views(live: Live) -> dict[str, float]:
    """Return the crawls of today by each view, after the step has ended."""
    midnight = live.clock().replace(hour=0, minute=0, second=0, microsecond=0)
    (day,) = rows(live, since=midnight.isoformat(), step_s=86_400)
    return {
        "history": day["n_reported"],
        "taught_nothing": day["n_taught_nothing"],
        "failed": day["n_failed"],
        "status": today(live),
        "budget": live.get("/budget").json()["spent_today"],
    }


def test_a_late_report_is_a_request_of_its_day_in_all_views(live):
    live.register("https://a.example/1", "https://a.example/2")
    live.clock.advance(minutes=1)
    live.post("/leases", {"count": 0})
    assert report(live, 1, minutes=2)["accepted"] == 1
    before = views(live)
    assert (before["history"], before["status"]) == (1, 1)
    assert report(live, 1, minutes=5)["late"] == 1
    at = (live.clock() - timedelta(minutes=9)).isoformat()
    failed = [{"page_id": 1, "observed_at": at, "status": 503}]
    assert live.post("/observations", failed).json()["late"] == 1
    after = views(live)
    changes = {name: after[name] - before[name] for name in before}
    assert changes == {"history": 2, "taught_nothing": 2, "failed": 1, "status": 2, "budget": 2}
    end_step(live)
    assert in_metrics(live) == 3
    assert views(live) == after


def test_a_report_that_is_sent_again_is_no_request(live):
    live.register("https://a.example/1")
    for minutes in (9, 5):
        assert report(live, 1, minutes=minutes)["accepted"] == 1
    before = views(live)
    assert report(live, 1, minutes=9)["late"] == 1
    assert report(live, 1, minutes=5)["duplicate"] == 1
    assert views(live) == before


def test_late_reports_of_before_the_registration_count_nowhere(live):
    live.register("https://a.example/1")
    assert report(live, 1, minutes=5)["accepted"] == 1
    before = views(live)
    assert report(live, 1, days=3)["late"] == 1
    assert views(live) == before
    day = (live.clock() - timedelta(days=4)).isoformat()
    assert sum(row["n_reported"] for row in rows(live, since=day)) == 1


def test_a_late_report_under_a_lease_that_ended_counts_once(live):
    live.register("https://a.example/1")
    (crawl,) = live.post("/leases", {"count": 1, "ttl_s": 60}).json()["items"]
    late_at = live.clock().isoformat()
    live.clock.advance(minutes=5)
    assert report(live, 1, minutes=1)["accepted"] == 1
    before = views(live)
    item = {"lease": crawl["lease"], "observed_at": late_at, "digest": "x"}
    assert live.post("/observations", [item]).json()["late"] == 1
    after = views(live)
    assert after["history"] - before["history"] == 1
    assert after["budget"] == before["budget"], "its lease has paid"
