"""Hosts and groups of hosts, in the words that both databases share."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import sqlalchemy as sa

from service.arrays import COLUMN
from service.columns import CapColumns
from service.domain import Host, HostGroup, HostPages, Lane, Observability
from service.errors import GroupNotFound, HostNotFound
from service.storage.hosts import MOST_SUMMED, HostTransaction
from service.storage.tables import (
    Instant,
    crawls,
    host_groups,
    hosts,
    lanes,
    page_states,
    pages,
    schedule,
)

OF_LANE = ("min_delay_s", "robots_delay_s", "max_concurrency")
PING_DAYS = 1.0
"""Days without a ping added to what was watched, as `core.pings.PingQuality` does."""

LANE_ID = sa.func.coalesce(-hosts.c.group_id, hosts.c.host_id)
own, used = lanes.alias("own"), lanes.alias("used")
IN_LANE = [
    sa.func.coalesce(used.c.n_failures, 0).label("lane_n_failures")
    if name == "n_failures"
    else used.c[name].label(f"lane_{name}")
    for name in Lane.__dataclass_fields__
]
HOSTS = (
    sa.select(
        hosts.c.host_id, hosts.c.host, host_groups.c.name.label("group"), hosts.c.max_crawl_rate,
        *(own.c[name] for name in OF_LANE), *IN_LANE,
    )
    .outerjoin_from(hosts, host_groups, host_groups.c.group_id == hosts.c.group_id)
    .outerjoin(own, own.c.lane_id == hosts.c.host_id)
    .outerjoin(used, used.c.lane_id == LANE_ID)
    .order_by(hosts.c.host_id)
)  # fmt: skip
GROUPS = sa.select(
    host_groups.c.group_id, host_groups.c.name.label("group"), host_groups.c.max_crawl_rate,
    sa.select(sa.func.count()).where(hosts.c.group_id == host_groups.c.group_id)
    .scalar_subquery().label("n_members"), *IN_LANE,
).outerjoin_from(host_groups, used, used.c.lane_id == -host_groups.c.group_id)  # fmt: skip
CAPS = (
    sa.select(
        hosts.c.host_id, hosts.c.host, hosts.c.max_crawl_rate,
        sa.func.coalesce(host_groups.c.group_id, 0), sa.func.coalesce(host_groups.c.name, ""),
        host_groups.c.max_crawl_rate,
    )
    .outerjoin_from(
        hosts, host_groups,
        (host_groups.c.group_id == hosts.c.group_id) & host_groups.c.max_crawl_rate.is_not(None),
    )
    .where(hosts.c.max_crawl_rate.is_not(None) | host_groups.c.max_crawl_rate.is_not(None))
    .order_by(hosts.c.host_id)
)  # fmt: skip


class HostsSql(HostTransaction):
    """The statements on hosts that Postgres and SQLite share."""

    connection: sa.Connection

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
        held = crawls.c.token.is_not(None) & (crawls.c.expires_at > now)
        n_leased, n_waiting = self.connection.execute(
            sa.select(sa.func.count().filter(held), sa.func.count().filter(~held))
            .join_from(hosts, crawls, crawls.c.lane_id == LANE_ID)
            .join(pages, (pages.c.page_id == crawls.c.page_id) & of_host)
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

    def change_host(
        self, host: str, settings: Mapping[str, Any], now: datetime, delay_s: float = 0.0
    ) -> None:
        """Lock the host and what moves with it, then write."""
        host_id = self._named(hosts.c.host_id, hosts.c.host, host)
        before = self._lock_hosts([host_id])
        after = dict(before)
        if "group" in settings:
            after[host_id] = self._group_id(settings["group"])
        self._move(before, after, now)
        used = {_lane_id(host_id, group_id) for group_id in (before[host_id], after[host_id])}
        delays = self._delays(used, delay_s)
        of_lane = {name: settings[name] for name in OF_LANE if name in settings}
        self._write(lanes, lanes.c.lane_id == host_id, of_lane)
        cap = {name: settings[name] for name in ("max_crawl_rate",) if name in settings}
        self._write(hosts, hosts.c.host_id == host_id, cap)
        self._ask_robots({*before.values(), *after.values()})
        self._shift(delays, delay_s)
        for lane_id in sorted(used):
            joined = lane_id == _lane_id(host_id, after[host_id])
            self._open(lane_id, settings if joined else {}, now)

    def _group_id(self, name: str | None) -> int | None:
        if name is None:
            return None
        return self._named(host_groups.c.group_id, host_groups.c.name, name)

    def group(self, group: str) -> HostGroup:
        """Find one by its name."""
        row = self.connection.execute(GROUPS.where(host_groups.c.name == group)).one_or_none()
        if row is None:
            raise GroupNotFound(f"no group has the name {group}; PUT /groups/{group} creates it")
        of_group = {name: getattr(row, name) for name in ("group_id", "group", "max_crawl_rate")}
        return HostGroup(**of_group, n_members=row.n_members, lane=_lane(row))

    def members(self, group_id: int, limit: int) -> list[str]:
        """Read the hosts of this group."""
        of_group = sa.select(hosts.c.host).where(hosts.c.group_id == group_id)
        return list(self.connection.scalars(of_group.order_by(hosts.c.host).limit(limit)))

    def change_group(
        self, group: str, settings: Mapping[str, Any], members: Collection[str] | None,
        now: datetime, delay_s: float = 0.0,
    ) -> None:  # fmt: skip
        """Lock all hosts that join or leave and what moves with them, then write."""
        group_id = self._named(host_groups.c.group_id, host_groups.c.name, group)
        join = [self._named(hosts.c.host_id, hosts.c.host, host) for host in sorted(members or ())]
        of_group = sa.select(hosts.c.host_id).where(hosts.c.group_id == group_id)
        leave = self.connection.scalars(of_group) if members is not None else ()
        before = self._lock_hosts({*join, *leave})
        after = {host_id: group_id if host_id in join else None for host_id in before}
        self._move(before, after, now, also=[group_id])
        left = {-other for other in before.values() if other not in (None, group_id)}
        delays = self._delays({-group_id, *left}, delay_s)
        of_lane = {name: settings[name] for name in OF_LANE if name in settings}
        self._write(lanes, lanes.c.lane_id == -group_id, of_lane)
        cap = {name: settings[name] for name in ("max_crawl_rate",) if name in settings}
        self._write(host_groups, host_groups.c.group_id == group_id, cap)
        self._ask_robots({group_id, *before.values()})
        self._shift(delays, delay_s)
        self._open(-group_id, settings, now)
        for lane_id in sorted(left):
            self._open(lane_id, {}, now)

    def load_caps(self) -> CapColumns:
        """Read the hosts that have one."""
        rows = self.connection.execute(CAPS).all()
        if not rows:
            return CapColumns.empty()
        read = zip(CapColumns.__dataclass_fields__.values(), zip(*rows, strict=True), strict=True)
        return CapColumns(**{f.name: np.array(cells, COLUMN[f.type]) for f, cells in read})

    # -- steps

    def _named(self, key: sa.Column[Any], column: sa.Column[Any], name: str) -> int:
        """Give the id of a name, which is inserted if nobody has yet."""
        find = sa.select(key).where(column == name)
        found = self.connection.scalar(find)
        if found is None:
            self.connection.execute(
                self.insert(key.table).values({column: name}).on_conflict_do_nothing()
            )
            found = self.connection.scalar(find)
        return int(found)  # type: ignore[arg-type]

    def _lock_hosts(self, host_id: Collection[int]) -> dict[int, int | None]:
        """Lock hosts and give the group of each."""
        query = sa.select(hosts.c.host_id, hosts.c.group_id).where(_is_in(hosts.c.host_id, host_id))
        rows = self.connection.execute(
            query.order_by(hosts.c.host_id).with_for_update(key_share=True)
        )
        return dict(rows.all())

    def _move(
        self, before: Mapping[int, int | None], after: Mapping[int, int | None], now: datetime,
        also: Collection[int] = (),
    ) -> None:  # fmt: skip
        """Lock the rows and lanes of hosts, and bring the rows into their new lanes."""
        moved = [host_id for host_id, group_id in before.items() if after[host_id] != group_id]
        queued = self._lock_queued(moved) if moved else []
        groups = {group for group in (*before.values(), *after.values(), *also) if group}
        self._lock_lanes(before, groups)
        for group_id in {after[host_id] for host_id in moved}:
            joining = [host_id for host_id in moved if after[host_id] == group_id]
            self._write(hosts, _is_in(hosts.c.host_id, joining), {"group_id": group_id})
            if group_id is not None:
                self._inherit([-group_id], [_lane_id(host, before[host]) for host in joining])
            for left in {before[host] for host in joining if group_id is None}:
                self._inherit([host for host in joining if before[host] == left], [-(left or 0)])
        lane_id = sa.select(LANE_ID).join_from(pages, hosts, pages.c.host_id == hosts.c.host_id)
        of_row = lane_id.where(pages.c.page_id == crawls.c.page_id).scalar_subquery()
        rows = crawls.update().where(_is_in(crawls.c.page_id, queued)).values(lane_id=of_row)
        filled = set(self.connection.scalars(rows.returning(crawls.c.lane_id)))
        self._write(lanes, _is_in(lanes.c.lane_id, filled), {"next_at": now})

    def _inherit(self, joined: Collection[int], left: Collection[int]) -> None:
        """Keep lanes that hosts join shut for as long as those were that they come from."""
        values: dict[str, Any] = {}
        for name in ("n_failures", "blocked_until", "paused_at", "ready_at"):
            longest = sa.select(sa.func.max(own.c[name])).where(_is_in(own.c.lane_id, left))
            known = sa.func.coalesce(longest.scalar_subquery(), lanes.c[name])
            values[name] = sa.case((lanes.c[name] > known, lanes.c[name]), else_=known)
        self._write(lanes, _is_in(lanes.c.lane_id, joined), values)

    def _delays(
        self, lane_id: Collection[int], delay_s: float
    ) -> dict[int, tuple[float, datetime | None]]:
        """Give the delay of locked lanes, of which nothing was said `delay_s`, and its end."""
        query = sa.select(
            lanes.c.lane_id, lanes.c.min_delay_s, lanes.c.robots_delay_s, lanes.c.ready_at
        )
        rows = self.connection.execute(query.where(_is_in(lanes.c.lane_id, lane_id)))
        return {
            row.lane_id: (
                max(delay_s if row.min_delay_s is None else row.min_delay_s,
                    row.robots_delay_s or 0.0),
                row.ready_at,
            )
            for row in rows
        }  # fmt: skip

    def _shift(self, before: Mapping[int, tuple[float, datetime | None]], delay_s: float) -> None:
        """Let the delay that is in force now count from the same crawl as the one before."""
        after = self._delays(before, delay_s)
        for lane_id, (old_s, ready_at) in sorted(before.items()):
            new_s, _ = after[lane_id]
            if ready_at is not None and new_s != old_s:
                moved = ready_at + timedelta(seconds=new_s - old_s)
                self._write(lanes, lanes.c.lane_id == lane_id, {"ready_at": moved})

    def _lock_queued(self, host_id: Collection[int]) -> Sequence[int]:
        """Lock the rows of the queue that hosts have, and give their pages."""
        query = sa.select(crawls.c.page_id).join(pages, pages.c.page_id == crawls.c.page_id)
        of_hosts = query.where(_is_in(pages.c.host_id, host_id)).order_by(crawls.c.page_id)
        locked = of_hosts.with_for_update(of=crawls, key_share=True)
        return self.connection.scalars(locked).all()

    def _lock_lanes(self, host_id: Collection[int], group_id: Collection[int]) -> None:
        """Lock the lanes of hosts and groups, which are made where they are not there yet."""
        for key, ids, lane_id in (
            (host_groups.c.group_id, group_id, -host_groups.c.group_id),
            (hosts.c.host_id, host_id, hosts.c.host_id),
        ):
            named = sa.select(lane_id).where(_is_in(key, ids)).order_by(lane_id)
            insert = self.insert(lanes).from_select(["lane_id"], named)
            self.connection.execute(insert.on_conflict_do_nothing())
        both = [*host_id, *(-group for group in group_id)]
        query = sa.select(lanes.c.lane_id).where(_is_in(lanes.c.lane_id, both))
        locked = query.order_by(lanes.c.lane_id).with_for_update(key_share=True)
        self.connection.execute(locked).all()

    def _ask_robots(self, groups: Collection[int | None]) -> None:
        """Let the longest delay that robots.txt asks of a member hold for its group."""
        asked = sa.select(sa.func.max(own.c.robots_delay_s)).join_from(
            hosts, own, own.c.lane_id == hosts.c.host_id
        )
        for group_id in sorted(group for group in groups if group is not None):
            longest = asked.where(hosts.c.group_id == group_id).scalar_subquery()
            self._write(lanes, lanes.c.lane_id == -group_id, {"robots_delay_s": longest})

    def _open(self, lane_id: int, settings: Mapping[str, Any], now: datetime) -> None:
        """Block or unblock a lane, and have it looked at again: its gate may open sooner now."""
        blocked: dict[str, Any] = {}
        if "blocked_until" in settings:
            blocked = {"blocked_until": settings["blocked_until"], "paused_at": None}
        at = sa.literal(now, Instant)
        sooner = sa.case((lanes.c.next_at > now, at), else_=lanes.c.next_at)
        self._write(lanes, lanes.c.lane_id == lane_id, {**blocked, "next_at": sooner})

    def _write(
        self, table: sa.Table, where: sa.ColumnElement[bool], values: Mapping[str, Any]
    ) -> int:
        """Update rows if there is anything to write; gives how many."""
        if not values:
            return 0
        return self.connection.execute(table.update().where(where).values(values)).rowcount


def _is_in(column: sa.Column[Any], ids: Collection[int]) -> sa.ColumnElement[bool]:
    """Compare with numbers written out: no database takes as many parameters."""
    return column.in_(sa.bindparam(None, list(ids), expanding=True, literal_execute=True))


def _lane_id(host_id: int, group_id: int | None) -> int:
    return host_id if group_id is None else -group_id


def _host(row: sa.Row[Any]) -> Host:
    names = [name for name in Host.__dataclass_fields__ if name != "lane"]
    return Host(**{name: getattr(row, name) for name in names}, lane=_lane(row))


def _lane(row: sa.Row[Any]) -> Lane:
    names = Lane.__dataclass_fields__
    return Lane(**{name: getattr(row, f"lane_{name}") for name in names})
