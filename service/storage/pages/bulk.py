"""Tags, and acts on many pages at once: the contract, and the SQL that both databases share.

**Locks.** A statement that changes pages locks them by ascending page_id, a page before its state.
"""

from abc import abstractmethod
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import numpy as np
from typing_extensions import override

from service.model.arrays import Ints, distinct, instant
from service.model.domain import Host, Observability, PagePatch
from service.model.errors import HostHasPages
from service.model.listing import PageBounds, PageTags
from service.storage.dialect import Subject, assignments
from service.storage.queue.columns import HostQueueBounds
from service.storage.queue.contract import QueueStatements
from service.storage.queue.kept import KeptSql


class BulkStatements(Subject):
    """The statements on tags and on many pages."""

    @abstractmethod
    def tags_of(self, page_id: Ints) -> PageTags:
        """Return the tags of these pages, by page_id and tag."""

    @abstractmethod
    def add_tags(self, pairs: PageTags) -> None:
        """Add tags to pages that exist; create new tags."""

    @abstractmethod
    def drop_tags(self, pairs: PageTags) -> None:
        """Remove tags from pages."""

    @abstractmethod
    def existing_pages(self, page_id: Ints) -> Ints:
        """Return those of the pages that exist, ascending."""

    @abstractmethod
    def lock_page_rows(self, page_id: Ints) -> Ints:
        """Lock pages, ascending, and return the pages that exist."""

    @abstractmethod
    def locked_page_rows(self, page_id: Ints) -> Ints:
        """Lock those of some pages that are free, and return the others, ascending."""

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
        """Request crawls of pages; return those without an open request, and the leased ones.

        An open request keeps its place in the queue, and is renewed: a crawl that started before
        `now` does not answer it.
        """

    @abstractmethod
    def delete_many(self, page_id: Ints) -> int:
        """Delete pages as `delete_page` does; return how many there were.

        A lease that runs outlives its page, and still counts for its host.
        """

    @abstractmethod
    def set_kinds(self, page_id: Ints, *, feed: bool) -> Ints:
        """Make pages feeds, or other pages; return those that changed, ascending.

        The pages must be locked, or be of this transaction. Their queued rows change too.
        """

    @abstractmethod
    def queued_bounds(self, page_id: Ints) -> HostQueueBounds:
        """Return the host queues of the rows of pages, and the earliest bound of each."""

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

        A pause that runs comes back with the host. The transaction must hold the hosts, so that no
        page is left without its host.
        """

    @abstractmethod
    def delete_group(self, group_id: int) -> None:
        """Delete a group without members, and its queue."""


IN_IDS = "page_id IN (SELECT value FROM {ids})"

TAGS_OF = f"""
SELECT page_id, tag FROM page_tags JOIN tags ON tags.tag_id = page_tags.tag_id
WHERE {IN_IDS} ORDER BY page_id, tag
"""
NEW_TAGS = "INSERT INTO tags (tag) SELECT value FROM {names} WHERE true ON CONFLICT DO NOTHING"
"""Statement that inserts in the order of the names; without WHERE, SQLite reads ON as a join's."""

EXISTING = f"SELECT page_id FROM pages WHERE {IN_IDS} ORDER BY page_id"
LOCK_PAGES, LOCK_STATES, LOCK_QUEUED = (
    f"SELECT page_id FROM {table} WHERE {IN_IDS} ORDER BY page_id {{lock_rows}}"
    for table in ("pages", "page_states", "due_pages")
)

LOCK_FREE_PAGES = f"""
SELECT page_id FROM pages WHERE {IN_IDS} ORDER BY page_id {{lock_free_rows}}
"""

CHANGE_MANY = "UPDATE pages SET {assignments} WHERE {in_ids} AND ({differs})"
WATCH_MANY = f"""
UPDATE page_states SET {{assignments}}
WHERE {IN_IDS} AND observability <> %(observability)s
"""
WATCHED = "observability = %(observability)s"
COUNT_ANEW = (
    f"{WATCHED}, n_pings = NULL, recent_pings = NULL, pings_since = %(now)s, ping_credit = NULL"
)
"""Assignments for pages that become `complete`, which starts a new count of pings."""
BY_PINGS = "(pings_since_crawl IS NOT NULL AND n_failures IS NULL AND NOT gone)"
"""Condition of pages whose `retry_rate` ranks a crawl that pings have earned (`leases.due`)."""
AS_ASKED = f"retry_rate = CASE WHEN NOT {BY_PINGS} THEN retry_rate END"
"""Assignment with which an operator's request comes before the pages that are due."""
NEWER = """CASE
    WHEN last_crawl_at >= %(now)s THEN last_crawl_at + {microsecond} ELSE %(now)s END"""
REQUEST_MANY = f"""
UPDATE page_states SET renewed_at = NULL, {AS_ASKED}, requested_at = {NEWER}, asked_at = {NEWER}
WHERE {IN_IDS} AND (requested_at IS NULL OR requested_at <= last_crawl_at)
"""
"""Statement whose request is newer than the last crawl, even if a fast clock dated that one."""
RENEW_MANY = f"""
UPDATE page_states SET renewed_at = %(now)s, {AS_ASKED}, asked_at = %(now)s
WHERE {IN_IDS} AND (last_crawl_at IS NULL OR requested_at > last_crawl_at)
    AND requested_at < %(now)s AND (renewed_at IS NULL OR renewed_at < %(now)s)
"""
LEASED_AMONG = f"""
SELECT page_id FROM due_pages WHERE {IN_IDS} AND (token IS NOT NULL OR n_unfinished IS NOT NULL)
ORDER BY page_id
"""
"""Statement for pages that a further request has crawled once more."""
COUNTED_AMONG = f"""
SELECT page_id FROM due_pages WHERE {IN_IDS} AND n_unfinished IS NOT NULL ORDER BY page_id
"""
BOUNDS = f"""
SELECT page_id, min_crawl_rate, max_crawl_rate FROM pages WHERE {IN_IDS} ORDER BY page_id
"""
CONTRADICTED = "SELECT page_id FROM pages WHERE {in_ids} AND {low} > {high} ORDER BY page_id"

SET_KINDS = f"UPDATE pages SET feed = %(feed)s WHERE {IN_IDS} AND feed IS DISTINCT FROM %(feed)s"
SET_KINDS_OF_ROWS = f"UPDATE due_pages SET feed = %(feed)s WHERE {IN_IDS}"
QUEUED_BOUNDS = f"SELECT queue_id, next_at FROM due_pages WHERE {IN_IDS}"

DELETE_PAGES = f"DELETE FROM pages WHERE {IN_IDS}"
DELETE_STATES = f"DELETE FROM page_states WHERE {IN_IDS}"
DELETE_TAGS = f"DELETE FROM page_tags WHERE {IN_IDS}"
DELETE_VALIDATORS = f"DELETE FROM page_validators WHERE {IN_IDS}"
DELETE_LOGS = f"DELETE FROM observations WHERE {{log_of_any}} AND {IN_IDS}"
DELETE_QUEUED = f"""
DELETE FROM due_pages WHERE {IN_IDS} AND deleted_key IS NULL RETURNING queue_id, leased_at
"""
"""Statement that leaves the rows of leases that run (`queue.kept`)."""

HAS_PAGES = "SELECT 1 FROM pages WHERE host_id = %(host_id)s LIMIT 1"
DELETE_HOST = "DELETE FROM hosts WHERE host_id = %(host_id)s"
DELETE_CHANGE_HOURS = "DELETE FROM change_hours WHERE host_id = %(host_id)s"
DELETE_GROUP_HOURS = "DELETE FROM group_hours WHERE host_id = %(host_id)s"
DELETE_INCIDENT = "DELETE FROM host_incidents WHERE host_id = %(host_id)s"
DELETE_GROUP = "DELETE FROM host_groups WHERE group_id = %(group_id)s"
DELETE_HOST_QUEUE = "DELETE FROM host_queues WHERE queue_id = %(queue_id)s"
DELETE_CRAWL_DAY = "DELETE FROM crawl_days WHERE queue_id = %(queue_id)s"


class BulkSql(KeptSql, BulkStatements, QueueStatements):
    """The statements on tags and on many pages that Postgres and SQLite share."""

    @abstractmethod
    def updated(self, statement: str, **parameters: Any) -> Ints:
        """Run an UPDATE and return the page_ids of its rows, ascending."""

    # -- tags

    @override
    def tags_of(self, page_id: Ints) -> PageTags:
        rows = list(self.run(TAGS_OF, ids=page_id))
        pages, tags = zip(*rows, strict=True) if rows else ((), ())
        return PageTags(page_id=np.array(pages, np.int64), tag=np.array(tags, object))

    @override
    def add_tags(self, pairs: PageTags) -> None:
        if len(pairs):
            names = np.array(sorted(set(pairs.tag.tolist())), object)
            self.run(NEW_TAGS, names=names)
            self.insert_tags(pairs)

    @abstractmethod
    def insert_tags(self, pairs: PageTags) -> None:
        """Insert pairs of existing pages and tags; pairs may exist too."""

    # -- acts on many pages

    @override
    def existing_pages(self, page_id: Ints) -> Ints:
        return self.ids(EXISTING, ids=page_id)

    @override
    def lock_page_rows(self, page_id: Ints) -> Ints:
        return self.ids(LOCK_PAGES, ids=page_id)

    @override
    def locked_page_rows(self, page_id: Ints) -> Ints:
        free = self.ids(LOCK_FREE_PAGES, ids=page_id)
        return np.setdiff1d(self.existing_pages(page_id), free)

    @override
    def bounds_of(self, page_id: Ints) -> PageBounds:
        rows = list(self.run(BOUNDS, ids=page_id))
        ids, low, high = zip(*rows, strict=True) if rows else ((), (), ())
        return PageBounds(
            page_id=np.array(ids, np.int64),
            min_crawl_rate=np.array(low, np.float64),
            max_crawl_rate=np.array(high, np.float64),
        )

    @override
    def contradicted(self, page_id: Ints, patch: PagePatch) -> Ints:
        bounds = {name: getattr(patch, name) for name in ("min_crawl_rate", "max_crawl_rate")}
        values = {name: value for name, value in bounds.items() if value is not None}
        if not values or any(name in patch.cleared for name in bounds):
            return np.zeros(0, np.int64)
        low, high = (f"%({name})s" if name in values else name for name in bounds)
        statement = CONTRADICTED.format(in_ids=IN_IDS, low=low, high=high)
        return self.ids(statement, ids=page_id, **values)

    @override
    def change_many(self, page_id: Ints, patch: PagePatch, now: datetime) -> Ints:
        values = patch.values()
        observability = values.pop("observability", None)
        changed = [np.zeros(0, np.int64)]
        if values:
            differs = " OR ".join(f"{name} IS DISTINCT FROM %({name})s" for name in values)
            written = {"assignments": assignments(values), "differs": differs, "in_ids": IN_IDS}
            changed.append(self.updated(CHANGE_MANY.format(**written), ids=page_id, **values))
        if observability is not None:
            changed.append(self._watch(page_id, observability, now))
        return distinct(np.concatenate(changed))

    def _watch(self, page_id: Ints, observability: Observability, now: datetime) -> Ints:
        self.ids(LOCK_STATES, ids=page_id)
        complete = observability is Observability.complete
        written, own = (COUNT_ANEW, {"now": now}) if complete else (WATCHED, {})
        statement = WATCH_MANY.replace("{assignments}", written)
        return self.updated(statement, ids=page_id, observability=observability.value, **own)

    @override
    def request_many(self, page_id: Ints, now: datetime) -> Ints:
        self.ids(LOCK_STATES, ids=page_id)
        requested = self.updated(REQUEST_MANY, ids=page_id, now=now)
        renewed = self.updated(RENEW_MANY, ids=page_id, now=now)
        leased = self.ids(LEASED_AMONG, ids=renewed) if len(renewed) else renewed
        asked = distinct(np.append(requested, leased))
        counted = self.ids(COUNTED_AMONG, ids=asked) if len(asked) else asked
        if len(counted):
            self.ids(LOCK_QUEUED, ids=counted)
            self.forget_unfinished(counted)
        return asked

    @override
    def set_kinds(self, page_id: Ints, *, feed: bool) -> Ints:
        kind = True if feed else None
        changed = self.updated(SET_KINDS, ids=page_id, feed=kind)
        if len(changed):
            self.run(SET_KINDS_OF_ROWS, ids=changed, feed=kind)
        return changed

    @override
    def queued_bounds(self, page_id: Ints) -> HostQueueBounds:
        rows = self.read(QUEUED_BOUNDS, ids=page_id)
        return earliest((row["queue_id"], row["next_at"]) for row in rows)

    @override
    def delete_many(self, page_id: Ints) -> int:
        # The pages' rows of schedules stay, unseen, until their epoch is dropped: the changes
        # since that epoch must include the deletion.
        there = self.lock_page_rows(page_id)
        if not len(there):
            return 0
        self.ids(LOCK_STATES, ids=there)
        self.ids(LOCK_QUEUED, ids=there)
        self.keep_leases(there, self.now())
        for statement in (DELETE_TAGS, DELETE_VALIDATORS, DELETE_LOGS, DELETE_STATES, DELETE_PAGES):
            self.run(statement, ids=there)
        leased = ((queue, at) for queue, at in self._deleted_leases(there) if at is not None)
        self.lower_host_queues(earliest(leased))
        return len(there)

    def _deleted_leases(self, page_id: Ints) -> Iterable[tuple[int, datetime | None]]:
        rows = self.read(DELETE_QUEUED, ids=page_id)
        return ((row["queue_id"], row["leased_at"]) for row in rows)

    # -- hosts and groups

    @override
    def delete_host(self, host: Host) -> None:
        if self.scalar(HAS_PAGES, host_id=host.host_id) is not None:
            raise HostHasPages(
                f"{host.host} has pages; delete them first with DELETE /pages?host={host.host}"
            )
        self.keep_pause(host, self.now())
        for statement in (
            DELETE_HOST,
            DELETE_CHANGE_HOURS,
            DELETE_GROUP_HOURS,
            DELETE_INCIDENT,
        ):  # on SQLite a new host may have the id again
            self.run(statement, host_id=host.host_id)
        self.run(DELETE_HOST_QUEUE, queue_id=host.host_id)
        self.run(DELETE_CRAWL_DAY, queue_id=host.host_id)

    @override
    def delete_group(self, group_id: int) -> None:
        self.run(DELETE_GROUP, group_id=group_id)
        self.run(DELETE_HOST_QUEUE, queue_id=-group_id)
        self.run(DELETE_CRAWL_DAY, queue_id=-group_id)


def earliest(bounds: Iterable[tuple[int, datetime]]) -> HostQueueBounds:
    """Return the earliest time of each host queue, by ascending queue_id.

    A host queue whose lease ended with its page may have room for another lease.
    """
    first: dict[int, datetime] = {}
    for queue_id, at in bounds:
        first[queue_id] = min(at, first.get(queue_id, at))
    order = sorted(first)
    times = np.array([instant(first[queue_id]) for queue_id in order], "M8[us]")
    return HostQueueBounds(queue_id=np.array(order, np.int64), next_at=times)
