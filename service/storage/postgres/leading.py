"""The lead of epochs or of archiving: a lock of the session, and a lease in the table `leads`.

The lock is the fast way: it is free at once when the leader's process or host is lost. A frozen
leader keeps its connections, so the server keeps the lock. Therefore the leader renews its lease
every `RENEW_EVERY_S`, by the database's time. A process that meets the lock of a lease that has run
out ends the sessions of the sleeper, which frees their locks and rows. The sleeper writes through
these sessions only, so it cannot publish when it wakes.
"""

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import psycopg
import sqlalchemy as sa
import structlog

from service.model.errors import RecrawlError
from service.storage.postgres.connections import (
    Connection,
    Silence,
    as_batch,
    taken,
    watch,
)

LEAD_S = 30.0
"""Time after the last renewal at which a lease runs out, seconds."""
RENEW_EVERY_S = 5.0
"""Time between two renewals, seconds."""
NO_LEASE = (
    psycopg.errors.DiskFull,
    psycopg.errors.OutOfMemory,
    psycopg.errors.UndefinedTable,  # of a database that is not migrated yet
)
"""Errors after which the lead goes on without a lease."""
FREED_WITHIN_S = 3.0
"""Maximum wait for the lock of a session that was ended, seconds."""

LOCK = "SELECT pg_try_advisory_lock(%(lock)s)"
UNLOCK = "SELECT pg_advisory_unlock(%(lock)s)"
TAKE = """
INSERT INTO leads (name, token, sessions, renewed_at, expires_at)
VALUES (%(name)s, %(token)s, %(sessions)s::jsonb, clock_timestamp(),
    clock_timestamp() + %(lead_s)s * interval '1 second')
ON CONFLICT (name) DO UPDATE SET token = excluded.token, sessions = excluded.sessions,
    renewed_at = excluded.renewed_at, expires_at = excluded.expires_at
"""
RENEW = """
UPDATE leads SET sessions = %(sessions)s::jsonb, renewed_at = clock_timestamp(),
    expires_at = clock_timestamp() + %(lead_s)s * interval '1 second'
WHERE name = %(name)s AND token = %(token)s
"""
RETURN = "DELETE FROM leads WHERE name = %(name)s AND token = %(token)s"
END_SLEEPER = """
SELECT count(*) FILTER (WHERE pg_terminate_backend(activity.pid))
FROM leads JOIN pg_stat_activity AS activity ON leads.sessions @> to_jsonb(activity.pid)
WHERE leads.name = %(name)s AND leads.expires_at < clock_timestamp()
    AND activity.datname = current_database() AND activity.pid <> pg_backend_pid()
    AND activity.backend_start <= leads.renewed_at
    AND EXISTS (
        SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
        WHERE locktype = 'advisory' AND granted AND datname = current_database()
            AND (classid::bigint << 32) + objid::bigint = %(lock)s
            AND pg_locks.pid = (leads.sessions ->> 0)::integer
    )
"""
"""Statement that ends the sessions of a leader whose lease has run out, while it has the lock.
A number of a session may be used again, but only by a session that began after the renewal."""

log = structlog.get_logger()


class LeadOf(NamedTuple):
    """One of the leads of a database."""

    name: str
    lock: int
    """Number of the advisory lock."""
    other: type[RecrawlError]
    """Error while another process leads."""


class Heartbeat:
    """The lease of a leader, and the thread that renews it."""

    def __init__(
        self, of: LeadOf, driver: Connection, silence: Silence, renewing: sa.Engine
    ) -> None:
        self.of = of
        self.driver = driver
        self.silence = silence
        self.renewing = renewing
        self.token = secrets.randbits(62)
        self.lost = False
        """True after another process has taken the lead."""
        self._ended = threading.Event()

    def parameters(self) -> dict[str, object]:
        """Return the values of a lease; the first session is the one with the lock."""
        own = self.driver.pgconn.backend_pid
        sessions = [own, *(pid for pid in self.silence.pids() if pid != own)]
        return {
            "name": self.of.name,
            "token": self.token,
            "sessions": json.dumps(sessions),
            "lead_s": LEAD_S,
        }

    def begin(self) -> None:
        """Write the lease and renew it from now on; without a lease, the lock alone is the lead."""
        try:
            self.driver.statements.run(TAKE, self.parameters())
        except NO_LEASE:
            return
        name = f"lead of {self.of.name}"
        threading.Thread(target=self._renew_every, name=name, daemon=True).start()

    def _renew_every(self) -> None:
        while not self._ended.wait(RENEW_EVERY_S):
            with suppress(psycopg.Error, sa.exc.SQLAlchemyError):
                self.renew()

    def renew(self) -> None:
        """Renew the lease, or note that the lead is lost."""
        with taken(self.renewing) as driver:
            if not driver.statements.run(RENEW, self.parameters()).rowcount:
                self.lost = not self._ended.is_set()
                self._ended.set()

    def end(self) -> None:
        """Return the lease, then the lock."""
        self._ended.set()
        lease = {"name": self.of.name, "token": self.token}
        try:
            with suppress(*NO_LEASE):
                self.driver.statements.run(RETURN, lease)
            self.driver.statements.run(UNLOCK, {"lock": self.of.lock})
        except psycopg.Error:
            self.driver.close()  # closing releases the lock as well


@contextmanager
def leading(
    engine: sa.Engine, silence: Silence, renewing: sa.Engine, of: LeadOf
) -> Iterator[Heartbeat]:
    """Take a lead on a connection of its own; raise `of.other` while another process has it."""
    with taken(engine) as driver, as_batch(driver):
        if not locked(driver, of.lock) and not _taken_from_sleeper(driver, of):
            raise of.other
        heartbeat = Heartbeat(of, driver, silence, renewing)
        try:
            watch(driver.statements)
            heartbeat.begin()
            yield heartbeat
        finally:
            heartbeat.end()


@contextmanager
def holding(engine: sa.Engine, lock: int, other: type[RecrawlError]) -> Iterator[None]:
    """Hold an advisory lock without a lease; raise `other` while another process has it."""
    with taken(engine) as driver, as_batch(driver):
        if not locked(driver, lock):
            raise other
        try:
            watch(driver.statements)
            yield
        finally:
            try:
                driver.statements.run(UNLOCK, {"lock": lock})
            except psycopg.Error:
                driver.close()  # closing releases the lock as well


def locked(driver: Connection, lock: int) -> bool:
    """Take an advisory lock and return True, or return False while another session has it."""
    ((got,),) = driver.statements.run(LOCK, {"lock": lock})
    return bool(got)


def _taken_from_sleeper(driver: Connection, of: LeadOf) -> bool:
    """End the sessions of a leader whose lease has run out; return whether the lock is free."""
    try:
        ((n_ended,),) = driver.statements.run(END_SLEEPER, {"name": of.name, "lock": of.lock})
    except psycopg.errors.InsufficientPrivilege as error:
        log.warning("the leader sleeps, and this role may not end its sessions", reason=str(error))
        return False
    if not n_ended:
        return False
    log.warning("the leader slept; its sessions were ended", lead=of.name, n_sessions=n_ended)
    return within(FREED_WITHIN_S, lambda: locked(driver, of.lock))


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Return whether a condition becomes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True
