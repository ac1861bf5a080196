"""What every store promises of schedules: the one in force, its pages, filters and due times."""

from datetime import timedelta

import numpy as np
import pytest
from support.store_cases import (
    CERTIFICATE,
    DAY,
    EXTREME,
    MICROSECOND,
    T0,
    ScheduledPage,
    page_of,
    publish,
    read_schedule,
    register,
    save,
    schedule_columns,
    states_of,
)

from recrawl_lab.memory.store import MemoryStore
from service.leases.due import due_before, next_crawl_at
from service.model.domain import Observability, PagePatch, ScheduleFilter
from service.model.errors import CursorExpired
from service.storage.dialect import EPOCHS_KEPT

HOUR = timedelta(hours=1)


def test_a_schedule_is_in_force_only_once_published(store):
    ids = np.sort(register(store))
    with store.begin() as tx:
        epoch = tx.start_epoch(T0).epoch
    with pytest.raises(CursorExpired):
        read_schedule(store, epoch)
    assert page_of(store, ids[0]).crawl_rate is None
    with store.begin() as tx:
        tx.write_schedule(epoch, schedule_columns(ids))
        tx.publish(epoch, CERTIFICATE, T0)
    assert len(read_schedule(store, epoch)) == 3
    assert page_of(store, ids[0]).crawl_rate == 1.0


def test_a_schedule_comes_back_as_it_was_written(store):
    ids = np.sort(register(store, 4, importance=[1.0, 0.1 + 0.2, 5e-324, 1e300]))
    rates = [0.0, 5e-324, 1 / 3, 1.7976931348623157e308]
    epoch = publish(store, schedule_columns(ids, rates, rates[::-1], [0.0, 1.0, 1 / 3, 5e-324]))
    rows = read_schedule(store, epoch)
    assert [row.page_id for row in rows] == ids.tolist()
    short = np.finfo(np.float32)
    if [row.change_rate for row in rows] != rates:
        seven_digits = [0.0, float(short.tiny), 1 / 3, float(short.max)]
        assert [row.change_rate for row in rows] == pytest.approx(seven_digits, rel=5e-7, abs=0)
    assert [row.crawl_rate for row in rows[::-1]] == [row.change_rate for row in rows]
    assert [row.crawl_probability for row in rows] == [0.0, 1.0, 1 / 3, 5e-324]
    assert {type(v) for row in rows for v in (row.page_id,)} == {int}
    states = states_of(store, ids)
    read = [row.crawl_rate for row in rows]
    np.testing.assert_allclose(states.crawl_rate, read, rtol=5e-7, atol=0)
    assert states.crawl_probability.tolist() == [0.0, 1.0, 1 / 3, 5e-324]
    page = page_of(store, ids[3])
    assert (page.crawl_rate, page.crawl_probability) == (0.0, 5e-324)
    assert page.change_rate == rows[3].change_rate


def test_the_newest_published_epoch_is_in_force(store):
    ids = np.sort(register(store))
    publish(store, schedule_columns(ids, crawl_rate=1.0))
    second = publish(store, schedule_columns(ids[:2], crawl_rate=2.0))
    with store.begin() as tx:
        assert tx.epoch_in_force().epoch == second
        rates = tx.lock_states(ids, scheduled=True).crawl_rate
    np.testing.assert_array_equal(rates, [2.0, 2.0, np.nan])
    assert page_of(store, ids[2]).crawl_rate is None


def test_a_page_that_no_epoch_has_seen_yet_is_not_in_the_schedule(store):
    epoch = publish(store, schedule_columns(np.sort(register(store, 2))))
    (late,) = register(store, 3)[2:]
    assert late not in [row.page_id for row in read_schedule(store, epoch)]
    assert np.isnan(states_of(store, [late]).crawl_rate).all()


def test_a_page_deleted_while_an_epoch_ran_is_not_in_its_schedule(store):
    ids = np.sort(register(store))
    with store.begin() as tx:
        tx.delete_page(int(ids[1]))
    epoch = publish(store, schedule_columns(ids))
    assert [row.page_id for row in read_schedule(store, epoch)] == [ids[0], ids[2]]


def test_pages_of_the_schedule_follow_each_other_without_gap_or_repeat(store):
    ids = np.sort(register(store, 23))
    epoch = publish(store, schedule_columns(ids))
    seen, after = [], 0
    while rows := read_schedule(store, epoch, after, 5):
        assert len(rows) <= 5
        seen += [row.page_id for row in rows]
        after = rows[-1].page_id
    assert seen == ids.tolist()
    assert read_schedule(store, epoch, limit=0) == []


def test_a_reader_half_way_through_an_epoch_can_finish_it(store):
    ids = np.sort(register(store, 4))
    first = publish(store, schedule_columns(ids, crawl_rate=1.0))
    read_schedule(store, first, limit=2)
    for _ in range(EPOCHS_KEPT - 1):
        publish(store, schedule_columns(ids, crawl_rate=2.0))
        with store.begin() as tx:
            tx.housekeep(None, T0)
    rest = read_schedule(store, first, int(ids[1]))
    assert [(row.page_id, row.crawl_rate) for row in rest] == [(ids[2], 1.0), (ids[3], 1.0)]


@pytest.mark.parametrize("housekeeping", [False, True])
def test_the_cursor_of_an_epoch_that_is_no_longer_kept_has_expired(store, housekeeping):
    ids = np.sort(register(store))
    epochs = [publish(store, schedule_columns(ids)) for _ in range(EPOCHS_KEPT + 1)]
    if housekeeping:
        with store.begin() as tx:
            tx.housekeep(None, T0)
    with pytest.raises(CursorExpired):
        read_schedule(store, epochs[0])
    for epoch in epochs[1:]:
        assert len(read_schedule(store, epoch)) == 3


@pytest.mark.parametrize("epoch", [0, -1, 4711])
def test_an_epoch_that_never_was_has_no_schedule(store, epoch):
    publish(store, schedule_columns(np.sort(register(store))))
    with pytest.raises(CursorExpired):
        read_schedule(store, epoch)


def filtered(store, epoch, **only):
    return [row.page_id for row in read_schedule(store, epoch, only=ScheduleFilter(**only))]


def due_rows(store, epoch, before, after=0, limit=1000, **only):
    """Rows of the schedule that are due before an instant."""
    with store.begin(write=False) as tx:
        part = due_before(tx, epoch, after, limit, ScheduleFilter(**only), before)
    return part.pages.page_id.tolist()


def test_the_schedule_is_filtered_by_host(store):
    here = np.sort(register(store, 2, host="a.example"))
    there = np.sort(register(store, 3, host="b.example"))
    epoch = publish(store, schedule_columns(np.concatenate([here, there])))
    assert filtered(store, epoch, host="a.example") == here.tolist()
    assert filtered(store, epoch, host="b.example") == there.tolist()
    assert filtered(store, epoch, host="A.example") == []
    assert filtered(store, epoch, host="%") == []
    assert filtered(store, epoch, host="") == []


def test_the_schedule_is_filtered_by_page(store):
    ids = np.sort(register(store))
    epoch = publish(store, schedule_columns(ids))
    assert filtered(store, epoch, page_id=int(ids[1])) == [ids[1]]
    assert filtered(store, epoch, page_id=4711) == []
    assert filtered(store, epoch, page_id=0) == []


def test_the_schedule_is_filtered_by_observability_as_of_now(store):
    ids = register(store, 3, observability=[0, 1, 2])
    epoch = publish(store, schedule_columns(np.sort(ids)))
    for value, page_id in zip(Observability, ids.tolist(), strict=True):
        assert filtered(store, epoch, observability=value) == [page_id]
    with store.begin() as tx:
        tx.change_page(int(ids[0]), PagePatch(observability=Observability.auto), T0)
    assert filtered(store, epoch, observability=Observability.incomplete) == []
    assert filtered(store, epoch, observability=Observability.auto) == sorted(ids[[0, 2]].tolist())


def test_the_schedule_is_filtered_by_due_time_and_never_due_is_not_due(store):
    ids = np.sort(register(store, 4))
    epoch = publish(store, schedule_columns(ids, crawl_rate=[1.0, 2.0, 0.0, 1.0]))
    save(store, ids[:3], last_crawl_at=T0)
    by = [T0 + DAY, T0 + DAY / 2, None, T0]
    assert [row.next_crawl_at for row in read_schedule(store, epoch)] == by
    assert due_rows(store, epoch, T0) == []
    assert due_rows(store, epoch, T0 + MICROSECOND) == [ids[3]]
    assert due_rows(store, epoch, T0 + DAY / 2) == [ids[3]]
    assert due_rows(store, epoch, T0 + DAY / 2 + MICROSECOND) == [ids[1], ids[3]]
    assert due_rows(store, epoch, T0 + 10_000 * DAY) == [ids[0], ids[1], ids[3]]


def test_filters_and_paging_go_together(store):
    here = np.sort(register(store, 6, host="a.example", observability=2))
    register(store, 6, host="b.example", observability=2)
    with store.begin() as tx:
        everyone = tx.next_page_ids(0, 100)
    epoch = publish(store, schedule_columns(everyone))
    only = {"host": "a.example", "observability": Observability.auto}
    first = due_rows(store, epoch, T0 + DAY, 0, 4, **only)
    rest = due_rows(store, epoch, T0 + DAY, first[-1], 4, **only)
    assert (len(first), first + rest) == (4, here.tolist())


def due(store, page_id):
    """The due time, which the page and the schedule must tell alike."""
    page = page_of(store, page_id)
    with store.begin(write=False) as tx:
        epoch = tx.epoch_in_force()
    rows = read_schedule(store, epoch.epoch, int(page_id) - 1, 1) if epoch else []
    if rows and rows[0].page_id == page_id:
        assert rows[0].next_crawl_at == next_crawl_at(page)
    return next_crawl_at(page)


def test_a_page_never_crawled_is_due_since_it_was_registered(store):
    (page_id,) = register(store, 1)
    assert due(store, page_id) == T0
    publish(store, schedule_columns([page_id], crawl_rate=0.0))
    assert due(store, page_id) == T0


def test_a_crawled_page_is_due_after_its_gap_at_the_rate_in_force(store):
    (page_id,) = register(store, 1)
    save(store, [page_id], last_crawl_at=T0, interval_factor=1.5)
    assert due(store, page_id) is None
    publish(store, schedule_columns([page_id], crawl_rate=2.0))
    assert due(store, page_id) == T0 + 0.75 * DAY
    publish(store, schedule_columns([page_id], crawl_rate=0.5))
    assert due(store, page_id) == T0 + 3 * DAY


def test_a_page_s_urgency_brings_its_next_crawl_nearer_or_lets_it_wait(store):
    ids = np.sort(register(store, 3))
    save(store, ids, last_crawl_at=T0, interval_factor=1.5)
    publish(store, schedule_columns(ids, crawl_rate=2.0, urgency=[3.0, 1.0, 0.75]))
    assert [due(store, page_id) for page_id in ids] == [
        T0 + 0.25 * DAY,
        T0 + 0.75 * DAY,
        T0 + DAY,
    ]
    assert [page_of(store, page_id).urgency for page_id in ids] == [3.0, 1.0, 0.75]
    assert [page_of(store, page_id).crawl_rate for page_id in ids] == [2.0] * 3


def test_a_page_that_no_epoch_has_scheduled_has_no_urgency(store):
    (page_id,) = register(store, 1)
    assert page_of(store, page_id).urgency is None


def test_due_times_are_as_of_now(store):
    (page_id,) = register(store, 1)
    epoch = publish(store, schedule_columns([page_id], crawl_rate=2.0))
    save(store, [page_id], last_crawl_at=T0 + DAY)
    assert due(store, page_id) == T0 + 1.5 * DAY
    save(store, [page_id], last_crawl_at=T0 + 2 * DAY, interval_factor=1.0)
    assert due(store, page_id) == T0 + 2.5 * DAY
    (row,) = read_schedule(store, epoch)
    assert row == ScheduledPage(
        int(page_id), "https://example.org/0", 1.0, 0.5, 2.0, 0.0, T0 + 2.5 * DAY
    )


def test_a_page_without_crawl_rate_is_never_due_unless_wanted(store):
    (page_id,) = register(store, 1)
    publish(store, schedule_columns([page_id], crawl_rate=0.0))
    save(store, [page_id], last_crawl_at=T0)
    assert due(store, page_id) is None
    save(store, [page_id], requested_at=T0 + HOUR)
    assert due(store, page_id) == T0 + HOUR


def test_a_wanted_page_is_due_at_the_earlier_of_wish_and_clock(store):
    (page_id,) = register(store, 1)
    publish(store, schedule_columns([page_id], crawl_rate=1.0))
    save(store, [page_id], last_crawl_at=T0, requested_at=T0 + HOUR)
    assert due(store, page_id) == T0 + HOUR
    save(store, [page_id], requested_at=T0 + 2 * DAY)
    assert due(store, page_id) == T0 + DAY


@pytest.mark.parametrize("crawl_rate", [1e-9, 1e-40, 1e-300, 1e-308, 5e-324])
def test_a_tiny_crawl_rate_is_due_in_a_century_at_the_latest(store, crawl_rate):
    (page_id,) = register(store, 1)
    publish(store, schedule_columns([page_id], crawl_rate=crawl_rate))
    save(store, [page_id], last_crawl_at=T0, interval_factor=1.05)
    assert due(store, page_id) == T0 + 36_500 * DAY


@pytest.mark.parametrize("crawl_rate", [1e6, 86_400e6, 1e300, 1.7976931348623157e308])
def test_a_huge_crawl_rate_is_due_at_once(store, crawl_rate):
    (page_id,) = register(store, 1)
    publish(store, schedule_columns([page_id], crawl_rate=crawl_rate))
    save(store, [page_id], last_crawl_at=T0, interval_factor=2.0**-53)
    assert due(store, page_id) == T0


def extremes(store, urgency):
    """Rows of the schedule of pages crawled at T0, as they are read in three ways."""
    ids = np.sort(register(store, len(EXTREME)))
    save(store, ids, last_crawl_at=T0, interval_factor=1.0)
    rows = read_schedule(
        store, publish(store, schedule_columns(ids, EXTREME, EXTREME, urgency=urgency))
    )
    pages = [page_of(store, page_id) for page_id in ids]
    assert [row.crawl_rate for row in rows] == [page.crawl_rate for page in pages]
    assert [row.next_crawl_at for row in rows] == [next_crawl_at(page) for page in pages]
    states = states_of(store, ids).crawl_rate
    np.testing.assert_allclose(states, [row.crawl_rate for row in rows], rtol=5e-7, atol=0)
    return rows


def test_rates_read_as_they_were_said(store):
    """A bound of 0.1 is not exceeded by the rate at that bound, however many bytes it takes."""
    ids = np.sort(register(store, 4))
    rates = [0.1, 12.5, 1 / 1024, 3.3e-7]
    epoch = publish(store, schedule_columns(ids, rates, rates))
    for name in ("change_rate", "crawl_rate"):
        assert [getattr(row, name) for row in read_schedule(store, epoch)] == rates
        assert [getattr(page_of(store, page_id), name) for page_id in ids] == rates


@pytest.mark.parametrize("urgency", [0.6, 1.0, 1000.0])
def test_rates_of_any_size_are_due_when_the_memory_store_says(store, urgency):
    rows, expected = extremes(store, urgency), extremes(MemoryStore(2), urgency)
    for name in ("change_rate", "crawl_rate"):
        rates = [getattr(row, name) for row in rows]
        assert rates[:-1] == pytest.approx(EXTREME[:-1], rel=5e-7, abs=1.2e-38)
        assert rates[-1] > 3.4e38
        assert [rate > 0 for rate in rates] == [rate > 0 for rate in EXTREME]
    due, said = ([row.next_crawl_at for row in each] for each in (rows, expected))
    assert due[0] is said[0] is None
    for one, other in zip(due[1:], said[1:], strict=True):
        assert abs(one - other) <= (other - T0) * 2e-7 + MICROSECOND


def test_a_gap_of_zero_is_due_at_once(store):
    (page_id,) = register(store, 1)
    publish(store, schedule_columns([page_id], crawl_rate=1e-300))
    save(store, [page_id], last_crawl_at=T0, interval_factor=0.0)
    assert due(store, page_id) == T0


def test_due_times_are_the_sum_to_the_microsecond(store):
    rng = np.random.default_rng(5)
    n = 200
    ids = np.sort(register(store, n))
    interval_factor, rate = (
        rng.integers(0, 2**21, n) / 2**20,
        np.float32(10.0 ** rng.uniform(-4, 3, n)),
    )
    rate = rate.astype(float)
    last = [T0 + i * timedelta(hours=37, microseconds=1) for i in range(n)]
    epoch = publish(store, schedule_columns(ids, crawl_rate=rate))
    save(store, ids, last_crawl_at=last, interval_factor=interval_factor)
    rows = read_schedule(store, epoch)
    for row, at, ahead in zip(rows, last, np.minimum(interval_factor / rate, 36_500), strict=True):
        assert abs(row.next_crawl_at - (at + float(ahead) * DAY)) <= MICROSECOND
