"""Windows and blackouts of hosts and groups: the contract, and the SQL of both databases."""

from abc import abstractmethod
from collections.abc import Iterable
from datetime import datetime

import numpy as np
from typing_extensions import override

from service.model.arrays import Ints
from service.model.calendars import ALWAYS_OPEN, HourRules, StoredRules, joined, split
from service.storage.budget.orders import HOURS
from service.storage.dialect import Dialect, Subject


class HoursStatements(Subject):
    """The statements on windows and blackouts."""

    @abstractmethod
    def stored_rules(self) -> StoredRules:
        """Return the windows and blackouts of all hosts and groups that have some."""

    @abstractmethod
    def save_hours(self, queue_id: int, name: str, texts: Iterable[str] | None) -> None:
        """Write the windows or blackouts of a locked host queue; None: those of a wider level."""

    @abstractmethod
    def note_hours(self, at: datetime) -> None:
        """Write that windows, blackouts or members of groups have changed."""


def follow_hours(tx: HoursStatements, version: str) -> None:
    """Read the windows and blackouts that a store has, if they have another version."""
    if tx.calendars is not ALWAYS_OPEN and tx.calendars.version != version:
        tx.calendars.adopt(version, tx.stored_rules())


RULES = """
SELECT queue_id, windows, blackouts FROM host_queues
WHERE windows IS NOT NULL OR blackouts IS NOT NULL
"""
MEMBERS_OF = """
SELECT host_id, group_id FROM hosts WHERE group_id IN (SELECT -value FROM {ids})
"""
GROUPS_OF = """
SELECT host_id, group_id FROM hosts
WHERE host_id IN (SELECT value FROM {ids}) AND group_id IS NOT NULL
"""
SAVE = {
    name: f"UPDATE host_queues SET {name} = %(text)s WHERE queue_id = %(queue_id)s"
    for name in ("windows", "blackouts")
}


class HoursSql(Dialect, HoursStatements):
    """The statements on windows and blackouts that Postgres and SQLite share."""

    @override
    def stored_rules(self) -> StoredRules:
        of_queue = {
            queue_id: HourRules(split(windows), split(blackouts) or ())
            for queue_id, windows, blackouts in self.run(RULES)
        }
        if not of_queue:
            return StoredRules()
        ids: Ints = np.array(sorted(of_queue), np.int64)
        members = dict(iter(self.run(MEMBERS_OF, ids=ids[ids < 0])))
        return StoredRules(of_queue, members | dict(iter(self.run(GROUPS_OF, ids=ids[ids > 0]))))

    @override
    def save_hours(self, queue_id: int, name: str, texts: Iterable[str] | None) -> None:
        text = None if texts is None else joined(texts)
        self.run(SAVE[name], queue_id=queue_id, text=text)

    @override
    def note_hours(self, at: datetime) -> None:
        _, _, n = self.get_meta(HOURS).partition(" ")
        # a number, because two changes may have the same time
        self.put_meta(HOURS, f"{at.isoformat()} {int(n or 0) + 1}")
