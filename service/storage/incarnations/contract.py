"""Incarnations in the store: the contract, and the SQL that both databases share.

A row of `incarnations` has the place where the database lives, and the numbers that a restore has
lost. A database without a row has not been opened yet.
"""

from abc import abstractmethod
from datetime import datetime

import numpy as np
import structlog
from typing_extensions import override

from service.model.incarnations import (
    AUDIT,
    EPOCHS,
    PAGES,
    Incarnation,
    Numbers,
    Surroundings,
    floor,
)
from service.storage.dialect import WEBHOOKS_HELD, Dialect, Subject

log = structlog.get_logger()


class IncarnationStatements(Subject):
    """The statements on the incarnations of a database."""

    @abstractmethod
    def incarnations(self) -> list[Incarnation]:
        """Return all incarnations, the oldest first."""

    @abstractmethod
    def incarnation(self) -> str:
        """Return the name of the newest incarnation; "" before the database was opened."""

    @abstractmethod
    def tables(self) -> str:
        """Return the identity of the tables, which a restored dump does not have; "": unknown."""

    @abstractmethod
    def surroundings(self) -> Surroundings:
        """Return where the database lives now."""

    @abstractmethod
    def last_numbers(self) -> Numbers:
        """Return the last numbers that the database handed out, also of what was deleted."""

    @abstractmethod
    def lock_incarnation(self) -> Incarnation | None:
        """Lock and return the newest incarnation; None: there is none."""

    @abstractmethod
    def settle_incarnation(self, number: int, place: str, timeline: str) -> None:
        """Write where an incarnation lives now."""

    @abstractmethod
    def begin_incarnation(
        self, before: Incarnation | None, present: Surroundings, rng: np.random.Generator
    ) -> Incarnation:
        """Begin an incarnation after another one, whose numbers do not come again.

        Epochs that were not published before the backup fail, because they may have been published
        after it. A requested one is requested again, with a new number.

        Sessions of the console end, because some were signed out after the backup. Active webhooks
        send nothing before `release_webhooks`, because the database may be a copy.
        """

    @abstractmethod
    def webhooks_held(self) -> datetime | None:
        """Return the time of the restore since which no webhook sends; None: webhooks send."""

    @abstractmethod
    def release_webhooks(self) -> bool:
        """Let webhooks send again; return whether they were held."""

    @abstractmethod
    def begin_first(self, present: Surroundings, rng: np.random.Generator) -> None:
        """Begin the first incarnation; numbers go on as they are."""


COLUMNS = ", ".join(Incarnation._fields)
ALL = f"SELECT {COLUMNS} FROM incarnations ORDER BY number"
NEWEST = f"SELECT {COLUMNS} FROM incarnations ORDER BY number DESC LIMIT 1"
NAME = "SELECT name FROM incarnations ORDER BY number DESC LIMIT 1"
LOCK = "SELECT number FROM incarnations ORDER BY number {lock_rows}"
SETTLE = """
UPDATE incarnations SET place = %(place)s, timeline = %(timeline)s WHERE number = %(number)s
"""
ADD = f"""
INSERT INTO incarnations ({COLUMNS})
VALUES ({", ".join(f"%({name})s" for name in Incarnation._fields)})
ON CONFLICT (number) DO NOTHING
"""
FAIL_EPOCHS = """
UPDATE epochs SET status = 'failed', reason = %(reason)s, finished_at = %(now)s
WHERE status IN ('requested', 'running')
"""
IS_REQUESTED = "SELECT count(*) FROM epochs WHERE status = 'requested'"
REQUEST = "INSERT INTO epochs (status, requested_at) VALUES ('requested', %(now)s)"
LOST_RUN = "the database was restored before the epoch was published"
ACTIVE_WEBHOOKS = "SELECT count(*) FROM webhooks WHERE status = 'active'"
RELEASE_WEBHOOKS = f"DELETE FROM meta WHERE name = '{WEBHOOKS_HELD}'"
WEBHOOKS_WAIT = (
    "webhooks of the restored database are held, because it may be a copy; `recrawl send-webhooks` "
    "lets them send"
)
END_SESSIONS = "DELETE FROM meta WHERE name = 'console_secret'"


class IncarnationsSql(Dialect, IncarnationStatements):
    """The statements on incarnations that Postgres and SQLite share."""

    @override
    def incarnations(self) -> list[Incarnation]:
        return [Incarnation(**row) for row in self.read(ALL)]

    @override
    def incarnation(self) -> str:
        return self.scalar(NAME) or ""

    @override
    def lock_incarnation(self) -> Incarnation | None:
        list(self.run(LOCK))
        # a second statement, which sees what another process committed before the lock
        rows = self.read(NEWEST)
        return Incarnation(**rows[0]) if rows else None

    @override
    def settle_incarnation(self, number: int, place: str, timeline: str) -> None:
        self.run(SETTLE, number=number, place=place, timeline=timeline)

    @override
    def begin_incarnation(
        self, before: Incarnation | None, present: Surroundings, rng: np.random.Generator
    ) -> Incarnation:
        now, last = self.now(), self.last_numbers()
        page, epoch, entry = rng.random(3).tolist()
        first = Numbers(
            page=floor(PAGES, last.page, now, page),
            epoch=floor(EPOCHS, last.epoch, now, epoch),
            change=self.next_change(),
            entry=floor(AUDIT, last.entry, now, entry),
        )
        begun = Incarnation(
            number=1 if before is None else before.number + 1,
            name=rng.bytes(4).hex(),
            began_at=now,
            place=present.place,
            timeline=present.timeline,
            last_page=self.least_last_page(),
            first_page=first.page,
            last_epoch=last.epoch,
            first_epoch=first.epoch,
            last_change=last.change,
            first_change=first.change,
        )
        self.run(ADD, **begun._asdict())
        is_requested = self.scalar(IS_REQUESTED)
        self.run(FAIL_EPOCHS, reason=LOST_RUN, now=now)
        self.advance(first)
        if is_requested:
            self.run(REQUEST, now=now)
        self.run(END_SESSIONS)
        if n := self.scalar(ACTIVE_WEBHOOKS):
            self.put_meta(WEBHOOKS_HELD, now.isoformat())
            log.warning(WEBHOOKS_WAIT, n=n)
        return begun

    @override
    def webhooks_held(self) -> datetime | None:
        at = self.get_meta(WEBHOOKS_HELD)
        return datetime.fromisoformat(at) if at else None

    @override
    def release_webhooks(self) -> bool:
        return bool(self.run(RELEASE_WEBHOOKS).rowcount)

    @override
    def begin_first(self, present: Surroundings, rng: np.random.Generator) -> None:
        nothing = dict.fromkeys(Incarnation._fields[-6:], 0)
        own = {"number": 1, "name": rng.bytes(4).hex(), "began_at": self.now()}
        self.run(ADD, **own, place=present.place, timeline=present.timeline, **nothing)

    def least_last_page(self) -> int:
        """Return the last page_id of the shard that handed out the fewest."""
        return self.last_numbers().page

    @abstractmethod
    def next_change(self) -> int:
        """Return the least number that the next block of the feed can have."""

    @abstractmethod
    def advance(self, first: Numbers) -> None:
        """Let the next page, epoch and entry of the audit have these numbers."""
