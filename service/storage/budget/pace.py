"""The pace in the store: the contract, and the SQL that both databases share.

One row has the state of the gate (`core.pace`) for all servers. A transaction that locks the row
does nothing else, so that no lease waits for long.
"""

from abc import abstractmethod
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from typing_extensions import override

from service.core.pace import Pace
from service.model.amounts import CRAWLS
from service.model.arrays import UNIX_ZERO
from service.model.errors import OtherUnit
from service.storage.dialect import Dialect, Subject, assignments

DAY = timedelta(days=1)
UNIT = "pace_unit"
"""Name of the entry of `meta` with the unit of the pace; without one: crawls."""
UNIT_SINCE = "pace_unit_since"
"""Name of the entry of `meta` with the time of its last change."""


class PaceStatements(Subject):
    """The statements on the pace; its instants are days since 1970."""

    @abstractmethod
    def pace(self) -> Pace | None:
        """Return the pace; None: no server has taken an amount yet."""

    @abstractmethod
    def lock_pace(self) -> Pace | None:
        """Return the pace, locked until the transaction ends; None: this transaction adds it."""

    @abstractmethod
    def save_pace(self, pace: Pace, unit: str) -> None:
        """Write the locked pace, whose amounts have a unit.

        Raises
        ------
        OtherUnit
            The pace has another unit by now, because somebody has set another budget.
        """

    @abstractmethod
    def pace_unit(self) -> str | None:
        """Return the unit of the pace; None: crawls."""

    @abstractmethod
    def set_pace_unit(self, unit: str) -> None:
        """Write the unit of the pace, from now on."""

    @abstractmethod
    def pace_unit_since(self) -> datetime | None:
        """Return the time of the last change of the unit; None: it has never changed.

        Amounts that crawls spent before are in another unit.
        """


AMOUNTS = tuple(field.name for field in fields(Pace) if field.name != "at")
PACE = f"SELECT at, {', '.join(AMOUNTS)} FROM pace WHERE pace_id = 1"
LOCK_PACE = f"{PACE} {{lock_rows}}"
ADD_PACE = "INSERT INTO pace (pace_id) VALUES (1) ON CONFLICT DO NOTHING"
SAVE_PACE = f"""
UPDATE pace SET at = %(at)s, {assignments(AMOUNTS)}
WHERE pace_id = 1
    AND coalesce((SELECT value FROM meta WHERE name = '{UNIT}'), '{CRAWLS}') = %(unit)s
"""


def days_since_1970(moment: datetime) -> float:
    """Return an instant as days since 1970, which a midnight UTC begins."""
    return (moment - UNIX_ZERO) / DAY


def moment_of(days: float) -> datetime:
    """Return days since 1970 as an instant."""
    return UNIX_ZERO + timedelta(days=days)


def _first(rows: list[dict[str, Any]]) -> Pace | None:
    for row in rows:
        if row["at"] is not None:
            amounts = {name: row[name] or 0.0 for name in AMOUNTS}  # later columns have NULL
            return Pace(at=days_since_1970(row["at"]), **amounts)
    return None


class PaceSql(Dialect, PaceStatements):
    """The statements on the pace that Postgres and SQLite share."""

    @override
    def pace(self) -> Pace | None:
        return _first(self.read(PACE))

    @override
    def lock_pace(self) -> Pace | None:
        rows = self.read(LOCK_PACE)
        if not rows:
            self.run(ADD_PACE)  # waits for another transaction that adds it
            rows = self.read(LOCK_PACE)
        return _first(rows)

    @override
    def save_pace(self, pace: Pace, unit: str) -> None:
        amounts = {name: getattr(pace, name) for name in AMOUNTS}
        saved = self.run(SAVE_PACE, at=moment_of(pace.at), unit=unit, **amounts)
        if not saved.rowcount:
            raise OtherUnit(f"the budget is in {self.pace_unit() or CRAWLS}, not in {unit}")

    @override
    def pace_unit(self) -> str | None:
        return self.get_meta(UNIT) or None

    @override
    def set_pace_unit(self, unit: str) -> None:
        if self.pace() is not None or self.pace_unit():  # not the first budget of all
            self.put_meta(UNIT_SINCE, self.now().isoformat())
        self.put_meta(UNIT, unit)

    @override
    def pace_unit_since(self) -> datetime | None:
        since = self.get_meta(UNIT_SINCE)
        return datetime.fromisoformat(since) if since else None
