"""Past crawls in each store: they teach, and are no findings of the service."""

from dataclasses import replace

import numpy as np
from support.feed_cases import feed_of
from support.ingest_cases import HOUR, counts, crawl, rules
from support.store_cases import DAY, T0, crawl_columns, page_of, register

from service.ingest.record import record
from service.model.arrays import instant

SECOND = HOUR / 3_600


def reported(store, page_id, ago, token=0):
    """Record one crawl, so long before the registration; return what came of it."""
    columns = replace(crawl_columns([page_id], T0 - ago, digest=1), token=np.array([token]))
    with store.begin() as tx:
        return record(tx, columns, rules())


def test_a_crawl_is_past_a_day_before_its_page_was_registered(queue_store):
    pages = np.sort(register(queue_store, 3, now=T0)).tolist()
    for page_id, ago in zip(pages, (DAY + SECOND, DAY, -DAY), strict=True):
        outcome = reported(queue_store, page_id, ago)
        assert bool(outcome.is_news[0]) == (ago <= DAY)
    assert feed_of(queue_store).page_id.tolist() == pages[1:]


def test_past_crawls_teach_and_leave_the_feed_to_later_ones(queue_store):
    one, two = np.sort(register(queue_store, 2, now=T0)).tolist()
    for days, digest in ((9, 1), (6, 2), (3, 3)):
        crawl(queue_store, one, T0 - days * DAY, digest=digest)
    assert counts(queue_store, one) == (2, 2)
    assert not len(feed_of(queue_store))
    at = instant(T0) + np.array([-4, -3, 1]) * np.timedelta64(1, "D")
    with queue_store.begin() as tx:  # past crawls and others in one batch
        record(tx, crawl_columns([two] * 3, at, digest=[1, 2, 3]), rules())
    (change,) = feed_of(queue_store).arrays()["changed_after"]
    assert change == instant(T0 - 3 * DAY)


def test_a_crawl_under_a_lease_is_never_past(queue_store):
    (page_id,) = register(queue_store, 1, now=T0)
    outcome = reported(queue_store, page_id, 5 * DAY, token=7)
    assert outcome.is_news.all()
    assert len(feed_of(queue_store)) == 1


def test_a_past_absence_makes_its_page_gone_without_a_word(queue_store):
    (page_id,) = register(queue_store, 1, now=T0)
    for days, status in ((5, 200), (4, 404), (3, 404)):
        crawl(queue_store, page_id, T0 - days * DAY, status=status, digest=int(status == 200))
    assert page_of(queue_store, page_id).gone
    crawl(queue_store, page_id, T0, status=404)
    assert not len(feed_of(queue_store))
