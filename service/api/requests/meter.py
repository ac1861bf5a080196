"""Costs of a body before it is decoded: its items, levels and values, counted on the bytes.

Three bytes, `{},`, take eighty bytes in memory once they are decoded, and thirty kilobytes of gzip
inflate to thirty megabytes. So bodies are counted in pieces as they arrive, at a
millisecond or two a megabyte, and the decoders receive only those within the limits.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from starlette.types import Scope

from service.model.errors import BodyTooLarge, MalformedBody, Overloaded, TooManyItems
from service.runtime.requests import BODY

MOST_VALUES, VALUES_PER_ITEM = 400_000, 40
"""Maximum number of keys, values and containers in a body, at least 40 an allowed item."""
LEAST_VALUE = 16
"""Minimum size of a value in the limit of a large batch, bytes of the largest body."""
MOST_TEXT = 32_000_000
"""Maximum memory of a body as a text, bytes; at least the largest body."""
MOST_LEVELS = 900
"""Maximum depth of a JSON text, levels; the parsers reach some more."""

SMALL = 262_144
"""Maximum size of a body that is neither counted nor charged, bytes."""
VALUE_BYTES = 100
"""Memory of a decoded value, bytes."""
COPIES, TEXTS = 2, 3
"""Copies of a body while it is decoded: as bytes, and as texts."""
BODIES_AT_ONCE = 6
"""Maximum memory of all large bodies in work, in largest bodies."""

COMMA, COLON, OPEN, CLOSE = 1, 2, 3, 4
QUOTE, LINE_END, LIST = b'"'[0], b"\n"[0], b"["[0]
UNCOUNTED = bytes(set(range(256)) - set(b',:[]{}"\n'))
"""Bytes without a meaning for the counts; most of a body."""
BLANKS = b" \t\r\v\f"
OUTLINE = bytes(LINE_END if code == LINE_END else ord("x") for code in range(256))
_MARK = np.zeros(256, np.uint8)
for _mark, _texts in {COMMA: b",", COLON: b":", OPEN: b"[{", CLOSE: b"]}"}.items():
    _MARK[list(_texts)] = _mark
_STEP = np.array([0, 0, 0, 1, -1], np.int64)
"""Change of the depth by each mark."""
WIDE, WIDEST = 0xC4, 0xF0
"""First byte of UTF-8 from which a text takes two bytes a character, and four."""


class BodyLimits(NamedTuple):
    """Maximum numbers of items and of values of a body, and maximum size of its texts."""

    max_items: int
    max_values: int
    max_text_bytes: int
    """Maximum memory of the body as a text, bytes; one emoji makes it four times as large."""

    @classmethod
    @cache
    def of(cls, max_items: int, max_body_bytes: int) -> "BodyLimits":
        """Return the limits of a service with these settings."""
        per_item = min(VALUES_PER_ITEM * max_items, max_body_bytes // LEAST_VALUE)
        return cls(max_items, max(MOST_VALUES, per_item), max(MOST_TEXT, max_body_bytes))


class Meter:
    """Counts of a JSON text, or of lines of JSON, that is fed in pieces.

    Marks inside of texts do not count. The counts are exact up to the first fault of the syntax,
    where every parser stops.

    >>> meter = Meter(BodyLimits(10, 1_000, 100), lines=False)
    >>> meter.feed(b'[{"a": "1,2"}, [], {"b')
    >>> meter.feed(b'": 0}]')
    >>> meter.n_items, meter.n_values, meter.levels
    (3, 8, 2)
    """

    def __init__(self, limits: BodyLimits, *, lines: bool) -> None:
        self.limits = limits
        self.lines = lines
        self.size = self.n_values = self.levels = 0
        self.width = 1
        """Memory of a character of the widest text, bytes."""
        self._n_separated = 0
        self._depth = 0
        self._first = 0
        self._in_text = 0
        self._escapes = False
        self._in_line = False

    @property
    def n_items(self) -> int:
        """Number of items of the outermost list, or of lines that are not blank; 0 without any."""
        if self.lines:
            return self._n_separated + self._in_line
        return self._n_separated + 1 if self._first == LIST else 0

    @property
    def is_over(self) -> bool:
        """True where the body exceeds a limit."""
        return (
            self.n_values > self.limits.max_values
            or self.n_items > self.limits.max_items
            or self.levels > MOST_LEVELS
            or self.size * self.width > self.limits.max_text_bytes
        )

    @property
    def weight(self) -> int:
        """Memory that the body needs while it is decoded, bytes."""
        return self.size * (COPIES + TEXTS * self.width) + self.n_values * VALUE_BYTES

    def check(self, what: str = "the body") -> None:
        """Raise `TooManyItems` or `MalformedBody` for a body that exceeds a limit."""
        most_items, most_values, most_text = self.limits
        if self.n_items > most_items:
            raise TooManyItems(
                f"the batch has {self.n_items} items; send at most {most_items} at a time"
            )
        if self.levels > MOST_LEVELS:
            raise MalformedBody(f"{what} is not JSON: it is nested too deeply")
        if self.n_values > most_values:
            raise TooManyItems(
                f"{what} has over {most_values:,} values; send fewer items at a time"
            )
        if self.size * self.width > most_text:
            raise BodyTooLarge(
                f"{what} has over {most_text // self.width} bytes, and characters beyond ASCII; "
                "send it in several requests"
            )

    def feed(self, piece: bytes) -> None:
        """Count the next bytes."""
        self.size += len(piece)
        piece = self._without_escapes(piece)
        if not piece.isascii():
            widest = np.frombuffer(piece, np.uint8).max()
            self.width = max(self.width, 4 if widest >= WIDEST else 2 if widest >= WIDE else 1)
        if self.lines:
            self._count_lines(piece)
        codes = np.frombuffer(piece.translate(None, UNCOUNTED), np.uint8)
        if not len(codes):
            return
        quotes = np.cumsum(codes == QUOTE, dtype=np.uint8) + np.uint8(self._in_text)
        if self.lines:
            quotes -= _at_line_starts(codes, quotes)
        self._in_text = int(quotes[-1] & 1)
        mark = _MARK[codes]
        mark[(quotes & 1).view(np.bool_)] = 0
        at = np.flatnonzero(mark)
        if len(at):
            self._count(mark[at], int(codes[at[0]]))

    def _without_escapes(self, piece: bytes) -> bytes:
        """Return bytes of the same text without escaped quotation marks."""
        if self._escapes:
            piece, self._escapes = b"\\" + piece, False
        if b"\\" not in piece:
            return piece
        if b"\\u" in piece:
            self.width = max(self.width, 4 if b"\\ud" in piece.lower() else 2)
        piece = piece.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        self._escapes = piece.endswith(b"\\")
        return piece.removesuffix(b"\\")

    def _count(self, mark: NDArray[np.uint8], first: int) -> None:
        self._first = self._first or first
        self.n_values += int(np.count_nonzero(mark != CLOSE))
        if self.lines:
            return
        depth = self._depth + np.cumsum(_STEP[mark])
        self._depth = int(depth[-1])
        self.levels = max(self.levels, int(depth.max()))
        self._n_separated += int(np.count_nonzero((depth == 1) & (mark == COMMA)))

    def _count_lines(self, piece: bytes) -> None:
        """Count the lines that end here and are not blank."""
        outline = (b"x" if self._in_line else b"") + piece.translate(OUTLINE, BLANKS)
        is_end = np.frombuffer(outline, np.uint8) == LINE_END
        self._n_separated += int(np.count_nonzero(is_end[1:] & ~is_end[:-1]))
        self._in_line = outline.endswith(b"x")


def _at_line_starts(codes: NDArray[np.uint8], quotes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the number of quotation marks before the line of each byte.

    A text ends with its line, so that an open mark does not hide the lines that follow.
    """
    ends = np.flatnonzero(codes == LINE_END)
    lengths = np.diff(ends, prepend=-1, append=len(codes) - 1)
    return np.repeat(np.append(np.uint8(0), quotes[ends]), lengths)


class BodiesInWork:
    """The memory of large bodies in work, over all requests of a process.

    Used by the event loop alone. Small bodies are not charged, and are served meanwhile.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.held = 0
        """Memory of the bodies in work, bytes."""

    def hold(self, scope: Scope, size: int) -> None:
        """Set the memory of a request's body; `release` frees it.

        Raises
        ------
        Overloaded
            The bodies of other requests leave no room; a body alone always has room.
        """
        charge = scope.setdefault(BODY, Charge(self))
        others = self.held - charge.size
        if size > charge.size and others and others + size > self.most_bytes:
            raise Overloaded("too many large bodies are in work; send this again after Retry-After")
        self.held = others + size
        charge.size = size


class Charge:
    """The memory that the body of one request holds."""

    __slots__ = ("bodies", "size")

    def __init__(self, bodies: BodiesInWork) -> None:
        self.bodies = bodies
        self.size = 0

    def release(self) -> None:
        """Free the memory."""
        self.bodies.held -= self.size
        self.size = 0
