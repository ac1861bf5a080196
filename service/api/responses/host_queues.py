"""Queues of hosts and groups as answers show them."""

from collections.abc import Sequence

import numpy as np

from recrawl_client.wire.hosts import HostQueueAnswer
from service.api.assembly import Service
from service.api.holds.next_lease import next_leases
from service.api.responses.encode import shared
from service.leases.host_settings import are_slowed, in_force
from service.model.domain import Host, HostGroup
from service.storage import Transaction


def host_queue_answers(
    tx: Transaction, service: Service, owners: Sequence[Host] | Sequence[HostGroup]
) -> list[HostQueueAnswer]:
    """Return the queues of hosts or groups with the politeness that is in force."""
    polite = service.settler.polite
    host_queues = [owner.host_queue for owner in owners]
    ids = [owner.host_id if isinstance(owner, Host) else -owner.group_id for owner in owners]
    queue_id = np.array([queue.queue_id for queue in host_queues], np.int64)
    each = zip(
        host_queues,
        in_force(host_queues, polite),
        are_slowed(host_queues, polite),
        next_leases(tx, service, ids, queue_id),
        strict=True,
    )
    return [
        HostQueueAnswer(
            **{**shared(HostQueueAnswer, host_queue), "next_at": following.at},
            next_reason=following.reason,
            delay_s=own.delay_s,
            concurrency=own.concurrency or None,
            slowed=slowed,
        )
        for host_queue, own, slowed, following in each
    ]
