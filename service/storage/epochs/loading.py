"""Loads of an epoch or a plan: the contract, and the SQL that both databases share."""

from abc import abstractmethod

import numpy as np
from typing_extensions import override

from service.model.arrays import COLUMN, Ints, element_types
from service.model.columns import CapColumns, EpochColumns, HostDelays
from service.model.listing import TagColumns
from service.model.outcomes import NO_CONTENT_AFTER
from service.storage.dialect import HOST_QUEUE, Dialect, Subject


class LoadStatements(Subject):
    """The statements that load all pages with caps and tags."""

    @abstractmethod
    def load_columns(self) -> EpochColumns:
        """Return every page for an epoch, as of one instant.

        A page without a share has importance 0 and no minimum crawl rate (`no_share`). The
        importance of a page with the digest of many others is discounted (`core.twins`). The
        transaction is that of `Store.read_whole` or of a lead that does not write.
        """

    @abstractmethod
    def host_delays(self, host_id: Ints) -> HostDelays:
        """Return the host queues and the delays of hosts, by ascending host_id."""

    @abstractmethod
    def longest_delay(self) -> float:
        """Return the longest delay that a host queue has of its own or of robots.txt, seconds."""

    @abstractmethod
    def load_caps(self) -> CapColumns:
        """Return the hosts with a cap on crawls a day, of their own or of their group."""

    @abstractmethod
    def load_tags(self) -> TagColumns:
        """Return every tag of every page, for a plan."""

    @abstractmethod
    def tag_names(self, tag_id: Ints) -> dict[int, str]:
        """Return the names of those of these tags that exist."""

    @abstractmethod
    def host_names(self, host_id: Ints) -> dict[int, str]:
        """Return the names of those of these hosts that exist."""


def no_share(no_copy: str) -> str:
    """Return the condition on pages without a share in the allocation.

    Such a page is gone, held (`budget.admission`), or lacks content (`outcomes.lacks_content`). A
    page that is known only as the target of redirects has none before its first content, either.
    `no_copy` is the condition on the latter.
    """
    lacking = f"gone OR n_failures >= {NO_CONTENT_AFTER} OR held > 0"
    return f"({lacking} OR hops IS NOT NULL AND {no_copy})"


SHARED_DIGEST = """(
    (coalesce(digest, 0) & 9223372036854775807) * CASE WHEN n_changes > 0 THEN -1 ELSE 1 END
)"""
"""Digest as `core.twins` takes it, without its highest bit and with a minus after a change."""

CAPS = """
SELECT host_id, host, hosts.max_crawl_rate, coalesce(host_groups.group_id, 0), coalesce(name, ''),
    host_groups.max_crawl_rate, first_share
FROM hosts LEFT JOIN host_groups
    ON host_groups.group_id = hosts.group_id AND host_groups.max_crawl_rate IS NOT NULL
WHERE coalesce(hosts.max_crawl_rate, host_groups.max_crawl_rate) IS NOT NULL
ORDER BY host_id
"""

HOST_DELAYS = f"""
SELECT host_id, host, {HOST_QUEUE}, used.min_delay_s, used.robots_delay_s
FROM hosts LEFT JOIN host_queues AS used ON used.queue_id = {HOST_QUEUE}
WHERE host_id IN (SELECT value FROM {{ids}}) ORDER BY host_id
"""

LONGEST_DELAY = """
SELECT coalesce(max(min_delay_s), 0.0), coalesce(max(robots_delay_s), 0.0) FROM host_queues
"""

TAG_NAMES = "SELECT tag_id, tag FROM tags WHERE tag_id IN (SELECT value FROM {ids})"
HOST_NAMES = "SELECT host_id, host FROM hosts WHERE host_id IN (SELECT value FROM {ids})"


class LoadSql(Dialect, LoadStatements):
    """The statements on caps and names that Postgres and SQLite share."""

    @override
    def host_delays(self, host_id: Ints) -> HostDelays:
        rows = list(self.run(HOST_DELAYS, ids=host_id))
        if not rows:
            return HostDelays.empty()
        read = zip(element_types(HostDelays).items(), zip(*rows, strict=True), strict=True)
        return HostDelays(**{name: np.array(cells, kind) for (name, kind), cells in read})

    @override
    def longest_delay(self) -> float:
        ((own, of_robots),) = self.run(LONGEST_DELAY)
        return max(float(own), float(of_robots))

    @override
    def load_caps(self) -> CapColumns:
        rows = list(self.run(CAPS))
        if not rows:
            return CapColumns.empty()
        read = zip(CapColumns.__dataclass_fields__.values(), zip(*rows, strict=True), strict=True)
        return CapColumns(**{f.name: np.array(cells, COLUMN[f.type]) for f, cells in read})

    @override
    def tag_names(self, tag_id: Ints) -> dict[int, str]:
        return dict(iter(self.run(TAG_NAMES, ids=tag_id)))

    @override
    def host_names(self, host_id: Ints) -> dict[int, str]:
        return dict(iter(self.run(HOST_NAMES, ids=host_id)))
