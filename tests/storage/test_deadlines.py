"""Waits for Postgres end: by silence, by the server's own limits, and with the process."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from support.live_server import until
from support.store_cases import T0, page_columns, register, urls

from service.model.errors import StoreUnavailable
from service.storage.postgres.connections import Deadlines, Silence, request_deadlines
from service.storage.stores.postgres import PostgresStore

pytestmark = pytest.mark.dear

QUIET = Deadlines(statement_s=0, lock_s=0, silence_s=0.3)
"""The client's limit alone."""
SLEEP = "SELECT pg_sleep(%(seconds)s)"
COPY = "COPY (SELECT i, pg_sleep(60) FROM generate_series(1, 3) AS i) TO STDOUT (FORMAT BINARY)"


@pytest.fixture
def opened(postgres_url):
    """Opens a store with these limits; it is closed after the test."""
    stores = []

    def with_limits(deadlines):
        stores.append(PostgresStore(postgres_url, 2, deadlines=deadlines))
        return stores[-1]

    yield with_limits
    for store in stores:
        store.close()


def sleep(store, seconds: float, *, write: bool = True) -> None:
    with store.begin(write=write) as tx:
        tx.run(SLEEP, seconds=float(seconds))


WAITS = {
    "our own statements": lambda tx: tx.run(SLEEP, seconds=60.0),
    "those put off": lambda tx: tx.later(SLEEP, seconds=60.0),
    "shared ones": lambda tx: tx.read(SLEEP, seconds=60.0),
    "the driver's": lambda tx: tx.driver.execute("SELECT pg_sleep(60)"),
    "a copy": lambda tx: tx.driver.cursor().copy(COPY).__enter__().read(),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
def test_a_server_that_sends_nothing_for_too_long_is_given_up(opened, wait):
    store = opened(QUIET)
    with pytest.raises(StoreUnavailable), store.begin() as tx:
        wait(tx)
    until(lambda: registers(store), "the server is asked again")


def registers(store) -> bool:
    try:
        return len(register(store, 2)) == 2
    except StoreUnavailable:
        return False


def answers(store) -> bool:
    try:
        store.silence.refuse()
    except StoreUnavailable:
        return False
    return True


def test_a_batch_waits_as_long_as_the_server_answers_others(opened, monkeypatch):
    store, answers, asked = opened(QUIET._replace(asks=True)), Silence.answers, []
    monkeypatch.setattr(Silence, "answers", lambda of: asked.append(1) or answers(of))
    began = time.monotonic()
    sleep(store, 1.0)
    n_silences = (time.monotonic() - began) / QUIET.silence_s
    assert 1 <= len(asked) <= n_silences  # once for each time of silence
    assert not store.silence.silent


def test_a_batch_gives_up_a_server_that_answers_nobody(opened, monkeypatch):
    store = opened(QUIET._replace(asks=True))
    monkeypatch.setattr(Silence, "answers", lambda _: False)
    with pytest.raises(StoreUnavailable):
        sleep(store, 60.0)


def test_while_the_server_is_silent_callers_are_refused_at_once_and_one_a_second_asks(
    opened, monkeypatch
):
    store, asked = opened(QUIET), []
    with pytest.raises(StoreUnavailable):
        sleep(store, 60.0)
    monkeypatch.setattr(Silence, "answers", lambda _: bool(asked.append(time.monotonic())))
    began = time.monotonic()
    for _ in range(100):
        with pytest.raises(StoreUnavailable), store.begin():
            pass
    assert len(asked) <= 1 + (time.monotonic() - began)
    monkeypatch.undo()
    until(lambda: answers(store), "the server answers")


@pytest.mark.parametrize("write", [False, True])
def test_the_server_ends_a_statement_of_a_request_that_takes_too_long(opened, write):
    store = opened(request_deadlines(0.2))
    with pytest.raises(StoreUnavailable, match="took too long"):
        sleep(store, 60.0, write=write)
    assert not store.silence.silent


def test_a_writer_does_not_wait_for_long_for_a_lock_that_an_operator_holds(opened, postgres_url):
    store = opened(request_deadlines(0.2))
    with psycopg.connect(postgres_url) as operator:
        operator.execute("LOCK TABLE pages")
        with pytest.raises(StoreUnavailable, match="lock"):
            register(store, 2)
        operator.rollback()
    assert len(register(store, 2)) == 2


def test_the_leader_has_the_limits_of_a_batch_and_requests_theirs_again(opened):
    store = opened(request_deadlines(0.2))
    with store.lead() as lead, lead.begin() as tx:
        tx.run(SLEEP, seconds=0.5)
    with pytest.raises(StoreUnavailable):
        sleep(store, 60.0)


def test_an_abort_ends_every_wait_and_begins_nothing_more(opened):
    store = opened(request_deadlines(300))
    running = threading.Semaphore(0)

    def wait(write):
        with store.begin(write=write) as tx:
            running.release()
            tx.run(SLEEP, seconds=60.0)

    with ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(wait, write) for write in (False, True)]
        for _ in waits:
            assert running.acquire(timeout=180)
        store.abort()
        for each in waits:
            with pytest.raises(StoreUnavailable):
                each.result(60)
    with pytest.raises(StoreUnavailable, match="process ends"), store.begin():
        pass
    with pytest.raises(StoreUnavailable), store.begin(write=False):
        pass


@pytest.mark.dear
def test_what_an_abort_cut_off_was_not_kept(opened, postgres_url):
    store = opened(request_deadlines(300))

    def use():
        with store.begin() as tx:
            tx.register(page_columns(urls(3)), T0)
            store.abort()
            tx.run(SLEEP, seconds=60.0)

    with pytest.raises(StoreUnavailable):
        use()
    with closing(PostgresStore(postgres_url, 2)) as other, other.begin(write=False) as tx:
        assert len(tx.next_page_ids(0, 10)) == 0
