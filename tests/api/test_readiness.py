"""Readiness is the truth: what cannot be written to is not ready, and says which check failed."""

import logging
import sqlite3
import threading
from contextlib import closing

import psycopg
import pytest
import sqlalchemy as sa
from support.live_server import Live, cloned, command, running, until
from support.traffic import polite

from service.api.responses.problems import TYPES
from service.storage import migrations
from service.storage.stores.sqlite import SqliteTransaction

pytestmark = pytest.mark.dear

PAGE = [{"url": "https://a.example/"}]
TIMEOUT_S = 2


@pytest.fixture
def own_api(postgres_server, postgres_template):
    """A service on a Postgres database that no other test uses."""
    with (
        cloned(postgres_server, postgres_template) as url,
        running(url, database_timeout_s=TIMEOUT_S) as live,
    ):
        yield live


def failed_check(api: Live) -> str | None:
    """Return the check that keeps the service from being ready."""
    answer = api.get("/readyz")
    assert answer.status_code == 200 or polite(answer, 503), answer.text
    return answer.json().get("check")


def assert_reads_only(api: Live) -> None:
    until(lambda: failed_check(api) == "writes", "the trial fails")
    assert polite(api.post("/pages", PAGE), 503)
    assert api.get("/epochs").status_code == 200
    assert "recrawl_up 1.0" in api.get("/metrics").text


def assert_writes(api: Live) -> None:
    until(api.alive, "the service is ready again")
    assert api.post("/pages", PAGE).status_code == 200


@pytest.mark.sampled(1)
@pytest.mark.parametrize("table", ["pages", "page_states", "due_pages"])
def test_a_table_that_an_operator_has_locked_is_not_ready(postgres_url, table):
    with (
        running(postgres_url, database_timeout_s=TIMEOUT_S) as api,
        psycopg.connect(postgres_url) as operator,
    ):
        operator.execute(f"LOCK TABLE {table} IN SHARE MODE")
        assert_reads_only(api)
        operator.rollback()
        assert_writes(api)


def test_a_read_only_postgres_is_not_ready(own_api, postgres_server):
    name = sa.make_url(own_api.service.store.url).database
    kill = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    for setting, check in (("on", assert_reads_only), ("off", assert_writes)):
        command(
            postgres_server, f"ALTER DATABASE {name} SET default_transaction_read_only = {setting}"
        )
        command(postgres_server, kill)
        check(own_api)


@pytest.mark.slow
def test_a_file_that_another_process_writes_to_for_long_is_not_ready(sqlite_url):
    path = sqlite_url.removeprefix("sqlite:///")
    with (
        running(sqlite_url, database_timeout_s=TIMEOUT_S) as api,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        assert_reads_only(api)
        assert "another writer held" in api.post("/pages", PAGE).json()["detail"]
        other.execute("ROLLBACK")
        assert_writes(api)


def test_a_database_file_that_is_read_only_is_not_ready(sqlite_url):
    with running(sqlite_url) as api:
        engine = api.service.store.engine
        engine.dispose()
        sa.event.listen(engine, "connect", make_read_only)
        assert_reads_only(api)
        assert "read-only" in api.post("/pages", PAGE).json()["detail"]
        sa.event.remove(engine, "connect", make_read_only)
        engine.dispose()
        assert_writes(api)


def make_read_only(driver, _record):
    """Have SQLite answer writes as it does when the file cannot be written; root could."""
    driver.execute("PRAGMA query_only = ON")


def test_a_long_write_of_our_own_is_no_reason_not_to_be_ready(sqlite_url):
    with running(sqlite_url) as api, api.service.store.begin():
        assert failed_check(api) is None


def test_another_schema_is_not_ready_and_every_write_says_so(own_api, sqlite_url):
    def set_revision(api, revision):
        with api.service.store.engine.begin() as connection:
            statement = f"UPDATE alembic_version SET version_num = '{revision}'"
            connection.execute(sa.text(statement))

    with running(sqlite_url) as on_sqlite:
        for api in (own_api, on_sqlite):
            set_revision(api, "9999_future")
            assert failed_check(api) == "schema"
            crawl = [{**PAGE[0], "observed_at": "2026-01-01T00:00:00Z", "digest": "1"}]
            for refused in (
                api.post("/pages", PAGE),
                api.post("/observations", crawl),
                api.client.post("/leases", json={"count": 1}),
                api.client.post("/epochs"),
            ):
                assert polite(refused, 503)
                assert refused.json()["type"] == f"{TYPES}schema-ahead"
            set_revision(api, migrations.head())
            assert_writes(api)


def test_a_check_that_does_not_end_is_cut_off_and_metrics_of_the_process_remain(
    sqlite_api, monkeypatch
):
    let_go = threading.Event()
    sqlite_api.service.readiness.within_s = 0.2
    store = type(sqlite_api.service.store)
    monkeypatch.setattr(store, "check_ready", lambda _: let_go.wait(180))
    monkeypatch.setattr(type(sqlite_api.service.telemetry), "scrape", lambda *_: let_go.wait(180))
    try:
        assert failed_check(sqlite_api) == "connection"
        assert "recrawl_up 0.0" in sqlite_api.get("/metrics").text
    finally:
        let_go.set()


def test_a_statement_of_ours_that_fails_is_a_fault_with_a_traceback_and_no_outage(
    sqlite_api, monkeypatch, caplog
):
    def broken(self, *_):
        self.run("SELECT secret_column FROM pages")

    monkeypatch.setattr(SqliteTransaction, "epochs", broken)
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("uvicorn"), "propagate", True)
    answer = sqlite_api.get("/epochs")
    assert answer.status_code == 500
    assert "Retry-After" not in answer.headers
    assert "secret_column" not in answer.text
    until(lambda: "no such column: secret_column" in caplog.text, "the log has the reason")
    assert "Traceback" in caplog.text
