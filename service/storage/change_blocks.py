"""Blocks of changes: the columns of one commit, each in as few bytes as its largest value takes.

A block has a head and seven parts. A part begins with the width of its integers, 0 where all are 0.
Times are whole seconds if all times of the block are. Most kinds are `changed`, so kinds are stored
relative to it. The bytes left are nearly random, so compression would save only a twentieth.
"""

import struct
from collections.abc import Iterator

import numpy as np

from service.model.arrays import INSTANT, NO_TIME, Instants, Ints
from service.model.changes import ChangeColumns, ChangeKind

MOST_IN_BLOCK = 512
"""Maximum changes of one block; a commit with more has several blocks."""
LAYOUT = 1
"""First byte of a block, the version of its layout."""
HEAD = struct.Struct("<BBHqq")
"""Format of the head: layout, whether times are seconds, number of changes, first page_id, first
instant."""
SECOND = 1_000_000
"""Microseconds of a second."""
N_TIMES, N_COLUMNS = 3, 7
BYTES = 8
"""Width of an integer in memory, bytes."""


def packed(changes: ChangeColumns) -> bytes:
    """Return changes, ordered by page_id, as one block."""
    at = changes.observed_at.astype(INSTANT).view(np.int64)
    page_id, first = changes.page_id, int(at.min())
    values = np.empty((N_COLUMNS, len(changes)), np.int64)
    values[0] = at - first
    values[1] = _before(changes.observed_at, changes.changed_after)
    values[2] = _before(changes.observed_at, changes.last_modified)
    values[3] = page_id - np.append(page_id[0], page_id[:-1])
    values[4] = changes.kind ^ ChangeKind.changed
    values[5] = changes.digest
    values[6] = changes.moved_to
    in_seconds = not (values[:N_TIMES] % SECOND).any()
    if in_seconds:
        values[:N_TIMES] //= SECOND
    most = values.view(np.uint64).max(axis=1).tolist()
    weights = values.view(np.uint8).reshape(*values.shape, BYTES)
    parts = [HEAD.pack(LAYOUT, in_seconds, len(changes), int(page_id[0]), first)]
    for row, largest in zip(weights, most, strict=True):
        width = (largest.bit_length() + 7) // 8
        parts += (bytes([width]), row[:, :width].tobytes())
    return b"".join(parts)


def unpacked(block: bytes) -> ChangeColumns:
    """Return the changes of a block."""
    _, in_seconds, n, page_id, first = HEAD.unpack_from(block)
    at, since, modified, pages, kind, digest, moved_to = _columns(block, n)
    unit = SECOND if in_seconds else 1
    observed_at = (at * unit + first).view(INSTANT)
    return ChangeColumns(
        page_id=np.cumsum(pages) + page_id,
        observed_at=observed_at,
        changed_after=_earlier(observed_at, since * unit),
        kind=kind.astype(np.int16) ^ np.int16(ChangeKind.changed),
        digest=digest,
        last_modified=_earlier(observed_at, modified * unit),
        moved_to=moved_to,
    )


def _before(at: Instants, earlier: Instants) -> Ints:
    """Return microseconds from `earlier` to `at`; 0 for NaT."""
    span = (at - earlier).astype("m8[us]")
    return np.where(np.isnat(span), 0, span.view(np.int64))


def _earlier(at: Instants, before: Ints) -> Instants:
    return np.where(before == 0, NO_TIME, at - before.view("m8[us]"))


def _columns(block: bytes, n: int) -> Iterator[Ints]:
    """Yield the columns of a block."""
    start = HEAD.size
    for _ in range(N_COLUMNS):
        width, start = block[start], start + 1
        weights = np.zeros((n, BYTES), np.uint8)
        weights[:, :width] = np.frombuffer(block, np.uint8, n * width, start).reshape(n, width)
        yield weights.view("<i8").ravel()
        start += n * width
