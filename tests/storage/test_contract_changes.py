"""What every store promises of the changes of a schedule, and of long walks along it."""

import numpy as np
import pytest
from support.store_cases import (
    EVERYTHING,
    EXTREME,
    T0,
    publish,
    read_schedule,
    register,
    rows,
    schedule_columns,
)

from service.model.domain import Observability, ScheduleFilter
from service.model.errors import CursorExpired, EpochNotKept
from service.storage.dialect import EPOCHS_KEPT
from service.storage.epochs import schedule as schedules
from service.storage.epochs.schedule import MOST_SCANNED

HUGE = 1.7976931348623157e308


def changes(store, epoch, since, min_change=0.1, limit=1000):
    """All parts of the changes, as rows and removed ids."""
    pages, removed, after = [], [], 0
    while after is not None:
        with store.begin(write=False) as tx:
            part = tx.schedule_changes(epoch, since, min_change, after, limit)
        assert len(part.pages) <= limit
        pages += rows(part.pages)
        removed += part.removed.tolist()
        assert part.after is None or part.after > after
        after = part.after
    return pages, removed


def ids_of(pages):
    return [row.page_id for row in pages]


MOVES = [
    (1.0, 1.0, None),
    (1.0, 1.0 + 1e-6, 0.0),
    (1.0, 1.1, 0.0),
    (1.0, 0.9, 0.0),
    (0.5, 1.0, 0.25),
    (1.0, 0.5, 0.25),
    (0.0, 1e-9, 10.0),
    (1e-9, 0.0, 10.0),
    (0.0, 0.0, None),
    (5e-324, 5e-324, None),
    (5e-324, 1.0, 10.0),
    (1.0, 0.01, 10.0),
]
"""A rate or probability then and now, and the largest ratio of 0, 0.25 and 10 it moved by."""


def test_a_page_is_news_when_its_clock_runs_faster_or_slower_by_more_than_the_ratio(store):
    ids = np.sort(register(store, 4))
    since = publish(store, schedule_columns(ids, crawl_rate=2.0, urgency=[1.0, 1.0, 1.0, 4.0]))
    epoch = publish(store, schedule_columns(ids, crawl_rate=2.0, urgency=[1.0, 1.5, 0.5, 4.0]))
    assert ids_of(changes(store, epoch, since, 0.0)[0]) == ids[[1, 2]].tolist()
    assert ids_of(changes(store, epoch, since, 0.75)[0]) == ids[[2]].tolist()


@pytest.mark.parametrize("of", ["crawl_rate", "crawl_probability"])
def test_a_page_is_news_when_its_rate_or_probability_moved_by_more_than_the_ratio(store, of):
    ids = np.sort(register(store, len(MOVES)))
    then, now, ratios = zip(*MOVES, strict=True)
    since = publish(store, schedule_columns(ids, **{of: np.array(then)}))
    epoch = publish(store, schedule_columns(ids, **{of: np.array(now)}))
    for min_change in (0.0, 0.25, 10.0):
        news = [r is not None and r >= min_change for r in ratios]
        pages, removed = changes(store, epoch, since, min_change)
        assert ids_of(pages) == ids[news].tolist()
        assert removed == []


def test_huge_rates_can_be_compared(store):
    ids = np.sort(register(store, 2))
    since = publish(store, schedule_columns(ids, crawl_rate=[HUGE, 1.0]))
    epoch = publish(store, schedule_columns(ids, crawl_rate=[1.0, HUGE]))
    assert ids_of(changes(store, epoch, since, 10.0)[0]) == ids.tolist()


@pytest.mark.parametrize("urgency", [0.6, 1000.0])
def test_rates_of_any_size_can_be_compared_whatever_the_urgency(store, urgency):
    ids = np.sort(register(store, len(EXTREME)))
    since = publish(store, schedule_columns(ids, crawl_rate=EXTREME, urgency=urgency))
    epoch = publish(store, schedule_columns(ids, crawl_rate=EXTREME, urgency=urgency))
    same = ids_of(changes(store, epoch, since, 0.0)[0])
    assert same in ([], [ids[-1]])  # from 1e300 on all is news
    turned = publish(store, schedule_columns(ids, crawl_rate=EXTREME[::-1], urgency=urgency))
    assert ids_of(changes(store, turned, epoch, 10.0)[0]) == ids.tolist()


def test_news_are_the_very_rows_of_the_schedule(store):
    ids = np.sort(register(store, 4))
    since = publish(store, schedule_columns(ids, 0.5, 1.0))
    epoch = publish(store, schedule_columns(ids, 0.7, [1.0, 2.0, 1.0, 0.0]))
    whole = read_schedule(store, epoch)
    assert changes(store, epoch, since) == ([whole[1], whole[3]], [])


def test_rates_that_did_not_move_are_no_news_whatever_the_change_rate_did(store):
    ids = np.sort(register(store))
    since = publish(store, schedule_columns(ids, change_rate=0.1))
    epoch = publish(store, schedule_columns(ids, change_rate=9.0))
    assert changes(store, epoch, since, min_change=0.0) == ([], [])


def test_new_pages_are_news_and_pages_no_longer_scheduled_are_removed(store):
    ids = np.sort(register(store, 5))
    since = publish(store, schedule_columns(ids[:3]))
    epoch = publish(store, schedule_columns(ids[[0, 2, 3, 4]]))
    pages, removed = changes(store, epoch, since)
    assert ids_of(pages) == ids[3:].tolist()
    assert removed == [ids[1]]


@pytest.mark.parametrize("deleted", ["before", "between", "after"])
def test_a_deleted_page_is_removed_whenever_it_was_deleted(store, deleted):
    """Before the epoch in force was started, while it ran, or since it was published."""
    ids = np.sort(register(store, 3))
    since = publish(store, schedule_columns(ids))
    loaded = ids
    if deleted != "after":
        with store.begin() as tx:
            tx.delete_page(int(ids[1]))
    if deleted == "before":
        loaded = ids[[0, 2]]
    epoch = publish(store, schedule_columns(loaded))
    if deleted == "after":
        with store.begin() as tx:
            tx.delete_page(int(ids[1]))
    assert changes(store, epoch, since) == ([], [ids[1]])
    assert ids_of(read_schedule(store, epoch)) == [ids[0], ids[2]]
    following = publish(store, schedule_columns(ids[[0, 2]]))
    assert changes(store, following, epoch) == ([], [ids[1]] if deleted != "before" else [])


def test_a_page_that_came_and_went_is_no_news(store):
    ids = np.sort(register(store, 3))
    since = publish(store, schedule_columns(ids[:2]))
    with store.begin() as tx:
        tx.delete_page(int(ids[2]))
    epoch = publish(store, schedule_columns(ids))
    assert changes(store, epoch, since) == ([], [])


@pytest.mark.sampled(9)
@pytest.mark.parametrize("limit", [1, 3, 1000])
@pytest.mark.parametrize("scanned", [1, 4, 100_000])
def test_parts_of_the_changes_make_the_whole(store, monkeypatch, limit, scanned):
    monkeypatch.setattr(schedules, "MOST_SCANNED", scanned)
    ids = np.sort(register(store, 20))
    rng = np.random.default_rng(3)
    kept, moved = rng.random(20) < 0.7, rng.random(20) < 0.4
    since = publish(store, schedule_columns(ids[:17], crawl_rate=1.0))
    rate = np.where(moved, 2.0, 1.0)
    epoch = publish(store, schedule_columns(ids[kept], crawl_rate=rate[kept]))
    pages, removed = changes(store, epoch, since, limit=limit)
    assert ids_of(pages) == ids[kept & (moved | (np.arange(20) >= 17))].tolist()
    assert removed == ids[:17][~kept[:17]].tolist()


def test_changes_since_an_epoch_that_is_not_kept_cannot_be_told(store):
    ids = np.sort(register(store))
    epochs = [publish(store, schedule_columns(ids)) for _ in range(EPOCHS_KEPT + 1)]
    with store.begin() as tx:
        failed = tx.start_epoch(T0).epoch
    for unknown in (epochs[0], failed, 4711):
        with pytest.raises(EpochNotKept):
            changes(store, epochs[-1], unknown)
    with pytest.raises(CursorExpired):
        changes(store, epochs[0], epochs[-1])
    assert changes(store, epochs[-1], epochs[-2]) == ([], [])


@pytest.mark.parametrize(
    "only",
    [
        EVERYTHING,
        ScheduleFilter(observability=Observability.complete),
        ScheduleFilter(host="b.example"),
    ],
)
def test_a_filter_that_matches_little_walks_a_bounded_way_at_a_time(sql_store, monkeypatch, only):
    monkeypatch.setattr(schedules, "MOST_SCANNED", 5)
    few = register(sql_store, 2, host="b.example", observability=Observability.complete)
    many = register(sql_store, 30, host="a.example", observability=Observability.incomplete)
    late = register(sql_store, 4, host="b.example", observability=Observability.complete)[2:]
    epoch = publish(sql_store, schedule_columns(np.sort(np.concatenate([few, many, late]))))
    found, after, n_parts = [], 0, 0
    while after is not None:
        with sql_store.begin(write=False) as tx:
            part = tx.schedule(epoch, after, 10, only)
        found += part.pages.page_id.tolist()
        after, n_parts = part.after, n_parts + 1
    everything = np.concatenate([few, many, late]) if only == EVERYTHING else [*few, *late]
    assert found == sorted(everything)
    assert n_parts == 1 if only.host else 7 <= n_parts <= 10  # Postgres leaves ids out
    assert MOST_SCANNED >= 10_000, "a page of the largest size is one walk"
