"""Clocks of hosts, and the crawls that an epoch moved: contract and shared SQL.

A row of `clocks` takes about 1 KB: 238 numbers of four bytes. An epoch reads all rows with a clock,
but only their profiles. It reads and writes the evidence of the hosts that learn, few of all hosts.
"""

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.core.clocks.evidence import WIDTH
from service.core.clocks.profile import TERMS
from service.core.timing import delay_in_force
from service.model.arrays import Floats, Ints
from service.model.columns import ClockColumns, HostClocks, ShiftColumns
from service.storage.dialect import HOST_QUEUE, Dialect, Subject


class ClockStatements(Subject):
    """The statements of clocks."""

    @abstractmethod
    def host_clocks(self) -> HostClocks:
        """Return the hosts with a clock, by ascending host_id."""

    @abstractmethod
    def clocks(self, host_id: Ints) -> ClockColumns:
        """Return the evidence of those of these hosts that have any, by ascending host_id."""

    @abstractmethod
    def shifts(self, epoch: int) -> ShiftColumns:
        """Return the pages whose crawls an epoch moved, by ascending page_id."""


HOSTS_TOGETHER = 10_000
"""Hosts whose evidence one statement reads or writes: 10 MB."""

OF_CLOCK = ("host_id", "learnt_at", "has_clock", "evidence", "profile")
EVIDENCE, PROFILE = f"V{4 * WIDTH}", f"V{4 * (1 + TERMS)}"
"""Types of packed rows, numbers of four bytes."""

RENEW_CLOCK = f"""ON CONFLICT (host_id) DO UPDATE SET
    {", ".join(f"{name} = excluded.{name}" for name in OF_CLOCK[1:])}"""
"""End of an INSERT that replaces the evidence of hosts."""
CLOCKS = """
SELECT host_id, learnt_at, evidence, profile FROM clocks
WHERE host_id IN (SELECT value FROM {ids}) ORDER BY host_id
"""
HOST_CLOCKS = f"""
SELECT clocks.host_id, profile, coalesce(used.min_delay_s, 'NaN') AS min_delay_s,
    coalesce(used.robots_delay_s, 'NaN') AS robots_delay_s
FROM clocks JOIN hosts ON hosts.host_id = clocks.host_id
LEFT JOIN host_queues AS used ON used.queue_id = {HOST_QUEUE}
WHERE has_clock ORDER BY clocks.host_id
"""


class ClocksSql(Dialect, ClockStatements):
    """The statements on clocks that Postgres and SQLite share."""

    @override
    def host_clocks(self) -> HostClocks:
        dtypes = {"host_id": "i8", "profile": PROFILE, "min_delay_s": "f8", "robots_delay_s": "f8"}
        rows: dict[str, Any] = self.arrays(HOST_CLOCKS, dtypes)
        delay_s = delay_in_force(rows["min_delay_s"], rows["robots_delay_s"], np.nan)
        profile = _numbers(rows["profile"], 1 + TERMS)
        return HostClocks(host_id=rows["host_id"], profile=profile, delay_s=delay_s)

    @override
    def clocks(self, host_id: Ints) -> ClockColumns:
        if not len(host_id):
            return ClockColumns.empty(evidence=(WIDTH,), profile=(1 + TERMS,))
        blocks = range(0, len(host_id), HOSTS_TOGETHER)
        parts = [self._clocks(host_id[start : start + HOSTS_TOGETHER]) for start in blocks]
        return ClockColumns.concatenate(parts)

    def _clocks(self, host_id: Ints) -> ClockColumns:
        """Return the evidence of some hosts."""
        names = {"host_id": "i8", "learnt_at": "M8[us]", "evidence": EVIDENCE, "profile": PROFILE}
        rows: dict[str, Any] = self.arrays(CLOCKS, names, ids=host_id)
        rows["evidence"] = _numbers(rows["evidence"], WIDTH)
        rows["profile"] = _numbers(rows["profile"], 1 + TERMS)
        return ClockColumns(**rows)

    @abstractmethod
    def save_clocks(self, clocks: ClockColumns) -> None:
        """Write the evidence of hosts, whether they have any or not."""


def stored(clocks: ClockColumns) -> dict[str, NDArray[Any]]:
    """Return the columns of `OF_CLOCK`."""
    return {
        "host_id": clocks.host_id,
        "learnt_at": clocks.learnt_at,
        "has_clock": clocks.profile[:, 0] > 0,
        "evidence": _packed(clocks.evidence, EVIDENCE),
        "profile": _packed(clocks.profile, PROFILE),
    }


def _packed(rows: Floats, dtype: str) -> NDArray[np.void]:
    return np.ascontiguousarray(rows, "<f4").view(dtype)[:, 0]


def _numbers(packed: NDArray[Any], width: int) -> Floats:
    return packed.view("<f4").reshape(len(packed), width).astype(np.float64)
