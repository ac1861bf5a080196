"""Hosts in the order of a load.

The order is that of one measurement, so it never moves: a host that exists from the first part to
the last is in exactly one part, whatever others write meanwhile. Hosts that had no page at the
measurement, and new ones, follow in the order of host_id.
"""

from datetime import datetime
from typing import NamedTuple

import numpy as np

from service.model.domain import Host
from service.model.host_loads import HostLoads, MeasuredLoads
from service.storage import Transaction
from service.storage.epochs import MOST_SCANNED

LOOKED_UP = 5_000
"""Maximum number of hosts that one statement looks up to find blocked ones."""


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

    With `blocked_at`, return only hosts whose queue is blocked then. Because the function scans at
    most `MOST_SCANNED` hosts, a part with fewer hosts, even none, may not be the last.
    """
    loads = HostLoads.empty() if measured is None else measured.loads
    ordered = loads.host_id[loads.order(load, down=down)]
    together = limit if blocked_at is None else LOOKED_UP
    hosts: list[Host] = []
    n_scanned = 0
    while n_scanned < MOST_SCANNED:
        some = ordered[place.row : place.row + together]
        if len(some):
            end = place._replace(row=place.row + len(some))
        else:
            ids = tx.next_host_ids(place.after, MOST_SCANNED)
            if not len(ids):
                return HostsPart(hosts, None)
            n_scanned += len(ids)
            new = ids[~np.isin(ids, loads.host_id)]
            some = new[:together]
            end = place._replace(after=int(ids[-1] if len(some) == len(new) else some[-1]))
        found = {host.host_id: host for host in tx.hosts_by_id(some, blocked_at)}
        there = [n for n, host_id in enumerate(some.tolist()) if host_id in found]
        there = there[: limit - len(hosts)]
        hosts += [found[host_id] for host_id in some[there].tolist()]
        if len(hosts) == limit:
            last = there[-1]
            if place.row < len(ordered):
                return HostsPart(hosts, place._replace(row=place.row + last + 1))
            return HostsPart(hosts, place._replace(after=int(some[last])))
        place, n_scanned = end, n_scanned + len(some)
    return HostsPart(hosts, place)
