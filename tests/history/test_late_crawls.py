"""Crawls whose reports come after midnight: their day, their epoch, and the requests since it."""

from datetime import timedelta

import numpy as np
import pytest
from support.ingest_cases import crawl
from support.live_server import START, Clock
from support.store_cases import DAY, register

from service.core.estimators.gamma import Gamma
from service.epochs.requests import read_requests
from service.history.counting import HistoryCounter
from service.history.reading import counts_between
from service.history.steps import HistoryKeeper
from service.model.domain import Epoch, EpochStatus
from service.model.history import ALL_HOSTS, COUNTS, STEP, Tally, packed, unpacked
from service.status.counts import counts_of_today
from service.status.facts import reported_by

MIDNIGHT = START.replace(hour=0) + DAY
NONE = (0,) * len(COUNTS)


@pytest.fixture
def clock(sql_store):
    sql_store.clock, sql_store.counter = Clock(), HistoryCounter(sql_store)
    return sql_store.clock


@pytest.fixture
def pages(sql_store, clock):
    return register(sql_store, 8, now=START - DAY).tolist()


def read(store, since=MIDNIGHT - DAY, until=MIDNIGHT + DAY):
    store.counter.write()
    with store.begin(write=False) as tx:
        return counts_between(tx, since, until).counts


def test_late_crawls_are_of_their_day_and_of_the_epoch_in_which_they_arrive(
    sql_store, clock, pages
):
    clock.now = MIDNIGHT + timedelta(hours=1)
    for page_id in pages[:3]:
        crawl(sql_store, page_id, MIDNIGHT - timedelta(hours=2), digest=1)
    crawl(sql_store, pages[3], MIDNIGHT + timedelta(minutes=30), digest=1)
    for _ in range(2):  # as parts, then as rows
        yesterday = read(sql_store, until=MIDNIGHT)
        assert (yesterday["n_reported"], yesterday["n_late"]) == (3, -3)
        assert read(sql_store, MIDNIGHT - STEP, MIDNIGHT)["n_reported"] == 3
        with sql_store.begin(write=False) as tx:
            today = counts_of_today(tx, clock())
            assert (today["n_reported"], today["n_late"]) == (1, 3)
            last = Epoch(1, EpochStatus.published, MIDNIGHT, MIDNIGHT, MIDNIGHT)
            requests = read_requests(tx, last, MIDNIGHT + timedelta(hours=2))
            assert (requests.n_since, requests.n_reported) == (4, 4)
        clock.advance(minutes=20)
        HistoryKeeper(sql_store, Gamma(), None, clock).keep()
        clock.now = MIDNIGHT + timedelta(hours=1)
    with sql_store.begin(write=False) as tx:
        steps = tx.measured_steps(MIDNIGHT)
    assert reported_by(steps) == MIDNIGHT + timedelta(hours=1) + STEP


def test_a_crawler_that_was_away_for_hours_counts_as_its_reports_arrive(sql_store, clock, pages):
    clock.now = MIDNIGHT + timedelta(hours=5)
    crawl(sql_store, pages[0], clock() - timedelta(hours=3), digest=1)
    assert read(sql_store, clock(), clock() + STEP)["n_reported"] == 1


def test_a_crawl_of_the_future_counts_now(sql_store, clock, pages):
    clock.now = MIDNIGHT - timedelta(minutes=2)
    crawl(sql_store, pages[0], MIDNIGHT + timedelta(minutes=1), digest=1)
    assert read(sql_store, MIDNIGHT - STEP, MIDNIGHT)["n_reported"] == 1


def test_a_late_crawl_leaves_the_epoch_of_its_row(sql_store, clock, pages):
    with sql_store.begin() as tx:
        one = Tally(np.array([1]), np.array([NONE]))
        tx.add_to_step(ALL_HOSTS, MIDNIGHT - STEP, 3, one, None)
        tx.add_to_step(ALL_HOSTS, MIDNIGHT - STEP, 9, one, None)
        (row,) = tx.steps(ALL_HOSTS, MIDNIGHT - STEP, MIDNIGHT, 10)
    assert row.epoch == 3


def test_negative_counts_survive_packing():
    counts = np.zeros((2, len(COUNTS)), np.int64)
    counts[:, -1] = -3, 5
    back = unpacked(packed(Tally(np.array([1, 9]), counts)))
    assert back.counts.tolist() == counts.tolist()
