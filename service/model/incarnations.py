"""Incarnations: the lives of a database, and the numbers that no life may repeat. Pure.

A restored database is as old as its backup. Callers still have numbers that were handed out after
the backup: ids of pages under leases, epochs in ETags, places in the feed. A restore therefore
begins a new incarnation, whose numbers lie above all that an earlier one can have handed out. A
number between the last of one incarnation and the first of the next was lost with the restore.

The first number of an incarnation depends on its time and on chance. One backup may be restored
twice, and the second restore knows nothing of the first.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np

from service.model.arrays import Bools, Ints

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
"""Instant from which `floor` counts."""
ID_BITS = 42
"""Bits of an id below the logical shard; a database of a single shard stays within them too."""
IN_SHARD = (1 << ID_BITS) - 1


REWOUND_AFTER = timedelta(minutes=15)
"""Silence of a database on another timeline, or in another file, after which it was restored. A
standby that takes over has been silent for a shorter time."""


class Numbers(NamedTuple):
    """The last numbers that a database handed out; with several shards, the highest page."""

    page: int
    epoch: int
    change: int
    """Number of the newest block of the feed."""
    entry: int
    """Entry of the audit."""


class Spacing(NamedTuple):
    """The distance that a first number keeps from the last one."""

    per_s: float
    """Numbers for each second since `SINCE`."""
    least: int
    """Minimum distance; no incarnation hands out as many after its last backup."""
    chance: int
    """Number of values among which chance chooses."""


PAGES = Spacing(per_s=2_048.0, least=2**32, chance=2**33)
"""Spacing of page_ids. 42 bits have room for 68 years and 300 restores."""
EPOCHS = Spacing(per_s=0.1, least=2**16, chance=2**16)
"""Spacing of epochs. The 31 bits of a schedule's epoch have room for 20,000 restores."""
AUDIT = Spacing(per_s=0.0, least=2**32, chance=2**33)
"""Spacing of entries of the audit."""


def floor(spacing: Spacing, last: int, now: datetime, uniform: float) -> int:
    """Return the first number of an incarnation that begins now; `uniform` is in [0, 1).

    >>> floor(EPOCHS, 41, SINCE, 0.0), floor(EPOCHS, 3_000_000, SINCE, 0.5)
    (65577, 3098304)
    """
    by_time = int(max((now - SINCE).total_seconds(), 0.0) * spacing.per_s)
    return max(last + spacing.least, by_time) + int(uniform * spacing.chance)


class Incarnation(NamedTuple):
    """One life of a database."""

    number: int
    name: str
    """Eight hexadecimal digits, which ETags repeat."""
    began_at: datetime
    place: str
    """Identity of the tables where this incarnation lives; a copy has another one."""
    timeline: str
    """Timeline of the server's log; "" if unknown."""
    last_page: int
    """Last page_id before the backup; with several shards, of the shard with the fewest."""
    first_page: int
    last_epoch: int
    first_epoch: int
    last_change: int
    first_change: int
    """Least number of the next block of the feed. The place after the last block was handed out
    before the backup too, so places between the two ends are lost: last + 1 < place < first."""


class Surroundings(NamedTuple):
    """Identity of the place where a database lives, as the database reads it; "": unknown."""

    place: str
    timeline: str
    alive_at: datetime | None
    """Time of its last sign of life; None: none."""


def restored(newest: Incarnation, present: Surroundings, now: datetime) -> str:
    """Return why a database must have been restored since its newest incarnation; "" if not.

    A restored dump has new tables. A server that was set back has a new timeline and an old sign
    of life. A standby that took over has a new timeline and a recent sign.
    """
    if present.place != newest.place:
        return "its tables are a copy"
    if present.timeline in ("", newest.timeline) or not newest.timeline:
        return ""
    if present.alive_at is None or now - present.alive_at > REWOUND_AFTER:
        return "its server was set back to an earlier time"
    return ""


def lost_pages(page_id: Ints, incarnations: Sequence[Incarnation]) -> Bools:
    """Return which page_ids a restore has lost; none of the ids may have a page.

    >>> from datetime import UTC, datetime
    >>> second = Incarnation(2, "", datetime.now(UTC), "", "", 10, 1000, 0, 0, 0, 0)
    >>> lost_pages(np.array([5, 11, 999, 1000, (3 << 42) + 11]), [second]).tolist()
    [False, True, True, False, True]
    """
    number, lost = page_id & IN_SHARD, np.zeros(len(page_id), np.bool_)
    for each in incarnations:
        lost |= (number > each.last_page) & (number < each.first_page)
    return lost & (page_id > 0)


def is_lost_epoch(epoch: int, incarnations: Sequence[Incarnation]) -> bool:
    """Return whether a restore has lost an epoch that does not exist."""
    return any(each.last_epoch < epoch < each.first_epoch for each in incarnations)


def restored_at(incarnations: Sequence[Incarnation]) -> datetime | None:
    """Return the time of the last restore, by all incarnations, the oldest first; None: none."""
    return incarnations[-1].began_at if len(incarnations) > 1 else None
