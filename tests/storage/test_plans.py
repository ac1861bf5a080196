"""Statements of requests read 10⁵ pages by their indexes, with and without statistics."""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import ClassVar, NamedTuple

import numpy as np
import psycopg
import pytest
from support.feed_cases import change_columns
from support.live_server import START, Live, cloned, running
from support.store_cases import (
    columns,
    instants,
    log_columns,
    publish,
    register,
    schedule_columns,
)

from service.leases.queue import queue_due
from service.model.arrays import UNSPECIFIED
from service.model.columns import PageColumns
from service.model.listing import PageTags
from service.model.urls import normalise
from service.storage import Store
from service.storage.epochs.postgres import schedule_rows
from service.storage.postgres.binary import dumped
from service.storage.postgres.statements import Statements, parsed
from service.storage.sqlite import connections

N_PAGES, N_HOSTS, N_TAGS = 100_000, 10_000, 200
REPORTED = range(7, 9_000, 450)
"""Pages that are reported by their URLs."""

N_LARGE = 10_000
"""Rows from which a table is large: a plan must not read the whole table."""

FIRST_ROW = re.compile(r"SELECT EXISTS \(SELECT 1 FROM \w+\)$")
"""Statement that reads one row of a table, whichever comes first."""

ASKED_FOR_ONE = "due_pages_n_unfinished_idx"
"""Partial index that statements ask by EXISTS whether it has a row."""

TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    "postgres": "SELECT relname FROM pg_class WHERE relkind = 'r'"
    " AND relnamespace = 'public'::regnamespace",
}

NO_STATISTICS = """
DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT relname FROM pg_class
        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
    LOOP EXECUTE 'ALTER TABLE ' || name || ' SET (autovacuum_enabled = false)';
    END LOOP;
END $$
"""
"""Statement after which Postgres gathers no statistics by itself."""

ROWS_READ = """
SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'due_pages'
"""
"""Statement that returns how many rows of the queue the transaction has read."""

PLANNED = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", re.IGNORECASE)


class Use(NamedTuple):
    """One reading of a table in a plan."""

    statement: str
    table: str
    index: str | None
    """Index, or "TABLE key" for SQLite's own order; None: the whole table is read."""


class Recorder:
    """The plans of all statements that run while it records."""

    kind: ClassVar[str]

    def __init__(self) -> None:
        self.uses: list[Use] = []
        self.records = False

    @contextmanager
    def recording(self) -> Iterator[list[Use]]:
        self.uses, self.records = [], True
        yield self.uses
        self.records = False


class PostgresRecorder(Recorder):
    """Asks Postgres for the plan of each statement just before it runs on its connection."""

    kind = "postgres"

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        later, at_end, execute = Statements.later, Statements.at_end, psycopg.Cursor.execute

        def explained_later(statements, statement, parameters, *, kept=True):
            self.explain(statements, statement, parameters, kept=kept)
            return later(statements, statement, parameters, kept=kept)

        def explained_at_end(statements, statement, parameters):
            self.explain(statements, statement, parameters)
            return at_end(statements, statement, parameters)

        def explained_execute(cursor, query, parameters=None, **options):
            if self.records and PLANNED.match(text := str(query)):
                with cursor.connection.cursor() as other:
                    execute(other, f"EXPLAIN (FORMAT JSON) {text}", parameters)
                    self.keep(text, other.fetchone()[0])
            return execute(cursor, query, parameters, **options)

        self.send = later
        patch.setattr(Statements, "later", explained_later)
        patch.setattr(Statements, "at_end", explained_at_end)
        patch.setattr(psycopg.Cursor, "execute", explained_execute)

    def explain(self, statements, statement, parameters, *, kept=True) -> None:
        if not self.records or not PLANNED.match(statement):
            return
        mode = self.answer(statements, "SELECT current_setting('plan_cache_mode')", {})
        if kept and mode == b"force_generic_plan":
            text, names = parsed(statement)
            name = statements._prepared(text, [dumped(parameters[n])[0] for n in names])
            values = f"({', '.join(['NULL'] * len(names))})" if names else ""
            answer = self.answer(
                statements, f"EXPLAIN (FORMAT JSON) EXECUTE {name.decode()}{values}", {}
            )
        else:
            answer = self.answer(statements, f"EXPLAIN (FORMAT JSON) {statement}", parameters)
        self.keep(statement, json.loads(answer))

    def answer(self, statements, statement, parameters) -> bytes:
        rows = self.send(statements, statement, parameters, kept=False)
        statements.send()
        return rows.result.get_value(0, 0)

    def keep(self, statement: str, plans) -> None:
        nodes = [(plan["Plan"], False) for plan in plans]
        while nodes:
            node, limited = nodes.pop()
            limited |= node["Node Type"] == "Limit"
            nodes += [(below, limited) for below in node.get("Plans", [])]
            index = node.get("Index Name")
            table = node.get("Relation Name", index)
            if node["Node Type"] == "Seq Scan" or (
                index not in (None, ASKED_FOR_ONE) and not limited and "Index Cond" not in node
            ):
                self.uses.append(Use(statement, table, None))
            elif index is not None:
                self.uses.append(Use(statement, table, re.sub(r"(_\d+)+_", "_", index)))


class SqliteRecorder(Recorder):
    """Asks SQLite for the plans of the statements that its connections have traced."""

    kind = "sqlite"

    def __init__(self, path: str, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.path = path
        self.traced: dict[str, str] = {}
        prepare = connections.prepare

        def traced_prepare(driver, *arguments, **options):
            prepare(driver, *arguments, **options)
            driver.set_trace_callback(self.trace)

        patch.setattr(connections, "prepare", traced_prepare)

    def trace(self, statement: str) -> None:
        if self.records and PLANNED.match(statement):
            self.traced.setdefault(re.sub(r"\d+", "", statement)[:500], statement)

    @contextmanager
    def recording(self) -> Iterator[list[Use]]:
        self.traced.clear()
        with super().recording() as uses:
            yield uses
        with closing(sqlite3.connect(self.path)) as driver:
            for statement in self.traced.values():
                self.keep(statement, driver)

    def keep(self, statement: str, driver: sqlite3.Connection) -> None:
        tables = {name for (name,) in driver.execute("SELECT name FROM sqlite_master")}
        steps = [step for *_, step in driver.execute(f"EXPLAIN QUERY PLAN {statement}")]
        for step in steps:
            read = re.match(r"(SCAN|SEARCH) (\w+)(?: USING (.*?)(?: \(|$))?", step)
            if read is None:
                continue
            way, table, by = read.groups()
            renamed = re.search(rf"(\w+) (?:AS )?{table}\b", statement)
            if table not in tables and renamed is not None:
                table = renamed[1]
            if table not in tables:
                continue
            in_order = " LIMIT " in statement and not any("TEMP B-TREE" in step for step in steps)
            of_one = str(by).endswith(ASKED_FOR_ONE)
            if way == "SCAN" and not in_order and not of_one:
                self.uses.append(Use(statement, table, None))
            elif by is None or by.endswith("PRIMARY KEY"):
                self.uses.append(Use(statement, table, f"{table} key"))
            else:
                self.uses.append(Use(statement, table, by.rpartition("INDEX ")[2]))


def fill(store: Store) -> None:
    """Write pages of many hosts, their log, changes and tags."""
    hosts = [f"h{n}.example" for n in range(N_HOSTS)]
    urls = [f"https://{hosts[n % N_HOSTS]}/{n}" for n in range(N_PAGES)]
    keys = [n.to_bytes(16, "little") for n in range(N_PAGES)]
    for n in REPORTED:
        keys[n] = normalise(urls[n]).key
    pages = columns(
        PageColumns,
        N_PAGES,
        key=np.array([np.void(key) for key in keys], "V16"),
        url=urls,
        host=[hosts[n % N_HOSTS] for n in range(N_PAGES)],
        importance=np.nan,
        observability=UNSPECIFIED,
        min_crawl_rate=np.nan,
        max_crawl_rate=np.nan,
    )
    with store.begin() as tx:
        page_id = tx.register(pages, START).page_id
        tx.append_log(log_columns(page_id, START))
        tx.append_changes(change_columns(page_id, START))
        tags = np.array([f"t{n % N_TAGS}" for n in range(N_PAGES)], object)
        tx.add_tags(PageTags(page_id=page_id, tag=tags))


def leased(live: Live) -> None:
    body = {"count": 20, "worker": "w"}
    items = live.client.post("/leases", json=body).json()["items"]
    report = [
        {"lease": item["lease"], "observed_at": live.clock().isoformat(), "digest": "1"}
        for item in items
    ]
    again = live.client.post("/leases", json={**body, "report": report}).json()
    assert again["reported"]["accepted"] == len(items) == 20


def feeds_leased(live: Live) -> None:
    feeds = [{"url": f"https://h{n}.example/feed", "kind": "feed"} for n in range(50)]
    assert live.post("/pages", feeds).status_code == 200
    assert live.post("/leases", {"count": 20, "kind": "feed"}).json()["items"]


def reported(live: Live) -> None:
    items = [
        {
            "url": f"https://h{n}.example/{n}",
            "observed_at": live.clock().isoformat(),
            "changed": True,
        }
        for n in REPORTED
    ]
    assert live.post("/observations", items).json()["accepted"] == len(items)


def getting(path: str, **query: object):
    def get(live: Live) -> None:
        answer = live.get(path, **query)
        assert answer.status_code == 200, answer.text
        cursor = answer.json().get("next_cursor")
        if cursor is not None:
            assert live.get(path, **{**query, "cursor": cursor}).status_code == 200

    return get


CALLS = {
    "lease": leased,
    "lease of feeds": feeds_leased,
    "report": reported,
    "changes": getting("/changes", limit=100),
    "changes of a host": getting("/changes", limit=5, host="h7.example"),
    "changes of a tag": getting("/changes", limit=5, tag="t7"),
    "pages": getting("/pages", limit=100),
    "pages of a host": getting("/pages", limit=5, host="h7.example"),
    "pages of a prefix": getting("/pages", limit=5, url_prefix="https://h7.example/"),
    "pages of a tag": getting("/pages", limit=5, tag="t7"),
    "pages never crawled": getting("/pages", limit=5, state="never_crawled"),
    "pages by rate": getting("/pages", limit=5, crawl_rate_from=0.1),
    "pages changed": getting("/pages", limit=5, changed_since=START.isoformat()),
    "hosts": getting("/hosts", limit=5),
    "hosts by name": getting("/hosts", limit=5, sort="host"),
    "blocked hosts": getting("/hosts", limit=5, blocked=True),
    "leases": getting("/leases", limit=5),
    "workers": getting("/leases/workers", limit=5),
    "a page": getting("/pages/7"),
    "explained": getting("/leases", explain=True),
    "explained for a host": getting("/leases", explain=True, hosts="h7.example"),
}


USED = {
    "postgres": {
        "lease": {
            "host_queues_next_at_idx",
            "due_pages_queue_id_first_idx",
            "schedule_block_idx",
        },
        # without statistics, both indexes of the few feeds seem as good
        "lease of feeds": {"due_pages_feeds_of_queue_idx"},
        "report": {"pages_key_key", "page_states_pkey"},
        "changes": {"feed_pkey", "pages_pkey"},
        "changes of a host": {"feed_pkey", "hosts_host_key", "pages_host_id_window_idx"},
        "changes of a tag": {"feed_pkey", "tags_tag_key"},
        "pages": {"pages_pkey", "page_states_pkey", "schedule_block_idx"},
        "pages of a host": {"hosts_host_key", "pages_host_id_window_idx"},
        "pages of a prefix": {"hosts_host_key", "pages_host_id_window_idx"},
        "pages of a tag": {"tags_tag_key", "page_tags_pkey"},
        "pages never crawled": {"page_states_pkey"},
        "pages by rate": {"schedule_block_idx"},
        "pages changed": {"observations_page_id_idx"},
        "hosts": {"hosts_pkey"},
        "hosts by name": {"hosts_host_key"},
        "blocked hosts": {"hosts_pkey"},
        "leases": {"crawls_pkey"},
        "workers": {"due_pages_worker_idx"},
        "a page": {"pages_pkey", "due_pages_queue_id_first_idx", "due_pages_worker_idx"},
        "explained": {"host_queues_next_at_idx", "due_pages_queue_id_first_idx"},
        "explained for a host": {"hosts_host_key", "due_pages_queue_id_first_idx"},
    },
    "sqlite": {
        "lease": {"host_queues_next_at_idx", "due_pages_queue_id_first_idx", "schedule key"},
        "lease of feeds": {"due_pages_feeds_idx", "due_pages_feeds_of_queue_idx"},
        "report": {"sqlite_autoindex_pages_1", "page_states key"},
        "changes": {"feed key", "pages key"},
        "changes of a host": {"feed key", "sqlite_autoindex_hosts_1", "pages_host_id_page_id_idx"},
        "changes of a tag": {"feed key", "sqlite_autoindex_tags_1", "page_tags key"},
        "pages": {"pages key", "page_states key", "schedule key"},
        "pages of a host": {"sqlite_autoindex_hosts_1", "pages_host_id_page_id_idx"},
        "pages of a prefix": {"sqlite_autoindex_hosts_1", "pages_host_id_page_id_idx"},
        "pages of a tag": {"sqlite_autoindex_tags_1", "page_tags key"},
        "pages never crawled": {"page_states key"},
        "pages by rate": {"schedule key"},
        "pages changed": {"observations key"},
        "hosts": {"hosts key"},
        "hosts by name": {"sqlite_autoindex_hosts_1"},
        "blocked hosts": {"hosts key"},
        "leases": {"due_pages key"},
        "workers": {"due_pages_worker_idx"},
        "a page": {"pages key", "due_pages_queue_id_first_idx", "due_pages_worker_idx"},
        "explained": {"host_queues_next_at_idx", "due_pages_queue_id_first_idx"},
        "explained for a host": {"sqlite_autoindex_hosts_1", "due_pages_queue_id_first_idx"},
    },
}
"""Indexes that a call must use, by database."""


class Fault(NamedTuple):
    """A bad plan: a large table that it reads whole, or an index that no plan of a call uses."""

    call: str
    statistics: str
    fault: str


def faults(live: Live, recorder: Recorder, large: set[str], statistics: str) -> Iterator[Fault]:
    """Make all calls and yield the faults of their plans."""
    live.clock.advance(hours=1)
    for name, call in CALLS.items():
        with recorder.recording() as uses:
            call(live)
        for use in uses:
            if use.index is None and use.table in large and not FIRST_ROW.match(use.statement):
                yield Fault(name, statistics, f"reads all {use.table}: {use.statement}")
        for index in sorted(USED[recorder.kind][name] - {use.index for use in uses}):
            yield Fault(name, statistics, f"uses no {index}")


def check(url: str, recorder: Recorder, session: sqlite3.Connection | psycopg.Connection) -> None:
    """Check the plans before and after ANALYZE."""
    with running(url) as live:
        fill(live.service.store)
        live.epoch()
        names = [name for (name,) in session.execute(TABLES[recorder.kind])]
        sizes = {name: session.execute(f"SELECT count(*) FROM {name}") for name in names}
        large = {name for name, rows in sizes.items() if rows.fetchone()[0] >= N_LARGE}
        found = [*faults(live, recorder, large, "without")]
    for name in names:  # as autovacuum does, which leaves partitioned tables out
        session.execute(f"ANALYZE {name}")
    with running(url, clock=live.clock) as live:
        found += faults(live, recorder, large, "with")
    assert found == []


@pytest.fixture(autouse=True)
def few_queues(monkeypatch):
    """Explain few host queues, because a tenth of all hosts is read by no index."""
    monkeypatch.setattr("service.api.holds.leases.MOST_QUEUES", 20)


@pytest.mark.dear
def test_requests_read_sqlite_by_indexes(sqlite_url, monkeypatch):
    path = sqlite_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as session:
        check(sqlite_url, SqliteRecorder(path, monkeypatch), session)


@pytest.mark.dear
def test_requests_read_postgres_by_indexes(postgres_server, postgres_template, monkeypatch):
    with (
        cloned(postgres_server, postgres_template) as url,
        psycopg.connect(url, autocommit=True) as session,
    ):
        session.execute(NO_STATISTICS)
        check(url, PostgresRecorder(monkeypatch), session)


def test_a_lease_reads_few_rows_of_a_large_host_on_postgres(postgres_store):
    """Read as many rows as are offered, though Postgres has no statistics of the queue yet."""
    with postgres_store.engine.connect() as connection:
        bare = connection.execution_options(isolation_level="AUTOCOMMIT")
        bare.exec_driver_sql(NO_STATISTICS)
    page_id = register(postgres_store, 5_000, START, "large.example")
    with postgres_store.begin() as tx:
        queue_due(tx, page_id, START + timedelta(hours=1))
    with postgres_store.begin() as tx:
        host_queues, rows = tx.ready(START, 10, 100)
        tx.running(host_queues.queue_id, instants([START]))
        n_read = tx.scalar(ROWS_READ)
    assert len(rows) == 102
    assert n_read < 300


@pytest.mark.parametrize("after", [0, 2_000, 4_000, 4_800])
def test_the_schedule_is_read_in_order_on_postgres(postgres_store, after):
    """Look up a block for each page, at the end of a corpus, too, and sort no blocks."""
    page_id = register(postgres_store, 5_000, START)
    publish(postgres_store, schedule_columns(np.sort(page_id)))
    with postgres_store.engine.connect() as connection:
        bare = connection.execution_options(isolation_level="AUTOCOMMIT")
        bare.exec_driver_sql("ANALYZE")
    with postgres_store.begin(write=False) as tx:
        statement = f"EXPLAIN {schedule_rows((), since=False)}"
        plan = tx.once(statement, epoch=1, after=after, last=after + 100_000, limit=100)
        assert not [step for (step,) in plan if "Sort" in step or "Hash" in step]
