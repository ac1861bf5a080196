"""Leases of deleted pages and pauses of deleted hosts, which outlive the deletion.

A deletion ends neither a crawl that runs nor a pause that a site asked for. So the row of the queue
of a leased page stays until the lease ends, and counts for its host. If the page is registered
again before, its new row is this one: no second crawler receives the URL. A host that is deleted in
a pause leaves the end of the pause behind, under its name. If the host is registered again before,
it goes on from there.
"""

from collections.abc import Sequence
from datetime import datetime

import numpy as np

from service.model.arrays import Ints
from service.model.domain import Host
from service.storage.dialect import HOST_QUEUE, Dialect

KEEP_LEASES = """
UPDATE due_pages SET deleted_key = pages.key, deleted_host = hosts.host
FROM pages JOIN hosts ON hosts.host_id = pages.host_id
WHERE pages.page_id = due_pages.page_id AND due_pages.page_id IN (SELECT value FROM {ids})
    AND token IS NOT NULL AND expires_at > %(now)s
"""
ANY_LEASE = "SELECT 1 FROM due_pages WHERE deleted_key IS NOT NULL LIMIT 1"
ADOPT_LEASES = """
UPDATE due_pages SET page_id = pages.page_id, deleted_key = NULL, deleted_host = NULL
FROM pages WHERE pages.key = due_pages.deleted_key AND pages.page_id IN (SELECT value FROM {ids})
"""
MOVE_LEASES = f"""
UPDATE due_pages SET queue_id = {HOST_QUEUE} FROM hosts
WHERE hosts.host = due_pages.deleted_host AND hosts.host_id IN (SELECT value FROM {{ids}})
"""
NOWHERE = 0
"""Host queue of the leases of deleted hosts; no host has it."""
LEAVE_LEASES = f"UPDATE due_pages SET queue_id = {NOWHERE} WHERE deleted_host = %(host)s"
DROP_LEASES = f"""
DELETE FROM due_pages WHERE queue_id = {NOWHERE} AND next_at <= %(now)s AND deleted_host IS NOT NULL
"""
KEEP_PAUSE = """
INSERT INTO deleted_hosts
    (host, host_id, n_failures, blocked_until, paused_until, paused_at, ready_at)
SELECT %(host)s, queue_id, n_failures, blocked_until, paused_until, paused_at, ready_at
FROM host_queues WHERE queue_id = %(host_id)s
    AND (blocked_until > %(now)s OR paused_until > %(now)s OR ready_at > %(now)s)
"""
DROP_PAUSES = """
DELETE FROM deleted_hosts WHERE (blocked_until IS NULL OR blocked_until <= %(now)s)
    AND (paused_until IS NULL OR paused_until <= %(now)s)
    AND (ready_at IS NULL OR ready_at <= %(now)s)
"""
RESUME_PAUSES = """
INSERT INTO host_queues (queue_id, n_failures, blocked_until, paused_until, paused_at, ready_at)
SELECT hosts.host_id, deleted_hosts.n_failures, blocked_until, paused_until, paused_at, ready_at
FROM deleted_hosts JOIN hosts ON hosts.host = deleted_hosts.host
WHERE deleted_hosts.host IN (SELECT value FROM {names}) ORDER BY hosts.host_id
ON CONFLICT (queue_id) DO NOTHING
"""
FORGET_PAUSES = "DELETE FROM deleted_hosts WHERE host IN (SELECT value FROM {names})"
RESUME_LEASES = """
UPDATE due_pages SET queue_id = (SELECT host_id FROM hosts WHERE host = deleted_host)
WHERE deleted_host IN (SELECT value FROM {names})
"""


class KeptSql(Dialect):
    """The statements on what outlives a deletion."""

    def keep_leases(self, page_id: Ints, now: datetime) -> None:
        """Keep the leases that run on pages, whose rows of the queue are locked."""
        self.run(KEEP_LEASES, ids=page_id, now=now)

    def adopt_leases(self, page_id: Ints) -> None:
        """Move the leases of deleted pages to new pages of the same URLs."""
        if self.scalar(ANY_LEASE) is not None:
            self.run(ADOPT_LEASES, ids=page_id)

    def move_leases(self, host_id: Ints) -> None:
        """Move the kept leases of hosts to the host queues that the hosts use now."""
        self.run(MOVE_LEASES, ids=host_id)

    def keep_pause(self, host: Host, now: datetime) -> None:
        """Keep the pause and the delay of a host without a group, which is about to be deleted."""
        self.run(DROP_PAUSES, now=now)
        self.run(FORGET_PAUSES, names=np.array([host.host], object))
        self.run(KEEP_PAUSE, host=host.host, host_id=host.host_id, now=now)
        self.run(DROP_LEASES, now=now)
        self.run(LEAVE_LEASES, host=host.host)

    def resume_pauses(self, hosts: Sequence[str]) -> None:
        """Continue the pauses and leases of hosts that were deleted and are new again."""
        names = np.array(sorted(set(hosts)), object)
        for statement in (RESUME_PAUSES, FORGET_PAUSES, RESUME_LEASES):
            self.run(statement, names=names)
