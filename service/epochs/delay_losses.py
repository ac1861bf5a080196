"""Hosts whose delay costs much freshness: it permits fewer crawls than the plan would have.

A plan with much budget crawls most pages more often than any delay permits, and gains hardly
anything by it. So the freshness that a host loses decides, and not the crawls.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from service.core.common_values import Contribution, Joint, anywhere
from service.core.costs import costs
from service.epochs.capacities import LEAST_LOST, MOST_LOSSES, Capacities
from service.model.arrays import Floats
from service.model.domain import Timing

LEAST_STALER = 0.05
"""Least share of a host's importance that its delay makes stale for the host to be named."""


class DelayLoss(NamedTuple):
    """Crawls of a host, or of its group, that its delay does not permit."""

    host: str
    """The host with most crawls of its host queue."""
    wanted: float
    """Crawls a day that the plan would have without the delay."""
    permitted: float
    """Crawls a day at the delay, all day long."""
    staler: float
    """Share of the importance of its pages with crawls that is stale for want of more, 0 to 1."""
    since: float
    """Start of the first epoch in a row that has named the host, seconds since 1970."""


def delay_losses(
    capacities: Capacities | None,
    pages: tuple[Floats, Floats],
    crawl_rate: Floats,
    timing: Timing,
    at: float = 0.0,
    since: dict[str, float] | None = None,
) -> Joint[tuple[DelayLoss, ...]]:
    """Return the losses of all parts, the worst first.

    `pages` has the importance and change rate of the (N,) pages of this part. `at` is the instant
    of the epoch, and `since` those of hosts that the last epoch named.
    """
    if not (yield from anywhere(capacities is not None)):
        return ()
    own: list[DelayLoss] = []
    if capacities is not None:
        own = _losses(capacities, pages, crawl_rate, timing, at, since or {})
    worst: tuple[DelayLoss, ...] = yield Contribution(own, _worst, exact=True)
    return tuple(worst)


def _losses(
    capacities: Capacities,
    pages: tuple[Floats, Floats],
    crawl_rate: Floats,
    timing: Timing,
    at: float,
    since: dict[str, float],
) -> list[DelayLoss]:
    slow, first, windows = capacities.slow, capacities.first, capacities.windows
    if first is None or not len(slow.row):
        return []
    weight, change_rate = (column[slow.row] for column in pages)
    no_pings = np.zeros(len(slow.row)), np.zeros(len(slow.row), np.bool_)
    stale = [
        costs(weight, change_rate, rate, *no_pings, timing=timing.value).binary
        for rate in (crawl_rate[slow.row], slow.rate)
    ]
    n = len(first.queues)
    lost, whole = (np.bincount(slow.queue, each, n) for each in (stale[0] - stale[1], weight))
    staler = lost / np.maximum(whole, 1e-300)
    wanted, permitted = first.queue_wanted, capacities.at_delay()
    named = np.flatnonzero((staler >= LEAST_STALER) & (wanted - permitted >= LEAST_LOST))
    losses = []
    for queue in named.tolist():
        members = np.flatnonzero(capacities.queue == queue)
        host = windows.host[members[first.wanted[members].argmax()]]
        crawls, most, share = (float(each[queue]) for each in (wanted, permitted, staler))
        losses.append(DelayLoss(host, crawls, most, share, since.get(host, at)))
    return _worst([losses])


def _worst(parts: Sequence[Sequence[DelayLoss]]) -> list[DelayLoss]:
    every = [loss for losses in parts for loss in losses]
    every.sort(key=lambda loss: (loss.permitted - loss.wanted, loss.host))
    return every[:MOST_LOSSES]
