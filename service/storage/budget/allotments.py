"""Amounts that servers hold of the pace: the contract, and the SQL of both databases.

A server writes what it draws, and each lease takes its part in its own transaction. So the row of a
server that died has what no lease has taken, and goes back to the pace after its end.
"""

from abc import abstractmethod
from datetime import datetime
from typing import NamedTuple

from typing_extensions import override

from service.core.pace import TakenAmounts
from service.model.errors import AllotmentOver
from service.storage.dialect import Dialect, Subject


class HeldAmounts(NamedTuple):
    """Amounts of a day that no lease has taken yet."""

    server: int
    on_day: int
    """Days from 1970 to the day UTC."""
    unit: str
    due: float
    """Amount without the loan."""
    on_loan: float = 0.0
    n_first: float = 0.0
    """Number of first crawls."""

    @property
    def amounts(self) -> TakenAmounts:
        """The amounts as the pace counts them."""
        return TakenAmounts(self.due + self.on_loan, self.on_loan, self.n_first)


class AllotmentStatements(Subject):
    """The statements on the amounts that servers hold."""

    @abstractmethod
    def take_allotments(self, server: int, now: datetime) -> list[HeldAmounts]:
        """Delete and return the row of a server, and those that have ended, unless locked."""

    @abstractmethod
    def add_allotment(self, held: HeldAmounts, until: datetime) -> None:
        """Write what a server without a row holds until a time."""

    @abstractmethod
    def use_allotment(self, server: int, amounts: TakenAmounts) -> None:
        """Take what leases of this transaction use of a server's row.

        Raises
        ------
        AllotmentOver
            The server has no row, because it has ended.
        """

    @abstractmethod
    def allotments(self) -> list[HeldAmounts]:
        """Return what all servers hold, in the order of their numbers."""


COLUMNS = "server, on_day, unit, due, on_loan, n_first"
TAKE = f"""
DELETE FROM allotments WHERE server = %(server)s OR server IN (
    SELECT server FROM allotments WHERE ends_at <= %(now)s {{lock_free_rows}}
)
RETURNING {COLUMNS}
"""
ADD = f"""
INSERT INTO allotments ({COLUMNS}, ends_at)
VALUES (%(server)s, %(on_day)s, %(unit)s, %(due)s, %(on_loan)s, %(n_first)s, %(ends_at)s)
"""
USE = """
UPDATE allotments SET
    due = {greatest}(due - %(due)s, 0.0),
    on_loan = {greatest}(on_loan - %(on_loan)s, 0.0),
    n_first = {greatest}(n_first - %(n_first)s, 0.0)
WHERE server = %(server)s
"""
ALL = f"SELECT {COLUMNS} FROM allotments ORDER BY server"


class AllotmentSql(Dialect, AllotmentStatements):
    """The statements on the amounts that servers hold, in the SQL of both databases."""

    @override
    def take_allotments(self, server: int, now: datetime) -> list[HeldAmounts]:
        return [HeldAmounts(**row) for row in self.read(TAKE, server=server, now=now)]

    @override
    def add_allotment(self, held: HeldAmounts, until: datetime) -> None:
        self.run(ADD, **held._asdict(), ends_at=until)

    @override
    def use_allotment(self, server: int, amounts: TakenAmounts) -> None:
        used = {
            "due": amounts.total - amounts.on_loan,
            "on_loan": amounts.on_loan,
            "n_first": amounts.first,
        }
        if not self.run(USE, server=server, **used).rowcount:
            raise AllotmentOver

    @override
    def allotments(self) -> list[HeldAmounts]:
        return [HeldAmounts(**row) for row in self.read(ALL)]
