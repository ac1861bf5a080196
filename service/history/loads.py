"""Hosts in the order of a load.

The order is that of one measurement, so it never moves: a host that exists from the first part to
the last is in exactly one part, whatever others write meanwhile. Hosts that had no page at the
measurement, and new ones, follow in the order of host_id.
"""

from datetime import datetime
from typing import NamedTuple

import numpy as np

from service.model.arrays import Bools, Ints
from service.model.domain import Host
from service.model.host_loads import HostLoads, MeasuredLoads
from service.storage import Transaction
from service.storage.epochs.schedule import MOST_SCANNED


class LoadPlace(NamedTuple):
    """A place in an order by load."""

    row: int = 0
    """Number of measured hosts before the place."""
    after: int = 0
    """Last host_id before the place among the hosts that were not measured."""


class HostsPart(NamedTuple):
    """A part of the hosts in the order of a load."""

    hosts: list[Host]
    following: LoadPlace | None
    """Place of the next part; None: the end."""


def hosts_by_load(
    tx: Transaction,
    measured: MeasuredLoads | None,
    load: str,
    place: LoadPlace,
    limit: int,
    blocked_at: datetime | None = None,
    *,
    down: bool,
) -> HostsPart:
    """Return the next hosts in the order of a load, at most `limit`.

    With `blocked_at`, return only hosts whose queue is blocked then. The function scans at most
    `MOST_SCANNED` of the hosts that were not measured. A part with fewer hosts, even none, may
    therefore not be the last.
    """
    loads = HostLoads.empty() if measured is None else measured.loads
    blocked = None if blocked_at is None else _blocked(tx, blocked_at)
    ordered = loads.host_id[loads.order(load, down=down)]
    wanted = np.flatnonzero(_among(ordered, blocked))
    hosts: list[Host] = []
    while len(rows := wanted[wanted >= place.row][: limit - len(hosts)]):
        hosts += _hosts(tx, ordered[rows])
        place = place._replace(row=int(rows[-1]) + 1)
        if len(hosts) == limit:
            return HostsPart(hosts, place)
    ids = tx.next_host_ids(place.after, MOST_SCANNED)
    others = ids[_among(ids, blocked) & ~np.isin(ids, loads.host_id)]
    some = others[: limit - len(hosts)]
    hosts += _hosts(tx, some)
    if len(some) < len(others):
        return HostsPart(hosts, LoadPlace(len(ordered), int(some[-1])))
    # all of the scanned hosts may be left out, so the place is the last one scanned
    if len(ids) == MOST_SCANNED:
        return HostsPart(hosts, LoadPlace(len(ordered), int(ids[-1])))
    return HostsPart(hosts, None)


def _blocked(tx: Transaction, at: datetime) -> Ints:
    """Return the hosts whose queue is blocked, in any order."""
    paused = tx.paused_queues(at)
    return np.array([*paused.by_trouble, *paused.by_operator], np.int64)


def _among(host_id: Ints, blocked: Ints | None) -> Bools:
    """Return a mask of the hosts that are blocked; all of them without a filter."""
    return np.ones(len(host_id), np.bool_) if blocked is None else np.isin(host_id, blocked)


def _hosts(tx: Transaction, host_id: Ints) -> list[Host]:
    """Return those of the hosts that exist, in this order."""
    by_id = {host.host_id: host for host in tx.hosts_by_id(host_id)}
    return [by_id[host] for host in host_id.tolist() if host in by_id]
