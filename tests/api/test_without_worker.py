"""A worker that has ended: what people see, and servers that fill the queue in its place."""

from datetime import timedelta

import pytest
from structlog.testing import capture_logs
from support.live_server import Live, running, until

from api.test_holds_live import A, explained, lease, why
from service.epochs.run import STANDS_IN, Runner

B = "https://b.example/"
EVERY_S = 3_600
"""Interval of epochs, seconds; the queue is filled for twice as long."""


@pytest.fixture
def live(database_url):
    with running(database_url, epoch_interval_s=EVERY_S) as live:
        yield live


def crawl_all(live: Live) -> int:
    """Crawl all pages that leases give now, and return their number."""
    crawls = lease(live, count=10)
    at = live.clock().isoformat()
    reports = [{"lease": each["lease"], "observed_at": at, "digest": "1"} for each in crawls]
    assert live.post("/observations", reports).json()["accepted"] == len(reports)
    return len(crawls)


def act_of(live: Live) -> str:
    """Return the act that a standstill asks for."""
    if live.service.store.embedded:
        return "See the log of `recrawl serve`, which runs epochs"
    return "Start `recrawl worker`, or see its log if it runs"


def stopped(live: Live) -> int:
    """Crawl a page and publish its schedule, as the last act of the worker; return its id."""
    (page_id,) = live.register(A)
    live.epoch()
    assert crawl_all(live) == 1
    live.clock.advance(seconds=EVERY_S)
    live.epoch()
    while crawl_all(live):
        live.clock.advance(minutes=1)
    return page_id


def test_a_page_that_nothing_has_queued_asks_for_a_worker(live):
    page_id = stopped(live)
    live.clock.advance(days=80)
    held = why(live)
    assert held["hold"] == "no_worker"
    act = act_of(live)
    assert held["sentence"].startswith(
        f"{act}: it is due, and the queue of due pages ended 79.9 days ago, at 2026-05-01 15:00 UTC"
    )
    sentence = explained(live)["sentence"]
    assert sentence.startswith(f"{act}: the queue of due pages ended 79.9 days ago")
    assert sentence.endswith("; no page within reach is due.")
    page = live.get(f"/console/pages/{page_id}").text
    assert "no worker" in page
    assert act in page
    assert "epoch_late" in [each["kind"] for each in live.get("/status").json()["needs_you"]]
    live.service.runner.run_once()
    assert why(live)["hold"] != "no_worker"
    assert not explained(live)["sentence"].startswith(act)


def test_a_page_that_is_due_later_asks_for_a_worker_once_the_queue_has_ended(live):
    stopped(live)
    assert why(live)["hold"] == "not_due"
    assert why(live)["sentence"].startswith("Nothing to do: it is due in")
    live.clock.advance(hours=3)
    assert why(live)["hold"] == "not_due"
    assert why(live)["sentence"].startswith(f"{act_of(live)}: it is due in")
    assert "; the queue of due pages ended 60 minutes ago" in why(live)["sentence"]


def test_pages_of_a_service_that_never_had_a_worker_ask_for_one(database_url):
    with running(database_url, admission="learned") as live:
        live.register(*(f"{A}news/{n}" for n in range(60)))
        held = next(
            url
            for url in (f"{A}news/{n}" for n in range(60))
            if why(live, url)["hold"] == "waits_for_group"
        )
        act = act_of(live)
        live.clock.advance(minutes=9)
        lease(live, count=100)
        assert not why(live, held)["sentence"].startswith(act)
        assert not explained(live)["sentence"].startswith(act)
        live.clock.advance(minutes=2)
        lease(live, count=100)
        sentence = why(live, held)["sentence"]
        assert sentence.startswith(act)
        assert "an epoch was due 11 minutes ago, at 2026-05-01 12:00 UTC, and none has" in sentence
        assert explained(live)["sentence"].startswith(act)


def test_a_crawled_page_without_a_schedule_asks_for_a_worker_soon(database_url):
    with running(database_url, epoch_interval_s=30) as live:
        live.register(B)
        live.epoch()
        live.register(A)
        assert crawl_all(live) == 2
        assert why(live)["sentence"].startswith("Nothing to do: the next epoch schedules it")
        live.clock.advance(minutes=3)
        with live.service.store.begin() as tx:  # as a server that stands in for the worker
            tx.set_filled(tx.filled()._replace(until=live.clock() + timedelta(hours=1)))
        sentence = why(live)["sentence"]
        assert sentence.startswith(f"{act_of(live)}: the next epoch schedules it; an epoch was due")
        assert "epoch_late" in [each["kind"] for each in live.get("/status").json()["needs_you"]]


def test_pages_imported_past_the_service_are_admitted_by_its_next_round(
    sqlite_url, recrawl, tmp_path
):
    path = tmp_path / "urls.txt"
    path.write_text("".join(f"{B}{n}\n" for n in range(3)))
    with running(sqlite_url, admission="learned") as live:
        live.register(f"{A}news/1")
        live.service.runner.run_once()
        assert live.service.runner.run_once() is None
        lease(live, count=100)
        assert recrawl("import", path, "--database-url", sqlite_url).status == 0
        held = why(live, f"{B}0")
        assert held["hold"] == "waits_for_group"
        assert (
            "no page of its URL group is admitted now, and the service admits some"
            in (held["sentence"])
        )
        assert held["until"] is not None
        assert live.service.runner.run_once() is not None
        assert why(live, f"{B}0")["hold"] != "waits_for_group"


def test_a_server_fills_the_queue_that_no_worker_fills(live):
    stopped(live)
    live.clock.advance(minutes=89)
    assert live.service.runner.stand_in() is False
    live.clock.advance(minutes=2)
    with capture_logs() as logs:
        assert live.service.runner.stand_in() is True
        assert live.service.runner.stand_in() is False
        live.clock.advance(minutes=91)
        assert live.service.runner.stand_in() is True
    assert [each["event"] for each in logs].count(STANDS_IN) == 1
    n_crawls = 0
    for _ in range(40):
        live.clock.advance(days=1)
        live.service.runner.stand_in()
        n_crawls += crawl_all(live)
    assert n_crawls >= 3
    assert "no_worker" not in [each["hold"] for each in explained(live)["holds"]]
    assert live.get("/epochs", limit=1).json()["items"][0]["epoch"] == 2


def test_a_server_leaves_a_new_queue_to_the_worker(live):
    live.register(A)
    live.clock.advance(days=1)
    assert live.service.runner.stand_in() is False


def test_a_server_looks_at_the_queue_by_itself(database_url, monkeypatch):
    monkeypatch.setattr(Runner, "LOOK_S", 0.01)
    options = {"epoch_interval_s": EVERY_S, "bandwidth": 24}
    with running(database_url, stands_in=True, **options) as live:
        stopped(live)
        with live.service.store.begin(write=False) as tx:
            before = tx.filled()
        live.clock.advance(days=1)

        def filled():
            with live.service.store.begin(write=False) as tx:
                return tx.filled().until == live.clock() + timedelta(seconds=2 * EVERY_S)

        until(filled, "the server fills the queue")
        assert before.until < live.clock()
        assert crawl_all(live) == 1
