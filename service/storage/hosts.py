"""What every database promises of hosts and of groups of hosts.

**Lanes.** What is crawled politely, one after the other, is a lane: a host, or a group of hosts
that share a server. A host in a group is crawled in the group's lane, by the group's delay and
concurrency; its own settings hold again when it leaves. Of what robots.txt asks, the longest
delay of all members holds for the group.

**Locks.** Hosts, then rows of the queue, then lanes, each by ascending id.
"""

from abc import abstractmethod
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from service.domain import Host, HostGroup, HostPages
from service.storage.queue import QueueStore, QueueTransaction

MOST_SUMMED = 1_000_000
"""The pages of a host that are summed up; of a larger one so many of them."""


class HostTransaction(QueueTransaction):
    """The statements; see the module for what they promise together."""

    @abstractmethod
    def hosts(self, after: int, limit: int) -> list[Host]:
        """Give hosts with host_id > after, ascending, at most `limit`."""

    @abstractmethod
    def host(self, host: str) -> Host:
        """Give one host; raises `HostNotFound`."""

    @abstractmethod
    def host_pages(self, host: Host, now: datetime) -> HostPages:
        """Sum up a host's pages; pings and rates of at most `MOST_SUMMED`."""

    @abstractmethod
    def change_host(
        self, host: str, settings: Mapping[str, Any], now: datetime, delay_s: float = 0.0
    ) -> None:
        """Write settings of a host, known or new: fields of `Host` and `blocked_until`.

        None sets one back. A group of a new name is created. Queued crawls move with their host,
        and a lane that hosts join is shut for as long as the ones they come from. A delay that
        changes counts from the same crawl as before; where none was told, it is `delay_s`.
        """

    @abstractmethod
    def group(self, group: str) -> HostGroup:
        """Give one group; raises `GroupNotFound`."""

    @abstractmethod
    def members(self, group_id: int, limit: int) -> list[str]:
        """Give the hosts of a group by name, at most `limit`."""

    @abstractmethod
    def change_group(
        self,
        group: str,
        settings: Mapping[str, Any],
        members: Collection[str] | None,
        now: datetime,
        delay_s: float = 0.0,
    ) -> None:
        """Write settings of a group, known or new, and who its members are, unless None.

        Settings are the fields of `HostGroup`, `min_delay_s`, `max_concurrency` and
        `blocked_until`; the rest is as in `change_host`.
        """


class HostStore(QueueStore):
    """A database; the simulator's store knows no hosts but those of its pages."""

    @abstractmethod
    def begin(self, *, write: bool = True) -> AbstractContextManager[HostTransaction]:
        """Open a transaction: committed when the block is left, rolled back by an exception."""
