"""Change hours of URL groups: contract and shared SQL.

A row of `group_hours` has a screen of 32 bytes, or evidence and the profile in force, 1 KB. An
epoch reads the profiles in force, and all rows of the hosts that learn. Groups without crawls are
forgotten when their host learns.
"""

from abc import abstractmethod
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from service.core.change_hours.evidence import WIDTH
from service.core.change_hours.profile import TERMS
from service.core.change_hours.screens import NUMBERS
from service.core.waits import delay_in_force
from service.model.arrays import Ints, moment
from service.model.columns import ChangeHours, GroupHours, GroupProfiles, GroupScreens
from service.storage.dialect import HOST_QUEUE, Dialect, Subject
from service.storage.epochs.change_hours import HOSTS_TOGETHER, numbers, packed_rows

SCREEN_KEPT, RECORD_KEPT = timedelta(days=7), timedelta(days=90)
"""Times without a crawl after which a screen, and evidence, are forgotten."""


class GroupHoursStatements(Subject):
    """The statements of change hours of URL groups."""

    @abstractmethod
    def group_profiles(self) -> GroupProfiles:
        """Return the groups with a profile in force, by ascending host_id, then url_group."""

    @abstractmethod
    def group_hours(self, host_id: Ints) -> GroupHours:
        """Return the groups of these hosts with evidence of their own."""

    @abstractmethod
    def group_screens(self, host_id: Ints) -> GroupScreens:
        """Return the groups of these hosts that have only a screen."""

    @abstractmethod
    def hours_of_group(self, host_id: int, url_group: int) -> GroupHours:
        """Return the change hours of one group; no row without evidence of its own."""

    @abstractmethod
    def own_group_hours(self, host_id: int, limit: int) -> GroupHours:
        """Return groups of a host with hours of their own, by url_group, at most `limit`."""

    @abstractmethod
    def urls_of_pages(self, page_id: Ints) -> dict[int, str]:
        """Return the URLs of pages by page_id; deleted pages have none."""


OF_RECORD = (
    *("host_id", "url_group", "seen_at", "page_id", "in_force", "has_own"),
    *("evidence", "profile"),
)
OF_SCREEN = ("host_id", "url_group", "seen_at", "screen")
EVIDENCE, PROFILE, SCREEN = (f"V{4 * n}" for n in (WIDTH, 2 + TERMS, NUMBERS))
"""Types of packed rows, numbers of four bytes; that of a profile ends with the certainty."""


def _renew(names: tuple[str, ...]) -> str:
    written = ", ".join(f"{name} = excluded.{name}" for name in names[2:])
    return f"ON CONFLICT (host_id, url_group) DO UPDATE SET {written}"


RENEW_RECORDS, RENEW_SCREENS = f"{_renew(OF_RECORD)}, screen = NULL", _renew(OF_SCREEN)
"""Ends of an INSERT that replaces what is known of groups."""
FORGET_GROUPS = """
DELETE FROM group_hours WHERE host_id IN (SELECT value FROM {ids})
    AND (seen_at < %(record)s OR evidence IS NULL AND seen_at < %(screen)s)
"""
GROUP_PROFILES = f"""
SELECT group_hours.host_id, url_group, profile, coalesce(used.min_delay_s, 'NaN') AS min_delay_s,
    coalesce(used.robots_delay_s, 'NaN') AS robots_delay_s
FROM group_hours JOIN hosts ON hosts.host_id = group_hours.host_id
LEFT JOIN host_queues AS used ON used.queue_id = {HOST_QUEUE}
WHERE in_force ORDER BY group_hours.host_id, url_group
"""
RECORDS = f"SELECT {', '.join(OF_RECORD)} FROM group_hours WHERE evidence IS NOT NULL AND {{where}}"
OF_HOSTS = "host_id IN (SELECT value FROM {ids}) ORDER BY host_id, url_group"
RECORDS_OF_HOSTS = RECORDS.replace("{where}", OF_HOSTS)
RECORD = RECORDS.replace("{where}", "host_id = %(host_id)s AND url_group = %(url_group)s")
OWN_RECORDS = RECORDS.replace(
    "{where}", "host_id = %(host_id)s AND has_own ORDER BY url_group LIMIT %(limit)s"
)
URLS = "SELECT page_id, url FROM pages WHERE page_id IN (SELECT value FROM {ids})"
SCREENS_OF_HOSTS = f"""
SELECT {", ".join(OF_SCREEN)} FROM group_hours
WHERE evidence IS NULL AND {OF_HOSTS}
"""


class GroupHoursSql(Dialect, GroupHoursStatements):
    """The statements on change hours of URL groups that Postgres and SQLite share."""

    @override
    def group_profiles(self) -> GroupProfiles:
        dtypes = {"host_id": "i8", "url_group": "i4", "profile": PROFILE}
        delays = {"min_delay_s": "f8", "robots_delay_s": "f8"}
        rows: dict[str, Any] = self.arrays(GROUP_PROFILES, dtypes | delays)
        profile = numbers(rows["profile"], 2 + TERMS)
        return GroupProfiles(
            host_id=rows["host_id"],
            url_group=rows["url_group"],
            certain=profile[:, -1],
            profile=profile[:, :-1],
            delay_s=delay_in_force(rows["min_delay_s"], rows["robots_delay_s"], np.nan),
        )

    @override
    def group_hours(self, host_id: Ints) -> GroupHours:
        parts = [self._records(RECORDS_OF_HOSTS, ids=some) for some in _parts(host_id)]
        return GroupHours.concatenate(parts) if parts else NO_RECORDS

    @override
    def group_screens(self, host_id: Ints) -> GroupScreens:
        parts = [self._screens(some) for some in _parts(host_id)]
        return GroupScreens.concatenate(parts) if parts else NO_SCREENS

    @override
    def hours_of_group(self, host_id: int, url_group: int) -> GroupHours:
        return self._records(RECORD, host_id=host_id, url_group=url_group)

    @override
    def own_group_hours(self, host_id: int, limit: int) -> GroupHours:
        return self._records(OWN_RECORDS, host_id=host_id, limit=limit)

    @override
    def urls_of_pages(self, page_id: Ints) -> dict[int, str]:
        return dict(self.run(URLS, ids=page_id)) if len(page_id) else {}

    def save_groups(self, learnt: ChangeHours, records: GroupHours, screens: GroupScreens) -> None:
        """Write what hosts that have learnt know of their groups; forget idle groups."""
        if not len(learnt):
            return
        self.save_group_rows(records, screens)
        before = {}
        for name, kept in (("record", RECORD_KEPT), ("screen", SCREEN_KEPT)):
            before[name] = moment(learnt.learnt_at.max() - np.timedelta64(kept))
        self.run(FORGET_GROUPS, ids=learnt.host_id, **before)

    @abstractmethod
    def save_group_rows(self, records: GroupHours, screens: GroupScreens) -> None:
        """Write rows of groups, in place of those that are there."""

    def _records(self, statement: str, **parameters: Any) -> GroupHours:
        dtypes = {"host_id": "i8", "url_group": "i4", "seen_at": "M8[us]", "page_id": "i8"}
        dtypes |= {"in_force": "?", "has_own": "?", "evidence": EVIDENCE, "profile": PROFILE}
        rows: dict[str, Any] = self.arrays(statement, dtypes, **parameters)
        rows["evidence"] = numbers(rows["evidence"], WIDTH)
        profile = numbers(rows["profile"], 2 + TERMS)
        rows |= {"profile": profile[:, :-1], "certain": profile[:, -1]}
        return GroupHours(**rows)

    def _screens(self, host_id: Ints) -> GroupScreens:
        dtypes = {"host_id": "i8", "url_group": "i4", "seen_at": "M8[us]", "screen": SCREEN}
        rows: dict[str, Any] = self.arrays(SCREENS_OF_HOSTS, dtypes, ids=host_id)
        return GroupScreens(numbers=numbers(rows.pop("screen"), NUMBERS), **rows)


NO_PROFILES = GroupProfiles.empty(profile=(1 + TERMS,))
NO_RECORDS = GroupHours.empty(evidence=(WIDTH,), profile=(1 + TERMS,))
NO_SCREENS = GroupScreens.empty(numbers=(NUMBERS,))
"""Groups of a store in which none has learnt."""


def stored_records(records: GroupHours) -> dict[str, NDArray[Any]]:
    """Return the columns of `OF_RECORD`."""
    plain = {name: getattr(records, name) for name in OF_RECORD[:-2]}
    plain["url_group"] = records.url_group.astype(np.int64)
    profile = np.column_stack((records.profile, records.certain))
    return plain | {
        "evidence": packed_rows(records.evidence, EVIDENCE),
        "profile": packed_rows(profile, PROFILE),
    }


def stored_screens(screens: GroupScreens) -> dict[str, NDArray[Any]]:
    """Return the columns of `OF_SCREEN`."""
    return {
        "host_id": screens.host_id,
        "url_group": screens.url_group.astype(np.int64),
        "seen_at": screens.seen_at,
        "screen": packed_rows(screens.numbers, SCREEN),
    }


def _parts(host_id: Ints) -> list[Ints]:
    starts = range(0, len(host_id), HOSTS_TOGETHER)
    return [host_id[start : start + HOSTS_TOGETHER] for start in starts]
