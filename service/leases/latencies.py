"""Latencies of host queues, learnt from the reports of crawls. Pure."""

from dataclasses import replace

import numpy as np

from service.core import latency
from service.core.latency import Latency
from service.leases.politeness import Politeness, latency_factors, latency_of
from service.model.arrays import Bools, Floats, Ints, rounds
from service.storage.queue.columns import HostQueues


def after_crawls(
    host_queues: HostQueues,
    row: Ints,
    seconds: Floats,
    failed: Bools,
    polite: Politeness,
) -> HostQueues:
    """Return host queues after (K,) crawls, those of one host queue in the order of their times.

    Host queues without a factor on the latency keep none. The last `latency.LAST` crawls
    of each host queue in a batch count.
    """
    counts = (seconds > 0) & (latency_factors(host_queues, polite) > 0)[row]
    if not counts.any():
        return host_queues
    row, seconds, failed = row[counts], seconds[counts], failed[counts]
    order = np.argsort(row, kind="stable")
    last = _from_the_end(row[order]) < latency.LAST
    order = order[last]
    row, seconds, failed = row[order], seconds[order], failed[order]
    present, usual, n = latency_of(host_queues)
    learnt = Latency(present.copy(), usual.copy(), n.copy())
    for some in rounds(row):
        where = row[some]
        own = Latency(learnt.present[where], learnt.usual[where], learnt.n[where])
        for column, new in zip(
            learnt, latency.learn(own, seconds[some], failed[some]), strict=True
        ):
            column[where] = new
    return replace(
        host_queues,
        latency_s=learnt.present,
        usual_latency_s=learnt.usual,
        n_latencies=learnt.n,
    )


def _from_the_end(row: Ints) -> Ints:
    """Return the number of crawls behind each crawl of the same row; rows ascend.

    >>> _from_the_end(np.array([3, 3, 5])).tolist()
    [1, 0, 0]
    """
    return np.searchsorted(row, row, "right") - 1 - np.arange(len(row))
