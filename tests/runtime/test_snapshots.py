"""The age of the oldest snapshot, for which Postgres keeps old versions of the queue's rows."""

from contextlib import closing
from datetime import timedelta

import psycopg
import pytest

from service.runtime.database_metrics import DatabaseCollector


def age(store, now):
    collector = DatabaseCollector(store, now)
    collector.read()
    samples = {s.name: s.value for metric in collector.collect() for s in metric.samples}
    return samples["recrawl_oldest_snapshot_seconds"]


@pytest.fixture
def session(postgres_url):
    with closing(psycopg.connect(postgres_url)) as session:
        yield session


def test_a_snapshot_that_is_held_shows_with_its_age(postgres_store, session):
    def in_an_hour():
        return postgres_store.database_clock() + timedelta(hours=1)

    assert postgres_store.check_ready() == ()
    session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    (began,) = session.execute("SELECT now()").fetchone()
    with postgres_store.begin(write=False) as tx:
        assert tx.oldest_snapshot() == began
    assert age(postgres_store, in_an_hour) >= 3_600
    session.rollback()
    with postgres_store.begin(write=False) as tx:
        assert tx.oldest_snapshot() != began


def test_a_session_between_two_statements_holds_none(postgres_store, session):
    (began,) = session.execute("SELECT now()").fetchone()
    with postgres_store.begin(write=False) as tx:
        assert tx.oldest_snapshot() != began


def test_a_file_holds_none(sqlite_store):
    assert age(sqlite_store, sqlite_store.clock) == 0.0
