"""Hosts and groups of hosts: the contract, and the SQL that both databases share."""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from math import isnan
from typing import Any

import numpy as np
from typing_extensions import override

from service.model.arrays import Floats, Ints, distinct, moment
from service.model.calendars import split
from service.model.domain import Host, HostGroup, HostPages, HostQueue, Observability
from service.model.errors import GroupNotFound, HostNotFound
from service.storage.dialect import HOST_QUEUE, Subject, assignments
from service.storage.queue.columns import HostQueues
from service.storage.queue.hours import HoursSql
from service.storage.queue.incidents import IS_OPEN, incident_in
from service.storage.queue.kept import KeptSql

MOST_SUMMED = 1_000_000
"""Maximum number of a host's pages in its sums."""


class HostStatements(Subject):
    """The part of a transaction that works on hosts."""

    @abstractmethod
    def hosts(self, after: int, limit: int) -> list[Host]:
        """Return hosts with host_id > after, ascending, at most `limit`."""

    @abstractmethod
    def host(self, host: str) -> Host:
        """Return one host; raise `HostNotFound`."""

    @abstractmethod
    def host_pages(self, host: Host, now: datetime) -> HostPages:
        """Return the sums of a host's pages; pings and rates of at most `MOST_SUMMED`."""

    @abstractmethod
    def group(self, group: str) -> HostGroup:
        """Return one group; raise `GroupNotFound`."""

    @abstractmethod
    def members(self, group_id: int, limit: int) -> list[str]:
        """Return the hosts of a group by name, at most `limit`."""

    @abstractmethod
    def host_ids(self, names: Sequence[str]) -> Ints:
        """Return the ids of hosts by name; insert new names in their order."""

    @abstractmethod
    def group_id(self, group: str, near: str | None = None) -> int:
        """Return the id of a group by name; insert a new name.

        A store of several databases inserts the group where the host `near` is.
        """

    @abstractmethod
    def member_ids(self, group_id: int) -> Ints:
        """Return the ids of a group's hosts."""

    @abstractmethod
    def lock_hosts(self, host_id: Ints) -> Ints:
        """Lock hosts, ascending, and return the host queue of each."""

    @abstractmethod
    def move_hosts(self, host_id: Ints, queue_id: Ints) -> Ints:
        """Move locked hosts and their rows of the queue; return the host queues that got rows."""

    @abstractmethod
    def lock_host_queues(self, queue_id: Ints) -> HostQueues:
        """Lock host queues, ascending; insert missing ones."""

    @abstractmethod
    def robots_delays(self, queue_id: Ints) -> tuple[Ints, Floats]:
        """Return the group and the `robots_delay_s` of each of M members that have a delay.

        `queue_id` and the first array that is returned are the host queues of groups.
        """

    @abstractmethod
    def save_settings(self, locked: HostQueues) -> None:
        """Write the delays, the concurrency and the factors of locked host queues."""

    @abstractmethod
    def any_latency_factor(self) -> bool:
        """Return whether any host queue has a factor on its latency."""

    @abstractmethod
    def save_blocks(self, locked: HostQueues) -> None:
        """Write the ends of the pauses by operators of locked host queues."""

    @abstractmethod
    def save_first_share(self, host_id: int, first_share: float | None) -> None:
        """Write a host's share of first crawls; None: that of the settings."""

    @abstractmethod
    def save_cap(self, queue_id: int, max_crawl_rate: float | None) -> None:
        """Write the cap of the host or group of a host queue, crawls a day; None: no cap."""


OF_HOST = ("host_id", "host", "max_crawl_rate", "false_304_at", "first_share")
SETTINGS = ("min_delay_s", "robots_delay_s", "max_concurrency", "latency_factor", "max_delay_s")
OF_HOST_QUEUE = """used.min_delay_s, used.robots_delay_s, used.max_concurrency,
    coalesce(used.n_failures, 0) AS n_failures, used.blocked_until, used.paused_until,
    used.ready_at, used.next_at, used.latency_factor, used.max_delay_s, used.latency_s,
    used.usual_latency_s, coalesce(used.n_latencies, 0) AS n_latencies, used.windows,
    used.blackouts"""
HOURS = ("windows", "blackouts")

HOSTS = f"""
SELECT hosts.host_id, host, name, hosts.max_crawl_rate, false_304_at, first_share,
    {HOST_QUEUE} AS queue_id,
    {", ".join(f"own.{name} AS own_{name}" for name in (*SETTINGS, *HOURS))},
    {OF_HOST_QUEUE}, host_incidents.kind, host_incidents.since, host_incidents.n_pages
FROM hosts
LEFT JOIN host_incidents ON host_incidents.host_id = hosts.host_id AND {IS_OPEN}
LEFT JOIN host_groups ON host_groups.group_id = hosts.group_id
LEFT JOIN host_queues AS own ON own.queue_id = hosts.host_id
LEFT JOIN host_queues AS used ON used.queue_id = {HOST_QUEUE}
"""
NEXT_HOSTS = f"{HOSTS} WHERE hosts.host_id > %(after)s ORDER BY hosts.host_id LIMIT %(limit)s"
HOST = f"{HOSTS} WHERE host = %(host)s"
GROUPS = f"""
SELECT group_id, name, max_crawl_rate, -group_id AS queue_id,
    (SELECT count(*) FROM hosts WHERE hosts.group_id = host_groups.group_id) AS n_members,
    {OF_HOST_QUEUE}
FROM host_groups LEFT JOIN host_queues AS used ON used.queue_id = -group_id
"""
GROUP = f"{GROUPS} WHERE name = %(name)s"
MEMBERS = "SELECT host FROM hosts WHERE group_id = %(group_id)s ORDER BY host LIMIT %(limit)s"

N_PAGES = "SELECT count(*) FROM pages WHERE host_id = %(host_id)s"
N_QUEUED = f"""
SELECT count(*), count(*) FILTER (WHERE token IS NOT NULL AND expires_at > %(now)s)
FROM hosts JOIN due_pages ON due_pages.queue_id = {HOST_QUEUE}
JOIN pages ON pages.page_id = due_pages.page_id AND pages.host_id = %(host_id)s
WHERE hosts.host_id = %(host_id)s
"""
PING_DAYS = 1.0
"""Days without a ping added to the days of counting, as in `core.pings`."""
SUMS = f"""
SELECT sum(CAST(crawl_rate AS double precision)
        + coalesce(crawl_probability, 0.0) * change_rate) FILTER (WHERE shares) AS crawl_rate,
    count(*) FILTER (WHERE pinged) AS n_pinged, sum(n_pings) FILTER (WHERE pinged) AS n_pings,
    sum(n_pings / (CASE WHEN days > 0 THEN days ELSE 0.0 END + {PING_DAYS}))
        FILTER (WHERE pinged) AS ping_rate,
    sum(real_pings) FILTER (WHERE pinged) AS real_pings,
    sum(false_pings) FILTER (WHERE pinged) AS false_pings,
    avg(coalesce(trust, 0.0)) FILTER (WHERE pinged) AS trust,
    max(last_ping_at) FILTER (WHERE pinged) AS last_ping_at
FROM (
    SELECT page_states.*, {{days_since}} AS days,
        observability = {Observability.auto.value} AND n_pings > 0 AS pinged,
        {{observed_at}} IS NOT NULL AND (n_observations > 0 OR {{observed_at}}
            < (SELECT started_at FROM epochs WHERE epoch = %(epoch)s)) AS shares
    FROM (SELECT page_id FROM pages WHERE host_id = %(host_id)s LIMIT {MOST_SUMMED}) AS sample
    JOIN page_states ON page_states.page_id = sample.page_id
) AS states
{{schedule_of: schedule, states.page_id, %(epoch)s}}
"""
"""Statement that sums over pages. The schedule has a rate for each page, because a page is crawled
at it from its first copy on. The budget for refreshes is that of the pages which had a copy when
the epoch began."""

HOST_IDS = "SELECT host, host_id FROM hosts WHERE host IN (SELECT value FROM {names})"
ADD_HOSTS = """
INSERT INTO hosts (host, known_at) SELECT value, %(now)s FROM {names} WHERE true
ON CONFLICT DO NOTHING
"""
"""Statement that inserts in the order of the names; without WHERE, SQLite reads ON as a join's."""
GROUP_ID = "SELECT group_id FROM host_groups WHERE name = %(name)s"
ADD_GROUP = "INSERT INTO host_groups (name) VALUES (%(name)s) ON CONFLICT DO NOTHING"
MEMBER_IDS = "SELECT host_id FROM hosts WHERE group_id = %(group_id)s"
LOCK_HOSTS = f"""
SELECT {HOST_QUEUE} FROM hosts WHERE host_id IN (SELECT value FROM {{ids}})
ORDER BY host_id {{lock_rows}}
"""
JOIN_GROUP = """
UPDATE hosts SET group_id = %(group_id)s WHERE host_id IN (SELECT value FROM {ids})
"""
MOVE_ROWS = f"""
WITH locked AS (
    SELECT page_id FROM due_pages WHERE page_id IN (
        SELECT page_id FROM pages WHERE host_id IN (SELECT value FROM {{ids}})
    ) ORDER BY page_id {{lock_rows}}
)
UPDATE due_pages SET queue_id = {HOST_QUEUE}
FROM locked JOIN pages ON pages.page_id = locked.page_id
JOIN hosts ON hosts.host_id = pages.host_id
WHERE due_pages.page_id = locked.page_id
RETURNING due_pages.queue_id
"""
ROBOTS_DELAYS = """
SELECT -group_id, robots_delay_s FROM hosts JOIN host_queues ON queue_id = host_id
WHERE group_id IN (SELECT -value FROM {ids}) AND robots_delay_s IS NOT NULL
"""
SAVE_SETTINGS = f"UPDATE host_queues SET {assignments(SETTINGS)} WHERE queue_id = %(queue_id)s"
ANY_LATENCY_FACTOR = "SELECT 1 FROM host_queues WHERE latency_factor > 0 LIMIT 1"
SAVE_BLOCK = "UPDATE host_queues SET blocked_until = %(until)s WHERE queue_id = %(queue_id)s"
SAVE_HOST_CAP = "UPDATE hosts SET max_crawl_rate = %(cap)s WHERE host_id = %(id)s"
SAVE_FIRST_SHARE = "UPDATE hosts SET first_share = %(first_share)s WHERE host_id = %(host_id)s"
SAVE_GROUP_CAP = "UPDATE host_groups SET max_crawl_rate = %(cap)s WHERE group_id = %(id)s"


class HostsSql(KeptSql, HoursSql, HostStatements):
    """The statements on hosts that Postgres and SQLite share."""

    @override
    def hosts(self, after: int, limit: int) -> list[Host]:
        return [host_of(row) for row in self.read(NEXT_HOSTS, after=after, limit=limit)]

    @override
    def host(self, host: str) -> Host:
        for row in self.read(HOST, host=host):
            return host_of(row)
        way = f"it comes with its first page, or with PUT /hosts/{host}"
        raise HostNotFound(f"no page has the host {host}; {way}")

    @override
    def host_pages(self, host: Host, now: datetime) -> HostPages:
        n_pages = self.scalar(N_PAGES, host_id=host.host_id)
        ((n_due, n_leased),) = self.run(N_QUEUED, host_id=host.host_id, now=now)
        epoch = self.number_in_force()
        (sums,) = self.read(SUMS, host_id=host.host_id, now=now, epoch=epoch)
        may_be_none = ("trust", "last_ping_at")
        sums = {name: sums[name] if name in may_be_none else sums[name] or 0 for name in sums}
        if n_pages > MOST_SUMMED:
            sums["crawl_rate"] = None
        return HostPages(n_pages=n_pages, n_queued=n_due - n_leased, n_leased=n_leased, **sums)

    @override
    def group(self, group: str) -> HostGroup:
        for row in self.read(GROUP, name=group):
            return host_group_of(row)
        raise GroupNotFound(f"no group has the name {group}; PUT /groups/{group} creates it")

    @override
    def members(self, group_id: int, limit: int) -> list[str]:
        return [host for (host,) in self.run(MEMBERS, group_id=group_id, limit=limit)]

    # -- settings and groups

    @override
    def host_ids(self, names: Sequence[str]) -> Ints:
        ids = self._host_ids(names)
        if new := [name for name in names if name not in ids]:
            if self.run(ADD_HOSTS, names=np.array(new, object), now=self.now()).rowcount:
                self.resume_pauses(new)
            ids |= self._host_ids(new)
        return np.array([ids[name] for name in names], np.int64)

    def _host_ids(self, names: Sequence[str]) -> dict[str, int]:
        return dict(iter(self.run(HOST_IDS, names=np.array(names, object))))

    @override
    def group_id(self, group: str, near: str | None = None) -> int:
        group_id = self.scalar(GROUP_ID, name=group)
        if group_id is None:
            self.run(ADD_GROUP, name=group)
            group_id = self.scalar(GROUP_ID, name=group)
        return int(group_id)

    @override
    def member_ids(self, group_id: int) -> Ints:
        return self.ids(MEMBER_IDS, group_id=group_id)

    @override
    def lock_hosts(self, host_id: Ints) -> Ints:
        return self.ids(LOCK_HOSTS, ids=host_id)

    @override
    def move_hosts(self, host_id: Ints, queue_id: Ints) -> Ints:
        if not len(host_id):
            return host_id
        group_id = np.maximum(-queue_id, 0)
        for group in distinct(group_id).tolist():
            self.run(JOIN_GROUP, group_id=group or None, ids=host_id[group_id == group])
        self.move_leases(host_id)
        return distinct(np.array([row[0] for row in self.run(MOVE_ROWS, ids=host_id)], np.int64))

    @override
    def robots_delays(self, queue_id: Ints) -> tuple[Ints, Floats]:
        rows = list(self.run(ROBOTS_DELAYS, ids=queue_id))
        group, delay_s = zip(*rows, strict=True) if rows else ((), ())
        return np.array(group, np.int64), np.array(delay_s, np.float64)

    @override
    def save_settings(self, locked: HostQueues) -> None:
        columns = (getattr(locked, name).tolist() for name in ("queue_id", *SETTINGS))
        for queue_id, *settings in zip(*columns, strict=True):
            values = {
                name: None if isnan(value) else value
                for name, value in zip(SETTINGS, settings, strict=True)
            }
            # the column has integers, and 0 is no setting
            values["max_concurrency"] = values["max_concurrency"] or None
            self.run(SAVE_SETTINGS, queue_id=queue_id, **values)

    @override
    def any_latency_factor(self) -> bool:
        return self.scalar(ANY_LATENCY_FACTOR) is not None

    @override
    def save_blocks(self, locked: HostQueues) -> None:
        for queue_id, until in zip(locked.queue_id.tolist(), locked.blocked_until, strict=True):
            self.run(SAVE_BLOCK, queue_id=queue_id, until=moment(until))

    @override
    def save_first_share(self, host_id: int, first_share: float | None) -> None:
        self.run(SAVE_FIRST_SHARE, host_id=host_id, first_share=first_share)

    @override
    def save_cap(self, queue_id: int, max_crawl_rate: float | None) -> None:
        statement = SAVE_HOST_CAP if queue_id > 0 else SAVE_GROUP_CAP
        self.run(statement, id=abs(queue_id), cap=max_crawl_rate)


def host_of(row: dict[str, Any]) -> Host:
    """Return the host in a row of `HOSTS`."""
    own = {name: row[f"own_{name}"] for name in SETTINGS}
    own |= {name: row[name] for name in OF_HOST}
    own |= {name: split(row[f"own_{name}"]) for name in HOURS}
    incident = None if row["kind"] is None else incident_in(row)
    return Host(group=row["name"], host_queue=_host_queue(row), incident=incident, **own)


def host_group_of(row: dict[str, Any]) -> HostGroup:
    """Return the group in a row of `GROUPS`."""
    own = {name: row[name] for name in ("group_id", "max_crawl_rate", "n_members")}
    return HostGroup(group=row["name"], host_queue=_host_queue(row), **own)


def _host_queue(row: dict[str, Any]) -> HostQueue:
    hours = {name: split(row[name]) for name in HOURS}
    fields = {name: row[name] for name in HostQueue.__dataclass_fields__}
    return HostQueue(**{**fields, **hours})
