"""Incidents of hosts in each store: what is learnt, told and crawled during and after one."""

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.feed_cases import feed_of
from support.ingest_cases import HOUR, rules
from support.store_cases import (
    DAY,
    T0,
    crawl_columns,
    due_of,
    page_columns,
    page_of,
    publish,
    register,
    schedule_columns,
    states_of,
)

from recrawl_lab.memory.store import MemoryStore
from service.ingest.recent_digests import RecentDigests
from service.ingest.record import record
from service.model.arrays import instant
from service.model.outcomes import Outcome

pytestmark = pytest.mark.dear

N = 30
START = T0 + 30 * DAY
"""The host has had 30 quiet days, with a crawl of each page a day."""
MINUTE = timedelta(minutes=1)


class Host:
    """Pages of one host, crawled once a day, that never change."""

    def __init__(self, store, n=N, host="example.org", n_twins=0):
        self.store, self.rules, self.recent = store, rules(), RecentDigests()
        self.page_id = np.sort(register(store, n, host=host))
        publish(store, schedule_columns(self.page_id, crawl_rate=1.0))
        self.own = np.where(np.arange(n) < n_twins, 5, 1_000 + self.page_id)

    def crawl(self, at, pages=slice(None), **fields):
        """Record one crawl of pages, a second apart; return the outcome."""
        ids = self.page_id[pages]
        seconds = np.arange(len(ids)) * np.timedelta64(1, "s")
        fields.setdefault("digest", 0)
        with self.store.begin() as tx:
            crawls = crawl_columns(ids, instant(at) + seconds, **fields)
            return record(tx, crawls, self.rules, recent=self.recent)

    def content(self, at, pages=slice(None)):
        return self.crawl(at, pages, status=200, digest=self.own[pages])

    def quiet_days(self, n=30, start=T0):
        """Record a crawl of each page a day, all in one batch."""
        day = np.repeat(np.arange(n), len(self.page_id)) * np.timedelta64(1, "D")
        second = np.tile(np.arange(len(self.page_id)), n) * np.timedelta64(1, "s")
        ids, digest = np.tile(self.page_id, n), np.tile(self.own, n)
        with self.store.begin() as tx:
            crawls = crawl_columns(ids, instant(start) + day + second, status=200, digest=digest)
            record(tx, crawls, self.rules, recent=self.recent)

    @property
    def states(self):
        return states_of(self.store, self.page_id)

    def changes(self, since=START):
        """The changes in the feed since the start, by their kinds."""
        feed = feed_of(self.store)
        return feed.kind[feed.observed_at >= instant(since)].tolist()


@pytest.fixture
def host(store):
    host = Host(store)
    host.quiet_days()
    return host


@pytest.fixture
def feed_host(queue_store):
    host = Host(queue_store)
    host.quiet_days()
    return host


SIGNS = [
    {"status": 404},
    {"status": 410},
    {"status": 301, "redirects_to": -1},
    {"status": 403},
    {"status": 401},
    {"status": 200, "digest": 7},
]


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("hours", [1, 5])
def test_an_outage_teaches_nothing(host, sign, hours):
    before = host.states
    for hour in range(hours + 1):
        host.crawl(START + hour * HOUR, **sign)
    during = host.states
    host.content(START + (hours + 1) * HOUR)
    after = host.states
    np.testing.assert_array_equal(during.digest, before.digest)
    np.testing.assert_array_equal(during.n_changes, before.n_changes)
    np.testing.assert_array_equal(during.estimate, before.estimate)
    assert not during.gone.any()
    np.testing.assert_array_equal(after.n_changes, before.n_changes)
    np.testing.assert_array_equal(after.n_failures, 0)
    assert np.isnat(after.absent_since).all()
    # a quiet interval was learnt, as if nothing had been in between
    np.testing.assert_array_equal(after.n_observations, before.n_observations + 1)


@pytest.mark.parametrize("sign", SIGNS)
def test_an_outage_is_not_told(feed_host, sign):
    for hour in range(4):
        feed_host.crawl(START + hour * HOUR, **sign)
    feed_host.content(START + 4 * HOUR)
    assert feed_host.changes() == []


@pytest.mark.dear
def test_a_maintenance_page_that_comes_page_by_page_costs_the_first_page_alone(feed_host):
    for i in range(N):
        feed_host.crawl(START + i * MINUTE, slice(i, i + 1), status=200, digest=7)
    for i in range(N):
        feed_host.content(START + 2 * HOUR + i * MINUTE, slice(i, i + 1))
    assert len(feed_host.changes()) == 2
    assert feed_host.states.n_changes.tolist() == [2] + [0] * (N - 1)


def test_pages_come_back_within_an_hour_whatever_the_incident_lasted(host):
    for hour in range(20):
        host.crawl(START + hour * HOUR, status=404)
    last = START + 19 * HOUR
    waits = [due_of(host.store, page) - last for page in host.page_id.tolist()]
    assert {round(wait / HOUR, 1) for wait in waits} == {1.0}
    assert set(host.states.n_failures.tolist()) == {1}


def test_after_a_day_a_site_that_is_gone_is_gone(feed_host):
    for hour in range(23):
        feed_host.crawl(START + hour * HOUR, status=404)
    assert not feed_host.states.gone.any()
    for hour in range(24, 28):
        feed_host.crawl(START + hour * HOUR, status=404)
    states = feed_host.states
    assert states.gone.all()
    assert len(feed_host.changes()) == N


@pytest.mark.dear
def test_after_a_day_a_site_that_shows_one_page_has_changed(feed_host):
    for hour in range(27):
        feed_host.crawl(START + hour * HOUR, status=200, digest=7)
    states = feed_host.states
    assert set(states.digest.tolist()) == {7}
    assert set(states.n_changes.tolist()) == {1}
    assert len(feed_host.changes()) == N


def test_a_site_that_deletes_most_of_its_pages_loses_them(feed_host):
    gone, there = slice(0, 18), slice(18, N)
    for hour in range(5):
        at = START + hour * HOUR
        feed_host.crawl(at, gone, status=404)
        feed_host.content(at + 20 * MINUTE, there)
    states = feed_host.states
    assert states.gone.tolist() == [True] * 18 + [False] * 12
    assert len(feed_host.changes()) == 18
    assert set(states.n_changes[there].tolist()) == {0}


class OldHost(Host):
    """Pages under http, whose twins at addresses of the new form nobody has crawled."""

    def __init__(self, store, form="https://old.example/{}?to=http://x.example/"):
        super().__init__(store, n=0, host="old.example")
        end = "" if form.endswith("{}/") else "?to=http://x.example/"
        addresses = [f"http://old.example/{i}{end}" for i in range(N)]
        secure = [form.format(i) for i in range(N)]
        with store.begin() as tx:
            self.page_id = tx.register(page_columns(addresses), T0).page_id
            self.secure = tx.register(page_columns(secure), T0).page_id
        order = np.argsort(self.page_id)
        self.page_id, self.secure = self.page_id[order], self.secure[order]
        publish(store, schedule_columns(self.page_id, crawl_rate=1.0))
        self.own = 1_000 + self.page_id
        self.quiet_days(5)

    def moves(self, at, target):
        return self.crawl(at, status=301, redirects_to=target)


FORMS = (
    "https://old.example/{}?to=http://x.example/",
    "https://www.old.example/{}?to=http://x.example/",
    "http://old.example/{}/",
)


@pytest.mark.parametrize("form", FORMS)
def test_a_site_that_moves_to_addresses_of_one_form_has_moved_after_the_second_look(
    queue_store, form
):
    host = OldHost(queue_store, form)
    host.moves(START, host.secure)
    assert not host.states.gone.any()
    assert set(host.states.outcome.tolist()) == {int(Outcome.moved)}
    host.moves(START + HOUR + MINUTE, host.secure)
    assert host.states.gone.all()
    assert len(host.changes()) == N


def test_a_site_that_leads_all_its_pages_to_others_is_in_an_incident(queue_store):
    host = OldHost(queue_store)
    wrong = np.roll(host.secure, 1)
    for minutes in (0, 61):
        host.moves(START + minutes * MINUTE, wrong)
    assert not host.states.gone.any()
    assert set(host.states.outcome[10:].tolist()) == {int(Outcome.doubtful)}
    assert host.changes() == []


@pytest.mark.parametrize("moves", [True, False])
def test_a_move_to_https_hides_no_outage(queue_store, moves):
    host = OldHost(queue_store)
    if moves:
        host.moves(START, host.secure)
    else:
        host.content(START)
    host.crawl(START + 30 * MINUTE, status=404)
    assert set(host.states.outcome[25:].tolist()) == {int(Outcome.doubtful)}


def test_a_small_site_and_a_revision_are_no_incidents(store):
    small = Host(store, 4, "small.example")
    large = Host(store, N, "large.example")
    for each in (small, large):
        each.quiet_days(5)
    small.crawl(START, status=404)
    small.crawl(START + HOUR + MINUTE, status=404)
    assert small.states.gone.all()
    large.own += 10_000
    large.content(START)
    assert set(large.states.n_changes.tolist()) == {1}
    assert set(large.states.n_failures.tolist()) == {0}


def test_pages_that_share_a_template_change_at_once(store):
    host = Host(store, n_twins=10)
    host.quiet_days(3)
    host.own[:10] = 6
    for minute in range(10):
        host.content(START + minute * MINUTE, slice(minute, None, 10))
    assert host.states.n_changes.tolist() == [1] * 10 + [0] * (N - 10)


def test_a_maintenance_page_of_a_site_of_one_template_teaches_nothing(store):
    host = Host(store, n_twins=N)
    host.quiet_days(3)
    host.crawl(START, status=200, digest=7)
    host.content(START + HOUR)
    assert not host.states.n_changes.any()


def test_an_unrelated_page_that_becomes_a_template_is_believed_at_the_second_look(store):
    host = Host(store, n_twins=3)
    host.quiet_days(3)
    host.own[[0, 1, 2, 9]] = 6
    host.content(START, slice(0, 3))
    host.content(START + MINUTE, [9])
    assert host.states.n_failures.tolist() == [0] * 9 + [1] + [0] * (N - 10)
    looked_at = START + MINUTE
    assert due_of(host.store, int(host.page_id[9])) - looked_at == HOUR
    host.content(looked_at + HOUR, [9])
    after = host.states
    assert (after.digest[9], after.n_changes[9], after.n_failures[9]) == (6, 1, 0)


def test_a_page_that_was_only_doubtful_needs_two_looks_to_be_gone(host):
    host.crawl(START, status=404)
    host.content(START + HOUR, slice(5, N))
    host.crawl(START + 3 * HOUR, slice(4, 5), status=404)
    assert not host.states.gone.any()
    host.crawl(START + 4 * HOUR, slice(4, 5), status=404)
    assert host.states.gone.tolist() == [False] * 4 + [True] + [False] * (N - 5)


def test_a_page_first_crawled_in_an_incident_has_had_no_content(host):
    new = np.sort(register(host.store, N + 1))[-1:]
    host.crawl(START, status=200, digest=7)
    with host.store.begin() as tx:
        crawls = crawl_columns(new, START + MINUTE, status=200, digest=7)
        record(tx, crawls, host.rules, recent=host.recent)
    (page,) = (page_of(host.store, i) for i in new.tolist())
    assert (page.last_observed_at, page.n_failures) == (None, 1)
    assert due_of(host.store, page.page_id) == START + MINUTE + HOUR


def test_a_report_that_comes_twice_counts_once(host):
    for _ in range(5):
        host.crawl(START, slice(0, 4), status=404)
    outcome = host.crawl(START + MINUTE, slice(4, 5), status=404)
    assert outcome.in_incident is not None
    assert outcome.in_incident.tolist() == [True]
    again = host.crawl(START + MINUTE, slice(4, 5), status=404)
    assert again.in_incident is None


def test_a_late_report_neither_begins_nor_ends_an_incident(host):
    host.crawl(START, status=404)
    assert host.content(START - HOUR).in_incident is None
    assert host.crawl(START + HOUR, status=404).in_incident.all()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.integers(0, 9),
            st.sampled_from([404, 403, 503, 200]),
            st.integers(1, 900),
        ),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 40),
)
def test_one_batch_or_many_give_the_same_states(steps, size):
    whole, parts = (Host(MemoryStore(2), 10) for _ in range(2))
    ends = []
    for host, n in ((whole, len(steps)), (parts, size)):
        host.quiet_days(3)
        at, rows = START, []
        for page, status, wait in steps:
            at += timedelta(seconds=wait)
            digest = int(host.own[page]) if status == 200 else 0
            rows.append((host.page_id[page], at, status, digest))
        for start in range(0, len(rows), n):
            page_id, times, status, digest = zip(*rows[start : start + n], strict=True)
            crawls = crawl_columns(
                np.array(page_id),
                np.array([instant(t) for t in times]),
                status=np.array(status),
                digest=np.array(digest),
            )
            with host.store.begin() as tx:
                record(tx, crawls, host.rules, recent=host.recent)
        ends.append(host.states)
    for name in ("outcome", "n_failures", "gone", "digest", "absent_since", "n_changes"):
        np.testing.assert_array_equal(*(getattr(states, name) for states in ends))


def weights(host, since=START):
    """The weights of the changes in the feed since an instant."""
    feed = feed_of(host.store)
    weight = np.full(len(feed), np.nan) if feed.weight is None else feed.weight
    return np.nan_to_num(weight, nan=1.0)[feed.observed_at >= instant(since)].tolist()


def notes(store, page_id):
    with store.begin(write=False) as tx:
        return tx.validators(page_id).note.tolist()


def texts(text, n=N):
    return np.full(n, text, object)


def test_a_doubtful_crawl_leaves_the_note_and_a_change_comes_with_its_weight(feed_host):
    store, page_id = feed_host.store, feed_host.page_id
    feed_host.crawl(
        START - HOUR, status=200, digest=feed_host.own, note=texts("19"), weight=np.ones(N)
    )
    for hour in range(27):
        held = notes(store, page_id) == ["19"] * N
        # as a crawler reports that compares with the note
        weight = np.full(N, 1.0 if held else 0.0)
        feed_host.crawl(START + hour * HOUR, status=200, digest=7, note=texts("9"), weight=weight)
        assert notes(store, page_id) == (["19"] if hour < 24 else ["9"]) * N
    assert weights(feed_host) == [1.0] * N


@pytest.mark.parametrize("note", [None, texts("")])
def test_a_change_after_a_doubt_counts_in_full_without_a_note(feed_host, note):
    for hour in range(27):
        # the crawler has kept what it found at the first of these crawls
        light = np.full(N, 0.0 if hour else 1.0)
        feed_host.crawl(START + hour * HOUR, status=200, digest=7, note=note, weight=light)
    feed_host.own += 1_000
    last = START + 28 * HOUR
    feed_host.crawl(last, status=200, digest=feed_host.own, note=note, weight=np.zeros(N))
    assert weights(feed_host) == [1.0] * N + [0.0] * N
