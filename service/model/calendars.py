"""Calendars: the open hours of each host, by its own windows, those of its group and those of all.

Narrower windows replace wider ones; blackouts add up. Every process keeps the calendars in memory,
and reads them again when their version changes.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from typing import NamedTuple

import numpy as np
import structlog
from numpy.typing import NDArray

from service.core.even_days import Demand
from service.core.open_hours import OpenHours
from service.model.arrays import Bools, Instants, Ints, instant, moment
from service.model.open_time import open_hours
from service.model.windows import WINDOW_EXAMPLE, Unreadable, read_blackout, read_window

log = structlog.get_logger()

OfPages = NDArray[np.object_]
"""Open hours of each page or host, "" for one that is always open."""


class HourRules(NamedTuple):
    """Windows and blackouts, as texts."""

    windows: tuple[str, ...] | None = None
    """Windows; None: those of the wider level; (): open at all times."""
    blackouts: tuple[str, ...] = ()

    def within(self, wider: "HourRules") -> "HourRules":
        """Return the rules in force, with those of a wider level."""
        windows = wider.windows if self.windows is None else self.windows
        return HourRules(windows, tuple(dict.fromkeys((*wider.blackouts, *self.blackouts))))

    @property
    def is_open(self) -> bool:
        """True without a restriction."""
        return not self.windows and not self.blackouts


ALWAYS = HourRules()


class StoredRules(NamedTuple):
    """The rules of hosts and groups as a store has them."""

    of_queue: Mapping[int, HourRules] = {}
    """Rules by host_id, or by minus the group_id."""
    group_of: Mapping[int, int] = {}
    """Group of each host that has rules, or whose group has."""


class RuleTable(NamedTuple):
    """The rules of hosts; one value, so that threads read no half of a change."""

    rules: list[HourRules]
    """Rules in force without repetition, those of all hosts first."""
    host_id: Ints = np.zeros(0, np.int64)
    """(N,) hosts that have rules, or whose group has, ascending."""
    place: Ints = np.zeros(0, np.int64)
    """(N,) positions of their rules."""


class Calendars:
    """The open hours of hosts in one process; any thread may read them."""

    def __init__(self, of_all: HourRules = ALWAYS) -> None:
        self.of_all = of_all
        """Rules of hosts without others."""
        self.version = ""
        """Version of the stored rules; "": nothing is stored, or not read yet."""
        self._stored = StoredRules()
        self._mixed = frozenset[int]()
        """Groups whose hosts have windows of their own."""
        self._table = RuleTable([of_all])
        self._made: dict[HourRules, OpenHours | str] = {}
        self._day: date | None = None

    def adopt(self, version: str, stored: StoredRules) -> None:
        """Follow the rules that a store has."""
        hosts = sorted({*stored.group_of, *(each for each in stored.of_queue if each > 0)})
        rules = [self._in_force(stored, host) for host in hosts]
        table = list(dict.fromkeys([self.of_all, *rules]))
        place = {each: n for n, each in enumerate(table)}
        host_ids, places = (np.array(each, np.int64) for each in (hosts, [place[r] for r in rules]))
        self._table, self._stored = RuleTable(table, host_ids, places), stored
        groups = (stored.group_of.get(each, 0) for each in stored.of_queue if each > 0)
        self._mixed = frozenset(groups) - {0}
        self.version = version

    def _in_force(self, stored: StoredRules, host_id: int) -> HourRules:
        group = stored.of_queue.get(-stored.group_of.get(host_id, 0), ALWAYS)
        own = stored.of_queue.get(host_id, ALWAYS)
        return own.within(group.within(self.of_all))

    @property
    def in_use(self) -> bool:
        """True if any host may be closed at some time."""
        return len(self._table.rules) > 1 or not self.of_all.is_open

    # -- hosts

    def texts_of(self, host_id: Ints) -> list[tuple[str, str]]:
        """Return the windows and blackouts of (N,) hosts, each in one text."""
        rules = [self.rules_of(host) for host in host_id.tolist()]
        return [(joined(each.windows or ()), joined(each.blackouts)) for each in rules]

    def of_hosts(self, host_id: Ints, now: datetime) -> OfPages:
        """Return the open hours of (N,) hosts."""
        table, place = self._table, np.zeros(len(host_id), np.int64)
        if len(table.host_id):
            at = np.minimum(table.host_id.searchsorted(host_id), len(table.host_id) - 1)
            place = np.where(table.host_id[at] == host_id, table.place[at], 0)
        # each set of windows takes .3 ms a day, and few hosts of many are asked for
        some, each = np.unique(place, return_inverse=True)
        made = np.empty(len(some), object)
        for n, rules in enumerate(some.tolist()):
            made[n] = self.hours(table.rules[rules], now)
        hours: OfPages = made[each]
        return hours

    def of_host(self, host_id: int, now: datetime) -> OpenHours | None:
        """Return the open hours of one host; None: it is open at all times."""
        if not self.in_use:
            return None
        (hours,) = self.of_hosts(np.array([host_id]), now)
        return hours or None

    def rules_of(self, host_id: int) -> HourRules:
        """Return the rules in force of one host."""
        return self._in_force(self._stored, host_id)

    def rules_of_group(self, group_id: int) -> HourRules:
        """Return the rules in force of hosts of a group that have none of their own."""
        return self._stored.of_queue.get(-group_id, ALWAYS).within(self.of_all)

    def opening(self, queue_id: Ints, now: datetime, at: np.datetime64) -> Instants | None:
        """Return when (Q,) closed host queues open, NaT for others; None: all are open.

        A group whose hosts have windows of their own counts as open; its pages are judged one by
        one.
        """
        if not self.in_use:
            return None
        opens = np.full(len(queue_id), np.datetime64("NaT", "us"))
        for n, hours in self.of_queues(queue_id, now):
            (first,) = hours.opening(np.array([at]))
            opens[n] = first if first > at else opens[n]
        return opens

    def next_opening(self, now: datetime) -> datetime | None:
        """Return when the first of the closed windows opens; None: no host is closed."""
        at = instant(now)
        hours = (self.hours(rules, now) for rules in self._table.rules)
        first = [each.opening(np.array([at]))[0] for each in hours if isinstance(each, OpenHours)]
        later = [opens for opens in first if opens > at]
        return moment(min(later)) if later else None

    def closing(self, queue_id: Ints, now: datetime) -> tuple[Bools, Bools]:
        """Return which (Q,) host queues are of hosts with windows, and of hosts without.

        A group whose hosts have windows of their own may be both.
        """
        mixed = np.isin(-queue_id, sorted(self._mixed))
        closes = mixed.copy()
        closes[[n for n, _ in self.of_queues(queue_id, now)]] = True
        return closes, ~closes | mixed

    def demands(
        self, planned: Iterable[tuple[str, str, float]], now: datetime
    ) -> tuple[Demand, ...]:
        """Return the demand of hosts by their windows; those that no host has count as open.

        `planned` has windows, blackouts and planned amounts a day.
        """
        demands = []
        for windows, blackouts, a_day in planned:
            rules = HourRules(split(windows), split(blackouts) or ())
            is_old = bool(self.version) and rules not in self._table.rules
            hours = "" if is_old else self.hours(rules, now)
            demands.append(Demand(hours if isinstance(hours, OpenHours) else None, a_day))
        return tuple(demands)

    def own_in_group(self, group_id: int) -> dict[HourRules, list[int]]:
        """Return the hosts of a group that have windows of their own, by the rules in force."""
        stored, own = self._stored, dict[HourRules, list[int]]()
        for host in sorted(each for each in stored.of_queue if each > 0):
            if stored.group_of.get(host) == group_id:
                own.setdefault(self.rules_of(host), []).append(host)
        return own

    def of_queues(self, queue_id: Ints, now: datetime) -> Iterator[tuple[int, OpenHours]]:
        """Yield the positions and open hours of host queues whose hosts close all at once."""
        for n, queue in enumerate(queue_id.tolist()):
            if queue < 0 and -queue in self._mixed:
                continue
            rules = self.rules_of(queue) if queue > 0 else self.rules_of_group(-queue)
            hours = self.hours(rules, now)
            if isinstance(hours, OpenHours):
                yield n, hours

    def never_open(self, now: datetime) -> Ints:
        """Return the host queues with rules of their own that leave no opening, ascending."""
        stored = self._stored.of_queue if self.in_use else {}
        closed = []
        for queue in sorted(stored):
            rules = self.rules_of(queue) if queue > 0 else self.rules_of_group(-queue)
            hours = self.hours(rules, now)
            if isinstance(hours, OpenHours) and not hours.opens_from(instant(now)):
                closed.append(queue)
        return np.array(closed, np.int64)

    def hours(self, rules: HourRules, now: datetime) -> OpenHours | str:
        """Return the open hours around a time; "" where rules restrict nothing."""
        if rules.is_open:
            return ""
        if self._day != now.date():
            self._made, self._day = {}, now.date()
        if (made := self._made.get(rules)) is None:
            made = self._made[rules] = hours_of(rules, now)
        return made


def hours_of(rules: HourRules, now: datetime) -> OpenHours:
    """Return the open hours of rules around a time.

    A window in a zone that this machine does not know opens never. A blackout in one never ends.
    """
    try:
        windows = [read_window(text) for text in rules.windows] if rules.windows else None
        blackouts = [read_blackout(text) for text in rules.blackouts]
    except Unreadable as error:
        log.warning("hosts stay closed; install a newer tzdata", reason=str(error))
        return open_hours([], [], now.date())
    return open_hours(windows, blackouts, now.date())


def never_open(rules: HourRules, now: datetime) -> str:
    """Return why rules leave no opening within a year, as a clause; "" if they leave one."""
    if rules.is_open or hours_of(rules, now).opens_from(instant(now)):
        return ""
    if not rules.blackouts:
        return f"its windows never open for 30 seconds; send such as {WINDOW_EXAMPLE!r}"
    return "its blackouts leave no window within a year; send shorter blackouts"


def joined(texts: Iterable[str]) -> str:
    """Return windows or blackouts in one text, as a store has them.

    >>> split(joined(["Sat 00:00-24:00 UTC", "Sun 02:00-03:00 UTC"]))
    ('Sat 00:00-24:00 UTC', 'Sun 02:00-03:00 UTC')
    """
    return "\n".join(texts)


def split(text: str | None) -> tuple[str, ...] | None:
    """Return the windows or blackouts of one text; None for none."""
    return None if text is None else tuple(text.split("\n") if text else ())


ALWAYS_OPEN = Calendars()
"""Calendars of a store that has none: every host is open at all times."""
