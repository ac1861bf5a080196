"""Stretches between the crawls of a log."""

import numpy as np
from support.store_cases import DAY, T0, columns

from service.model.columns import LogColumns
from service.model.domain import Kind
from service.model.log_stretches import logged_stretches


def entries(*rows):
    """Return entries (page, day, changed, interval, status) in their order."""
    page, day, changed, interval, status = zip(*rows, strict=True)
    return columns(
        LogColumns,
        len(rows),
        page_id=page,
        observed_at=[T0 + d * DAY for d in day],
        kind=[Kind.ping if c is None else Kind.crawl for c in changed],
        changed=[-1 if c is None else c for c in changed],
        interval=[np.nan if i is None else i for i in interval],
        crawl_rate=np.nan,
        status=status,
    )


def test_each_crawl_with_a_verdict_ends_a_stretch_of_its_interval():
    log = entries(
        (1, 0, -1, None, 200),  # the first crawl
        (1, 2, 0, 2.0, 200),
        (1, 3, None, None, -1),  # a ping
        (1, 5, -1, None, 503),  # a failure
        (1, 6, 1, 4.0, 200),
        (2, 6, 1, 1.0, 404),
        (2, 9, 1, 3.0, 200),
    )
    stretches = logged_stretches(log)
    assert stretches.entry.tolist() == [1, 4, 5, 6]
    lengths = (stretches.end - stretches.begin) / np.timedelta64(1, "D")
    assert lengths.tolist() == [2, 4, 1, 3]
    assert stretches.changed.tolist() == [False, True, True, True]
    assert stretches.gone.tolist() == [False, False, True, False]
    assert stretches.was_gone.tolist() == [False, False, False, True]


def test_without_an_interval_the_crawl_before_counts_and_the_first_one_does_not():
    log = entries((1, 0, 1, None, 200), (1, 4, 0, None, 200), (2, 5, 1, None, 200))
    stretches = logged_stretches(log)
    assert stretches.entry.tolist() == [1]
    assert (stretches.end - stretches.begin).tolist() == [4 * DAY]


def test_an_empty_log_has_none():
    assert len(logged_stretches(LogColumns.empty()).entry) == 0
