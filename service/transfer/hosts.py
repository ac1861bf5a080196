"""Settings of hosts and groups, in a file of NDJSON beside the file of states.

The settings have their own file, because a file of states may be CSV or Parquet, with one kind of
row. An import without a file of settings changes no settings.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType, structs

from recrawl_client.wire.common import Item
from recrawl_client.wire.hosts import (
    Blackouts,
    Cap,
    Concurrency,
    Delay,
    GroupName,
    HostBody,
    LatencyFactor,
    MaxDelay,
    Until,
    Windows,
)
from service.leases.host_settings import HOURS, PAUSES, change_group, change_host, pauses
from service.leases.politeness import Politeness
from service.model.domain import Host, HostGroup, HostQueue
from service.model.errors import InvalidField
from service.model.urls import normalise_host
from service.model.windows import checked
from service.storage import Store
from service.transfer.exporting import replacing
from service.transfer.files import read_items
from service.transfer.importing import Skipped

SUFFIX = ".hosts.ndjson"
"""Ending of the file of settings, after the whole name of the file of states."""
BLOCK = 1_000
"""Number of hosts of one read."""
OF_HOST = (
    *("group", "min_delay_s", "robots_delay_s", "max_concurrency", "max_crawl_rate"),
    *("first_share", "latency_factor", "max_delay_s", *HOURS),
)
OF_GROUP = (
    *("min_delay_s", "max_concurrency", "latency_factor", "max_delay_s", *HOURS),
    "max_crawl_rate",
)


class HostLine(HostBody, frozen=True, kw_only=True):
    """A host and its settings; a missing field means the default."""

    host: str
    paused_until: Until | UnsetType = UNSET


class GroupLine(Item, frozen=True, kw_only=True):
    """A group of hosts that share a server, and its settings."""

    group: GroupName
    min_delay_s: Delay | UnsetType = UNSET
    max_concurrency: Concurrency | UnsetType = UNSET
    latency_factor: LatencyFactor | UnsetType = UNSET
    max_delay_s: MaxDelay | UnsetType = UNSET
    windows: Windows | UnsetType = UNSET
    blackouts: Blackouts | UnsetType = UNSET
    max_crawl_rate: Cap | UnsetType = UNSET
    blocked_until: Until | UnsetType = UNSET
    paused_until: Until | UnsetType = UNSET


Line = HostLine | GroupLine


class HostStep(NamedTuple):
    """Number of hosts and groups of a block whose settings were read or written."""

    n_hosts: int
    n_groups: int
    skipped: list[Skipped]
    """Lines that were not imported."""


def settings_file(states: Path) -> Path:
    """Return the file of settings beside a file of states.

    >>> settings_file(Path("all.csv.gz")).name
    'all.csv.gz.hosts.ndjson'
    """
    return states.with_name(states.name + SUFFIX)


def write_settings(path: Path, store: Store, now: datetime) -> Iterator[HostStep]:
    """Write the settings of all hosts and of the groups that have members, in blocks.

    Raises
    ------
    UnreadableFile
        The folder cannot be written to.
    """
    encoder = msgspec.json.Encoder()
    with replacing(path) as file:
        for lines in _lines(store, now):
            file.write(encoder.encode_lines(lines))
            n_hosts = sum(isinstance(line, HostLine) for line in lines)
            yield HostStep(n_hosts, len(lines) - n_hosts, [])


def _lines(store: Store, now: datetime) -> Iterator[list[Line]]:
    """Yield the settings of blocks of hosts; a group comes before its first member."""
    last, groups = 0, set[str]()
    while True:
        with store.begin(write=False) as tx:
            hosts = tx.hosts(last, BLOCK)
            new = {host.group for host in hosts if host.group is not None} - groups
            of_groups = [group_line(tx.group(name), now) for name in sorted(new)]
        if not hosts:
            return
        last, groups = hosts[-1].host_id, groups | new
        of_hosts = [line for host in hosts if (line := host_line(host, now)) is not None]
        yield [*of_groups, *of_hosts]


def host_line(host: Host, now: datetime) -> HostLine | None:
    """Return the settings of a host; None where all have their defaults."""
    settings = _set(host, OF_HOST)
    if host.group is None:
        settings |= _pauses(host.host_queue, now)
    return HostLine(host=host.host, **settings) if settings else None


def group_line(group: HostGroup, now: datetime) -> GroupLine:
    """Return the settings of a group."""
    settings = _set(group.host_queue, OF_GROUP[:-1]) | _set(group, OF_GROUP[-1:])
    settings |= _pauses(group.host_queue, now)
    return GroupLine(group=group.group, **settings)


def _set(of: Host | HostGroup | HostQueue, names: tuple[str, ...]) -> dict[str, Any]:
    values = {name: getattr(of, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _pauses(host_queue: HostQueue, now: datetime) -> dict[str, datetime]:
    """Return the ends of pauses in force."""
    ends = pauses(host_queue).items()
    return {name: until for name, until in ends if until is not None and until > now}


def add_settings(path: Path, store: Store, polite: Politeness) -> Iterator[HostStep]:
    """Set hosts and groups by the lines of a file, in blocks; missing settings stay unchanged.

    Each line has its own transaction. This avoids a deadlock between a report and a transaction
    that locks many hosts.
    """
    for block in read_items(path):
        skipped = [Skipped(path, line, reason) for line, reason in block.skipped]
        n_hosts = n_groups = 0
        for number, item in zip(block.lines, block.items, strict=True):
            try:
                line = _apply(store, item, polite)
            except (msgspec.ValidationError, InvalidField) as error:
                skipped.append(Skipped(path, number, str(error)))
                continue
            n_hosts += isinstance(line, HostLine)
            n_groups += isinstance(line, GroupLine)
        yield HostStep(n_hosts, n_groups, sorted(skipped))


def _apply(store: Store, item: dict[str, Any], polite: Politeness) -> Line:
    """Set one host or group; raise `ValidationError` or `InvalidField` for a bad line."""
    kind: Any = HostLine if "host" in item else GroupLine
    line: Line = msgspec.convert(item, kind)
    settings = {name: value for name, value in structs.asdict(line).items() if value is not UNSET}
    for name in HOURS:
        if settings.get(name) is not None:
            settings[name] = checked(name, settings[name])
    with store.begin() as tx:
        now = tx.now()
        for name in PAUSES:
            # a pause that is over would end one that is in force
            if (until := settings.get(name)) is not None and until <= now:
                del settings[name]
        if isinstance(line, HostLine):
            name = normalise_host(settings.pop("host"))
            change_host(tx, name, settings, now, polite)
        else:
            change_group(tx, settings.pop("group"), settings, None, now, polite)
    return line
