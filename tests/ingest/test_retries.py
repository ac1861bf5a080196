"""The rate by which pages without content are tried again, and what keeps it from drifting."""

from itertools import product

import numpy as np
import pytest
from support.ingest_cases import HOUR, announce, crawl
from support.store_cases import (
    DAY,
    T0,
    crawl_columns,
    due_of,
    page_of,
    publish,
    register,
    save,
    schedule_columns,
    states_of,
)

from service.ingest.crawls import needs_rates
from service.ingest.retries import retry_rates
from service.model.domain import Observability, PingReason
from service.model.outcomes import NO_CONTENT_AFTER

REFUSED = {"status": 403}
FAILED = {"status": 0}


@pytest.fixture
def page(sql_store):
    """A page with content, crawled once in two days."""
    (page_id,) = register(sql_store, 1)
    publish(sql_store, schedule_columns([page_id], crawl_rate=0.5))
    crawl(sql_store, page_id, T0, digest=5)
    return page_id


def lose_content(store, page_id, n=NO_CONTENT_AFTER, first=T0 + 2 * DAY, **found):
    """Crawl a page without content, n times an hour apart; return the instant of the last one."""
    for k in range(n):
        crawl(store, page_id, first + k * HOUR, **(found or REFUSED))
    return first + (n - 1) * HOUR


def wait(store, page_id, at):
    """Days from a crawl to the next one."""
    return (due_of(store, page_id) - at) / DAY


def by_hand(before, n_before, n_after, in_force):
    """The table at the head of `ingest.retries`."""
    if n_after:
        return in_force if in_force > 0 else before
    return before if n_before and not in_force > 0 else 0.0


def test_the_rate_is_that_of_the_table(sql_store):
    cases = list(product((0.0, 2.0), (0, 1, 3), (0, 1, 4), (0.0, np.nan, 0.25)))
    ids = register(sql_store, len(cases))
    before, n_before, n_after, in_force = (np.array(c) for c in zip(*cases, strict=True))
    save(sql_store, ids, retry_rate=before, n_failures=n_before)
    states = states_of(sql_store, ids)
    states.crawl_rate[:] = in_force
    assert retry_rates(states, n_after).tolist() == [by_hand(*case) for case in cases]


def test_retries_do_not_drift_when_the_epoch_takes_the_share(sql_store, page):
    at = lose_content(sql_store, page)
    assert page_of(sql_store, page).no_content
    with_share = wait(sql_store, page, at)
    assert with_share == pytest.approx(8, rel=0.05)
    publish(sql_store, schedule_columns([page], crawl_rate=0.0))
    assert wait(sql_store, page, at) == with_share
    for n in (4, 5, 6):
        at += 20 * DAY
        crawl(sql_store, page, at, **REFUSED)
        assert wait(sql_store, page, at) == pytest.approx(min(2 * 2 ** (n - 1), 30), rel=0.05)


def test_a_page_that_is_back_is_due_by_its_last_share_until_an_epoch_decides(sql_store, page):
    at = lose_content(sql_store, page)
    publish(sql_store, schedule_columns([page], crawl_rate=0.0))
    crawl(sql_store, page, at + DAY, digest=5)
    assert not page_of(sql_store, page).no_content
    assert wait(sql_store, page, at + DAY) == pytest.approx(2, rel=0.05)
    publish(sql_store, schedule_columns([page], crawl_rate=4.0))
    assert wait(sql_store, page, at + DAY) == pytest.approx(0.25, rel=0.05)


def test_a_page_without_a_share_is_crawled_once_more_and_then_left_to_the_epoch(sql_store, page):
    at = lose_content(sql_store, page)
    publish(sql_store, schedule_columns([page], crawl_rate=0.0))
    crawl(sql_store, page, at + DAY, digest=5)
    crawl(sql_store, page, at + 3 * DAY, digest=5)
    assert due_of(sql_store, page) is None
    assert page_of(sql_store, page).retry_rate == 0


@pytest.mark.parametrize(
    ("found", "days"), [(FAILED, 1 / 24), (REFUSED, 1.0), ({"status": 404}, 1 / 24)]
)
def test_a_page_at_rate_0_that_fails_is_tried_again(sql_store, found, days):
    (page_id,) = register(sql_store, 1)
    publish(sql_store, schedule_columns([page_id], crawl_rate=0.0))
    crawl(sql_store, page_id, T0, digest=5)
    assert due_of(sql_store, page_id) is None
    crawl(sql_store, page_id, T0 + DAY, **found)
    assert due_of(sql_store, page_id) == T0 + (1 + days) * DAY


def test_a_page_that_was_never_scheduled_is_tried_again_after_days_that_double(sql_store):
    (page_id,) = register(sql_store, 1)
    for n in range(1, 7):
        crawl(sql_store, page_id, T0 + n * 40 * DAY, **REFUSED)
        assert wait(sql_store, page_id, T0 + n * 40 * DAY) == min(2 ** (n - 1), 30)


@pytest.mark.parametrize("found", [REFUSED, FAILED, {"status": 302, "redirects_to": -1}])
def test_content_between_failures_begins_the_waits_anew(sql_store, page, found):
    """A page that flaps keeps its share, and its waits stay those of its interval."""
    first = None
    for day in range(0, 40, 4):
        at = lose_content(sql_store, page, 2, T0 + (2 + day) * DAY, **found)
        waited = wait(sql_store, page, at)
        first = first or waited
        assert waited == pytest.approx(first, rel=0.1)
        crawl(sql_store, page, T0 + (4 + day) * DAY, digest=5)
        assert not page_of(sql_store, page).no_content


def test_a_304_after_failures_is_content(sql_store, page):
    at = lose_content(sql_store, page)
    crawl(sql_store, page, at + HOUR, status=304)
    found = page_of(sql_store, page)
    assert (found.no_content, found.n_failures, found.n_changes) == (False, 0, 0)


def test_a_request_that_a_page_without_content_had_is_not_lost_behind_another(sql_store):
    """The page of a failed first crawl has no request of its own that would hide a ping's."""
    (page_id,) = register(sql_store, 1, observability=Observability.complete)
    crawl(sql_store, page_id, T0, **REFUSED)
    assert np.isnat(states_of(sql_store, [page_id]).requested_at).all()
    assert announce(sql_store, page_id, T0 + HOUR)[0]
    assert due_of(sql_store, page_id) == T0 + HOUR


def test_a_ping_of_a_complete_page_without_content_has_it_crawled(sql_store, page):
    with sql_store.begin() as tx:
        tx.run(f"UPDATE page_states SET observability = {Observability.complete.value}")
    at = lose_content(sql_store, page)
    publish(sql_store, schedule_columns([page], crawl_rate=0.0))
    assert announce(sql_store, page, at + HOUR) == (True, PingReason.may_be_back)


def test_pings_of_others_look_at_a_page_without_content_once_in_16_days(sql_store, page):
    at = lose_content(sql_store, page)
    publish(sql_store, schedule_columns([page], crawl_rate=0.0))
    assert not announce(sql_store, page, at + DAY)[0]
    assert announce(sql_store, page, at + 17 * DAY) == (True, PingReason.may_be_back)


@pytest.mark.parametrize(
    ("found", "needed"),
    [
        ({"digest": 5}, False),
        ({"digest": 5, "status": 200}, False),
        ({"changed": 0, "status": 204}, False),
        ({"status": 304}, False),
        ({"status": 200}, True),
        ({"digest": 5, "status": 0}, True),
        ({"status": 302}, True),
        ({"status": 404}, True),
        ({"status": 503}, True),
        ({"status": 1_000}, True),
    ],
)
def test_only_crawls_without_content_read_the_rates_of_their_pages(found, needed):
    usual = {"changed": [0, 0], "digest": [7, 7], "status": [200, 200]}
    both = {
        name: [values[0], found.get(name, 0 if name == "digest" else -1)]
        for name, values in usual.items()
    }
    assert needs_rates(crawl_columns([1, 2], T0, **both)) is needed
