"""What every database promises of hosts and of groups of hosts.

**Host queues.** A host queue is crawled politely, one page after the other: a host, or a group of
hosts that share a server. The host queue of a host has the host's id, that of a group minus the
group's id. A host in a group is crawled in the group's host queue; its own settings hold again
when it leaves. What settings and moves make of a host queue is `service.leases.hosts`.

**Locks.** Hosts, then rows of the queue, then host queues, each by ascending id.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime

from service.model.arrays import Floats, Ints
from service.model.domain import Host, HostGroup, HostPages
from service.storage.queue import HostQueues

MOST_SUMMED = 1_000_000
"""Maximum pages of a host that are summed up; of a larger host this many."""


class HostStatements(ABC):
    """The part of a transaction that works on hosts."""

    @abstractmethod
    def hosts(self, after: int, limit: int) -> list[Host]:
        """Return hosts with host_id > after, ascending, at most `limit`."""

    @abstractmethod
    def host(self, host: str) -> Host:
        """Return one host; raises `HostNotFound`."""

    @abstractmethod
    def host_pages(self, host: Host, now: datetime) -> HostPages:
        """Return the sums of a host's pages; pings and rates of at most `MOST_SUMMED`."""

    @abstractmethod
    def group(self, group: str) -> HostGroup:
        """Return one group; raises `GroupNotFound`."""

    @abstractmethod
    def members(self, group_id: int, limit: int) -> list[str]:
        """Return the hosts of a group by name, at most `limit`."""

    @abstractmethod
    def host_ids(self, names: Sequence[str]) -> Ints:
        """Return the ids of hosts by name; new names are inserted in their order."""

    @abstractmethod
    def group_id(self, group: str) -> int:
        """Return the id of a group by name; a new name is inserted."""

    @abstractmethod
    def member_ids(self, group_id: int) -> Ints:
        """Return the ids of a group's hosts."""

    @abstractmethod
    def lock_hosts(self, host_id: Ints) -> Ints:
        """Lock hosts, ascending, and return the host queue that each is crawled in."""

    @abstractmethod
    def move_hosts(self, host_id: Ints, queue_id: Ints) -> Ints:
        """Move locked hosts and their rows of the queue; return the host queues that got rows."""

    @abstractmethod
    def lock_host_queues(self, queue_id: Ints) -> HostQueues:
        """Lock host queues, ascending; a missing one is inserted."""

    @abstractmethod
    def robots_delays(self, queue_id: Ints) -> tuple[Ints, Floats]:
        """Return (M,) the `robots_delay_s` of members of groups that have one, and their groups.

        `queue_id` and the first array that is returned are the host queues of groups.
        """

    @abstractmethod
    def save_settings(self, locked: HostQueues) -> None:
        """Write the delays and the concurrency of locked host queues."""

    @abstractmethod
    def save_cap(self, queue_id: int, max_crawl_rate: float | None) -> None:
        """Write the cap of the host or group of a host queue, crawls a day; None: no cap."""
