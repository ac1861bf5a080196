"""Commits ring for topics, so that idle processes need not ask."""

from contextlib import closing, suppress
from datetime import UTC, datetime

import pytest
from support.live_server import until
from support.store_cases import T0, columns, publish, register, schedule_columns

from service.events.watching import FeedWatch
from service.model.access import ApiKey, Role
from service.model.changes import ChangeColumns, ChangeKind
from service.storage import open_store
from service.storage.topics import Topic

KEY = ApiKey("0a1b2c3d4e", bytes(range(32)), "fleet", Role.crawl, T0)


def changed(tx, page_id):
    """Append a change to the feed."""
    fields = {"changed_after": [None], "digest": 0, "last_modified": [None], "moved_to": 0}
    one = columns(
        ChangeColumns, 1, page_id=page_id, observed_at=T0, kind=ChangeKind.changed, **fields
    )
    tx.append_changes(one)


def order(tx):
    tx.order_pause(datetime(2030, 1, 1, tzinfo=UTC))


def rings_of(store):
    return {topic: store.rings(topic) for topic in Topic}


@pytest.fixture
def listening(sql_store):
    """A store of another process on Postgres, or the same one on SQLite, which listens."""
    if sql_store.embedded:
        yield sql_store
        return
    with closing(open_store(sql_store.url, 2)) as other:
        until(lambda: other.rings(Topic.keys), "it listens")
        yield other


def rung_by(listening, act) -> set[Topic]:
    """Return the topics that ring by an act, which rings for one at least."""
    before = rings_of(listening)
    act()
    until(lambda: rings_of(listening) != before, "it rings")
    return {topic for topic, n in rings_of(listening).items() if n != before[topic]}


def test_webhooks_keys_orders_and_epochs_ring_each_for_its_own_topic(sql_store, listening):
    page_id = register(sql_store, 2)

    def act(write, *arguments):
        def run():
            with sql_store.begin() as tx:
                write(tx, *arguments)

        return run

    assert rung_by(listening, act(lambda tx: tx.ring(Topic.webhooks))) == {Topic.webhooks}
    assert rung_by(listening, act(lambda tx: tx.add_key(KEY))) == {Topic.keys}
    assert rung_by(listening, act(order)) == {Topic.orders}
    published = rung_by(listening, lambda: publish(sql_store, schedule_columns(page_id)))
    assert published == {Topic.orders}


def test_what_is_rolled_back_rings_for_nothing(sql_store, listening):
    (page_id,) = register(sql_store, 1)
    before = rings_of(listening)
    with suppress(ZeroDivisionError), sql_store.begin() as tx:
        order(tx)
        changed(tx, int(page_id))
        raise ZeroDivisionError
    with sql_store.begin() as tx:
        tx.add_key(KEY)  # notifications arrive in the order of the commits
    until(lambda: rings_of(listening) != before, "the key rings")
    assert rings_of(listening) == before | {Topic.keys: before[Topic.keys] + 1}


def test_a_lost_connection_is_opened_again_and_rings_for_everything(postgres_store):
    listening = postgres_store
    until(lambda: listening.rings(Topic.keys), "it listens")
    before = rings_of(listening)
    with postgres_store.begin(write=False) as tx:
        tx.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'LISTEN%%'"
        )
    until(lambda: all(rings_of(listening)[t] > before[t] for t in Topic), "it listens again")
    with postgres_store.begin() as tx:
        order(tx)
    rung = rings_of(listening)[Topic.orders]
    until(lambda: rings_of(listening)[Topic.orders] >= max(rung, 3), "it hears the order")


def test_a_watch_of_the_feed_asks_at_each_look_while_somebody_waits(sql_store):
    (page_id,) = register(sql_store, 1)
    watch = FeedWatch(sql_store)
    with sql_store.begin() as tx:
        changed(tx, int(page_id))
    watch.look()
    assert watch.newest == 0
    watch.n_waiting = 1
    watch.look()
    assert watch.newest > 0


def test_a_change_of_the_feed_rings_for_nothing(sql_store, listening):
    (page_id,) = register(sql_store, 1)
    before = rings_of(listening)
    with sql_store.begin() as tx:
        changed(tx, int(page_id))
    with sql_store.begin() as tx:
        tx.add_key(KEY)  # notifications arrive in the order of the commits
    until(lambda: rings_of(listening) != before, "the key rings")
    assert rings_of(listening) == before | {Topic.keys: before[Topic.keys] + 1}
