"""When epochs are due, and the loop that runs them."""

import threading
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.crawl_cases import ids, take
from support.epoch_cases import watched
from support.store_cases import (
    DAY,
    T0,
    publish,
    register,
    save,
    schedule_columns,
)

from service.core.estimators.gamma import Gamma
from service.epochs.plan import Plan
from service.epochs.run import STANDBY, WAITING, Runner, run_epoch
from service.model.arrays import instant
from service.model.domain import EpochStatus, Timing
from service.model.errors import LeadershipLost, StoreFull, StoreUnavailable

HOUR = timedelta(hours=1)
PLAN = Plan(Gamma())


@pytest.fixture
def runner(memory, clock, monkeypatch):
    monkeypatch.setattr(Runner, "POLL_S", 0)
    return Runner(memory, PLAN, HOUR, clock)


def test_nothing_is_due_while_there_are_no_pages(runner):
    assert not runner.due()
    assert runner.run_once() is None


def test_the_first_page_makes_the_first_epoch_due(runner, memory):
    register(memory, 1)
    assert runner.due()
    assert runner.run_once().status is EpochStatus.published
    assert not runner.due()


def test_the_next_epoch_is_due_an_interval_after_the_start_of_the_last(runner, memory, clock):
    register(memory, 1)
    first = runner.run_once()
    clock.at = T0 + HOUR - timedelta(microseconds=1)
    assert runner.run_once() is None
    clock.at = T0 + HOUR
    assert runner.run_once().epoch > first.epoch


def test_a_clock_set_back_does_not_stop_epochs(runner, memory, clock):
    register(memory, 1)
    first = runner.run_once()
    clock.at = T0 - timedelta(seconds=1)
    assert runner.run_once() is None
    clock.at = T0 - 9_000 * HOUR
    assert runner.run_once().epoch > first.epoch
    assert runner.run_once() is None


def test_a_request_is_due_at_once_even_without_pages(runner, memory):
    with memory.begin() as tx:
        asked = tx.request_epoch(T0)
    assert runner.run_once().epoch == asked.epoch
    assert runner.run_once() is None


def test_a_request_during_an_epoch_makes_one_more(runner, memory):
    register(memory, 1)
    first = runner.run_once()
    with memory.begin() as tx:
        asked = tx.request_epoch(T0)
    assert runner.run_once().epoch == asked.epoch == first.epoch + 1


@pytest.mark.dear
def test_a_failed_epoch_is_tried_again_after_an_interval_not_at_once(
    runner, memory, clock, monkeypatch
):
    register(memory, 1)
    monkeypatch.setattr("service.epochs.optimum.harmonic_optimum", None)
    assert runner.run_once().status is EpochStatus.failed
    assert not runner.due()
    monkeypatch.undo()
    clock.at = T0 + HOUR
    assert runner.run_once().status is EpochStatus.published


def test_a_run_whose_process_died_is_taken_over_at_once(runner, memory):
    register(memory, 1)
    with memory.lead() as lead, lead.begin() as tx:
        died = tx.start_epoch(T0)
    epoch = runner.run_once()
    assert epoch.status is EpochStatus.published
    with memory.begin() as tx:
        assert tx.epoch(died.epoch).status is EpochStatus.failed


def test_a_run_that_is_alive_is_left_alone(runner, memory):
    register(memory, 1)
    with memory.lead() as lead:
        with lead.begin() as tx:
            running = tx.start_epoch(T0)
        assert runner.run_once() is None
    with memory.begin() as tx:
        assert tx.epoch(running.epoch).status is EpochStatus.running


def test_runners_on_one_database_share_the_work(sql_store, clock):
    register(sql_store, 50)
    runners = [Runner(sql_store, PLAN, HOUR, clock) for _ in range(3)]
    start = threading.Barrier(3)
    ran = []

    def work(runner):
        start.wait(180)
        ran.append(runner.run_once())

    threads = [threading.Thread(target=work, args=(runner,)) for runner in runners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    assert len(ran) == 3
    with sql_store.begin(write=False) as tx:
        statuses = {e.status for e in tx.epochs(None, 10)}
    assert statuses == {EpochStatus.published}


def test_the_loop_runs_as_often_as_told(runner, memory, clock, monkeypatch):
    register(memory, 1)
    rounds = []

    def once():
        rounds.append(clock.at)
        clock.at += HOUR / 2

    monkeypatch.setattr(runner, "run_once", once)
    runner.run_every(loops=4)
    assert rounds == [T0 + i * HOUR / 2 for i in range(4)]
    runner.run_every(loops=0)
    assert len(rounds) == 4


def test_the_loop_tells_of_every_epoch_that_ran(runner, memory, clock, monkeypatch):
    register(memory, 1)
    told = []
    once = runner.run_once

    def later():
        clock.at += HOUR / 2
        return once()

    monkeypatch.setattr(runner, "run_once", later)
    runner.run_every(loops=6, after_each=lambda: told.append(clock.at))
    assert told == [T0 + HOUR / 2, T0 + 3 * HOUR / 2, T0 + 5 * HOUR / 2]


def test_the_loop_ends_after_the_round_in_which_it_is_stopped(runner, memory, monkeypatch):
    rounds = []

    def once():
        rounds.append(1)
        if len(rounds) == 3:
            runner.stop()

    monkeypatch.setattr(runner, "run_once", once)
    runner.run_every()
    assert len(rounds) == 3
    runner.run_every()
    assert len(rounds) == 3


def test_the_loop_survives_whatever_a_round_raises(runner, memory, monkeypatch):
    rounds = []

    def once():
        rounds.append(1)
        raise (ZeroDivisionError, KeyError)[len(rounds) - 1]

    monkeypatch.setattr(runner, "run_once", once)
    with capture_logs() as logs:
        runner.run_every(loops=2)
    assert len(rounds) == 2
    assert [(entry["log_level"], entry["exc_info"]) for entry in logs] == [("error", True)] * 2


@pytest.mark.parametrize("trouble", [StoreUnavailable, StoreFull, LeadershipLost])
def test_trouble_of_the_database_needs_no_trace_in_the_log(runner, trouble, monkeypatch):
    def once():
        raise trouble from OSError("no room")

    monkeypatch.setattr(runner, "run_once", once)
    with capture_logs() as logs:
        runner.run_every(loops=1)
    (entry,) = logs
    assert (entry["log_level"], entry["reason"]) == ("warning", str(trouble()))
    assert "no room" in entry["cause"]
    assert "exc_info" not in entry


def test_the_loop_warns_of_an_epoch_that_outlasts_its_interval(runner, clock, monkeypatch):
    def once():
        clock.at += 2 * HOUR

    monkeypatch.setattr(runner, "run_once", once)
    with capture_logs() as logs:
        runner.run_every(loops=1)
    (entry,) = logs
    assert (entry["log_level"], entry["took_s"]) == ("warning", 7200.0)


def test_a_sleeping_loop_wakes_for_a_request_and_for_the_stop(memory, clock, monkeypatch):
    monkeypatch.setattr(Runner, "POLL_S", 3600)
    runner = Runner(memory, PLAN, HOUR, clock)
    slept, published = threading.Event(), threading.Event()
    plain = runner.run_once

    def once():
        epoch = plain()
        (published if epoch else slept).set()

    monkeypatch.setattr(runner, "run_once", once)
    thread = threading.Thread(target=runner.run_every)
    thread.start()
    assert slept.wait(180)
    with memory.begin() as tx:
        tx.request_epoch(T0)
    runner.wake()
    assert published.wait(180)
    runner.stop()
    thread.join(180)
    assert not thread.is_alive()


def test_an_epoch_published_by_hand_counts_like_any_other(runner, memory, clock):
    ids = register(memory, 1)
    publish(memory, schedule_columns(ids), now=T0)
    assert not runner.due()
    clock.at = T0 + HOUR
    assert runner.due()


@pytest.mark.dear
def test_what_falls_due_is_queued_by_each_schedule_and_in_time(queue_store, clock):
    (page,) = register(queue_store, 1).tolist()
    runner = Runner(queue_store, replace(PLAN, bandwidth=1.0), 100 * DAY, clock)

    def filled_until(at):
        clock.at = at
        runner.run_once()
        with queue_store.begin(write=False) as tx:
            return tx.filled().until

    assert filled_until(T0) == T0 + 2 * HOUR
    save(queue_store, [page], last_crawl_at=T0, interval_factor=1.0)
    assert filled_until(T0 + HOUR / 2) == T0 + 2 * HOUR
    assert filled_until(T0 + HOUR) == T0 + 3 * HOUR
    assert take(queue_store, T0 + DAY) == []
    assert filled_until(T0 + DAY - HOUR) == T0 + DAY + HOUR
    assert ids(take(queue_store, T0 + DAY)) == [page]


def test_siblings_shift_crawls_where_they_are_asked_to(memory, clock):
    ids = watched(memory)
    late = np.arange(len(ids)) % 2 == 1
    crawled = np.where(late, instant(T0 - 9 * DAY), instant(T0 - DAY))
    save(memory, ids, last_crawl_at=crawled, last_observed_at=crawled, last_interval=4.0)

    def urgencies(**given):
        epoch = run_epoch(memory, replace(PLAN, **given), clock)
        return memory.schedules[epoch.epoch].urgency

    assert np.median(urgencies()[late]) > 1.2
    assert (urgencies()[~late] == 1.0).all()
    for given in ({"url_groups": False}, {"timing": Timing.poisson}):
        assert (urgencies(**given) == 1.0).all()


def events(logs):
    return [entry["event"] for entry in logs if entry["log_level"] == "info"]


def test_a_runner_logs_when_it_leads_and_when_it_waits_each_once(runner, memory):
    with capture_logs() as logs:
        runner.run_every(loops=3)
    assert events(logs) == [WAITING]
    register(memory, 1)
    with capture_logs() as logs:
        runner.run_every(loops=3)
    assert events(logs)[0] == "this process leads: epoch started"
    assert events(logs)[-2:] == ["epoch published", WAITING]


def test_a_runner_logs_that_another_process_leads(runner, memory):
    register(memory, 1)
    with memory.lead(), capture_logs() as logs:
        runner.run_every(loops=3)
    assert events(logs) == [STANDBY]
