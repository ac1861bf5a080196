"""Costs of pages: the contract, and the SQL that both databases share."""

from abc import abstractmethod

import numpy as np
from typing_extensions import override

from service.model.arrays import Floats, Ints
from service.storage.dialect import Dialect, Subject

SAMPLED = 1_000
"""Maximum number of pages of a host whose mean cost stands for all."""


class CostStatements(Subject):
    """The statements on costs of pages, which are in one unit."""

    @abstractmethod
    def cost_unit(self) -> str | None:
        """Return the unit of the stored costs; None before the first."""

    @abstractmethod
    def set_cost_unit(self, unit: str) -> None:
        """Write the unit of the stored costs."""

    @abstractmethod
    def clear_costs(self, page_id: Ints) -> None:
        """Forget the costs of pages from the first of these ids to the last."""

    @abstractmethod
    def costs_of(self, page_id: Ints) -> Floats:
        """Return (N,) costs of pages, which are distinct and ascending; 0 where none is known."""

    @abstractmethod
    def host_costs(self, host_id: Ints, most: float) -> Floats:
        """Return (H,) mean costs of pages of hosts, at most `SAMPLED` each; 0 where none is known.

        The ids are distinct and ascending. Costs above `most` do not count.
        """


CLEAR_COSTS = """
UPDATE page_states SET cost = NULL
WHERE page_id BETWEEN %(first)s AND %(last)s AND cost IS NOT NULL
"""
COSTS_OF = """
SELECT page_id, cost FROM page_states
WHERE page_id IN (SELECT value FROM {ids}) AND cost IS NOT NULL
"""
HOST_COSTS = f"""
SELECT host_id, (
    SELECT avg(CASE WHEN cost <= %(most)s THEN cost END) FROM (
        SELECT cost FROM pages JOIN page_states ON page_states.page_id = pages.page_id
        WHERE pages.host_id = hosts.host_id LIMIT {SAMPLED}
    ) AS sampled
) FROM hosts WHERE host_id IN (SELECT value FROM {{ids}})
"""


class CostSql(Dialect, CostStatements):
    """The statements on costs in the SQL of both databases."""

    @override
    def cost_unit(self) -> str | None:
        return self.get_meta("cost_unit") or None

    @override
    def set_cost_unit(self, unit: str) -> None:
        self.put_meta("cost_unit", unit)

    @override
    def clear_costs(self, page_id: Ints) -> None:
        self.run(CLEAR_COSTS, first=int(page_id[0]), last=int(page_id[-1]))

    @override
    def costs_of(self, page_id: Ints) -> Floats:
        costs = dict(iter(self.run(COSTS_OF, ids=page_id)))
        return np.array([costs.get(page, 0.0) for page in page_id.tolist()], np.float64)

    @override
    def host_costs(self, host_id: Ints, most: float) -> Floats:
        rows = self.run(HOST_COSTS, ids=host_id, most=most)
        means = {host: mean or 0.0 for host, mean in rows}
        return np.array([means.get(host, 0.0) for host in host_id.tolist()], np.float64)
