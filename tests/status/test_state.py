"""The state is read from every kind of store."""

from datetime import timedelta

from support.store_cases import T0, publish, register, schedule_columns

from service.budget.allotments import Terms
from service.core.estimators.gamma import Gamma
from service.status import counts
from service.status.asked import LastAsked
from service.status.counts import CountedBy
from service.status.state import StateReader
from service.storage.queue.signs import LEASES


def test_pages_of_every_store_are_counted_and_its_needs_judged(queue_store, monkeypatch):
    queue_store.clock = lambda: T0 + timedelta(hours=1)
    ids = [register(queue_store, 3, host=f"{name}.example") for name in "ab"]
    reader = StateReader(
        queue_store,
        Gamma(),
        timedelta(minutes=10),
        lambda: Terms(10.0),
        LastAsked(queue_store),
    )
    state = reader.read()
    assert (state.pages.by, state.pages.n_pages, state.pages.n_gone) == (CountedBy.now, 6, 0)
    assert state.pages.gauges.n_never_crawled == 6
    assert [(need.kind, need.since) for need in state.needs] == [("epoch_late", T0)]
    publish(queue_store, schedule_columns(ids[0]), now=T0 + timedelta(hours=1))
    assert reader.needs() == []
    assert reader.read().in_force is not None
    monkeypatch.setattr(counts, "MOST_COUNTED", 5)
    assert reader.read().pages.by is CountedBy.ids


def test_the_sign_of_one_server_is_read_by_another(queue_store):
    one, other = LastAsked(queue_store), LastAsked(queue_store)
    one.note(LEASES, T0, 30.0)
    for thread in one.writing:
        thread.join()
    with queue_store.begin(write=False) as tx:
        assert other.leases(tx) == one.leases(tx) == (T0, T0 + timedelta(seconds=30))
        assert other.schedule(tx) is None
