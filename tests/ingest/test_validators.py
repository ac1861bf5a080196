"""Validators of a page after crawls: those of its newest answer with content."""

from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.store_cases import T0, crawl_columns, instants

from service.ingest.crawls import outcomes
from service.ingest.validators import has_values, reset_pages, validator_changes
from service.model.arrays import NO_TIME, UNSPECIFIED, Groups, instant
from service.model.outcomes import DOUBTFUL, IS_ABSENT, SHOWS

DATE = T0 - timedelta(days=9)


class Stored:
    """A page's row, changed one crawl at a time as the HTTP standard says."""

    def __init__(self) -> None:
        self.etag, self.date, self.note = "", None, ""

    def crawl(self, status, etag, date, note):
        date = None if date == T0 else date  # all crawls are within a minute after it
        if status in (200, UNSPECIFIED):
            self.etag, self.date = etag, date
        elif status == 304:
            self.etag, self.date = etag or self.etag, date or self.date
        elif status == 404:
            self.etag, self.date = "", None
        self.note = note or self.note


def grouped(*crawls):
    """Return pages, groups and columns of crawls (page, status, etag, date, note)."""
    page, status, etag, date, note = zip(*crawls, strict=True)
    at = instants([T0 + timedelta(seconds=i) for i in range(len(crawls))])
    columns = crawl_columns(
        np.array(page),
        at,
        changed=1,
        status=np.array(status, np.int16),
        redirects_to=np.where(np.array(status) == 302, 9, 0),
        last_modified=instants(list(date)),
        etag=texts(etag),
        note=texts(note),
    )
    order = np.argsort(columns.page_id, kind="stable")
    columns = columns.take(order)
    return np.unique(columns.page_id), Groups.of(columns.page_id), columns


def texts(values):
    return np.array(values, object) if any(values) else None


def changes(*crawls):
    return validator_changes(*shown(*grouped(*crawls)))


def shown(pages, groups, columns):
    """Add which crawls show their page, and that it is gone, as after a second look."""
    outcome = outcomes(columns)
    answer, gone, doubtful = SHOWS[outcome], IS_ABSENT[outcome], outcome == DOUBTFUL
    return pages, groups, columns, answer, gone, doubtful


CRAWL = st.tuples(
    st.integers(1, 3),
    st.sampled_from([200, UNSPECIFIED, 304, 404, 500, 0, 302]),
    st.sampled_from(["", '"a"', '"b"']),
    st.sampled_from([None, DATE, DATE - timedelta(days=1), T0]),
    st.sampled_from(["", "1", "null"]),
)


@given(st.lists(st.lists(CRAWL, min_size=1, max_size=6), min_size=1, max_size=3))
def test_batches_leave_what_one_crawl_after_another_leaves(batches):
    expected = {page: Stored() for page in (1, 2, 3)}
    etag = dict.fromkeys(expected, "")
    date: dict[int, datetime | None] = dict.fromkeys(expected)
    note = dict.fromkeys(expected, "")
    for batch in batches:
        for page, *crawl in batch:
            expected[page].crawl(*crawl)
        change = changes(*batch)
        for i, page in enumerate(change.page_id.tolist()):
            if change.resets[i]:
                etag[page], date[page] = "", None
            etag[page] = change.etag[i] or etag[page]
            if not np.isnat(change.last_modified[i]):
                date[page] = change.last_modified[i]
            note[page] = change.note[i] or note[page]
    for page, stored in expected.items():
        assert (etag[page], note[page]) == (stored.etag, stored.note)
        assert date[page] == (None if stored.date is None else instant(stored.date))


@given(st.lists(CRAWL.map(lambda crawl: (*crawl[:2], "", None, "")), min_size=1, max_size=12))
def test_crawls_without_values_reset_the_same_pages_by_the_short_way(crawls):
    pages, groups, columns = grouped(*crawls)
    assert not has_values(columns)
    long_way = validator_changes(*shown(pages, groups, columns))
    assert long_way.only_reset.all()
    assert reset_pages(*shown(pages, groups, columns)[:4]).tolist() == long_way.page_id.tolist()


def test_only_a_new_answer_resets_a_page():
    crawls = grouped((1, 200, "", None, ""), (2, 500, "", None, ""), (3, 304, "", None, ""))
    assert reset_pages(*shown(*crawls)[:4]).tolist() == [1]


@pytest.mark.parametrize("values", [('"a"', None, ""), ("", DATE, ""), ("", None, "1")])
def test_one_value_of_any_kind_counts(values):
    *_, columns = grouped((1, 200, "", None, ""), (2, 200, *values))
    assert has_values(columns)


def test_failures_alone_change_nothing():
    assert len(changes((1, 500, '"a"', None, ""), (2, 0, "", DATE, ""))) == 0


def test_the_date_of_an_answer_is_no_time_without_a_report():
    change = changes((1, 200, '"a"', None, ""))
    assert change.last_modified.tolist() == [NO_TIME.item()]
