"""XML in pieces: bytes in, elements out, one at a time, in the memory of one piece.

A small document never grows in memory. Names keep their prefixes, because expat would otherwise
write the address of the namespace before each name: gigabytes from a few kilobytes. A document
that declares entities or default attributes is refused. Nothing is ever fetched.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Literal
from xml.parsers import expat

PIECE = 65_536
MAX_DEPTH = 100
MAX_NAMES = 10_000
"""Maximum number of names of elements and attributes; the parser stores them to the end."""
MAX_TEXT = 65_536
"""Maximum stored text of an element, characters."""
QUIET = 1_000_000
"""Maximum length without a tag or text, bytes.

The parser reads an unfinished tag again with every piece: one tag of 20 MB would take minutes."""


class Declared(ValueError):
    """The document declares entities or default attributes."""


class Element:
    """An element, complete at its end tag."""

    __slots__ = ("attributes", "depth", "name", "parent", "parts", "room")

    def __init__(self, name: str, attributes: dict[str, str], parent: "Element | None") -> None:
        self.name = name
        self.attributes = attributes
        self.parent = parent
        self.depth: int = 1 if parent is None else parent.depth + 1
        """Level of the element; the root has 1."""
        self.parts: list[str] = []
        self.room = MAX_TEXT

    @property
    def local(self) -> str:
        """Name without the prefix."""
        return self.name.rpartition(":")[2]

    @property
    def text(self) -> str:
        """Text before the first child, without surrounding blanks."""
        return "".join(self.parts).strip()

    @property
    def namespace(self) -> str | None:
        """Address of the prefix's namespace; None where the prefix was not declared."""
        prefix = self.name.rpartition(":")[0]
        declared = f"xmlns:{prefix}" if prefix else "xmlns"
        element: Element | None = self
        while element is not None and declared not in element.attributes:
            element = element.parent
        return None if element is None else element.attributes[declared]


Event = tuple[Literal["start", "end"], Element]


def elements(pieces: Iterable[bytes]) -> Iterator[Event]:
    """Yield an event for each start and each end of an element.

    Raises
    ------
    Declared
        The document declares entities or attributes.
    ValueError
        The document is no XML, has an unknown encoding, too many levels or names, or a tag that
        does not end. The events before the fault are yielded first.
    """
    reading = _Reading()
    for piece in chain(filter(None, pieces), [b""]):
        broken = reading.read(piece)
        yield from reading.events
        reading.events.clear()
        if broken is not None:
            raise broken


class _Reading:
    """The events that expat finds in a document."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        """Events of the last piece."""
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
        """Read a piece, or the end where the piece is empty; return the fault, if any."""
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
    raise Declared("the document declares entities or attributes")
