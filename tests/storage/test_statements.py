"""Statements over libpq: what is put off keeps its place, and is committed or not with the rest."""

from contextlib import contextmanager

import psycopg
import pytest
from support.store_cases import T0, log_columns, register, save

from service.model.errors import TablesChanged

ADD = "INSERT INTO meta (name, value) VALUES (%(name)s, %(value)s)"
COUNT = "SELECT count(*) FROM meta WHERE name = %(name)s"
DIVIDE = "SELECT 1 / %(by)s"


def add(tx, name):
    return tx.later(ADD, name=name, value="")


def count(tx, name):
    return tx.scalar(COUNT, name=name)


def kept(store, name):
    with store.begin(write=False) as tx:
        return count(tx, name)


@contextmanager
def waits(monkeypatch):
    """Count how often the driver waits for the server."""
    waited = []
    plain = psycopg.Connection.wait

    def wait(driver, *args, **kwargs):
        if driver.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
            waited.append(args)
        return plain(driver, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(psycopg.Connection, "wait", wait)
        yield waited


def test_what_is_put_off_is_run_before_what_comes_next(postgres_store):
    with postgres_store.begin() as tx:
        added = [add(tx, "a"), add(tx, "b")]
        assert (count(tx, "a"), count(tx, "b")) == (1, 1)
        assert [rows.rowcount for rows in added] == [1, 1]
        add(tx, "c")
        assert tx.read("SELECT name FROM meta WHERE name = 'c'") == [{"name": "c"}]
        add(tx, "d")
        copied = "COPY (SELECT name FROM meta WHERE name = 'd') TO STDOUT"
        with tx.driver.cursor().copy(copied) as copy:
            assert list(copy.rows()) == [("d",)]
        assert add(tx, "e").rowcount == 1
    assert [kept(postgres_store, name) for name in "abcde"] == [1] * 5


def test_a_server_that_shuts_down_after_it_has_parsed_is_an_outage(postgres_store, monkeypatch):
    status = psycopg.pq.ExecStatus

    def wait(driver, _):
        make = driver.pgconn.make_empty_result
        return [make(status.COMMAND_OK), make(status.FATAL_ERROR)]

    with postgres_store.begin() as tx:
        count(tx, "a")  # asks for the epoch first
        with monkeypatch.context() as patched:
            patched.setattr(psycopg.Connection, "wait", wait)
            with pytest.raises(psycopg.Error):
                tx.scalar("SELECT 3")


def test_what_is_put_off_to_the_end_is_committed(postgres_store):
    with postgres_store.begin() as tx:
        add(tx, "a")
    with postgres_store.lead() as lead, lead.begin() as tx:
        add(tx, "b")
    assert (kept(postgres_store, "a"), kept(postgres_store, "b")) == (1, 1)


def test_nothing_is_committed_where_something_put_off_fails(postgres_store):
    def fail():
        with postgres_store.begin() as tx:
            tx.run(ADD, name="a", value="")
            add(tx, "b")
            tx.later(DIVIDE, by=0)
            add(tx, "c")

    for _ in range(3):  # the connection serves again
        with pytest.raises(psycopg.errors.DivisionByZero):
            fail()
        assert [kept(postgres_store, name) for name in "abc"] == [0, 0, 0]
    with postgres_store.begin() as tx:
        add(tx, "a")
    assert kept(postgres_store, "a") == 1


def test_the_first_failure_is_told_and_ends_what_comes_after(postgres_store):
    def go_on(first):
        with postgres_store.begin() as tx:
            first(tx)
            count(tx, "a")

    def swallow(tx):
        with pytest.raises(psycopg.errors.DivisionByZero):
            tx.run(DIVIDE, by=0)

    with pytest.raises(psycopg.errors.DivisionByZero):
        go_on(lambda tx: tx.later(DIVIDE, by=0))
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        go_on(swallow)


def test_a_transaction_that_is_rolled_back_leaves_nothing_to_the_next(postgres_store):
    put_off = []

    def give_up():
        with postgres_store.begin() as tx:
            put_off.append(add(tx, "a"))
            raise KeyError

    with pytest.raises(KeyError):
        give_up()
    with pytest.raises(psycopg.ProgrammingError):
        list(put_off[0])
    with postgres_store.begin() as tx:
        assert count(tx, "a") == 0
    assert kept(postgres_store, "a") == 0


def test_the_database_is_waited_for_as_seldom_as_can_be(postgres_store, monkeypatch):
    ids = register(postgres_store, 2)
    save(postgres_store, ids[:1], interval_factor=2.0)  # its statements are parsed

    def write():
        with postgres_store.begin() as tx:
            states = tx.lock_states(ids)
            tx.number_in_force()
            tx.append_log(log_columns(ids, T0))
            tx.save_states(states)

    write()
    with waits(monkeypatch) as waited:
        write()
    assert len(waited) == 2  # to lock and ask; to write and commit


SCANNED = """
SELECT relname, seq_tup_read FROM pg_stat_user_tables
WHERE relname IN ('hosts', 'pages', 'page_states') ORDER BY relname
"""


def scanned(store):
    """Give the rows that sequential scans have read so far."""
    with store.begin(write=False) as tx:
        tx.run("SELECT pg_stat_force_next_flush()")
    with store.begin(write=False) as tx:
        return tx.read(SCANNED)


def test_plans_of_empty_tables_scan_no_table_that_has_grown(postgres_store):
    """Nobody analyzes the tables meanwhile, as in the first minute of a service."""
    save(postgres_store, register(postgres_store, 2), n_changes=1)
    page_id = register(postgres_store, 3_000)
    before = scanned(postgres_store)
    for n in range(3):
        save(postgres_store, page_id[:500], n_changes=n)
        register(postgres_store, 500)
    assert scanned(postgres_store) == before


RETYPE = "ALTER TABLE meta ALTER value TYPE {}"
READ = "SELECT value FROM meta WHERE name = %(name)s"


@contextmanager
def retyped(url):
    """Change the type of a column, as an operator may, and change it back after the block."""
    with psycopg.connect(url, autocommit=True) as operator:
        operator.execute(RETYPE.format("varchar(400)"))
        try:
            yield
        finally:
            operator.execute(RETYPE.format("text"))


@pytest.mark.parametrize("write", [False, True])
def test_a_statement_is_parsed_again_after_a_column_has_another_type(postgres_store, write):
    def read():
        with postgres_store.begin(write=write) as tx:
            add_to = tx.later(COUNT, name="b")
            found = [row["value"] for row in tx.read(READ, name="a")]
            assert [count for (count,) in add_to] == [0]
            return found

    with postgres_store.begin() as tx:
        add(tx, "a")
    assert read() == [""]
    with retyped(postgres_store.url):
        assert [read(), read()] == [[""], [""]]
    assert read() == [""]


def test_a_transaction_under_way_is_rolled_back_and_the_next_one_succeeds(postgres_store):
    with postgres_store.begin() as tx:
        add(tx, "a")
    with postgres_store.begin(write=False) as tx:
        tx.read(READ, name="a")

    def add_and_read():
        with postgres_store.begin() as tx:
            tx.run(ADD, name="b", value="")
            return tx.read(READ, name="a")

    with retyped(postgres_store.url):
        with pytest.raises(TablesChanged):
            add_and_read()
        assert kept(postgres_store, "b") == 0
        assert add_and_read() == [{"value": ""}]
    assert kept(postgres_store, "b") == 1


def test_one_connection_that_meets_a_change_is_enough_for_all(postgres_store):
    def read(tx):
        return tx.read(READ, name="a")

    with postgres_store.begin(write=False) as one, postgres_store.begin(write=False) as two:
        assert read(one) == read(two) == []
    with retyped(postgres_store.url), postgres_store.begin(write=False) as one:
        read(one)
        with postgres_store.begin() as two:
            two.run(ADD, name="b", value="")
            assert read(two) == []
