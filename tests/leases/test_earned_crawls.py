"""Crawls that noisy pings have earned come among the pages that are due, as late as they are."""

import numpy as np
import pytest
from support.crawl_cases import HOUR, RUDE, RULES, SECOND, UNTIL, ids, queue, report, rng, take
from support.ping_cases import noisy
from support.store_cases import (
    DAY,
    T0,
    due_of,
    instants,
    page_columns,
    ping_columns,
    publish,
    register,
    save,
    schedule_columns,
    states_of,
)

from service.batching.reports import PingReport, Recorder
from service.estimation.rules import InForce
from service.ingest.bulk import Recrawl, act_on
from service.ingest.page_names import PageNames
from service.leases.settle import LeaseSettler
from service.model.domain import PingReason

SETTLER = LeaseSettler(RUDE, UNTIL, rng())


def told(store, page_id, at, now=None):
    """Report a ping as the service does; return its reason."""
    pings = ping_columns(np.array([page_id]), instants([at]))
    names = PageNames(np.array([page_id]), np.array([-1]), page_columns([]))
    store.clock = lambda: now or at
    job = PingReport(pings, names, False, now or at)
    (outcome,) = Recorder(store, InForce(RULES), SETTLER).flush_pings([job])
    return outcome.reason[0]


def three(store, rates):
    """Return a noisy page whose pings earn a crawl at T0 + 8 h, and two pages by the clock."""
    page = noisy(store, host="noisy.example", ping_credit=0.99)
    late, early = np.sort(register(store, 2, host="clock.example")).tolist()
    save(store, [late, early], last_crawl_at=T0 - 2 * DAY, interval_factor=1.0)
    ranked = schedule_columns(
        np.sort([page, late, early]),
        crawl_rate=[0.01, *rates],
        crawl_probability=[0.5, 0.0, 0.0],
    )
    publish(store, ranked)
    queue(store, [page, late, early], T0)
    assert told(store, page, T0 + 8 * HOUR) == PingReason.credit
    return page, late, early


@pytest.fixture
def pages(queue_store):
    """Three pages, two of which are overdue by the clock."""
    return three(queue_store, (0.9, 0.6))


def test_an_earned_crawl_comes_after_pages_that_are_more_overdue(queue_store, pages):
    page, late, early = pages
    assert ids(take(queue_store, T0 + 8 * HOUR)) == [late, early, page]


def test_an_earned_crawl_comes_first_when_it_has_waited_longest(queue_store):
    page, late, early = three(queue_store, (0.11, 0.1))
    at = T0 + 60 * DAY
    queue(queue_store, [page, late, early], at)
    assert ids(take(queue_store, at)) == [page, late, early]


def test_a_crawl_that_a_person_asks_for_comes_first(sql_store):
    """Of several databases, the one whose hosts have been ready longest comes first."""
    page, late, early = three(sql_store, (0.9, 0.6))
    now = T0 + 9 * HOUR
    sql_store.clock = lambda: now
    act_on(sql_store, np.array([page]), Recrawl(SETTLER), now)
    assert ids(take(sql_store, now)) == [page, late, early]


def test_after_its_crawl_the_page_ranks_by_its_rate_again(queue_store, pages):
    page, *_ = pages
    crawls = [crawl for crawl in take(queue_store, T0 + 8 * HOUR) if crawl.page_id == page]
    assert states_of(queue_store, [page]).retry_rate[0] > 0
    assert report(queue_store, crawls, T0 + 8 * HOUR + SECOND) == [True]
    states = states_of(queue_store, [page])
    assert (states.retry_rate[0], states.ping_credit[0] < 1) == (0.0, True)
    assert np.isnat(states.requested_at[0])


def test_a_page_that_pays_later_is_leased_then_and_not_before(queue_store):
    page = noisy(queue_store, estimate=[[30.0, 60.0]], recent_pings=9.0, ping_credit=0.6)
    queue(queue_store, [page], T0, DAY)
    assert told(queue_store, page, T0 + HOUR) == PingReason.later
    due = due_of(queue_store, page)
    assert T0 + HOUR < due < T0 + 2 * DAY
    assert take(queue_store, due - SECOND) == []
    # Postgres keeps seven digits of the interval, which are some milliseconds in a day
    assert ids(take(queue_store, due + SECOND)) == [page]
