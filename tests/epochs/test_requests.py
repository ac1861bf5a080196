"""Requests of crawlers as an epoch counts them, and the budget factor that follows."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from support.store_cases import CERTIFICATE, DAY, T0

from service.core.budget_factor import Spent, Window, budget_factor, share_wanted
from service.epochs.requests import (
    NO_REQUESTS,
    RequestCounts,
    factor_after,
    read_requests,
    readers_after,
)
from service.epochs.urgency import Readers
from service.model.domain import Epoch, EpochStatus
from service.model.history import ALL_HOSTS, COUNTS, StepSums, Tally

HOUR = timedelta(hours=1)
TWO_DAYS = Window(2.0, 0.0)
LAST = Epoch(1, EpochStatus.published, T0, T0, T0, certificate=CERTIFICATE)


def counted(**counts):
    row = [[counts.get(name, 0) for name in COUNTS]]
    return Tally(np.array([1]), np.array(row))


def written(store, at, **counts):
    """Write a row of the history."""
    with store.begin() as tx:
        tx.add_to_step(ALL_HOSTS, at, 1, counted(**counts), None)


def read(store, at, last=LAST):
    with store.begin(write=False) as tx:
        return read_requests(tx, last, at)


def test_requests_since_the_last_epoch_are_those_of_whole_steps(sql_store):
    for minutes in range(-30, 70, 10):
        written(sql_store, T0 + timedelta(minutes=minutes), n_reported=1, n_failed=1)
    requests = read(sql_store, T0 + timedelta(minutes=64))
    assert (requests.n_since, requests.since.days * 144) == (6, pytest.approx(6))
    assert requests.n_reported == 10
    following = replace(LAST, started_at=T0 + timedelta(minutes=64))
    assert read(sql_store, T0 + timedelta(minutes=75), following).n_since == 1
    assert read(sql_store, T0 + timedelta(minutes=65), following).since.days == 0


def test_parts_that_wait_for_their_row_count(sql_store):
    with sql_store.begin() as tx:
        tx.add_part(StepSums(T0, 1, counted(n_reported=5, n_leased=4)))
    written(sql_store, T0, n_reported=2)
    requests = read(sql_store, T0 + HOUR)
    assert (requests.n_since, requests.n_reported, requests.n_leased) == (7, 7, 4)


def test_overhead_is_what_taught_nothing_a_day_within_a_week(sql_store):
    written(sql_store, T0 - 30 * DAY, n_reported=1_000, n_taught_nothing=1_000)
    written(sql_store, T0 - 4 * DAY, n_reported=100, n_failed=5, n_taught_nothing=20)
    written(sql_store, T0 - DAY, n_reported=100, n_taught_nothing=60)
    assert read(sql_store, T0).overhead == pytest.approx(20.0)
    assert read(sql_store, T0 - 4 * DAY + HOUR).overhead == pytest.approx(20.0), "a day at least"


def test_a_store_without_history_has_no_requests(store):
    assert read(store, T0 + DAY) == RequestCounts(since=Window(1 + 1 / 144, 1 / 144))
    first = read(store, T0 + DAY, None)
    assert first._replace(since=NO_REQUESTS.since) == NO_REQUESTS
    assert first.since.days == 0


def test_an_epoch_before_a_clock_that_was_set_back_counts_nothing(sql_store):
    written(sql_store, T0 - HOUR, n_reported=5)
    requests = read(sql_store, T0 - 2 * HOUR)
    assert (requests.n_since, requests.since.days) == (0, 0)


def test_the_factor_follows_all_requests_but_first_crawls():
    requests = RequestCounts(n_since=25.0, n_reported=100.0, since=TWO_DAYS)
    before = CERTIFICATE.budget_factor
    assert factor_after(LAST, requests, 0, 50) == budget_factor(before, Spent(25.0, 20.0, 50), 2.0)
    parts = replace(CERTIFICATE, planned=5.0, overhead=2.0)
    divided = replace(LAST, certificate=parts)
    expected = budget_factor(before, Spent(10.0, 14.0, 50), 2.0)
    assert factor_after(divided, requests, 15, 50) == expected
    all_planned = replace(LAST, certificate=replace(parts, planned=10.0))
    expected = budget_factor(before, Spent(10.0, 20.0, 50), 2.0)
    assert factor_after(all_planned, requests, 15, 50) == expected


def test_with_leases_or_before_any_epoch_the_factor_is_1():
    moved = replace(LAST, certificate=replace(CERTIFICATE, budget_factor=1.7))
    half = RequestCounts(n_since=25.0, n_reported=100.0, n_leased=50.0, since=TWO_DAYS)
    assert factor_after(moved, half, 0, 50) == 1.0
    assert factor_after(moved, half._replace(n_leased=49.0), 0, 50) != 1.0
    assert factor_after(None, half, 0, 50) == 1.0


def test_the_feedback_goes_on_from_the_last_one_and_not_from_the_factor():
    last = replace(LAST, certificate=replace(CERTIFICATE, budget_factor=1.7, feedback=0.9))
    requests = RequestCounts(n_since=25.0, n_reported=100.0, since=TWO_DAYS)
    expected = budget_factor(0.9, Spent(25.0, 20.0, 50), 2.0)
    assert factor_after(last, requests, 0, 50) == expected


def test_crawls_still_due_are_what_was_made_due_less_the_requests():
    since = Window(2.25, 0.25)
    requests = RequestCounts(n_since=25.0, n_reported=100.0, since=since)
    last = replace(LAST, certificate=replace(CERTIFICATE, budget_factor=1.7, still_due=3.0))
    factor, readers = readers_after(last, requests, 5, 1.0, 50)
    assert factor == 1.7
    assert readers == Readers(3.0 + 2 * 10.0 - 20.0, since, 10.0, 1.0)
    _, fewer = readers_after(last, requests, 5, 0.9, 50)
    assert fewer.a_day == pytest.approx(10.0 * share_wanted(0.9, 10.0))
    _, first = readers_after(LAST, requests, 5, 1.0, 50)
    assert first.still_due == 0.0, "an epoch of an older release"
    _, dear = readers_after(last, requests, 5, 1.0, 50, each=2.0)
    assert dear.a_day == 5.0


def test_with_leases_or_without_any_request_nobody_is_counted():
    moved = replace(LAST, certificate=replace(CERTIFICATE, budget_factor=1.7))
    leased = RequestCounts(n_since=25.0, n_reported=100.0, n_leased=50.0, since=TWO_DAYS)
    assert readers_after(moved, leased, 0, 1.0, 50) == (1.0, None)
    assert readers_after(None, leased, 0, 1.0, 50) == (1.0, None)
    assert readers_after(moved, RequestCounts(since=TWO_DAYS), 0, 1.0, 50) == (1.7, None)


def test_with_some_leases_the_feedback_alone_is_the_factor():
    """The pace of leases holds back pages that are due, so counting would slow the others down."""
    last = replace(LAST, certificate=replace(CERTIFICATE, budget_factor=1.7, still_due=30.0))
    some = RequestCounts(n_since=25.0, n_reported=100.0, n_leased=2.0, since=TWO_DAYS)
    assert readers_after(last, some, 0, 0.9, 50) == (0.9, None)
    assert readers_after(last, some._replace(n_leased=1.0), 0, 0.9, 50)[1] is not None


def test_without_any_request_the_factor_stays():
    moved = replace(LAST, certificate=replace(CERTIFICATE, budget_factor=1.7))
    assert factor_after(moved, RequestCounts(since=TWO_DAYS), 0, 50) == 1.7
