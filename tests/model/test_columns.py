"""Instants and columns: the values everything else is made of."""

from dataclasses import FrozenInstanceError, fields, replace
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.store_cases import T0, crawl_columns

from service.model import arrays
from service.model.arrays import ATTACHED, COLUMN, INSTANT, NO_TIME, Columns, days, instant, moment
from service.model.columns import (
    CrawlColumns,
    EpochColumns,
    LogColumns,
    PageStates,
    PingColumns,
    ScheduleColumns,
)

moments = st.datetimes(
    datetime(2, 1, 1),  # noqa: DTZ001
    datetime(9998, 12, 31),  # noqa: DTZ001
    timezones=st.timezones() | st.just(UTC),
    allow_imaginary=False,
)


@pytest.mark.dear
@given(at=moments)
def test_an_instant_is_exact_and_comes_back_in_utc(at):
    element = instant(at)
    assert element.dtype == INSTANT
    back = moment(element)
    assert back == at.astimezone(UTC)  # an hour that comes twice equals nothing elsewhere
    assert back.tzinfo is UTC


@given(one=moments, other=moments)
def test_instants_are_ordered_like_the_moments_they_are(one, other):
    assert (instant(one) < instant(other)) == (one.astimezone(UTC) < other.astimezone(UTC))


def test_an_offset_moves_an_instant():
    noon = datetime(2026, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert instant(noon) == instant(datetime(2026, 5, 1, 10, tzinfo=UTC))


def test_a_naive_datetime_is_no_instant():
    with pytest.raises(TypeError):
        instant(datetime(2026, 5, 1))  # noqa: DTZ001


def test_an_instant_that_no_datetime_can_hold_is_shown_as_the_nearest_one():
    ends = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)]
    beyond = [-(2**62), 2**62]
    assert [arrays.datetime_at(us) for us in beyond] == ends
    assert arrays.moments(np.array(beyond).view(INSTANT)) == ends
    assert arrays.moments(np.array([instant(end) for end in ends])) == ends
    assert arrays.plausible(np.array([instant(end) for end in ends])).tolist() == [None, None]


def test_never_is_no_moment():
    assert moment(NO_TIME) is None


def test_spans_are_float_days_and_never_is_nan():
    span = np.array([86_400_000_000, 1, -43_200_000_000, 0], "m8[us]")
    assert days(span).tolist() == [1.0, 1 / 86_400_000_000, -0.5, 0.0]
    start = np.array([NO_TIME, instant(datetime(2026, 5, 1, tzinfo=UTC))])
    np.testing.assert_array_equal(days(start[1:] - start), [np.nan, 0.0])


def kinds(base=Columns):
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


@pytest.mark.parametrize("kind", list(kinds()), ids=lambda kind: kind.__name__)
def test_no_rows_of_any_kind_have_the_right_types(kind):
    nothing = kind.empty()
    assert len(nothing) == 0
    for field in fields(kind):
        column = getattr(nothing, field.name)
        if field.metadata == ATTACHED:
            assert column is None
        else:
            assert column.dtype == COLUMN[field.type], field.name
    assert len(kind.concatenate([])) == 0
    assert len(kind.concatenate([nothing, nothing])) == 0
    assert len(nothing.take(np.zeros(0, np.int64))) == 0


def test_empty_columns_may_have_rows_of_numbers():
    assert PageStates.empty(estimate=(3,)).estimate.shape == (0, 3)
    assert EpochColumns.empty(estimate=(2,)).estimate.shape == (0, 2)


def schedule(n):
    number = np.arange(n, dtype=np.float64)
    return ScheduleColumns(
        page_id=np.arange(n),
        change_rate=number,
        crawl_rate=number + 1,
        crawl_probability=number,
        urgency=np.ones(n),
        shift=np.zeros(n, np.int16),
        carried=np.zeros(n, np.int16),
    )


def test_rows_are_taken_by_mask_and_by_index():
    columns = schedule(4)
    by_mask = columns.take(np.array([True, False, False, True]))
    by_index = columns.take(np.array([3, 0, 0]))
    assert (by_mask.page_id.tolist(), by_mask.crawl_rate.tolist()) == ([0, 3], [1.0, 4.0])
    assert by_index.page_id.tolist() == [3, 0, 0]
    assert type(by_mask) is ScheduleColumns


def test_rows_in_order_are_copied_only_if_they_differ():
    crawls = crawl_columns(np.array([7, 8, 9]), T0)
    assert crawls.in_order(np.arange(3)) is crawls
    assert crawls.in_order(np.array([2, 0, 1])).page_id.tolist() == [9, 7, 8]
    assert crawls.in_order(np.arange(2)).page_id.tolist() == [7, 8]
    assert crawls.in_order(np.array([0, 1, 2, 2])).page_id.tolist() == [7, 8, 9, 9]


def test_parts_are_put_one_after_the_other():
    parts = [schedule(2), schedule(0), schedule(1)]
    whole = ScheduleColumns.concatenate(parts)
    assert (len(whole), whole.page_id.tolist()) == (3, [0, 1, 0])
    assert type(whole) is ScheduleColumns


def texts_of(*pages, etag=None):
    return crawl_columns(np.array(pages), T0, etag=etag)


def test_a_column_that_is_none_stays_none():
    columns = texts_of(1, 2)
    assert columns.take(np.array([1])).etag is None
    assert CrawlColumns.concatenate([columns, texts_of(3)]).etag is None
    assert "etag" not in columns.arrays()


def test_parts_without_a_column_have_empty_texts_beside_the_others():
    whole = CrawlColumns.concatenate([texts_of(1, 2), texts_of(3, etag='"a"')])
    assert (whole.etag.tolist(), whole.note) == (["", "", '"a"'], None)


def test_columns_are_frozen_and_named():
    columns = schedule(2)
    with pytest.raises(FrozenInstanceError):
        columns.page_id = np.zeros(2, np.int64)
    with pytest.raises(TypeError):
        PingColumns(np.zeros(1, np.int64), np.zeros(1, INSTANT))
    with pytest.raises(TypeError):
        LogColumns(page_id=np.zeros(1, np.int64))
    assert replace(columns, page_id=columns.page_id + 5).page_id.tolist() == [5, 6]
