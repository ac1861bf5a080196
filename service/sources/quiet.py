"""Documents as files that an XML parser reads, and an end to what would keep it busy for long."""

import io
from collections.abc import Iterable

QUIET = 1_000_000
"""Bytes without the start or end of an element. The parser reads all of an unfinished tag again
with every piece that comes: of one tag of 20 MB it would take minutes."""


class QuietFile(io.RawIOBase):
    """Pieces as a file; who parses it says when something came of them (`heard`)."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = iter(pieces)
        self.quiet = 0

    def heard(self) -> None:
        """Begin to count anew."""
        self.quiet = 0

    def read(self, _size: int = -1) -> bytes:
        """Give the next piece that has bytes; raises ValueError where nothing came of too many."""
        piece = next((piece for piece in self.pieces if piece), b"")
        self.quiet += len(piece)
        if piece and self.quiet > QUIET:
            raise ValueError(f"over {QUIET:,} bytes without an element")
        return piece
