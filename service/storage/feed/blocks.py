"""Blocks of changes: the columns of one commit, each in as few bytes as its largest value takes.

A block is a head, then the integers of seven columns, each of the width in the head; 0 where all
values are 0. A block with weights below 1 has an eighth column, whose width follows the head. The
bytes left are nearly random, so compression would save only a twentieth. Many blocks are read at
once, because most commits of small reports have one change.
"""

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from service.core.weights import UNIT, kept, whole
from service.model.arrays import INSTANT, NO_TIME, Instants, Ints, Numbers
from service.model.changes import ChangeColumns, ChangeKind

MOST_IN_BLOCK = 512
"""Maximum changes of one block; a commit with more has several blocks."""
LAYOUT, WEIGHED = 1, 2
"""First byte of a block: its layout, without and with weights."""
SECOND = 1_000_000
"""Microseconds of a second."""
WEIGHT_BYTES = 3
"""Width of a weight, bytes: six digits."""
BYTES = 8
"""Width of an integer in memory, bytes."""
N_COLUMNS = 7
CHANGED = np.int16(ChangeKind.changed)
"""Kind of nearly all changes."""
HEAD = np.dtype(
    [
        ("layout", "u1"),
        ("unit", "<u4"),
        ("n", "<u2"),
        ("page_id", "<i8"),
        ("first", "<i8"),
        ("width", "u1", N_COLUMNS),
    ]
)
"""Layout; unit of `observed_at`, microseconds; number of changes; first page_id; earliest
`observed_at`; widths of the columns."""
PACKED_HEAD = struct.Struct(f"<BIHqq{N_COLUMNS}B")
"""Format of the same head; it packs one head in a tenth of the time of an array."""
N = slice(5, 7)
"""Bytes of the number of changes."""


def size(block: bytes) -> int:
    """Return the number of changes of a block."""
    return int.from_bytes(block[N], "little")


def packed(changes: ChangeColumns) -> bytes:
    """Return changes, ordered by page_id, as one block.

    `changed_after` and `last_modified` are rounded down to whole seconds, and then count back from
    the second of `observed_at`.
    """
    at = changes.observed_at.astype(INSTANT).view(np.int64)
    page_id, first = changes.page_id, at.min()
    values = np.zeros((N_COLUMNS, len(changes)), np.int64)
    np.subtract(at, first, out=values[0])
    values[1] = _seconds_back(at, changes.changed_after)
    values[2] = _seconds_back(at, changes.last_modified)
    np.subtract(page_id[1:], page_id[:-1], out=values[3, 1:])
    values[4] = changes.kind ^ CHANGED  # nearly all are 0
    values[5] = changes.digest
    values[6] = changes.moved_to
    unit = 1 if (values[0] % SECOND).any() else SECOND
    values[0] //= unit
    largest = values.view(np.uint64).max(axis=1).tolist()
    width = [(most.bit_length() + 7) // 8 for most in largest]
    lighter = _lighter(changes.weight)
    layout = LAYOUT if lighter is None else WEIGHED
    head = PACKED_HEAD.pack(layout, unit, len(changes), page_id[0], first, *width)
    if lighter is not None:
        head += bytes([WEIGHT_BYTES])
        values, width = np.vstack([values, lighter]), [*width, WEIGHT_BYTES]
    rows = values.view(np.uint8).reshape(*values.shape, BYTES)
    parts = [row[:, :w].tobytes() for row, w in zip(rows, width, strict=True) if w]
    return b"".join([head, *parts])


def _lighter(weight: Numbers) -> Ints | None:
    """Return by how much weights are below 1, in their last digit; None if none is."""
    if weight is None or np.isnan(weight).all():
        return None
    lighter: Ints = np.rint(UNIT * (1.0 - whole(weight))).astype(np.int64)
    return lighter


def unpacked(blocks: Sequence[bytes]) -> ChangeColumns:
    """Return the changes of blocks, one block after the other."""
    if not blocks:
        return ChangeColumns.empty()
    data = np.frombuffer(b"".join(blocks), np.uint8)
    length = np.fromiter(map(len, blocks), np.int64, len(blocks))
    start = np.cumsum(length) - length
    head = data[start[:, None] + np.arange(HEAD.itemsize)].view(HEAD)[:, 0]
    n = head["n"].astype(np.int64)
    block, before = np.repeat(np.arange(len(n)), n), np.cumsum(n) - n
    row = np.arange(len(block)) - before[block]
    columns, start = [], start + HEAD.itemsize
    weighed = head["layout"] == WEIGHED
    widths = [*head["width"].T.astype(np.int64)]
    if weighed.any():
        widths.append(np.where(weighed, data[np.minimum(start, len(data) - 1)], 0).astype(np.int64))
        start = start + weighed
    for width in widths:
        columns.append(_column(data, start[block] + width[block] * row, width[block]))
        start = start + width * n
    at, since, modified, pages, kind, digest, moved_to, *lighter = columns
    us = at * head["unit"][block] + head["first"][block]
    pages = np.cumsum(pages)
    return ChangeColumns(
        page_id=pages - pages[before][block] + head["page_id"][block],
        observed_at=us.view(INSTANT),
        changed_after=_earlier(us, since),
        kind=kind.astype(np.int16) ^ CHANGED,
        digest=digest,
        last_modified=_earlier(us, modified),
        moved_to=moved_to,
        weight=kept(1.0 - lighter[0] / UNIT) if lighter else None,
    )


def _column(data: NDArray[np.uint8], start: Ints, width: Ints) -> Ints:
    """Return integers of these widths that begin at these bytes."""
    values = np.zeros(len(start), np.uint64)
    for i in range(int(width.max())):
        wide = np.flatnonzero(width > i)
        values[wide] |= data[start[wide] + i].astype(np.uint64) << np.uint64(8 * i)
    return values.view(np.int64)


def _seconds_back(us: Ints, earlier: Instants) -> Ints:
    """Return 1 + the seconds from `earlier` to instants in microseconds; 0 for NaT."""
    seconds = us // SECOND - earlier.astype(INSTANT).view(np.int64) // SECOND
    return np.where(np.isnat(earlier), 0, seconds + 1)


def _earlier(us: Ints, seconds: Ints) -> Instants:
    """Return the instants of `_seconds_back`."""
    earlier = (us // SECOND + 1 - seconds) * SECOND
    return np.where(seconds == 0, NO_TIME, earlier.view(INSTANT))
