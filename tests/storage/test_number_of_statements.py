"""The number of statements does not grow with the number of pages."""

import numpy as np
import psycopg
import pytest
from support.store_cases import (
    CERTIFICATE,
    EVERYTHING,
    T0,
    log_columns,
    page_columns,
    schedule_columns,
    urls,
)

from service.storage.postgres.statements import Statements


def run_most_statements(tx, n):
    """Register n pages, observe them, run an epoch and read its schedule."""
    ids = np.sort(tx.register(page_columns(urls(n, f"{n}.example")), T0).page_id)
    tx.register(page_columns(urls(n, f"{n}.example"), observability=1), T0)
    tx.save_states(tx.lock_states(ids))
    tx.append_log(log_columns(ids, T0))
    tx.log_of(ids)
    epoch = tx.start_epoch(T0).epoch
    tx.write_schedule(epoch, schedule_columns(tx.load_columns().page_id))
    tx.publish(epoch, CERTIFICATE, T0)
    tx.schedule(epoch, 0, n, EVERYTHING)
    tx.next_page_ids(0, n)


@pytest.mark.dear
def test_the_number_of_statements_does_not_grow_with_the_number_of_pages(
    postgres_store, monkeypatch
):
    sent = []
    ways = [(psycopg.Cursor, name) for name in ("execute", "executemany", "copy")]
    for way, name in (*ways, (Statements, "later")):
        plain = getattr(way, name)

        def counted(sender, *args, plain=plain, **kwargs):
            sent.append(args)
            return plain(sender, *args, **kwargs)

        monkeypatch.setattr(way, name, counted)

    def work(n):
        sent.clear()
        with postgres_store.begin() as tx:
            run_most_statements(tx, n)
        return len(sent)

    work(1)
    assert work(300) == work(3_000)


def test_a_report_on_postgres_begins_with_one_question(postgres_store):
    """It has the fence, the epoch and the wait for locks."""
    with postgres_store.begin() as tx:
        tx.hurry()
        tx.ask_epoch()
        tx.ask_waiting(np.array([1]))
        assert len(tx.statements.put_off) == 1
        assert tx.number_in_force() == 0
        assert not tx.statements.put_off


@pytest.mark.dear
def test_sqlite_steps_through_no_statement_for_each_page_but_the_prepared_writes(sqlite_store):
    calls = []

    def work(n):
        calls.clear()
        with sqlite_store.begin() as tx:
            run, run_many = tx.run, tx.run_many
            tx.run = lambda *a, **named: calls.append(a[0]) or run(*a, **named)
            tx.run_many = lambda *a: calls.append(a[0]) or run_many(*a)
            run_most_statements(tx, n)
        return len(calls)

    work(1)
    assert work(300) == work(3_000)
