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
