"""A worker killed at every stage of an epoch, held there by a lock that the stage needs."""

import json
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from support.live_server import PATIENCE_S, until
from support.processes import Running, started
from support.store_cases import page_columns, urls

from service.epochs.run import WAITING
from service.estimation.estimates import width
from service.model.domain import Epoch, EpochStatus
from service.runtime.settings import Settings
from service.storage import open_store
from service.storage.dialect import EPOCHS_KEPT
from service.storage.postgres.words import EACH

pytestmark = pytest.mark.slow


class Trial:
    """A database, its workers and what must hold of it between them."""

    def __init__(self, url: str, directory) -> None:
        self.url = url
        self.directory = directory
        self.store = open_store(url, width(Settings().plan().estimator))
        self.on_sqlite = self.store.engine.dialect.name == "sqlite"
        self.n_pages = 50_000 if self.on_sqlite else 1_000  # three blocks
        with self.store.begin() as tx:
            tx.register(page_columns(urls(self.n_pages)), datetime.now(UTC))

    def worker(self):
        return started(self.directory, "worker", database_url=self.url, epoch_interval_s=3600)

    def epoch(self, epoch: int) -> Epoch:
        with self.store.begin(write=False) as tx:
            return tx.epoch(epoch)

    def ask(self) -> int:
        with self.store.begin() as tx:
            return tx.request_epoch(datetime.now(UTC)).epoch

    def published(self, epoch: int, by: Running) -> None:
        """Wait until this epoch is in force, and until the worker has ended its round.

        The round ends with the queue and the history. A lock taken earlier would hold those up.
        """
        until(lambda: rests(by, epoch), "the round has ended")
        assert self.epoch(epoch).status is EpochStatus.published
        assert self.in_force() == epoch
        with self.store.begin(write=False) as tx:
            assert tx.filled().epoch == epoch

    def in_force(self) -> int:
        """Read the schedule, which is all of one epoch; gives its number."""
        spent = "sum(CAST(crawl_rate AS double precision))"
        each_page = "schedule" if self.on_sqlite else EACH.format("%(epoch)s", where="")
        rows = f"SELECT count(*), {spent} FROM {each_page} AS rows WHERE epoch = %(epoch)s"
        with self.store.begin(write=False) as tx:
            epoch, certificate = tx.number_in_force(), tx.epoch_in_force().certificate
            ((n_rows, spent),) = tx.run(rows, epoch=epoch)
        assert n_rows == certificate.n_pages == self.n_pages
        assert spent == pytest.approx(certificate.bandwidth_used, rel=5e-7)
        return epoch

    def left_behind(self) -> set[int]:
        """Give the epochs that take up room though nobody may read them."""
        with self.store.begin(write=False) as tx:
            kept = {e.epoch for e in tx.epochs(None, 100) if e.status is EpochStatus.published}
        return self.stored() - set(sorted(kept)[-EPOCHS_KEPT:])

    def stored(self) -> set[int]:
        """Give the epochs that have rows or a partition."""
        query = "SELECT DISTINCT epoch FROM schedule"
        if not self.on_sqlite:
            query = "SELECT substr(relname, 10)::int FROM pg_class WHERE relname ~ 'schedule_\\d+$'"
        with self.store.engine.connect() as connection:
            return set(connection.scalars(sa.text(query)))


def events(worker: Running) -> list[tuple[str, int | None]]:
    """Give the events of a worker's log, with the number of the epoch where one is named."""
    whole = worker.log.read_text().splitlines(keepends=True)
    lines = [json.loads(line) for line in whole if line.endswith("\n")]
    return [(line["event"], line.get("epoch")) for line in lines]


def said(worker: Running, word: str, epoch: int) -> bool:
    """Tell whether the worker's log has this event of an epoch."""
    return (word, epoch) in events(worker)


def rests(worker: Running, epoch: int) -> bool:
    """Tell whether a worker waits after a round that published this epoch."""
    told = events(worker)
    published = ("epoch published", epoch)
    return published in told and (WAITING, None) in told[told.index(published) :]


class HeldPostgres:
    """Holds an epoch where it is, by locks of other sessions."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.watching = psycopg.connect(trial.url, autocommit=True)
        self.sessions = [self.watching]

    def lock(self, statement: str) -> psycopg.Connection:
        session = psycopg.connect(self.trial.url)
        self.sessions.append(session)
        session.execute(statement)
        return session

    def runs_into(self, epoch: int) -> bool:
        """Tell whether an epoch runs while somebody waits for a lock.

        Others wait, too, such as the sums of history: a wait alone does not show the epoch.
        """
        return self.trial.epoch(epoch).status is EpochStatus.running and self.waits()

    def waits(self) -> bool:
        """Tell whether somebody waits for a lock on a table or a row."""
        ours = "datname = current_database() AND wait_event_type = 'Lock'"
        return self.watching.execute(f"SELECT FROM pg_stat_activity WHERE {ours}").rowcount > 0

    def reach_load(self, _worker: Running) -> int:
        self.lock("LOCK TABLE pages")
        asked = self.trial.ask()
        until(lambda: self.runs_into(asked), "the epoch waits to load")
        return asked

    def reach_solution(self, worker: Running) -> int:
        self.lock("LOCK TABLE schedule")
        asked = self.trial.ask()
        until(lambda: said(worker, "epoch allocated", asked), "the bandwidth is allocated")
        return asked

    def reach_attach(self, _worker: Running) -> int:
        self.lock("LOCK TABLE schedule IN SHARE UPDATE EXCLUSIVE MODE")
        asked = self.trial.ask()
        until(lambda: self.runs_into(asked), "the epoch waits to attach its table")
        return asked

    def reach_publish(self, _worker: Running) -> int:
        load = self.lock("LOCK TABLE pages")
        asked = self.trial.ask()
        until(lambda: self.runs_into(asked), "the epoch waits to load")
        self.row = self.lock(f"SELECT FROM epochs WHERE epoch = {asked} FOR UPDATE")
        load.commit()
        until(lambda: asked in self.trial.stored(), "the epoch is written")
        until(lambda: self.runs_into(asked), "the epoch waits to publish")
        return asked

    def reach_housekeeping(self, worker: Running) -> int:
        asked = self.reach_publish(worker)
        queued = threading.Thread(target=self.lock, args=["LOCK TABLE epochs"])
        queued.start()
        waiting = "SELECT FROM pg_locks WHERE NOT granted AND relation = 'epochs'::regclass"
        until(lambda: self.watching.execute(waiting).rowcount, "a lock waits for the publisher")
        self.row.commit()
        queued.join()
        until(self.waits, "housekeeping waits")
        return asked


class HeldSqlite:
    """Holds an epoch where it is, by the one lock that writers share."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.file = sa.make_url(trial.url).database
        self.sessions = [sqlite3.connect(self.file, timeout=0, isolation_level=None)]

    def catch(self, state: str) -> int:
        """Take the write lock between two steps of an epoch that is in this state.

        An epoch that slips through is followed by another.
        """
        asked, deadline = self.trial.ask(), time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found, over = self.look(state, asked)
            if found and self.locked():
                if self.look(state, asked)[0]:
                    return asked
                self.sessions[0].rollback()
            elif over:
                asked = self.trial.ask()
        raise AssertionError(f"no epoch was found while {state}")

    def look(self, state: str, epoch: int) -> tuple[bool, bool]:
        """Tell whether an epoch is in this state, and whether it is over, its house kept."""
        found = f"""
            SELECT {state}, status = 'published' AND NOT stale FROM epochs, (
                SELECT max(page_id) AS last FROM schedule WHERE epoch = :epoch
            ), (
                SELECT min(epoch) IN (
                    SELECT epoch FROM epochs WHERE status = 'published'
                    ORDER BY epoch DESC LIMIT -1 OFFSET {EPOCHS_KEPT}
                ) AS stale FROM schedule
            ) WHERE epochs.epoch = :epoch
        """
        return self.sessions[0].execute(found, {"epoch": epoch}).fetchone()

    def locked(self) -> bool:
        try:
            self.sessions[0].execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True

    def reach_load(self, _worker: Running) -> int:
        return self.catch("status = 'running'")

    def reach_solution(self, worker: Running) -> int:
        asked = self.catch("status = 'running'")
        until(lambda: said(worker, "epoch allocated", asked), "the bandwidth is allocated")
        return asked

    def reach_attach(self, _worker: Running) -> int:
        return self.catch(f"last < {self.trial.n_pages}")

    def reach_publish(self, _worker: Running) -> int:
        return self.catch(f"status = 'running' AND last = {self.trial.n_pages}")

    def reach_housekeeping(self, _worker: Running) -> int:
        return self.catch("status = 'published' AND stale")


@contextmanager
def trial_of(url: str, directory) -> Iterator[Trial]:
    trial = Trial(url, directory)
    yield trial
    trial.store.close()


@contextmanager
def held(trial: Trial) -> Iterator[HeldPostgres | HeldSqlite]:
    kind = HeldSqlite if trial.on_sqlite else HeldPostgres
    at = kind(trial)
    try:
        yield at
    finally:
        for session in at.sessions:
            session.close()


LEAVES = {
    "load": False,
    "solution": False,
    "attach": None,  # on SQLite some rows, on Postgres nothing
    "publish": True,
    "housekeeping": True,
}
"""Whether an epoch that dies there leaves rows that nobody may read."""


def test_an_epoch_may_die_at_every_stage(database_url, tmp_path):
    with trial_of(database_url, tmp_path) as trial:
        died: list[int] = []
        for stage in (*LEAVES, None):
            asked = trial.ask()
            with trial.worker() as worker:
                trial.published(asked, worker)
                until(lambda: trial.left_behind() == set(), "what the dead one left is gone")
                for epoch in died:
                    failed = trial.epoch(epoch)
                    assert failed.status is EpochStatus.failed
                    assert failed.reason == "its process ended before it published"
                if stage is None:
                    break
                with held(trial) as at:
                    epoch = getattr(at, f"reach_{stage}")(worker)
                    worker.kill()
                published = stage == "housekeeping"
                assert trial.in_force() == (epoch if published else epoch - 1)
                leaves = trial.on_sqlite if LEAVES[stage] is None else LEAVES[stage]
                assert bool(trial.left_behind()) == leaves
                died += [] if published else [epoch]
        assert len(died) == len(LEAVES) - 1


TAKEOVER_S = 30


def test_another_worker_takes_over_an_epoch_whose_leader_died(database_url, tmp_path):
    """On Postgres even while the dead one's session still waits for a lock."""
    with trial_of(database_url, tmp_path) as trial, trial.worker() as leader:
        trial.published(trial.ask(), leader)
        with held(trial) as at:
            epoch = at.reach_load(leader)
            if trial.on_sqlite:
                leader.popen.send_signal(signal.SIGSTOP)
                at.sessions[0].rollback()
            with trial.worker() as other:
                until(lambda: opens(other, trial), "the other worker is there")
                leader.kill()
                failed = EpochStatus.failed
                until(lambda: trial.epoch(epoch).status is failed, "the takeover", TAKEOVER_S)
                for session in at.sessions:
                    session.close()
                trial.published(epoch + 1, other)


def opens(worker: Running, trial: Trial) -> bool:
    """Tell whether a worker has its database open."""
    name = trial.store.engine.url.database if trial.on_sqlite else "socket:"
    try:
        files = Path(f"/proc/{worker.popen.pid}/fd").iterdir()
        return any(name in str(file.readlink()) for file in files)
    except FileNotFoundError:  # one that was closed meanwhile
        return False
