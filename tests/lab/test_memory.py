"""What the store in memory promises beyond the contract: growth, and rollbacks at any point."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.examples import examples
from support.store_cases import (
    CERTIFICATE,
    DAY,
    EVERYTHING,
    T0,
    log_columns,
    page_columns,
    publish,
    register,
    schedule_columns,
    urls,
)

from recrawl_lab.memory import evidence
from recrawl_lab.memory.growing import GrowingTable
from recrawl_lab.memory.store import MemoryStore
from service.leases.due import due_at, next_crawl_at
from service.model.arrays import instant
from service.model.calendars import Calendars, HourRules
from service.model.domain import Observability, PagePatch
from service.model.errors import LeadershipLost, PageNotFound


def test_a_table_grows_by_doubling_and_keeps_what_it_has():
    table = GrowingTable({"a": np.float64, "b": object}, a=(2,))
    sizes = set()
    for i in range(100):
        table.append([], 1, a=float(i), b=f"row {i}")
        sizes.add(len(table.columns["a"]))
    assert table["a"].tolist() == [[i, i] for i in range(100)]
    assert table["b"].tolist() == [f"row {i}" for i in range(100)]
    assert len(sizes) < 10


def test_what_is_undone_leaves_no_trace_in_rows_added_later():
    table, undo = GrowingTable({"a": np.float64, "b": np.float64}), []
    table.append(undo, 3, a=1.0, b=2.0)
    table.put(undo, np.array([0, 2]), a=7.0)
    while undo:
        undo.pop()()
    assert table.n == 0
    table.append([], 3, a=5.0)
    assert (table["a"].tolist(), table["b"].tolist()) == ([5.0] * 3, [0.0] * 3)


def test_a_rollback_notes_only_what_was_touched():
    store = MemoryStore(2)
    ids = register(store, 5_000)
    with store.begin() as tx:
        tx.save_states(tx.lock_states(ids[:3]))
        noted = [note.args for note in tx.undo]
    assert noted
    assert all(len(value) == 3 for _, _, value in noted)


def test_a_lead_that_was_given_back_leads_no_more():
    store = MemoryStore(2)
    with store.lead() as lead:
        pass
    with pytest.raises(LeadershipLost), lead.begin():
        pass


def contents(store):
    """Everything a caller can read."""
    with store.begin() as tx:
        ids = tx.next_page_ids(0, 1000)
        epochs = tx.epochs(None, 1000)
        kept = [e.epoch for e in epochs if e.epoch in store.schedules]
        return (
            [tx.page(i) for i in ids.tolist()],
            [tx.page_log(i, 1000) for i in ids.tolist()],
            epochs,
            [tx.schedule(epoch, 0, 1000, EVERYTHING).pages.page_id.tolist() for epoch in kept],
            tx.lock_states(ids).digest.tolist(),
            tx.page_ids(page_columns(urls(12)).key).tolist(),
            tx.estimator(),
        )


def take(tx, *steps):
    for step in steps:
        step(tx)


class AnyTransaction(RuleBasedStateMachine):
    """Random steps, each done twice: first in a transaction that fails, then in one that stays.

    The failed one must change nothing, and the same step must then do what it does in a store
    that has never seen a failure.
    """

    def __init__(self):
        super().__init__()
        self.store, self.sound = MemoryStore(2), MemoryStore(2)

    def both(self, *steps):
        before = contents(self.store)
        with pytest.raises((ZeroDivisionError, PageNotFound)), self.store.begin() as tx:
            take(tx, *steps, lambda _: 1 / 0)
        assert contents(self.store) == before
        for store in (self.store, self.sound):
            try:
                with store.begin() as tx:
                    take(tx, *steps)
            except PageNotFound:
                assert contents(self.store) == before

    numbers = st.lists(st.integers(0, 11), min_size=1, max_size=6, unique=True)

    @rule(
        which=numbers, kind=st.sampled_from([-1, 0, 1, 2]), importance=st.sampled_from([1.0, 3.0])
    )
    def register(self, which, kind, importance):
        new = page_columns(
            np.array(urls(12))[which].tolist(), observability=kind, importance=importance
        )
        self.both(
            lambda tx: tx.register(new, T0),
            lambda tx: tx.register(new, T0 + DAY),
        )

    @rule(page_id=st.integers(1, 14))
    def delete(self, page_id):
        self.both(lambda tx: tx.delete_page(page_id))

    @rule(page_id=st.integers(1, 14))
    def patch(self, page_id):
        patch = PagePatch(
            observability=Observability.complete, cleared=frozenset(["max_crawl_rate"])
        )
        self.both(lambda tx: tx.change_page(page_id, patch, T0 + 2 * DAY))

    @rule(page_id=st.integers(1, 14), hours=st.integers(0, 50))
    def observe(self, page_id, hours):
        def step(tx):
            states = tx.lock_states(np.array([page_id]))
            states.digest[:] += 1
            states.n_pings[:] += 3
            states.last_crawl_at[:] = np.datetime64("2026-05-02", "us")
            tx.save_states(states)
            tx.append_log(log_columns(states.page_id, T0 + hours * DAY / 24))

        self.both(step, step)

    @rule(rate=st.sampled_from([0.0, 1.0, 2.0]))
    def publish(self, rate):
        def step(tx):
            epoch = tx.start_epoch(T0).epoch
            tx.write_schedule(epoch, schedule_columns(tx.load_columns().page_id, crawl_rate=rate))
            tx.publish(epoch, CERTIFICATE, T0)

        self.both(step, lambda tx: tx.request_epoch(T0), lambda tx: tx.set_estimator("gamma"))

    @rule(age=st.integers(0, 50))
    def keep_house(self, age):
        self.both(lambda tx: tx.housekeep(T0 + age * DAY / 24, T0))

    @invariant()
    def nothing_of_the_failures_is_left(self):
        assert contents(self.store) == contents(self.sound)


TestAnyTransaction = AnyTransaction.TestCase
TestAnyTransaction.settings = settings(
    max_examples=examples(8, 25), stateful_step_count=15, deadline=None
)


def same_evidence(tx, ids):
    """Compare the evidence that is kept in order with that read off the log itself."""
    kept, log = tx.evidence_of(ids), tx.log_of(ids)
    log = log.take(~np.isnan(log.interval))
    for name in ("page_id", "interval", "changed"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(log, name))
    return len(log)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
def test_evidence_kept_in_order_is_that_of_the_log_whatever_happens_to_it(seed, monkeypatch):
    """Appends in time and late, deletions, retention and rollbacks, read now and then."""
    monkeypatch.setattr(evidence, "PART", 8)
    rng, store = np.random.default_rng(seed), MemoryStore(2)
    ids, hour, largest = register(store, 40), 0, 0

    def append(tx):
        nonlocal hour
        alive = tx.next_page_ids(0, 100)
        n = rng.integers(1, 6)
        late = rng.integers(0, 40) if rng.random() < 0.1 else 0
        hours = hour + np.arange(n) - late + rng.random() / 2  # no two at a time
        hour += n
        at = [T0 + h * DAY / 24 for h in hours.tolist()]
        interval = np.where(rng.random(n) < 0.2, np.nan, 1.0 + rng.random(n))
        changed = rng.integers(0, 2, n)
        tx.append_log(log_columns(rng.choice(alive, n), at, interval=interval, changed=changed))

    def delete(tx):
        tx.delete_page(int(rng.choice(tx.next_page_ids(0, 100))))

    def keep_house(tx):
        tx.housekeep(T0 + (hour - 60) * DAY / 24, T0)

    for _ in range(300):
        step = rng.choice([append, keep_house, delete], p=[0.85, 0.1, 0.05])
        if store.pages["alive"].sum() < 10:
            step = append
        fails = rng.random() < 0.2
        try:
            with store.begin() as tx:
                step(tx)
                if rng.random() < 0.5:
                    same_evidence(tx, ids)
                assert 1 / (not fails)
        except ZeroDivisionError:
            assert fails
        with store.begin(write=False) as tx:
            if rng.random() < 0.5:
                some = np.sort(rng.choice(ids, rng.integers(0, 40), replace=False))
                largest = max(largest, same_evidence(tx, some), same_evidence(tx, ids))
    assert largest > 40


def test_evidence_that_came_while_as_much_went_is_forgotten_by_a_rollback():
    store = MemoryStore(2)
    ids = register(store, 3)

    def append(tx, hours):
        at = [T0 + hour * DAY / 24 for hour in hours]
        tx.append_log(log_columns(ids, at, interval=[float(hour) for hour in hours], changed=1))

    with store.begin() as tx:
        append(tx, (1, 2, 3))
        assert same_evidence(tx, ids) == 3
    with suppress(ZeroDivisionError), store.begin() as tx:
        tx.housekeep(T0 + DAY, T0)
        append(tx, (30, 31, 32))
        assert same_evidence(tx, ids) == 3
        assert 1 / 0
    with store.begin() as tx:
        assert same_evidence(tx, ids) == 3
        tx.housekeep(T0 + DAY, T0)
        append(tx, (40, 41, 42))
        assert same_evidence(tx, ids) == 3


def test_many_pages_are_deleted_without_a_copy_of_the_log_for_each():
    store = MemoryStore(2)
    ids = register(store, 400)
    with store.begin() as tx:
        tx.append_log(log_columns(np.tile(ids, 50), T0))
        columns = dict(store.log.columns)
        for page_id in ids[::2].tolist():
            tx.delete_page(page_id)
        assert all(store.log.columns[name] is column for name, column in columns.items())
    with store.begin() as tx:
        assert tx.log_of(ids).page_id.tolist() == np.repeat(ids[1::2], 50).tolist()


def test_a_hundred_thousand_pages_are_handled_as_arrays():
    """Counts calls of Python functions: none of them may be made for each page."""
    import sys

    store = MemoryStore(2)
    n = 20_000
    ids = register(store, n)
    publish(store, schedule_columns(ids))
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        with store.begin() as tx:
            tx.save_states(tx.lock_states(ids))
            tx.append_log(log_columns(ids, T0))
            tx.load_columns()
            tx.next_page_ids(0, n)
            tx.log_of(ids)
            epoch = tx.epoch_in_force().epoch
            tx.schedule(epoch, 0, 10, EVERYTHING)
    finally:
        sys.setprofile(None)
    assert calls < 2_000


def test_what_the_store_in_memory_lacks_is_refused_by_name():
    store = MemoryStore(2)
    assert not store.has_queue
    with store.begin() as tx:
        for refused in (tx.next_ready_at, tx.filled, lambda: tx.host("a.example")):
            with pytest.raises(NotImplementedError, match="has_queue"):
                refused()
        with pytest.raises(NotImplementedError, match="`subscription`"):
            tx.subscription("x")


def test_pages_are_due_in_the_open_time_of_the_calendars_and_hosts_have_no_delays():
    store = MemoryStore(2)
    ids = register(store, 3)
    publish(store, schedule_columns(ids, crawl_rate=np.array([1.0, 0.5, 6.0])))
    store.clock, store.calendars = (lambda: T0), Calendars(HourRules(("22:00-06:00 UTC",)))
    with store.begin() as tx:
        states = tx.lock_states(ids)
        states.last_crawl_at[:] = instant(T0)
        tx.save_states(states)
        columns, hours = tx.due_columns(ids), tx.page(int(ids[0])).hours
        due = due_at(columns)
        assert (hours.opening(due) == due).all()
        assert due[0] == hours.due(np.array([instant(T0)]), np.array([1.0]))[0]
        assert instant(next_crawl_at(tx.page(int(ids[0])))) == due[0]
        delays = tx.host_delays(states.host_id)
        assert delays.queue_id.tolist() == delays.host_id.tolist() == [int(states.host_id[0])]
        assert np.isnan(delays.min_delay_s).all()
