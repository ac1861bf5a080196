"""Orders of operators that hold for all servers: the contract, and the SQL of both databases."""

from abc import abstractmethod
from datetime import datetime
from typing import NamedTuple

from typing_extensions import override

from service.storage.dialect import Dialect, Subject
from service.storage.topics import Topic


class Orders(NamedTuple):
    """Orders in force."""

    budget: str = ""
    """Amount a day, such as `10000 crawls`; "": that of the settings."""
    budget_at: datetime | None = None
    """Instant of the order about the budget; None: there was none."""
    paused_until: datetime | None = None
    """Instant before which no server leases; None: no order."""
    hours: str = ""
    """Version of the windows and blackouts of hosts and groups; "": there are none."""


NO_ORDERS = Orders()


class OrderStatements(Subject):
    """The statements on orders."""

    @abstractmethod
    def orders(self) -> Orders:
        """Return the orders in force."""

    @abstractmethod
    def order_budget(self, budget: str, at: datetime) -> None:
        """Write the budget that an operator wants; "": that of the settings."""

    @abstractmethod
    def order_pause(self, until: datetime | None) -> None:
        """Write the end of the pause of all hosts; None ends it."""


BUDGET, PAUSE, HOURS = "ordered_budget", "ordered_pause", "host_hours"
ORDERS = f"SELECT name, value FROM meta WHERE name IN ('{BUDGET}', '{PAUSE}', '{HOURS}')"


class OrderSql(Dialect, OrderStatements):
    """The statements on orders in the SQL of both databases."""

    @override
    def orders(self) -> Orders:
        stored = dict(iter(self.run(ORDERS)))
        at, _, budget = stored.get(BUDGET, "").partition(" ")
        until = stored.get(PAUSE, "")
        return Orders(budget, _moment(at), _moment(until), stored.get(HOURS, ""))

    @override
    def order_budget(self, budget: str, at: datetime) -> None:
        self.put_meta(BUDGET, f"{at.isoformat()} {budget}")
        self.ring(Topic.orders)

    @override
    def order_pause(self, until: datetime | None) -> None:
        self.put_meta(PAUSE, "" if until is None else until.isoformat())
        self.ring(Topic.orders)


def _moment(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
