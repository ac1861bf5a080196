"""Captures in the order of page and time, from any number of files in any order.

Captures are divided into parts by the first bits of their page's key, each part a file in a
temporary folder. One part at a time is then read and sorted. Memory holds one part, about
`PART_BYTES` of the input, whatever the order of the files is. The folder takes 32 bytes a capture,
and the URL of each page once for each block of lines that has it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.model.arrays import Bools, Ints
from service.model.urls import NormalUrl, normalise
from service.transfer.captures import RECORD, CaptureBlock

PART_BYTES = 1 << 26
"""Input of one part, bytes."""
MOST_PARTS = 1 << 8
"""Maximum number of parts; more parts would be written in pieces too small."""
KEY_WORDS = 2
"""64-bit words of a key."""


class SortedPart(NamedTuple):
    """The pages of one part by key, and their captures by page and time."""

    pages: list[NormalUrl]
    page: Ints
    """(N,) row of each capture's page."""
    records: NDArray[Any]
    """(N,) captures (`captures.RECORD`); of several of one page and second the first."""


class CaptureParts:
    """Parts of captures in a folder."""

    def __init__(self, folder: Path, input_bytes: int) -> None:
        self.folder = folder
        wanted = min(max(input_bytes // PART_BYTES, 1), MOST_PARTS)
        self.bits = (wanted - 1).bit_length()
        """Number of a key's first bits that choose its part."""

    def add(self, block: CaptureBlock) -> None:
        """Append the captures of a block to the files of their parts."""
        part = self._part(block.records["key"])
        order = np.argsort(part, kind="stable")
        records, part = block.records[order], part[order]
        starts = np.flatnonzero(np.diff(part, prepend=-1))
        for rows in np.split(np.arange(len(part)), starts[1:]) if len(part) else ():
            with self._captures(part[rows[0]]).open("ab") as file:
                file.write(records[rows].tobytes())
        keys = np.frombuffer(b"".join(block.pages), RECORD["key"])
        urls: dict[int, list[str]] = {}
        for number, url in zip(self._part(keys).tolist(), block.pages.values(), strict=True):
            urls.setdefault(number, []).append(url)
        for number, some in urls.items():
            with self._urls(number).open("a", encoding="utf-8", newline="\n") as file:
                file.write("\n".join(some) + "\n")

    def parts(self) -> Iterator[tuple[float, SortedPart]]:
        """Yield each part with the share of parts read so far; keys ascend over all parts."""
        n_parts = 1 << self.bits
        for number in range(n_parts):
            if self._captures(number).is_file():
                yield (number + 1) / n_parts, self._sorted(number)

    def _sorted(self, number: int) -> SortedPart:
        records = np.fromfile(self._captures(number), RECORD)
        text = self._urls(number).read_text(encoding="utf-8")
        pages = sorted((normalise(url) for url in set(text.split("\n")) if url), key=_key)
        high, low = words(records["key"]).T
        order = np.lexsort((records["at"], low, high))
        records, high, low = records[order], high[order], low[order]
        new = _differs(high) | _differs(low)
        records, new = _once(records, new)
        page = np.cumsum(new) - 1
        # a page whose captures have no time stands in no record
        keys = set(records["key"][new].tolist())
        return SortedPart([page for page in pages if page.key in keys], page, records)

    def _part(self, key: NDArray[Any]) -> Ints:
        # a shift by all 64 bits is not defined
        half = words(key)[:, 0] >> np.uint64(1)
        return (half >> np.uint64(63 - self.bits)).astype(np.int64)

    def _captures(self, number: int) -> Path:
        return self.folder / f"{number:04x}.captures"

    def _urls(self, number: int) -> Path:
        return self.folder / f"{number:04x}.urls"


def words(key: NDArray[Any]) -> NDArray[np.uint64]:
    """Return (N, 2) words of keys; the words have the order of the keys' bytes."""
    return np.ascontiguousarray(key).view(">u8").reshape(-1, KEY_WORDS).astype(np.uint64)


def _key(page: NormalUrl) -> bytes:
    return page.key


def _differs(ordered: NDArray[Any]) -> Bools:
    differs = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=differs[1:])
    return differs


def _once(records: NDArray[Any], new: Bools) -> tuple[NDArray[Any], Bools]:
    """Return the captures without those of the same page and second as the one before."""
    kept = new | _differs(records["at"])
    return records[kept], new[kept]
