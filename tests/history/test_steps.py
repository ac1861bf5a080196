"""Rows of steps: sums of many writers, gauges, retention, and what an interruption leaves."""

import threading
from contextlib import contextmanager
from datetime import timedelta

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.ingest_cases import announce, crawl, rules
from support.live_server import Clock
from support.store_cases import (
    DAY,
    crawl_columns,
    page_columns,
    publish,
    register,
    schedule_columns,
)

from service.core.calibration import CalibrationSums
from service.core.estimators.gamma import Gamma
from service.core.forecast import expected_harmonic, probability_unchanged
from service.history import counting, gauges, steps
from service.history.counting import HistoryCounter
from service.history.gauges import Blocks, measure
from service.history.reading import calibrations_of, newest, read_rows
from service.history.steps import MERGE_EVERY, HistoryKeeper
from service.ingest.record import record
from service.model.errors import StoreUnavailable
from service.model.history import (
    ALL_HOSTS,
    COUNTS,
    STEP,
    Tally,
    packed,
    step_of,
    unpacked,
)
from service.model.id_space import IdSpace
from service.storage import open_store
from service.storage.history.contract import Counted

GAMMA = Gamma()
NONE = np.zeros(0, np.int64)


@pytest.fixture
def clock(sql_store):
    sql_store.clock, sql_store.counter = Clock(), HistoryCounter(sql_store)
    return sql_store.clock


def keeper(store, clock, retention=None):
    return HistoryKeeper(store, GAMMA, retention, clock)


def rows_of(store, clock, host_id=ALL_HOSTS, days=1, step=STEP):
    store.counter.write()
    with store.begin(write=False) as tx:
        end = clock() + STEP
        return read_rows(tx, host_id, end - days * DAY, end, step, 1_000)[0]


def count(store, tally):
    """Count a tally, and write it as one part."""
    with store.begin() as tx:
        tx.count(tally)
    store.counter.write()


def reports(host_id, n):
    return Tally.of(np.full(n, host_id), {"n_reported": np.ones(n)})


def total(rows, name="n_reported"):
    return sum(row.counts[name] for row in rows)


def n_parts(store, clock):
    with store.begin(write=False) as tx:
        return tx.n_parts(clock() + STEP)


def test_sums_survive_packing():
    rng = np.random.default_rng(1)
    sums = CalibrationSums.of(rng.random(1_000), rng.random(1_000) < 0.3)
    for n_hosts in (0, 1, 2_000):
        hosts = np.arange(1, 1 + n_hosts) * 2**40
        counts = rng.integers(0, 2**31, (n_hosts, len(COUNTS)))
        back = unpacked(packed(Tally(hosts, counts, {"bursty": sums})))
        assert back.host_id.tolist() == hosts.tolist()
        assert back.counts.tolist() == counts.tolist()
        for before, after in zip(sums, back.calibrations["bursty"], strict=True):
            np.testing.assert_array_equal(before, after)


@pytest.mark.dear
def test_writers_of_several_processes_add_to_one_step_while_it_is_merged(
    database_url, clock, sql_store, monkeypatch
):
    """Three stores stand for three processes; a fourth merges and writes rows meanwhile."""
    monkeypatch.setattr(steps, "MANY_PARTS", 5)
    monkeypatch.setattr(steps, "MOST_TAKEN", 7)
    stores = [open_store(database_url, 2, clock=clock) for _ in range(3)]
    for store in stores:
        store.counter = HistoryCounter(store)
    n_commits, failures = 40, []

    def write(store, host_id):
        try:
            for _ in range(n_commits):
                count(store, reports(host_id, 3))
        except Exception as error:  # noqa: BLE001 - the main thread reports it
            failures.append(error)

    writers = [
        threading.Thread(target=write, args=(store, i + 1)) for i, store in enumerate(stores)
    ]
    for writer in writers:
        writer.start()
    keep = keeper(sql_store, clock)
    while any(writer.is_alive() for writer in writers):
        keep.keep()
    clock.advance(minutes=10)
    keep.keep()
    for store in stores:
        store.close()
    assert not failures
    assert n_parts(sql_store, clock) == 0
    assert total(rows_of(sql_store, clock)) == 3 * 3 * n_commits
    for host_id in (1, 2, 3):
        assert total(rows_of(sql_store, clock, host_id)) == 3 * n_commits


def test_a_transaction_that_rolls_back_counts_nothing(sql_store, clock):
    def fail():
        with sql_store.begin() as tx:
            tx.count(reports(1, 5))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    sql_store.counter.write()
    assert n_parts(sql_store, clock) == 0


def test_sums_that_come_after_the_end_of_their_step_are_added_by_the_next_round(sql_store, clock):
    count(sql_store, reports(1, 2))
    keep = keeper(sql_store, clock)
    late = clock()
    clock.advance(minutes=10)
    keep.keep()
    clock.now, now = late, clock()
    count(sql_store, reports(1, 3))  # another process writes its last second of the step
    clock.now = now + MERGE_EVERY
    keep.keep()
    (row, *_) = rows_of(sql_store, clock)
    assert (row.at, row.counts["n_reported"], row.complete) == (step_of(late), 5, True)
    assert rows_of(sql_store, clock, 1)[0].counts["n_reported"] == 5


def test_every_reader_sees_each_commit_once_before_and_after_merging(sql_store, clock):
    for _ in range(5):
        count(sql_store, reports(1, 1))
    assert total(rows_of(sql_store, clock)) == 5
    keep = keeper(sql_store, clock)
    keep._merge(clock() + STEP, fewest=1)
    assert n_parts(sql_store, clock) == 1
    assert total(rows_of(sql_store, clock)) == 5
    clock.advance(minutes=10)
    keep.keep()
    assert total(rows_of(sql_store, clock)) == 5
    keeper(sql_store, clock).keep()  # another process takes over
    assert total(rows_of(sql_store, clock)) == 5


def test_the_busiest_hosts_have_rows_and_the_others_only_count(sql_store, clock, monkeypatch):
    for host_id in range(1, 6):
        count(sql_store, reports(host_id, host_id))
    monkeypatch.setattr(Tally.busiest, "__defaults__", (2,))
    clock.advance(minutes=10)
    keeper(sql_store, clock).keep()
    with_rows = [i for i in range(1, 6) if rows_of(sql_store, clock, i)]
    assert with_rows == [4, 5]
    assert total(rows_of(sql_store, clock)) == 15


def test_rows_are_deleted_after_the_retention(sql_store, clock):
    keep = keeper(sql_store, clock, retention=timedelta(hours=1))
    for _ in range(12):
        count(sql_store, reports(1, 1))
        clock.advance(minutes=10)
        keep.keep()
    kept = rows_of(sql_store, clock)
    assert total(kept) == len(kept) == 6


def test_crawls_and_pings_are_counted_by_their_outcome(sql_store, clock):
    one, two = register(sql_store, 2, now=clock(), observability=2)
    for page in (one, two):
        crawl(sql_store, page, clock.advance(hours=1), digest=1)
    announce(sql_store, one, clock.advance(minutes=1))
    crawl(sql_store, one, clock.advance(minutes=1), digest=2)  # true
    announce(sql_store, one, clock.advance(minutes=1))
    crawl(sql_store, one, clock.advance(minutes=1), digest=2)  # false
    crawl(sql_store, one, clock.advance(minutes=1), digest=3)  # missed
    crawl(sql_store, two, clock.advance(minutes=1), digest=2)  # a page without pings
    crawl(sql_store, two, clock.advance(minutes=1), status=500)
    crawl(sql_store, two, clock(), status=500)  # a duplicate
    rows = rows_of(sql_store, clock)
    counted = {name: total(rows, name) for name in COUNTS}
    assert counted == {
        "n_leased": 0,
        "n_reported": 7,
        "n_failed": 1,
        "n_changed": 3,
        "n_wasted": 1,
        "n_pings": 2,
        "n_true_pings": 1,
        "n_false_pings": 1,
        "n_missed": 1,
        "n_taught_nothing": 1,
        "spent": 0,
        "n_late": 0,
    }


def test_crawls_that_teach_nothing_are_counted_by_their_outcome(sql_store, clock):
    (page,) = register(sql_store, 1, now=clock())
    crawls = (
        ({"digest": 1}, 0),
        ({"status": 403}, 1),
        ({"status": 302}, 1),  # elsewhere
        ({"status": 200}, 1),  # empty
        ({"digest": 1}, 0),  # the same content
        ({"status": 404}, 1),  # a first look
        ({"status": 404}, 0),  # the page is gone
        ({"status": 404}, 1),  # a check of a gone page
        ({"status": 500}, 1),
        ({"digest": 2}, 0),  # it is back
    )
    n = 0
    for result, taught_nothing in crawls:
        crawl(sql_store, page, clock.advance(hours=2), **result)
        n += taught_nothing
        assert total(rows_of(sql_store, clock), "n_taught_nothing") == n, result
    assert total(rows_of(sql_store, clock), "n_failed") == 2


def test_gauges_are_those_of_a_loop_over_all_pages(sql_store, clock, monkeypatch):
    monkeypatch.setattr(gauges, "TOGETHER", 3)
    rng = np.random.default_rng(3)
    ids = np.sort(register(sql_store, 8, now=clock(), importance=rng.random(8) + 0.5))
    age = rng.uniform(1, 30, 8)
    for page, days in zip(ids[:6], age[:6], strict=True):
        at = clock() + timedelta(days=float(days))
        crawl(sql_store, page, at, digest=1)
    assert measure(sql_store, GAMMA, np.array([1]), clock).all_pages.fresh_share is None
    crawl(sql_store, ids[0], clock() + timedelta(days=float(age[0]), seconds=1), digest=1)
    gone = ids[5]
    for hour in range(2):
        crawl(sql_store, gone, clock() + timedelta(days=31, hours=hour), status=404)
    clock.now += timedelta(days=40)
    measured = measure(sql_store, GAMMA, np.array([1]), clock).gauges
    assert measured[1].fresh_share == measured[ALL_HOSTS].fresh_share  # there is one host
    all_pages = measured[ALL_HOSTS]
    assert (all_pages.n_pages, all_pages.n_never_crawled) == (7, 2)
    assert all_pages.n_overdue == 2  # no epoch has scheduled the others
    with sql_store.begin(write=False) as tx:
        importance = [tx.page(int(page)).importance for page in ids]
    a, b = GAMMA.prior.a, GAMMA.prior.b
    fresh = [(b / (b + 40 - days)) ** a for days in age[:5]] + [0.0, 0.0]
    weight = [w for page, w in zip(ids, importance, strict=True) if page != gone]
    assert all_pages.fresh_share == pytest.approx(np.average(fresh, weights=weight), rel=1e-6)
    assert all_pages.fresh_share_plain == pytest.approx(np.mean(fresh), rel=1e-6)
    changes = a / b * np.array([*(40 - age[:5]), 40, 40])
    stale = expected_harmonic(changes)
    stale[5:] += -np.expm1(-changes[5:]) / changes[5:]
    assert all_pages.harmonic_staleness_plain == pytest.approx(stale.mean(), rel=1e-6)


def test_pages_without_content_are_counted_and_neither_fresh_nor_stale(sql_store, clock):
    ids = np.sort(register(sql_store, 5, now=clock(), importance=np.arange(1.0, 6.0)))
    for page in ids[:4]:
        crawl(sql_store, page, clock() + timedelta(days=1), digest=1)
    for hour in range(3):
        for page in ids[[0, 4]]:
            crawl(sql_store, page, clock() + timedelta(days=2, hours=hour), status=403)
    clock.now += timedelta(days=8)
    lacking = measure(sql_store, GAMMA, np.array([1]), clock).gauges
    with sql_store.begin() as tx:
        tx.delete_many(ids[[0, 4]])
    without = measure(sql_store, GAMMA, np.array([1]), clock).gauges
    for host_id in (ALL_HOSTS, 1):
        found, others = lacking[host_id], without[host_id]
        assert (found.n_pages, found.n_no_content, found.n_overdue) == (5, 2, 2)
        assert (others.n_pages, others.n_no_content) == (3, 0)
        for name in (
            "fresh_share",
            "fresh_share_plain",
            "harmonic_staleness",
            "harmonic_staleness_plain",
        ):
            assert getattr(found, name) == pytest.approx(getattr(others, name)), name


def test_a_large_corpus_is_sampled_in_blocks_and_its_numbers_are_scaled(
    sql_store, clock, monkeypatch
):
    monkeypatch.setattr(gauges, "SAMPLED_TOGETHER", 10)
    with sql_store.begin() as tx:
        urls = [f"https://example.org/{i}" for i in range(1_000)]
        tx.register(page_columns(urls), clock())
    sampled = measure(sql_store, GAMMA, NONE, clock, most=250).gauges[ALL_HOSTS]
    assert sampled.sampled_share == pytest.approx(0.25)
    assert sampled.n_pages == sampled.n_never_crawled == 1_000
    assert Blocks.of(IdSpace(np.array([[0, 20_000_000]]))).share == pytest.approx(0.1)


def test_nobody_measures_twice_for_one_step(sql_store, clock):
    clock.advance(minutes=1)
    keeper(sql_store, clock).keep()
    with sql_store.begin(write=False) as tx:
        first = newest(tx).gauges.measured_at
    clock.advance(minutes=1)
    keeper(sql_store, clock).keep()
    with sql_store.begin(write=False) as tx:
        assert newest(tx).gauges.measured_at == first


def record_all(store, ids, at, digest):
    """Record a crawl of each page, which shows content of its own by the version `digest`."""
    with store.begin() as tx:
        record(tx, crawl_columns(ids, at, digest=1_000_000 * digest + ids), rules())


def predictions(store):
    with store.begin(write=False) as tx:
        return calibrations_of(tx, 0).get("gamma", CalibrationSums.none())


def test_many_crawls_of_a_second_compare_some_of_their_pages(sql_store, clock, monkeypatch):
    monkeypatch.setattr(counting, "MOST_COMPARED", 25)
    ids = np.sort(register(sql_store, 300, now=clock()))
    for digest in (1, 2):
        clock.advance(hours=1)
        for some in np.split(ids, 3):  # three commits are one second
            record_all(sql_store, some, clock(), digest)
        sql_store.counter.write()
    sums = predictions(sql_store)
    assert sums.n.sum() == sums.n_changed.sum() == np.count_nonzero(ids % 12 == 0)
    assert total(rows_of(sql_store, clock)) == 600


def test_crawls_beyond_the_bound_are_counted_but_not_compared(sql_store, clock, monkeypatch):
    monkeypatch.setattr(counting, "MOST_HELD", 5)
    ids = register(sql_store, 4, now=clock())
    record_all(sql_store, ids, clock.advance(hours=1), digest=1)
    sql_store.counter.write()
    for digest in (2, 3, 4):
        record_all(sql_store, ids, clock.advance(hours=1), digest)
    assert total(rows_of(sql_store, clock)) == 16
    assert predictions(sql_store).n.sum() == 4
    assert sql_store.counter.n_not_compared == 8


def test_predictions_are_those_of_the_states_before_the_crawls(sql_store, clock):
    """Three commits of a page wait together, and its row has the last state only."""
    (page,) = register(sql_store, 1, now=clock())
    expected, state = [], GAMMA.init(1)
    for digest in (1, 1, 2, 2):
        record_all(sql_store, np.array([page]), clock.advance(hours=24), digest)
    for changed in (False, True, False):
        own, any_page = (
            probability_unchanged(GAMMA, each, np.ones(1))[0] for each in (state, GAMMA.init(1))
        )
        expected.append(1.0 - (0.95 * own + 0.05 * any_page))
        state = GAMMA.update(state, np.ones(1), np.array([changed]))
    sql_store.counter.write()
    assert predictions(sql_store).sum_predicted.sum() == pytest.approx(sum(expected))


def test_crawls_of_an_epoch_that_has_ended_are_not_compared(sql_store, clock):
    ids = register(sql_store, 3, now=clock())
    for digest in (1, 2):
        record_all(sql_store, ids, clock.advance(hours=1), digest)
    publish(sql_store, schedule_columns(np.sort(ids), np.ones(3)), now=clock())
    assert total(rows_of(sql_store, clock)) == 6
    assert predictions(sql_store).n.sum() == 0


def test_a_timer_writes_what_was_counted(sql_store, clock, monkeypatch):
    monkeypatch.setattr(counting, "EVERY_S", 0.01)
    with sql_store.begin() as tx:
        tx.count(reports(1, 2))
    sql_store.counter._timer.join()
    assert n_parts(sql_store, clock) == 1


def test_the_end_of_a_process_writes_what_was_counted(database_url, sql_store, clock):
    store = open_store(database_url, 2, clock=clock)
    store.counter = HistoryCounter(store)
    with store.begin() as tx:
        tx.count(reports(1, 2))
    store.close()
    assert total(rows_of(sql_store, clock)) == 2


class Outage:
    """A store whose transactions that write fail, before or in their commit."""

    def __init__(self, store):
        self.store, self.fails = store, ""

    @contextmanager
    def begin(self, *, write=True):
        if write and self.fails == "before":
            raise StoreUnavailable
        with self.store.begin(write=write) as tx:
            yield tx
        if write and self.fails == "in the commit":
            raise StoreUnavailable


def test_sums_whose_transaction_fails_are_written_by_the_next_one_and_count_once(sql_store, clock):
    sql_store.counter = counter = HistoryCounter(outage := Outage(sql_store))
    for fails, expected in (("before", 2), ("in the commit", 4)):
        with sql_store.begin() as tx:
            tx.count(reports(1, 2))
        outage.fails = fails
        with pytest.raises(StoreUnavailable):
            counter.write()
        outage.fails = ""
        counter.write()
        assert total(rows_of(sql_store, clock)) == expected


def test_a_process_that_ends_in_an_outage_warns_of_its_loss(sql_store, clock):
    counter = HistoryCounter(outage := Outage(sql_store))
    outage.fails = "before"
    counter.add([Counted(clock(), reports(1, 2))])
    with capture_logs() as logs:
        counter.close()
    assert [entry["log_level"] for entry in logs] == ["warning"]
