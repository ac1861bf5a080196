"""The contract of lists of pages, of tags, and of acts on many pages at once.

**Bounded.** A list is read in parts by ascending page_id. Each reading scans at most
`MOST_SCANNED` candidates: pages of the tag, of the host, or page_ids. A page that exists from the
first reading to the last is in exactly one part, whatever others write meanwhile.
**Locks.** A statement that changes pages locks them by ascending page_id, a page before its state.
"""

from abc import abstractmethod
from datetime import datetime
from typing import Literal

import numpy as np

from service.model.arrays import Instants, Ints
from service.model.domain import Host, HostGroup, PagePatch
from service.model.freshness import FreshnessColumns, LoggedChanges
from service.model.id_space import IdSpace
from service.model.listing import ListedPart, PageBounds, PageFilter, PageTags, RunningLease
from service.storage.dialect import Subject

NameOrder = Literal["host_id", "-host_id", "host", "-host"]
"""Order of a list of hosts by registration or by name; a minus means descending."""


class ListingStatements(Subject):
    """The part of a transaction that works on many pages."""

    # -- lists

    @abstractmethod
    def list_pages(
        self, after: int, limit: int, only: PageFilter, last: int | None = None
    ) -> ListedPart:
        """Return pages with after < page_id <= last, ascending, at most `limit`.

        Because the method scans at most `MOST_SCANNED` candidates, a part with fewer pages, even
        none, may not be the last.
        """

    @abstractmethod
    def candidates(self, after: int, n: int, only: PageFilter) -> tuple[int, int]:
        """Return the number of the next `n` candidates above `after`, and the last of them.

        Candidates are the pages that a reading scans for a filter. Fewer than `n` are the end.
        """

    @abstractmethod
    def last_page_id(self) -> int:
        """Return the highest page_id, 0 without pages."""

    @abstractmethod
    def running_leases(
        self, after: int, limit: int, now: datetime
    ) -> tuple[list[RunningLease], int | None]:
        """Return leases that run, by page_id > after, at most `limit`, and where to go on.

        The method scans at most `MOST_SCANNED` rows of the queue; None is the end.
        """

    @abstractmethod
    def hosts_in_order(
        self,
        order: NameOrder,
        after: int | str | None,
        limit: int,
        blocked_at: datetime | None = None,
    ) -> tuple[list[Host], int | str | None]:
        """Return the next hosts in an order, at most `limit`, and where to go on.

        With `blocked_at`, return only hosts whose queue is blocked then. The method scans at most
        `MOST_SCANNED` hosts; None is the end.
        """

    @abstractmethod
    def next_host_ids(self, after: int, limit: int) -> Ints:
        """Return the next host_ids above `after`, ascending, at most `limit`."""

    @abstractmethod
    def hosts_by_id(self, host_id: Ints) -> list[Host]:
        """Return those of the hosts that exist, in any order."""

    @abstractmethod
    def groups(self, after: int, limit: int) -> list[HostGroup]:
        """Return groups with group_id > after, ascending, at most `limit`."""

    def page_ranges(self) -> IdSpace:
        """Return the ranges that have all page_ids; a store of one database has one range."""
        return IdSpace(np.array([[0, self.last_page_id()]]))

    # -- freshness

    @abstractmethod
    def freshness_columns(self, page_id: Ints) -> FreshnessColumns:
        """Return the evidence of those of the pages that exist, ascending."""

    @abstractmethod
    def logged_changes(self, page_id: Ints, since: Instants) -> LoggedChanges:
        """Return the changes in the log of (N,) pages after (N,) instants, in this order."""

    # -- tags

    @abstractmethod
    def tags_of(self, page_id: Ints) -> PageTags:
        """Return the tags of these pages, by page_id and tag."""

    @abstractmethod
    def add_tags(self, pairs: PageTags) -> None:
        """Add tags to pages that exist; create new tags."""

    @abstractmethod
    def drop_tags(self, pairs: PageTags) -> None:
        """Remove tags from pages."""

    # -- acts on many pages

    @abstractmethod
    def existing_pages(self, page_id: Ints) -> Ints:
        """Return those of the pages that exist, ascending."""

    @abstractmethod
    def lock_page_rows(self, page_id: Ints) -> Ints:
        """Lock pages, ascending, and return the pages that exist."""

    @abstractmethod
    def bounds_of(self, page_id: Ints) -> PageBounds:
        """Return the bounds of the crawl rates of those of these pages that exist."""

    @abstractmethod
    def contradicted(self, page_id: Ints, patch: PagePatch) -> Ints:
        """Return the pages on which the patch would set a minimum rate above the maximum."""

    @abstractmethod
    def change_many(self, page_id: Ints, patch: PagePatch, now: datetime) -> Ints:
        """Change pages as `change_page` does; return the pages whose values differ afterwards."""

    @abstractmethod
    def request_many(self, page_id: Ints, now: datetime) -> Ints:
        """Request a crawl of pages without an open request; return these pages."""

    @abstractmethod
    def delete_many(self, page_id: Ints) -> int:
        """Delete pages as `delete_page` does; return how many there were."""

    # -- hosts and groups

    @abstractmethod
    def hold_hosts(self) -> None:
        """Wait for transactions that register pages, and keep others from it until the end."""

    @abstractmethod
    def hold_settings(self, name: str) -> None:
        """Wait for transactions that hold the settings of a host or group of this name.

        Values read afterwards are those that this transaction replaces.
        """

    @abstractmethod
    def delete_host(self, host: Host) -> None:
        """Delete a host without a group, and its queue; raise `HostHasPages` if it has any.

        The transaction must hold the hosts, so that no page is left without its host.
        """

    @abstractmethod
    def delete_group(self, group_id: int) -> None:
        """Delete a group without members, and its queue."""
