"""Two pauses of a host queue: by its site and by an operator; each ends alone."""

from datetime import timedelta

import pytest
from support.crawl_cases import HOUR, POLITE, SECOND, add, ids, queue, report, take
from support.store_cases import T0

from service.leases.host_settings import change_host

HOST = "example.org"
MINUTE = timedelta(minutes=1)


def change(store, now=T0, **settings):
    with store.begin() as tx:
        change_host(tx, HOST, settings, now, POLITE)


def queue_of(store):
    with store.begin(write=False) as tx:
        return tx.host(HOST).host_queue


def pauses_of(store):
    host_queue = queue_of(store)
    return host_queue.blocked_until, host_queue.paused_until


def test_no_report_ends_or_moves_the_pause_by_an_operator(queue_store):
    add(queue_store)
    good, ill = take(queue_store, T0, 2)
    change(queue_store, blocked_until=T0 + HOUR)
    report(queue_store, [ill], T0 + SECOND, status=503, retry_after_s=600.0)
    by_site = T0 + SECOND + timedelta(seconds=600)
    assert pauses_of(queue_store) == (T0 + HOUR, by_site)
    report(queue_store, [good], T0 + 2 * SECOND)
    assert pauses_of(queue_store)[0] == T0 + HOUR
    assert take(queue_store, T0 + HOUR - SECOND) == []
    assert len(take(queue_store, T0 + HOUR)) > 0


def test_a_resumed_host_keeps_the_pause_of_its_site(queue_store):
    add(queue_store)
    report(queue_store, take(queue_store, T0, 1), T0, status=429, retry_after_s=1_800.0)
    change(queue_store, blocked_until=T0 + HOUR)
    change(queue_store, T0 + MINUTE, blocked_until=None)
    assert pauses_of(queue_store) == (None, T0 + HOUR / 2)
    assert take(queue_store, T0 + HOUR / 2 - SECOND) == []
    change(queue_store, T0 + 2 * MINUTE, paused_until=None)
    assert pauses_of(queue_store) == (None, None)
    assert len(take(queue_store, T0 + 2 * MINUTE)) > 0


def test_a_host_that_resumes_early_is_leased_at_once(queue_store):
    """The pause has moved the host queue behind its end; the end by hand brings it back."""
    pages = add(queue_store)
    change(queue_store, blocked_until=T0 + HOUR)
    assert take(queue_store, T0) == []
    assert queue_of(queue_store).next_at == T0 + HOUR
    change(queue_store, T0 + MINUTE, blocked_until=None)
    assert sorted(ids(take(queue_store, T0 + MINUTE))) == sorted(pages)


@pytest.mark.parametrize("name", ["blocked_until", "paused_until"])
def test_a_page_that_is_queued_in_a_pause_waits_for_its_end(queue_store, name):
    """As a page that a ping requests."""
    (page,) = add(queue_store, 1)
    take(queue_store, T0)
    change(queue_store, **{name: T0 + HOUR})
    other = add(queue_store, 1, host=HOST)
    queue(queue_store, other, T0)
    assert queue_of(queue_store).next_at >= T0
    assert take(queue_store, T0 + HOUR - SECOND) == []
    assert page not in ids(take(queue_store, T0 + HOUR))
