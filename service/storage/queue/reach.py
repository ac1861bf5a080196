"""The reach of a worker: the conditions of its filter on host queues, and their parameters."""

from datetime import timedelta
from typing import Any

import numpy as np

from service.storage.dialect import HOST_QUEUE
from service.storage.queue.columns import LeaseFilter

MICROSECOND = timedelta(microseconds=1)
"""Resolution of instants: what is before the next one is due now."""
IS_DUE = "next_at < %(before)s AND feed IS NULL"
"""Condition of a due row that may be leased: a lease that runs has a later bound, its end."""
IN_SLICE = "abs(queue_id) %% %(slices)s = %(slice)s"
IN_HOSTS = f"queue_id IN (SELECT {HOST_QUEUE} FROM hosts WHERE host {{in_hosts}})"


def in_reach(of: LeaseFilter) -> list[str]:
    """Return the conditions on host queues of a filter."""
    return ([IN_HOSTS] if of.hosts else []) + ([IN_SLICE] if of.slices > 1 else [])


def filters(of: LeaseFilter) -> dict[str, Any]:
    """Return the parameters of the conditions of a filter."""
    hosts: dict[str, Any] = {"hosts": np.array(of.hosts, object)} if of.hosts else {}
    return hosts | ({"slice": of.slice, "slices": of.slices} if of.slices > 1 else {})
