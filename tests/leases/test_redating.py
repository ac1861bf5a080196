"""A store whose clock ran ahead and was set right: hosts open, leases end, pages come due."""

from datetime import timedelta

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.crawl_cases import RUDE, SECOND, TTL, UNTIL, report, take
from support.store_cases import (
    DAY,
    T0,
    due_of,
    publish,
    register,
    save,
    schedule_columns,
    states_of,
)

from service.core.estimators.gamma import Gamma
from service.epochs.plan import Plan
from service.epochs.run import Runner
from service.leases.host_settings import change_host
from service.leases.politeness import Politeness
from service.leases.queue import fill_queue, redate
from service.model.arrays import instant
from service.model.errors import StoreFull
from service.storage import open_store
from service.storage.clock import SteadyClock
from service.storage.stores.sqlite import SqliteTransaction

POLITE = Politeness(delay_s=2, concurrency=1)
AHEAD = T0 + DAY
HOUR = timedelta(hours=1)


def stocked(store, n=3, now=T0):
    """Due pages of one host, in the queue."""
    pages = np.sort(register(store, n, now))
    publish(store, schedule_columns(pages, crawl_rate=24.0))
    fill_queue(store, now + UNTIL)
    return pages


def set_right(store, now=T0):
    redate(store, POLITE, lambda: now)
    fill_queue(store, now + UNTIL)


def test_a_host_crawled_ahead_of_time_is_open_after_its_delay(queue_store):
    stocked(queue_store)
    given = take(queue_store, AHEAD, 1, polite=POLITE)
    report(queue_store, given, AHEAD, polite=POLITE)
    assert take(queue_store, T0 + HOUR, 1, polite=POLITE) == []
    set_right(queue_store, T0 + HOUR)
    assert len(take(queue_store, T0 + HOUR + 2 * SECOND, 1, polite=POLITE)) == 1


def test_a_lease_handed_out_ahead_of_time_runs_as_long_as_was_promised(queue_store):
    (page,) = stocked(queue_store, 1)
    assert len(take(queue_store, AHEAD)) == 1
    set_right(queue_store)
    assert take(queue_store, T0 + TTL + HOUR - SECOND) == []
    (again,) = take(queue_store, T0 + TTL + HOUR)
    assert again.page_id == page


def test_a_pause_that_began_ahead_of_time_lasts_as_long_as_it_would_have(queue_store):
    stocked(queue_store)
    report(queue_store, take(queue_store, AHEAD, 1), AHEAD, status=429, retry_after_s=600.0)
    set_right(queue_store)
    assert take(queue_store, T0 + 599 * SECOND) == []
    assert take(queue_store, T0 + 600 * SECOND) != []


def test_a_host_that_was_blocked_by_hand_stays_blocked(queue_store):
    stocked(queue_store)
    with queue_store.begin() as tx:
        change_host(tx, "example.org", {"blocked_until": AHEAD}, T0, Politeness())
    set_right(queue_store)
    assert take(queue_store, AHEAD - SECOND) == []
    assert take(queue_store, AHEAD) != []


def test_a_page_crawled_ahead_of_time_takes_reports_and_comes_due(queue_store):
    (page,) = stocked(queue_store, 1)
    report(queue_store, take(queue_store, AHEAD), AHEAD)
    set_right(queue_store)
    assert due_of(queue_store, page) <= T0 + 2 * HOUR
    (given,) = take(queue_store, T0 + 2 * HOUR)
    report(queue_store, [given], T0 + 2 * HOUR)
    after = states_of(queue_store, [page])
    assert after.last_crawl_at.tolist() == [instant(T0 + 2 * HOUR).item()]


def test_a_page_registered_ahead_of_time_is_due_now(queue_store):
    stocked(queue_store, 1, now=AHEAD)
    assert take(queue_store, T0) == []
    set_right(queue_store)
    assert len(take(queue_store, T0)) == 1


def test_a_ping_from_ahead_of_time_has_its_page_crawled_now(queue_store):
    (page,) = stocked(queue_store, 1)
    report(queue_store, take(queue_store, T0), T0)
    save(queue_store, [page], requested_at=AHEAD, last_ping_at=AHEAD)
    set_right(queue_store, T0 + SECOND)
    assert len(take(queue_store, T0 + SECOND)) == 1


def test_nothing_changes_where_no_clock_was_set_back(queue_store):
    pages = stocked(queue_store)
    report(queue_store, take(queue_store, T0, 1, polite=POLITE), T0, polite=POLITE)
    take(queue_store, T0 + 2 * SECOND, 1, polite=POLITE)
    before = states_of(queue_store, pages)
    with queue_store.begin() as tx:
        host_queues = tx.next_host_queues(-(2**63), 10)
    redate(queue_store, POLITE, lambda: T0 + 2 * SECOND)
    after = states_of(queue_store, pages)
    assert (after.last_crawl_at == before.last_crawl_at)[~np.isnat(before.last_crawl_at)].all()
    with queue_store.begin() as tx:
        same = tx.next_host_queues(-(2**63), 10)
    for name in ("ready_at", "blocked_until", "paused_until", "paused_at", "n_failures"):
        assert getattr(host_queues, name).tolist() == getattr(same, name).tolist(), name


@pytest.mark.parametrize("restarted", [False, True])
def test_a_runner_notices_that_the_clock_was_set_back(queue_store, restarted):
    now = [AHEAD]

    def clock():
        return now[0]

    plan = Plan(Gamma(), bandwidth=24.0)
    runner = Runner(queue_store, plan, timedelta(minutes=10), clock, POLITE)
    register(queue_store, 3, AHEAD)
    runner.run_once()
    report(queue_store, take(queue_store, AHEAD, 1, polite=POLITE), AHEAD, polite=POLITE)
    now[0] = T0
    if restarted:
        runner = Runner(queue_store, plan, timedelta(minutes=10), clock, POLITE)
    runner.run_once()
    assert len(take(queue_store, T0 + 2 * SECOND, 1, polite=POLITE)) == 1


@pytest.mark.parametrize("restarted", [False, True])
def test_a_shorter_interval_of_epochs_is_no_clock_that_was_set_back(queue_store, restarted):
    now = [T0]
    plan = Plan(Gamma(), bandwidth=24.0)
    hours, minutes = timedelta(hours=1), timedelta(minutes=10)
    register(queue_store, 3, T0)
    Runner(queue_store, plan, hours, lambda: now[0], POLITE).run_once()
    runner = Runner(queue_store, plan, hours if restarted else minutes, lambda: now[0], POLITE)
    if restarted:
        # the machine's time of day, before the clock of the database is read
        now[0] = T0 + 5 * SECOND
        runner = Runner(queue_store, plan, minutes, lambda: now[0], POLITE)
        now[0] = T0 + SECOND
    with capture_logs() as logs:
        runner.run_once()
    assert not [each for each in logs if "set back" in each["event"]]
    with queue_store.begin(write=False) as tx:
        assert tx.filled().until == now[0] + 2 * minutes


def stepped(store, monkeypatch):
    """The machine's time of day, which the test sets; no second elapses."""
    wall = [T0]
    monkeypatch.setattr("service.storage.stores.sqlite.boot_id", lambda: "this-run")
    store.steady_clock = SteadyClock(lambda: wall[0], lambda: 0.0)
    store.keep_time()
    return wall


HALF_MINUTE = Politeness(delay_s=30, concurrency=0)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("step", [DAY, -DAY, timedelta(minutes=-5), timedelta(minutes=5)])
def test_leases_and_delays_go_along_with_a_clock_that_is_set(
    sqlite_store, monkeypatch, step, restarted
):
    wall = stepped(sqlite_store, monkeypatch)
    stocked(sqlite_store, 2)
    (first,) = take(sqlite_store, T0, 1, polite=HALF_MINUTE)
    wall[0] += step
    at = T0 + step
    store = open_store(sqlite_store.url, 2) if restarted else sqlite_store
    store.steady_clock = (
        SteadyClock(lambda: wall[0], lambda: 0.0) if restarted else (sqlite_store.steady_clock)
    )
    store.keep_time()
    redate(store, HALF_MINUTE, lambda: at)
    fill_queue(store, at + UNTIL)
    assert take(store, at + 29 * SECOND, 2, polite=HALF_MINUTE) == []
    (second,) = take(store, at + 30 * SECOND, 2, polite=HALF_MINUTE)
    assert second.page_id != first.page_id
    again = at + TTL + HOUR
    assert take(store, again - SECOND, polite=RUDE) == []
    assert [c.page_id for c in take(store, again, polite=RUDE)] == [first.page_id]
    if restarted:
        store.close()


def test_a_clock_of_another_run_of_the_machine_is_not_gone_by(sqlite_store, monkeypatch):
    stepped(sqlite_store, monkeypatch)
    monkeypatch.setattr("service.storage.stores.sqlite.boot_id", lambda: "another")
    store = open_store(sqlite_store.url, 2)
    store.steady_clock = SteadyClock(lambda: T0 + DAY, lambda: 0.0)
    store.keep_time()
    assert store.steady_clock() == T0 + DAY
    store.close()


def test_a_clock_is_not_followed_where_leases_cannot_be_carried_along(sqlite_store, monkeypatch):
    wall = stepped(sqlite_store, monkeypatch)
    for step in (DAY, -DAY):
        before = sqlite_store.steady_clock()
        wall[0] += step
        with monkeypatch.context() as broken:
            broken.setattr(SqliteTransaction, "put_meta", full)
            with pytest.raises(StoreFull):
                sqlite_store.keep_time()
        assert sqlite_store.steady_clock() == before
        sqlite_store.keep_time()
        assert sqlite_store.steady_clock() == wall[0]


@pytest.mark.parametrize("step", [DAY, -DAY])
def test_the_new_time_comes_with_the_commit_and_before_the_next_writer(
    sqlite_store, monkeypatch, step
):
    wall, carried, handed_on = stepped(sqlite_store, monkeypatch), [], []
    hand_on, carry_along = sqlite_store.writing.hand_on, SqliteTransaction.carry_along

    def carrying(tx, by):
        carried.append(sqlite_store.steady_clock())
        carry_along(tx, by)

    def handing_on():
        handed_on.append(sqlite_store.steady_clock())
        hand_on()

    monkeypatch.setattr(SqliteTransaction, "carry_along", carrying)
    monkeypatch.setattr(sqlite_store.writing, "hand_on", handing_on)
    wall[0] += step
    sqlite_store.keep_time()
    assert carried == [T0]
    assert handed_on == [T0 + step]


def full(*_):
    raise StoreFull


def test_a_clock_that_is_kept_right_carries_nothing_along(sqlite_store, monkeypatch):
    wall = stepped(sqlite_store, monkeypatch)
    monkeypatch.setattr(sqlite_store, "_writing", None)
    wall[0] += timedelta(milliseconds=40)
    sqlite_store.keep_time()
    assert sqlite_store.steady_clock() == wall[0]
