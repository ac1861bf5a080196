"""Change hours of URL groups in an epoch: which groups learn, and which pages follow them. Pure.

A group learns with its host, from the same crawls. It begins with a screen of eight numbers. It
gets evidence of its own once its crawls contradict the hours in force. A group whose pages change
before nearly every crawl gets it at once, because only extra crawls show its hour.
"""

from typing import NamedTuple

import numpy as np

from service.core.change_hours.best_hours import PROBE_EXPECTED
from service.core.change_hours.evidence import (
    HourEvidence,
    Indices,
    Intervals,
    faded,
    forgotten,
    learn,
    learn_dates,
    packed,
    shows_hours,
    unpacked,
)
from service.core.change_hours.pooling import OF_ITS_OWN, OWN, pooled
from service.core.change_hours.profile import TERMS, Profiles
from service.core.change_hours.screens import NUMBERS, Screens, believed, deviation, screened
from service.model.arrays import Bools, Floats, Instants, Ints, UrlGroups, distinct, is_among
from service.model.columns import (
    ChangeHours,
    GroupHours,
    GroupProfiles,
    GroupScreens,
    HostHours,
)
from service.model.urls import URL_GROUPS

LOW_BITS = URL_GROUPS - 1
LEAST_EVENTS = 1.0
"""Minimum crawls and pings a day of a host, or a group, that learns change hours."""
PER_HOST = 1 << 32
"""Numbers of groups that keys leave to each host."""
BLOCK = 1 << 18
"""Maximum pages whose groups are looked up at a time."""


class Shown(NamedTuple):
    """(K,) intervals that show something of change hours."""

    intervals: Intervals
    changed: Bools
    """True if the page changed within the interval; for intervals without an instant."""
    exact: Bools
    """True if the instant of a change within the interval, if there was one, is known."""
    changed_at: Floats
    """Instant of the change, days; NaN: none, or unknown."""

    def take(self, rows: Ints | Bools) -> "Shown":
        """Return the intervals that an index selects."""
        host, start, end, a, b = self.intervals
        intervals = Intervals(host[rows], start[rows], end[rows], a[rows], b[rows])
        return Shown(intervals, self.changed[rows], self.exact[rows], self.changed_at[rows])

    def of_hours(self) -> "Shown":
        """Return the intervals that show something of the hours."""
        return self.take(self.exact | shows_hours(self.intervals))


def taught(evidence: HourEvidence, profiles: Profiles, shown: Shown) -> HourEvidence:
    """Return the evidence with the intervals added that show something of the hours."""
    shown = shown.of_hours()
    exact, plain = shown.exact, ~shown.exact
    crawls = shown.take(plain)
    evidence = learn(evidence, profiles, crawls.intervals, crawls.changed)
    if plain.all():
        return evidence
    dates = shown.take(exact)
    return learn_dates(evidence, profiles, dates.intervals, dates.changed_at)


class Taught(NamedTuple):
    """(H,) hosts that learn in this epoch."""

    host_id: Ints
    passed: Floats
    """Days since the last lesson."""
    watched: Floats
    """Days whose crawls the lesson has."""
    before: Profiles
    """Profiles before the lesson."""
    evidence: HourEvidence
    """Evidence after the lesson."""
    profiles: Profiles
    """Profiles after the lesson."""


class Events(NamedTuple):
    """(K,) crawls and pings of a lesson, in the order of hosts."""

    host: Indices
    """Row of the host."""
    url_group: UrlGroups
    page_id: Ints
    shown: Shown

    @property
    def key(self) -> Ints:
        """(K,) numbers of the groups, by host."""
        return keys(self.host, self.url_group)

    def take(self, rows: Ints) -> "Events":
        """Return the events that an index selects."""
        host, group, page_id, shown = self
        return Events(host[rows], group[rows], page_id[rows], shown.take(rows))


def keys(host: Indices, url_group: UrlGroups) -> Ints:
    """Return numbers of groups, by the rows of their hosts."""
    return np.asarray(host * PER_HOST + url_group, np.int64)


def teaches(events: Events, host_id: Ints, records: GroupHours) -> Bools:
    """Return (K,) which events teach their host: not those of groups with hours of their own."""
    own = records.where(records.has_own)
    return ~np.isin(events.key, keys(host_id.searchsorted(own.host_id), own.url_group))


def of_hosts(columns: GroupHours | GroupScreens, host_id: Ints) -> Bools:
    """Return which groups belong to some hosts."""
    return np.isin(columns.host_id, host_id)


def learn_groups(
    events: Events, hosts: Taught, records: GroupHours, screens: GroupScreens, now: np.datetime64
) -> tuple[GroupHours, GroupScreens]:
    """Return the groups with evidence, and the screens that have learnt, after a lesson.

    `records` are all groups of these hosts with evidence of their own; each learns, crawled or not,
    because the shares of the kinds need all groups of a host.
    """
    number = keys(hosts.host_id.searchsorted(records.host_id), records.url_group)
    has_record = np.isin(events.key, number)
    rest = events.take(np.flatnonzero(~has_record))
    room = np.bincount(events.host, minlength=len(hosts.host_id)) / np.maximum(hosts.watched, 1e-9)
    room -= np.bincount(number // PER_HOST, minlength=len(hosts.host_id))
    learnt, opened = _screened(rest, hosts, screens, room, now)
    added = _added(rest, hosts, opened, now)
    records = GroupHours.concatenate([records, added])
    number = np.concatenate((number, opened))
    order = np.argsort(number)
    return _pooled(events, hosts, records.take(order), number[order], now), learnt


def _added(rest: Events, hosts: Taught, opened: Ints, now: np.datetime64) -> GroupHours:
    """Return groups without evidence yet."""
    n, flat = len(opened), Profiles.flat(1)
    row = np.flatnonzero(np.isin(rest.key, opened))
    _, first = np.unique(rest.key[row], return_index=True)
    return GroupHours(
        host_id=hosts.host_id[opened // PER_HOST],
        url_group=(opened % PER_HOST).astype(np.int32),
        seen_at=np.full(n, now),
        page_id=rest.page_id[row[first]],
        in_force=np.ones(n, np.bool_),
        has_own=np.zeros(n, np.bool_),
        certain=np.zeros(n),
        evidence=packed(HourEvidence.none(n)).astype(np.float64),
        profile=np.tile(np.append(flat.weight, flat.coefficients), (n, 1)),
    )


def _screened(
    events: Events, hosts: Taught, screens: GroupScreens, room: Floats, now: np.datetime64
) -> tuple[GroupScreens, Ints]:
    """Return the screens that have learnt, and the numbers of groups that get evidence.

    `room` has the (H,) numbers of groups that may get some. A host has at most as many groups with
    evidence as crawls and pings a day.
    """
    key, code, n_events = np.unique(events.key, return_inverse=True, return_counts=True)
    host = key // PER_HOST
    live = n_events >= LEAST_EVENTS * hosts.watched[host]
    row = np.flatnonzero(live[code])
    key, host = key[live], host[live]
    code = (np.cumsum(live) - 1)[code[row]]
    row, code = _in_order(row, code)
    shown = events.shown.take(row)
    shown = shown._replace(intervals=shown.intervals._replace(host=code))
    numbers = np.zeros((len(key), NUMBERS))
    stored = keys(hosts.host_id.searchsorted(screens.host_id), screens.url_group)
    place = np.minimum(key.searchsorted(stored), max(len(key) - 1, 0))
    there = key[place] == stored if len(key) else np.zeros(len(stored), np.bool_)
    numbers[place[there]] = screens.numbers[there]
    evident = shown.of_hours()
    after = screened(
        Screens.of(numbers), believed(hosts.before.take(host)), evident.intervals, *evident[1:]
    )
    excess = deviation(after)
    excess[_always_changed(shown, len(key))] = np.inf
    order = np.lexsort((-excess, host))
    rank = np.arange(len(key)) - host[order].searchsorted(host[order])
    opened = np.sort(key[order[(excess[order] > 0) & (rank < room[host[order]])]])
    kept = ~np.isin(key, opened)
    learnt = GroupScreens(
        host_id=hosts.host_id[host[kept]],
        url_group=(key[kept] % PER_HOST).astype(np.int32),
        seen_at=np.full(np.count_nonzero(kept), now),
        numbers=after.packed()[kept].astype("f4").astype("f8"),
    )
    return learnt, opened


def _in_order(row: Ints, group: Ints) -> tuple[Ints, Ints]:
    """Return rows and their groups by ascending group."""
    order = np.argsort(group, kind="stable")
    return row[order], group[order]


def _always_changed(shown: Shown, n: int) -> Bools:
    """Return (n,) which groups expect over `PROBE_EXPECTED` changes between two crawls."""
    host, start, end, a, b = shown.intervals
    plain = ~shown.exact
    n_plain = np.bincount(host[plain], minlength=n)
    expected = np.bincount(host[plain], (a / b * (end - start))[plain], n)
    return np.asarray(expected > PROBE_EXPECTED * n_plain)


def _pooled(
    events: Events, hosts: Taught, records: GroupHours, number: Ints, now: np.datetime64
) -> GroupHours:
    """Return groups after their lesson; `number` has their numbers, ascending."""
    if not len(records):
        return records
    host = number // PER_HOST
    profiles = Profiles(records.profile[:, 1:], records.profile[:, 0])
    evidence = faded(unpacked(records.evidence), hosts.passed[host])
    place = np.minimum(number.searchsorted(events.key), len(number) - 1)
    row, group = _in_order(np.arange(len(place)), place)
    own = number[group] == events.key[row]
    row, group = row[own], group[own]
    shown = events.shown.take(row)
    shown = shown._replace(intervals=shown.intervals._replace(host=group))
    evidence = forgotten(taught(evidence, profiles, shown))
    after = pooled(evidence, host, hosts.evidence, hosts.profiles, ~records.has_own)
    profile = np.column_stack((after.profiles.weight, after.profiles.coefficients))
    seen_at: Instants = records.seen_at.copy()
    seen_at[distinct(group)] = now
    return GroupHours(
        host_id=records.host_id,
        url_group=records.url_group,
        seen_at=seen_at,
        page_id=records.page_id,
        in_force=~after.is_host,
        has_own=after.shares[:, OWN] >= OF_ITS_OWN,
        certain=after.certain.astype("f4").astype("f8"),
        evidence=packed(evidence).astype(np.float64),
        # rounded as the store does, so that a second attempt of the epoch has the same change hours
        profile=profile.astype("f4").astype("f8"),
    )


def renewed(
    groups: GroupProfiles, learnt: ChangeHours, new: GroupHours, hosts: HostHours
) -> GroupProfiles:
    """Return the groups with a profile in force after those of some hosts have learnt."""
    kept = groups.where(~np.isin(groups.host_id, learnt.host_id))
    some = new.where(new.in_force)
    delay = np.full(len(some), np.nan)
    for columns in (hosts, groups):
        if len(columns):
            at = np.minimum(columns.host_id.searchsorted(some.host_id), len(columns) - 1)
            same = columns.host_id[at] == some.host_id
            delay[same] = columns.delay_s[at[same]]
    added = GroupProfiles(
        host_id=some.host_id,
        url_group=some.url_group,
        certain=some.certain,
        profile=some.profile,
        delay_s=delay,
    )
    both = GroupProfiles.concatenate([kept, added])
    return both.take(np.lexsort((both.url_group, both.host_id)))


# -- use


class HoursInForce(NamedTuple):
    """(R,) rows of change hours: hosts with hours, then groups with a profile in force."""

    rows: HostHours
    """Hosts by ascending host_id, then groups; the weight of a group may be 0."""
    is_group: Bools
    certain: Floats
    """Certainty of the hours, by which extra crawls are decided, 0 to 1."""
    groups: GroupProfiles
    """The groups of the last rows."""

    @classmethod
    def of(cls, hosts: HostHours, groups: GroupProfiles) -> "HoursInForce":
        """Return the rows of hosts and groups."""
        both = HostHours.concatenate(
            [
                hosts,
                HostHours(host_id=groups.host_id, profile=groups.profile, delay_s=groups.delay_s),
            ]
        )
        is_group = np.arange(len(both)) >= len(hosts)
        return cls(both, is_group, np.append(hosts.profile[:, 0], groups.certain), groups)

    @property
    def hosts(self) -> HostHours:
        """The hosts alone."""
        return self.rows.take(slice(len(self.rows) - len(self.groups)))

    @property
    def profiles(self) -> Profiles:
        """The profiles of the rows."""
        return Profiles(self.rows.profile[:, 1:], self.rows.profile[:, 0])


NO_HOURS = HoursInForce.of(
    HostHours.empty(profile=(1 + TERMS,)), GroupProfiles.empty(profile=(1 + TERMS,))
)


def place_groups(place: Ints, host_id: Ints, url_group: UrlGroups, hours: HoursInForce) -> Ints:
    """Return (N,) rows of pages among the change hours: of their groups, else as in `place`.

    `place` has the rows of hosts. Groups are looked up among pages of their hosts alone.
    """
    groups = hours.groups
    if not len(groups):
        return place
    place, first = np.array(place), len(hours.rows) - len(groups)
    row_of = np.full(URL_GROUPS, -1, np.int32)
    row_of[groups.url_group & LOW_BITS] = np.arange(len(groups), dtype=np.int32)
    host = distinct(groups.host_id)
    of_groups = keys(host.searchsorted(groups.host_id), groups.url_group)
    for start in range(0, len(place), BLOCK):
        some = slice(start, start + BLOCK)
        row = np.flatnonzero(row_of[url_group[some] & LOW_BITS] >= 0) + start
        at = row_of[url_group[row] & LOW_BITS]
        same = (groups.host_id[at] == host_id[row]) & (groups.url_group[at] == url_group[row])
        place[row[same]] = first + at[same]
        # the URL groups of two hosts seldom share a number
        row = row[~same & is_among(host_id[row], host)]
        key = keys(host.searchsorted(host_id[row]), url_group[row])
        at = np.minimum(of_groups.searchsorted(key), len(of_groups) - 1)
        there = of_groups[at] == key
        place[row[there]] = first + at[there]
    return place
