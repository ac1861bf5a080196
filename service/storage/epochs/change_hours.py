"""Change hours of hosts, and the crawls that an epoch shifted: contract and shared SQL.

A row of `change_hours` takes about 1 KB: 238 numbers of four bytes. An epoch reads all rows with
change hours, but only their profiles. It reads and writes the evidence of the hosts that learn, few
of all hosts.
"""

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.core.change_hours.evidence import WIDTH
from service.core.change_hours.profile import TERMS
from service.core.waits import delay_in_force
from service.model.arrays import Floats, Ints
from service.model.columns import ChangeHours, HostHours, ShiftColumns
from service.storage.dialect import HOST_QUEUE, Dialect, Subject


class ClockStatements(Subject):
    """The statements of change hours."""

    @abstractmethod
    def host_hours(self) -> HostHours:
        """Return the hosts with change hours, by ascending host_id."""

    @abstractmethod
    def change_hours(self, host_id: Ints) -> ChangeHours:
        """Return the evidence of those of these hosts that have any, by ascending host_id."""

    @abstractmethod
    def shifts(self, epoch: int) -> ShiftColumns:
        """Return the pages whose crawls an epoch shifted, by ascending page_id."""


HOSTS_TOGETHER = 10_000
"""Hosts whose evidence one statement reads or writes: 10 MB."""

OF_HOURS = ("host_id", "learnt_at", "has_hours", "evidence", "profile")
EVIDENCE, PROFILE = f"V{4 * WIDTH}", f"V{4 * (1 + TERMS)}"
"""Types of packed rows, numbers of four bytes."""

RENEW_HOURS = f"""ON CONFLICT (host_id) DO UPDATE SET
    {", ".join(f"{name} = excluded.{name}" for name in OF_HOURS[1:])}"""
"""End of an INSERT that replaces the evidence of hosts."""
CHANGE_HOURS = """
SELECT host_id, learnt_at, evidence, profile FROM change_hours
WHERE host_id IN (SELECT value FROM {ids}) ORDER BY host_id
"""
HOST_HOURS = f"""
SELECT change_hours.host_id, profile, coalesce(used.min_delay_s, 'NaN') AS min_delay_s,
    coalesce(used.robots_delay_s, 'NaN') AS robots_delay_s
FROM change_hours JOIN hosts ON hosts.host_id = change_hours.host_id
LEFT JOIN host_queues AS used ON used.queue_id = {HOST_QUEUE}
WHERE has_hours ORDER BY change_hours.host_id
"""


class ChangeHoursSql(Dialect, ClockStatements):
    """The statements on change hours that Postgres and SQLite share."""

    @override
    def host_hours(self) -> HostHours:
        dtypes = {"host_id": "i8", "profile": PROFILE, "min_delay_s": "f8", "robots_delay_s": "f8"}
        rows: dict[str, Any] = self.arrays(HOST_HOURS, dtypes)
        delay_s = delay_in_force(rows["min_delay_s"], rows["robots_delay_s"], np.nan)
        profile = numbers(rows["profile"], 1 + TERMS)
        return HostHours(host_id=rows["host_id"], profile=profile, delay_s=delay_s)

    @override
    def change_hours(self, host_id: Ints) -> ChangeHours:
        if not len(host_id):
            return ChangeHours.empty(evidence=(WIDTH,), profile=(1 + TERMS,))
        blocks = range(0, len(host_id), HOSTS_TOGETHER)
        parts = [self._change_hours(host_id[start : start + HOSTS_TOGETHER]) for start in blocks]
        return ChangeHours.concatenate(parts)

    def _change_hours(self, host_id: Ints) -> ChangeHours:
        """Return the evidence of some hosts."""
        names = {"host_id": "i8", "learnt_at": "M8[us]", "evidence": EVIDENCE, "profile": PROFILE}
        rows: dict[str, Any] = self.arrays(CHANGE_HOURS, names, ids=host_id)
        rows["evidence"] = numbers(rows["evidence"], WIDTH)
        rows["profile"] = numbers(rows["profile"], 1 + TERMS)
        return ChangeHours(**rows)

    @abstractmethod
    def save_change_hours(self, change_hours: ChangeHours) -> None:
        """Write the evidence of hosts, whether they have any or not."""


def stored(change_hours: ChangeHours) -> dict[str, NDArray[Any]]:
    """Return the columns of `OF_HOURS`."""
    return {
        "host_id": change_hours.host_id,
        "learnt_at": change_hours.learnt_at,
        "has_hours": change_hours.profile[:, 0] > 0,
        "evidence": packed_rows(change_hours.evidence, EVIDENCE),
        "profile": packed_rows(change_hours.profile, PROFILE),
    }


def packed_rows(rows: Floats, dtype: str) -> NDArray[np.void]:
    """Return (N,) packed rows of numbers of four bytes."""
    return np.ascontiguousarray(rows, "<f4").view(dtype)[:, 0]


def numbers(packed: NDArray[Any], width: int) -> Floats:
    """Return (N, width) numbers of packed rows."""
    return packed.view("<f4").reshape(len(packed), width).astype(np.float64)
