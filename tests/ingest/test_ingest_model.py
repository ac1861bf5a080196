"""Random batches against a model of one page in plain Python, item by item."""

from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.store_cases import (
    T0,
    crawl_columns,
    instants,
    page_columns,
    ping_columns,
    publish,
    same,
    schedule_columns,
    states_of,
    urls,
)

from recrawl_lab.memory.store import MemoryStore
from service.core.estimators.gamma import Gamma
from service.estimation.rules import Rules
from service.ingest.rebuild import rebuild
from service.ingest.record import ping, record
from service.model.domain import ItemVerdict, Timing

MINUTE = timedelta(minutes=1)
"""Request of a page whose first crawl failed."""
OBSERVABILITY = [0, 1, 2, 0]
PROBABILITY = [0.0, 0.4, 0.0, None]
"""Crawl probabilities; what pings of `auto` pages earn is in `test_ping_credit`."""
UNKNOWN_PAGE = 4
"""Among the pages' positions: one that nobody registered."""


@dataclass
class PageModel:
    """A page as the docstrings of `service.ingest.record` describe it."""

    observability: int
    probability: float | None
    last_crawl: int | None = None
    last_observed: int | None = None
    digest: int = 0
    gone: bool = False
    absent_since: int | None = None
    n_failures: int = 0
    redirects_to: int | None = None
    n_observations: int = 0
    n_changes: int = 0
    n_pings: int = 0
    last_ping: int | None = None
    credit: float = 0.0
    wanted: int | None = None
    newest_wanted: int | None = None
    estimate: tuple | None = (0.0, 0.0)
    """None once pings have had a part in it: `test_estimates` covers how they are weighed."""
    log: list = field(default_factory=list)

    def crawl(self, at, told_change, digest, status, redirects_to=None):
        if self.last_crawl is not None and at <= self.last_crawl:
            return ItemVerdict.duplicate if at == self.last_crawl else ItemVerdict.late
        absent = status in (404, 410) or (redirects_to is not None and status in (301, 308))
        told = redirects_to is None and (told_change != -1 or digest != 0)
        content = status == 304 or (told and (status == -1 or 200 <= status < 300))
        gone = absent and (self.gone or self._confirms(at))
        answered, failing = content or gone, status == 0 or (status >= 400 and not gone)
        self._count(content, absent, gone)
        if content:
            self.absent_since = None
        elif absent and self.absent_since is None:
            self.absent_since = at
        if status in (301, 308) or not failing:
            self.redirects_to = None if redirects_to == UNKNOWN_PAGE else redirects_to
        if self.wanted is not None and self.wanted <= at:
            self.wanted = None if answered and self.newest_wanted <= at else self.newest_wanted
        if answered:
            self._observe(
                at, self._changed(told_change, digest, status, gone), digest, gone, status
            )
        else:
            self.log.append((at, 0, None, None, None if status == -1 else status))
        self.last_crawl = at
        return ItemVerdict.accepted

    @property
    def renewed(self):
        """The newest request, where that is not the one with the place."""
        return None if self.wanted in (None, self.newest_wanted) else self.newest_wanted

    def _confirms(self, at):
        """A second look confirms an absence an hour after the first, or an interval if shorter."""
        return self.absent_since is not None and at - self.absent_since >= 60

    def _count(self, content, absent, gone):
        if content:
            self.n_failures = 0
        elif gone and not self.gone:
            self.n_failures = 2
        elif absent or not self.gone:
            self.n_failures += 1

    def _changed(self, told_change, digest, status, gone):
        if self.last_observed is None:
            return None
        if gone or status == 304:
            return gone and not self.gone
        if self.gone:
            return not (digest and digest == self.digest)
        if told_change != -1:
            return bool(told_change)
        if digest and self.digest:
            return digest != self.digest
        return None

    def _observe(self, at, changed, digest, gone, status):
        evidence = changed is not None and self.observability != 1
        days = None
        if evidence:
            days = (at - self.last_observed) / 1440
            if self.observability == 2 and self.n_pings:
                self.estimate = None
            if self.estimate is not None:
                state = Gamma().update(Gamma.State(*self.estimate), days, changed)
                self.estimate = tuple(float(number) for number in state)
            self.n_observations += 1
            self.n_changes += changed
        if digest and not gone:
            self.digest = digest
        elif changed and not gone:
            self.digest = 0
        self.gone, self.last_observed = gone, at
        self.log.append((at, 0, changed, days, None if status == -1 else status))

    def ping(self, at):
        if self.last_ping is not None and at <= self.last_ping:
            verdict = ItemVerdict.duplicate if at == self.last_ping else ItemVerdict.late
            return verdict, False, "not_newer"
        self.last_ping, self.n_pings = at, self.n_pings + (at >= 0)
        self.log.append((at, 1, None, None, None))
        crawl, reason = self._decide(at)
        if crawl:
            known = self.wanted is not None
            if not known or (self.last_crawl is not None and self.wanted <= self.last_crawl):
                self.wanted = at
            self.newest_wanted = at
        return ItemVerdict.accepted, crawl, reason

    def _decide(self, at):
        if self.last_crawl is None:
            return True, "never_crawled"
        lacking = not self.gone and self.n_failures >= 3
        waited = lacking or self.n_failures > 6
        waited = waited and at >= self.last_crawl + 16 * 1440
        away = self.gone or lacking
        if away and at > self.last_crawl and (self.observability == 1 or waited):
            return True, "may_be_back"
        if self.observability != 1:
            return False, "not_trusted"
        if at <= self.last_crawl:
            return False, "crawled_since"
        if self.probability is None:
            return True, "unscheduled"
        self.credit += self.probability
        whole = self.credit >= 1 - 1e-9
        self.credit = max(0.0, self.credit - whole)
        return whole, "credit" if whole else "saving"


positions = st.integers(0, UNKNOWN_PAGE)
minutes = st.integers(-1000, 140) | st.integers(0, 12)
crawls = st.tuples(
    positions,
    minutes,
    st.sampled_from([-1, -1, 0, 1]),
    st.sampled_from([0, 1, 2, -(2**63), 2**63 - 1]),
    st.sampled_from([-1, -1, 0, 200, 204, 301, 304, 400, 403, 404, 404, 410, 500]),
)
redirects = st.tuples(
    positions,
    minutes,
    st.sampled_from([-1, 1]),
    st.sampled_from([0, 3]),
    st.sampled_from([300, 301, 302, 303, 307, 308]),
    positions,
)
crawls = crawls | redirects
pings = st.tuples(positions, minutes | st.integers(16 * 1440 - 2, 17 * 1440))
batches = st.lists(
    st.tuples(st.just("crawls"), st.lists(crawls, max_size=12))
    | st.tuples(st.just("pings"), st.lists(pings, max_size=12)),
    max_size=8,
)


def rules():
    return Rules(Gamma(), Timing.periodic, np.random.default_rng(0))


def new_store(store=None):
    """A store with four pages of every kind, three of them scheduled."""
    store = store or MemoryStore(2)
    with store.begin() as tx:
        ids = tx.register(page_columns(urls(4), observability=OBSERVABILITY), T0).page_id
    scheduled = [i for i, p in zip(ids, PROBABILITY, strict=True) if p is not None]
    probability = [p for p in PROBABILITY if p is not None]
    order = np.argsort(scheduled)
    publish(
        store,
        schedule_columns(
            np.array(scheduled)[order], crawl_probability=np.array(probability)[order]
        ),
    )
    return store, np.append(ids, 10**6)


def apply(store, ids, kind, items):
    """Give the verdicts, and for pings whether and why to crawl."""
    page_id = ids[[item[0] for item in items]] if items else np.zeros(0, np.int64)
    at = instants([T0 + item[1] * MINUTE for item in items])
    with store.begin() as tx:
        if kind == "pings":
            answer = ping(tx, ping_columns(page_id, at), rules())
            return list(zip(answer.verdict, answer.crawl, answer.reason, strict=True))
        told = [list(column) for column in zip(*(item[2:5] for item in items), strict=True)]
        changed, digest, status = told or ([], [], [])
        targets = [item[5] if len(item) > 5 else None for item in items]
        away = [-1 if to == UNKNOWN_PAGE else 0 if to is None else ids[to] for to in targets]
        given = crawl_columns(page_id, at, changed, digest, status, away)
        return record(tx, given, rules()).verdict.tolist()


def apply_to_model(model, kind, items):
    """One by one: a page's items in the order of their time, those of one instant as given."""
    answers = [None] * len(items)
    for i in sorted(range(len(items)), key=lambda i: items[i][1]):
        position, *item = items[i]
        if position == UNKNOWN_PAGE:
            unknown = ItemVerdict.unknown
            answers[i] = (unknown, False, "unknown_page") if kind == "pings" else unknown
        elif kind == "pings":
            answers[i] = model[position].ping(*item)
        else:
            answers[i] = model[position].crawl(*item)
    return answers


def assert_equal_to_model(store, ids, model):
    for page_id, page in zip(ids, model, strict=False):
        state = states_of(store, [page_id])

        def when(value):
            return np.datetime64("NaT", "us") if value is None else instants(T0 + value * MINUTE)

        for name, expected in (
            ("last_crawl_at", page.last_crawl),
            ("last_observed_at", page.last_observed),
            ("last_ping_at", page.last_ping),
            ("requested_at", page.wanted),
            ("renewed_at", page.renewed),
        ):
            np.testing.assert_array_equal(getattr(state, name)[0], when(expected), name)
        assert state.digest.tolist() == [page.digest]
        assert state.gone.tolist() == [page.gone]
        assert state.n_failures.tolist() == [page.n_failures]
        target = 0 if page.redirects_to is None else ids[page.redirects_to]
        assert state.redirects_to.tolist() == [target]
        counts = (state.n_observations[0], state.n_changes[0], state.n_pings[0])
        assert counts == (page.n_observations, page.n_changes, page.n_pings)
        np.testing.assert_allclose(state.ping_credit[0], page.credit, atol=1e-12)
        if page.estimate is not None:
            np.testing.assert_allclose(state.estimate[0], page.estimate, rtol=1e-10, atol=1e-15)
        with store.begin(write=False) as tx:
            entries = tx.page_log(int(page_id), 1000)
        found = [
            ((e.observed_at - T0) // MINUTE, int(e.kind), e.changed, e.interval, e.status)
            for e in entries[::-1]
        ]
        expected = sorted(page.log, key=lambda entry: entry[:2])
        assert [e[:3] + e[4:] for e in found] == [e[:3] + e[4:] for e in expected]
        for entry, other in zip(found, expected, strict=True):
            assert entry[3] == (None if other[3] is None else pytest.approx(other[3], rel=1e-14))


@pytest.mark.dear
@settings(max_examples=examples(40, 150))
@given(batches=batches)
def test_any_batches_do_what_the_model_does_item_by_item(batches):
    store, ids = new_store()
    model = [PageModel(o, p) for o, p in zip(OBSERVABILITY, PROBABILITY, strict=True)]
    for kind, items in batches:
        answers = apply(store, ids, kind, items)
        assert [_plain(a) for a in answers] == [
            _plain(a) for a in apply_to_model(model, kind, items)
        ]
    assert_equal_to_model(store, ids, model)


def _plain(answer):
    if isinstance(answer, tuple):
        verdict, crawl, reason = answer
        return int(verdict), bool(crawl), str(reason)
    return int(answer)


@pytest.mark.dear
@settings(max_examples=examples(25, 80))
@given(batches=batches, data=st.data())
def test_any_batch_sent_again_at_any_later_time_changes_nothing(batches, data):
    store, ids = new_store()
    for i, (kind, items) in enumerate(batches):
        apply(store, ids, kind, items)
        before = states_of(store, ids)
        again, old = batches[data.draw(st.integers(0, i))]
        answers = apply(store, ids, again, data.draw(st.permutations(old)))
        verdicts = {answer[0] if isinstance(answer, tuple) else answer for answer in answers}
        assert ItemVerdict.accepted not in verdicts
        same(states_of(store, ids), before)


@settings(max_examples=examples(25, 80))
@given(newer=st.lists(crawls, min_size=1), older=st.lists(crawls))
def test_two_batches_in_the_wrong_order_leave_what_the_newer_one_made(newer, older):
    store, ids = new_store()
    apply(store, ids, "crawls", newer)
    before = states_of(store, ids)
    first = min(item[1] for item in newer)
    pages = {item[0] for item in newer}
    late = [(item[0], first - abs(item[1]) - 1, *item[2:]) for item in older if item[0] in pages]
    verdicts = apply(store, ids, "crawls", late)
    assert set(verdicts) <= {ItemVerdict.late, ItemVerdict.unknown}
    same(states_of(store, ids), before)


@settings(max_examples=examples(20, 60))
@given(batches=batches)
def test_rebuilding_from_the_log_gives_any_states_again(batches):
    store, ids = new_store()
    for kind, items in batches:
        apply(store, ids, kind, items)
    unpinged = ids[[0, 1, 3]]  # of an auto page the log does not tell which ping came late
    before = states_of(store, unpinged).estimate
    assert sum(rebuild(store, rules(), block=3)) == 4
    np.testing.assert_allclose(states_of(store, unpinged).estimate, before, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("seed", range(3))
def test_every_store_does_what_the_model_does(store, seed):
    rng = np.random.default_rng(seed)
    opened, ids = new_store(store)
    model = [PageModel(o, p) for o, p in zip(OBSERVABILITY, PROBABILITY, strict=True)]
    for _ in range(12):
        n = int(rng.integers(0, 25))
        where, at = rng.integers(0, 5, n).tolist(), rng.integers(-50, 400, n).tolist()
        if rng.random() < 0.4:
            kind, items = "pings", list(zip(where, at, strict=True))
        else:
            kind = "crawls"
            changed = rng.choice([-1, -1, 0, 1], n).tolist()
            digest = rng.choice([0, 1, 2, -5], n).tolist()
            status = rng.choice([-1, 200, 304, 404, 500], n).tolist()
            items = list(zip(where, at, changed, digest, status, strict=True))
            moved = [(p, m + 7, 1, 3, 301 + m % 2, (p + 1) % 5) for p, m, *_ in items[::4]]
            items += moved
        answers = [_plain(a) for a in apply(opened, ids, kind, items)]
        assert answers == [_plain(a) for a in apply_to_model(model, kind, items)]
    assert_equal_to_model(opened, ids, model)
