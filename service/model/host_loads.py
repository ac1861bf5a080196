"""Loads of hosts, as they were measured at one instant: an order of hosts that never moves."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec
import numpy as np
import zstandard

from service.model.arrays import Columns, Floats, Ints

LOADS = ("n_pages", "n_overdue", "asked_rate")
"""Loads of a host, by their names in answers."""
LoadOrder = Literal["n_pages", "-n_pages", "n_overdue", "-n_overdue", "asked_rate", "-asked_rate"]
"""Order of a list of hosts by a load; a minus means descending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoads(Columns):
    """(H,) hosts with pages, by ascending host_id."""

    host_id: Ints
    n_pages: Ints
    """Pages that are not gone."""
    n_overdue: Ints
    """Pages that were due before."""
    asked_rate: Floats
    """Crawls a day at which the pages fall due."""

    @classmethod
    def of(cls, host_id: Ints, overdue: Floats, asked_rate: Floats) -> "HostLoads":
        """Return the sums over (N,) pages by their hosts."""
        hosts, row = np.unique(host_id, return_inverse=True)
        return cls(
            host_id=hosts,
            n_pages=np.bincount(row, minlength=len(hosts)),
            n_overdue=np.bincount(row, overdue, len(hosts)).astype(np.int64),
            asked_rate=np.bincount(row, asked_rate, len(hosts)).astype(np.float64),
        )

    def merged(self) -> "HostLoads":
        """Return one row for each host, with the sums of its rows."""
        hosts, row = np.unique(self.host_id, return_inverse=True)
        n_pages, n_overdue, asked_rate = (
            np.bincount(row, column, len(hosts))
            for column in (self.n_pages, self.n_overdue, self.asked_rate)
        )
        return HostLoads(
            host_id=hosts,
            n_pages=np.rint(n_pages).astype(np.int64),
            n_overdue=np.rint(n_overdue).astype(np.int64),
            asked_rate=asked_rate.astype(np.float64),
        )

    def scaled(self, factor: float) -> "HostLoads":
        """Return the loads times a factor: those of all pages, from a sample."""
        return HostLoads(
            host_id=self.host_id,
            n_pages=np.rint(self.n_pages * factor).astype(np.int64),
            n_overdue=np.rint(self.n_overdue * factor).astype(np.int64),
            asked_rate=self.asked_rate * factor,
        )

    def rows(self, host_id: Sequence[int]) -> list[dict[str, Any] | None]:
        """Return the loads of hosts by name; None for a host without a row."""
        ids = np.array(host_id, np.int64)
        at = np.minimum(self.host_id.searchsorted(ids), max(len(self) - 1, 0))
        there = np.isin(ids, self.host_id)
        columns = (getattr(self, name)[at[there]].tolist() for name in LOADS)
        rows = (dict(zip(LOADS, row, strict=True)) for row in zip(*columns, strict=True))
        return [next(rows) if measured else None for measured in there.tolist()]

    def order(self, load: str, *, down: bool) -> Ints:
        """Return the rows by a load; equal hosts are in the order of host_id.

        >>> loads = HostLoads.of(np.array([7, 8, 8, 9]), np.zeros(4), np.ones(4))
        >>> loads.host_id[loads.order("n_pages", down=True)].tolist()
        [8, 7, 9]
        """
        column = getattr(self, load)
        return np.argsort(-column if down else column, kind="stable")


@dataclass(frozen=True, slots=True)
class MeasuredLoads:
    """Loads of all hosts at an instant."""

    measured_at: datetime
    sampled_share: float
    """Share of the pages that were measured."""
    loads: HostLoads


class _PackedLoads(msgspec.Struct, array_like=True):
    sampled_share: float
    hosts: bytes
    """Differences of ascending host_ids."""
    n_pages: bytes
    n_overdue: bytes
    asked_rate: bytes


def packed_loads(measured: MeasuredLoads) -> bytes:
    """Return loads in bytes, without their instant."""
    loads = measured.loads
    own = _PackedLoads(
        measured.sampled_share,
        np.diff(loads.host_id, prepend=0).astype("<i8").tobytes(),
        loads.n_pages.astype("<u4").tobytes(),
        loads.n_overdue.astype("<u4").tobytes(),
        loads.asked_rate.astype("<f4").tobytes(),
    )
    return zstandard.compress(msgspec.msgpack.encode(own), level=1)


def unpacked_loads(measured_at: datetime, content: bytes) -> MeasuredLoads:
    """Return loads from their bytes."""
    own = msgspec.msgpack.decode(zstandard.decompress(content), type=_PackedLoads)
    loads = HostLoads(
        host_id=np.cumsum(np.frombuffer(own.hosts, "<i8")),
        n_pages=np.frombuffer(own.n_pages, "<u4").astype(np.int64),
        n_overdue=np.frombuffer(own.n_overdue, "<u4").astype(np.int64),
        asked_rate=np.frombuffer(own.asked_rate, "<f4").astype(np.float64),
    )
    return MeasuredLoads(measured_at, own.sampled_share, loads)
