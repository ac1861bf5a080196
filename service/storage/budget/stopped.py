"""Levels of URLs whose first crawls are stopped: the contract, and the shared SQL."""

from abc import abstractmethod

from typing_extensions import override

from service.storage.budget.worth import ShownLevel
from service.storage.budget.worth_sql import SHOWN, shown_level
from service.storage.dialect import Dialect, Subject


class StoppedStatements(Subject):
    """The statement that reads stopped levels."""

    @abstractmethod
    def stopped_levels(self, limit: int) -> list[ShownLevel]:
        """Return stopped levels, at most `limit`, those first that took most crawls for nothing."""


STOPPED = f"{SHOWN} WHERE stopped ORDER BY n_first - n_new DESC, level LIMIT %(limit)s"
"""Statement for the index that has stopped levels alone."""


class StoppedSql(Dialect, StoppedStatements):
    """The statement that Postgres and SQLite share."""

    @override
    def stopped_levels(self, limit: int) -> list[ShownLevel]:
        return [shown_level(row) for row in self.read(STOPPED, limit=limit)]
