"""Queues of hosts and groups as answers show them."""

from collections.abc import Sequence
from datetime import datetime

from recrawl_client.wire.hosts import HostQueueAnswer
from service.api.assembly import Service
from service.api.responses.encode import shared
from service.leases.host_settings import are_slowed, in_force
from service.model.arrays import UNIX_ZERO
from service.model.domain import HostQueue


def host_queue_answers(service: Service, host_queues: Sequence[HostQueue]) -> list[HostQueueAnswer]:
    """Return queues with the politeness that is in force."""
    now = service.now()
    polite = service.settler.polite
    each = zip(
        host_queues, in_force(host_queues, polite), are_slowed(host_queues, polite), strict=True
    )
    return [
        HostQueueAnswer(
            **{**shared(HostQueueAnswer, host_queue), "next_at": _next_at(host_queue, now)},
            delay_s=own.delay_s,
            concurrency=own.concurrency or None,
            slowed=slowed,
        )
        for host_queue, own, slowed in each
    ]


def _next_at(host_queue: HostQueue, now: datetime) -> datetime | None:
    """Return the time of the next crawl; requested pages are queued a century early."""
    if host_queue.next_at is None:
        return None
    next_at = now if host_queue.next_at <= UNIX_ZERO else host_queue.next_at
    # a pause moves the queue at the next request for leases
    ends = (host_queue.blocked_until, host_queue.paused_until)
    return max([next_at, *(end for end in ends if end is not None)])
