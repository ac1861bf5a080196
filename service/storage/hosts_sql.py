"""Hosts and groups of hosts, in the words that both databases share."""

from collections.abc import Sequence
from datetime import datetime
from math import isnan
from typing import Any

import numpy as np
import sqlalchemy as sa
from typing_extensions import override

from service.model.arrays import COLUMN, Floats, Ints, distinct
from service.model.columns import CapColumns
from service.model.domain import Host, HostGroup, HostPages, HostQueue, Observability
from service.model.errors import GroupNotFound, HostNotFound
from service.storage.contract import Transaction
from service.storage.hosts import MOST_SUMMED
from service.storage.queue import HostQueues
from service.storage.tables import (
    due_pages,
    host_groups,
    host_queues,
    hosts,
    page_states,
    pages,
    schedule,
)

OF_HOST_QUEUE = ("min_delay_s", "robots_delay_s", "max_concurrency")
PING_DAYS = 1.0
"""Days without a ping added to what was watched, as `core.pings.PingQuality` does."""

HOST_QUEUE_ID = sa.func.coalesce(-hosts.c.group_id, hosts.c.host_id)
own, used = host_queues.alias("own"), host_queues.alias("used")
IN_HOST_QUEUE = [
    sa.func.coalesce(used.c.n_failures, 0).label("host_queue_n_failures")
    if name == "n_failures"
    else used.c[name].label(f"host_queue_{name}")
    for name in HostQueue.__dataclass_fields__
]
HOSTS = (
    sa.select(
        hosts.c.host_id,
        hosts.c.host,
        host_groups.c.name.label("group"),
        hosts.c.max_crawl_rate,
        *(own.c[name] for name in OF_HOST_QUEUE),
        *IN_HOST_QUEUE,
    )
    .outerjoin_from(hosts, host_groups, host_groups.c.group_id == hosts.c.group_id)
    .outerjoin(own, own.c.queue_id == hosts.c.host_id)
    .outerjoin(used, used.c.queue_id == HOST_QUEUE_ID)
    .order_by(hosts.c.host_id)
)
GROUPS = sa.select(
    host_groups.c.group_id,
    host_groups.c.name.label("group"),
    host_groups.c.max_crawl_rate,
    sa.select(sa.func.count())
    .where(hosts.c.group_id == host_groups.c.group_id)
    .scalar_subquery()
    .label("n_members"),
    *IN_HOST_QUEUE,
).outerjoin_from(host_groups, used, used.c.queue_id == -host_groups.c.group_id)
CAPS = (
    sa.select(
        hosts.c.host_id,
        hosts.c.host,
        hosts.c.max_crawl_rate,
        sa.func.coalesce(host_groups.c.group_id, 0),
        sa.func.coalesce(host_groups.c.name, ""),
        host_groups.c.max_crawl_rate,
    )
    .outerjoin_from(
        hosts,
        host_groups,
        (host_groups.c.group_id == hosts.c.group_id) & host_groups.c.max_crawl_rate.is_not(None),
    )
    .where(hosts.c.max_crawl_rate.is_not(None) | host_groups.c.max_crawl_rate.is_not(None))
    .order_by(hosts.c.host_id)
)


class HostsSql(Transaction):
    """The statements on hosts that Postgres and SQLite share."""

    @property
    def connection(self) -> sa.Connection:
        """SQLAlchemy's view of the connection."""
        raise TypeError

    def insert(self, table: sa.Table) -> Any:
        """Give the dialect's INSERT, which knows ON CONFLICT."""
        raise TypeError(table)

    def days_before(self, now: datetime, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
        """Give the days from an instant until now; each dialect's own words."""
        raise TypeError(now, column)

    def hosts(self, after: int, limit: int) -> list[Host]:
        """Read along their key."""
        rows = self.connection.execute(HOSTS.where(hosts.c.host_id > after).limit(limit))
        return [_host(row) for row in rows]

    def host(self, host: str) -> Host:
        """Find one by its name."""
        row = self.connection.execute(HOSTS.where(hosts.c.host == host)).one_or_none()
        if row is None:
            raise HostNotFound(
                f"no page has the host {host}; it comes with its first page or with PUT"
            )
        return _host(row)

    def host_pages(self, host: Host, now: datetime) -> HostPages:
        """Count the pages and their rows of the queue, and walk over their states once."""
        of_host = pages.c.host_id == host.host_id
        n_pages = self.connection.scalar(
            sa.select(sa.func.count()).select_from(pages).where(of_host)
        )
        held = due_pages.c.token.is_not(None) & (due_pages.c.expires_at > now)
        n_leased, n_waiting = self.connection.execute(
            sa.select(sa.func.count().filter(held), sa.func.count().filter(~held))
            .join_from(hosts, due_pages, due_pages.c.queue_id == HOST_QUEUE_ID)
            .join(pages, (pages.c.page_id == due_pages.c.page_id) & of_host)
            .where(hosts.c.host_id == host.host_id)
        ).one()
        sums = self._sums(host.host_id, now)
        if (n_pages or 0) > MOST_SUMMED:
            sums["crawl_rate"] = None
        return HostPages(n_pages=n_pages or 0, n_queued=n_waiting, n_leased=n_leased, **sums)

    def _sums(self, host_id: int, now: datetime) -> dict[str, Any]:
        seen = sa.select(pages.c.page_id).where(pages.c.host_id == host_id).limit(MOST_SUMMED)
        seen_pages = seen.subquery("seen")
        auto = page_states.c.observability == Observability.auto.value
        pinged = auto & (page_states.c.n_pings > 0)
        days = self.days_before(now, page_states.c.pings_since)
        watched = sa.case((days > 0, days), else_=0.0) + PING_DAYS
        of_pinged: dict[str, Any] = {
            "n_pinged": sa.func.count(),
            "n_pings": sa.func.sum(page_states.c.n_pings),
            "ping_rate": sa.func.sum(page_states.c.n_pings / watched),
            "real_pings": sa.func.sum(page_states.c.real_pings),
            "false_pings": sa.func.sum(page_states.c.false_pings),
            "trust": sa.func.avg(sa.func.coalesce(page_states.c.trust, 0.0)),
            "last_ping_at": sa.func.max(page_states.c.last_ping_at),
        }
        followed = sa.func.coalesce(schedule.c.crawl_probability, 0.0) * schedule.c.change_rate
        crawled = sa.cast(schedule.c.crawl_rate, sa.Double) + followed
        columns = [sa.func.sum(crawled).label("crawl_rate")] + [
            sum_.filter(pinged).label(name) for name, sum_ in of_pinged.items()
        ]
        in_force = (schedule.c.page_id == page_states.c.page_id) & (
            schedule.c.epoch == self.number_in_force()
        )
        row = self.connection.execute(
            sa.select(*columns)
            .join_from(seen_pages, page_states, page_states.c.page_id == seen_pages.c.page_id)
            .outerjoin(schedule, in_force)
        ).one()
        sums = {name: getattr(row, name) or 0 for name in ("crawl_rate", *of_pinged)}
        return {**sums, "trust": row.trust, "last_ping_at": row.last_ping_at}

    def group(self, group: str) -> HostGroup:
        """Find one by its name."""
        row = self.connection.execute(GROUPS.where(host_groups.c.name == group)).one_or_none()
        if row is None:
            raise GroupNotFound(f"no group has the name {group}; PUT /groups/{group} creates it")
        of_group = {name: getattr(row, name) for name in ("group_id", "group", "max_crawl_rate")}
        return HostGroup(**of_group, n_members=row.n_members, host_queue=_host_queue(row))

    def members(self, group_id: int, limit: int) -> list[str]:
        """Read the hosts of this group."""
        of_group = sa.select(hosts.c.host).where(hosts.c.group_id == group_id)
        return list(self.connection.scalars(of_group.order_by(hosts.c.host).limit(limit)))

    def load_caps(self) -> CapColumns:
        """Read the hosts that have one."""
        rows = self.connection.execute(CAPS).all()
        if not rows:
            return CapColumns.empty()
        read = zip(CapColumns.__dataclass_fields__.values(), zip(*rows, strict=True), strict=True)
        return CapColumns(**{f.name: np.array(cells, COLUMN[f.type]) for f, cells in read})

    # -- settings and groups

    @override
    def host_ids(self, names: Sequence[str]) -> Ints:
        ids = self._ids_by_name(hosts.c.host_id, hosts.c.host, names)
        return np.array([ids[name] for name in names], np.int64)

    @override
    def group_id(self, group: str) -> int:
        return self._ids_by_name(host_groups.c.group_id, host_groups.c.name, [group])[group]

    def _ids_by_name(
        self, key: sa.Column[Any], column: sa.Column[Any], names: Sequence[str]
    ) -> dict[str, int]:
        select = sa.select(column, key).where(column.in_(names))
        ids = dict(self.connection.execute(select).all())
        if new := [{column.name: name} for name in names if name not in ids]:
            self.connection.execute(self.insert(key.table).on_conflict_do_nothing(), new)
            ids = dict(self.connection.execute(select).all())
        return ids

    @override
    def member_ids(self, group_id: int) -> Ints:
        of_group = sa.select(hosts.c.host_id).where(hosts.c.group_id == group_id)
        return np.array(self.connection.scalars(of_group).all(), np.int64)

    @override
    def lock_hosts(self, host_id: Ints) -> Ints:
        query = sa.select(HOST_QUEUE_ID).where(_is_in(hosts.c.host_id, host_id))
        locked = query.order_by(hosts.c.host_id).with_for_update(key_share=True)
        return np.array(self.connection.scalars(locked).all(), np.int64)

    @override
    def move_hosts(self, host_id: Ints, queue_id: Ints) -> Ints:
        if not len(host_id):
            return host_id
        of_hosts = (
            sa.select(due_pages.c.page_id)
            .join(pages, pages.c.page_id == due_pages.c.page_id)
            .where(_is_in(pages.c.host_id, host_id))
            .order_by(due_pages.c.page_id)
            .with_for_update(of=due_pages, key_share=True)
        )
        page_id = np.array(self.connection.scalars(of_hosts).all(), np.int64)
        group_id = np.maximum(-queue_id, 0)
        for group in distinct(group_id).tolist():
            joining = _is_in(hosts.c.host_id, host_id[group_id == group])
            self.connection.execute(hosts.update().where(joining).values(group_id=group or None))
        of_row = (
            sa.select(HOST_QUEUE_ID)
            .join_from(pages, hosts, pages.c.host_id == hosts.c.host_id)
            .where(pages.c.page_id == due_pages.c.page_id)
            .scalar_subquery()
        )
        rows = (
            due_pages.update().where(_is_in(due_pages.c.page_id, page_id)).values(queue_id=of_row)
        )
        filled = self.connection.scalars(rows.returning(due_pages.c.queue_id)).all()
        return distinct(np.array(filled, np.int64))

    @override
    def longest_robots_delays(self, queue_id: Ints) -> Floats:
        longest = (
            sa.select(hosts.c.group_id, sa.func.max(own.c.robots_delay_s))
            .join(own, own.c.queue_id == hosts.c.host_id)
            .where(_is_in(hosts.c.group_id, -queue_id))
            .group_by(hosts.c.group_id)
        )
        delay_of = dict(self.connection.execute(longest).all())
        return np.array([delay_of.get(-group) for group in queue_id.tolist()], np.float64)

    @override
    def save_settings(self, locked: HostQueues) -> None:
        if not len(locked):
            return
        columns = (getattr(locked, name).tolist() for name in ("queue_id", *OF_HOST_QUEUE))
        rows = [
            {
                "id": queue_id,
                "min_delay_s": None if isnan(own) else own,
                "robots_delay_s": None if isnan(robots) else robots,
                "max_concurrency": concurrency or None,
            }
            for queue_id, own, robots, concurrency in zip(*columns, strict=True)
        ]
        values: dict[str, Any] = {name: sa.bindparam(name) for name in OF_HOST_QUEUE}
        of_row = host_queues.c.queue_id == sa.bindparam("id")
        self.connection.execute(host_queues.update().where(of_row).values(values), rows)

    @override
    def save_cap(self, queue_id: int, max_crawl_rate: float | None) -> None:
        of_host = hosts.update().where(hosts.c.host_id == queue_id)
        of_group = host_groups.update().where(host_groups.c.group_id == -queue_id)
        cap = of_host if queue_id > 0 else of_group
        self.connection.execute(cap.values(max_crawl_rate=max_crawl_rate))


def _is_in(column: sa.Column[Any], ids: Ints) -> sa.ColumnElement[bool]:
    """Compare with numbers written out: no database takes as many parameters."""
    return column.in_(sa.bindparam(None, ids.tolist(), expanding=True, literal_execute=True))


def _host(row: sa.Row[Any]) -> Host:
    names = [name for name in Host.__dataclass_fields__ if name != "host_queue"]
    return Host(**{name: getattr(row, name) for name in names}, host_queue=_host_queue(row))


def _host_queue(row: sa.Row[Any]) -> HostQueue:
    names = HostQueue.__dataclass_fields__
    return HostQueue(**{name: getattr(row, f"host_queue_{name}") for name in names})
