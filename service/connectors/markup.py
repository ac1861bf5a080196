"""XML as it comes in pieces: elements out, one at a time, in no more memory than a piece takes.

A small document stays small, whatever it says. Names are given as they stand, with their prefix:
expat, told to mind namespaces, writes the whole address of one before each name, which makes
gigabytes of a few kilobytes. A document that declares entities, or attributes that elements have
by default, is refused. Nothing is ever fetched.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Literal
from xml.parsers import expat

PIECE = 65_536
MAX_DEPTH = 100
MAX_NAMES = 10_000
"""Names of elements and attributes, which the parser remembers to the end."""
MAX_TEXT = 65_536
"""Characters that are kept of an element's text."""
QUIET = 1_000_000
"""Bytes without a tag or text. The parser reads all of an unfinished tag again with every piece
that comes: of one tag of 20 MB it would take minutes."""


class Declared(ValueError):
    """It declares what stands elsewhere: entities, or attributes by default."""


class Element:
    """An element as far as it has been read."""

    __slots__ = ("attributes", "depth", "name", "parent", "parts", "room")

    def __init__(self, name: str, attributes: dict[str, str], parent: "Element | None") -> None:
        self.name = name
        self.attributes = attributes
        self.parent = parent
        self.depth: int = 1 if parent is None else parent.depth + 1
        """1 of the root."""
        self.parts: list[str] = []
        self.room = MAX_TEXT

    @property
    def local(self) -> str:
        """Its name without the prefix."""
        return self.name.rpartition(":")[2]

    @property
    def text(self) -> str:
        """What stands before its first child, without the blanks around."""
        return "".join(self.parts).strip()

    @property
    def namespace(self) -> str | None:
        """The address that its prefix stands for; None where that was not declared."""
        prefix = self.name.rpartition(":")[0]
        declared = f"xmlns:{prefix}" if prefix else "xmlns"
        element: Element | None = self
        while element is not None and declared not in element.attributes:
            element = element.parent
        return None if element is None else element.attributes[declared]


Event = tuple[Literal["start", "end"], Element]


def elements(pieces: Iterable[bytes]) -> Iterator[Event]:
    """Tell when each element starts and when it ends.

    Raises
    ------
    Declared
        It declares entities or attributes.
    ValueError
        It is no XML or in an encoding that is not known, it has too many levels or names, or a
        tag that does not end. What was found before is given first.
    """
    reading = _Reading()
    for piece in chain(filter(None, pieces), [b""]):
        broken = reading.read(piece)
        yield from reading.events
        reading.events.clear()
        if broken is not None:
            raise broken


class _Reading:
    """What expat tells of a document."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        """Those of the last piece."""
        self._open: Element | None = None
        self._quiet = 0
        self._names: dict[str, str] = {}
        self._parser = parser = expat.ParserCreate(intern=self._names)
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.EntityDeclHandler = parser.AttlistDeclHandler = _declared

    def read(self, piece: bytes) -> ValueError | None:
        """Read on, or, of no bytes, to the end; gives what kept it from there."""
        self._quiet += len(piece)
        if self._quiet > QUIET:
            return ValueError(f"over {QUIET:,} bytes without an element")
        try:
            self._parser.Parse(piece, not piece)
        except ValueError as error:
            return ValueError(f"{error}; send it in UTF-8") if "multi-byte" in str(error) else error
        except LookupError as error:
            return ValueError(f"{error}; send it in UTF-8")
        except expat.ExpatError as error:
            return ValueError(str(error))
        return None

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._quiet = 0
        if self._open is not None:
            self._open.room = 0
        self._open = Element(name, attributes, self._open)
        if self._open.depth > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
        if len(self._names) > MAX_NAMES:
            raise ValueError(f"over {MAX_NAMES:,} different names")
        self.events.append(("start", self._open))

    def _end(self, _name: str) -> None:
        self._quiet = 0
        if self._open is not None:
            self.events.append(("end", self._open))
            self._open = self._open.parent

    def _text(self, text: str) -> None:
        self._quiet = 0
        if self._open is not None and self._open.room > 0:
            self._open.parts.append(text[: self._open.room])
            self._open.room -= len(text)


def _declared(*_: object) -> None:
    raise Declared("it declares entities or attributes")
