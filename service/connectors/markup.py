"""Entries of XML as strangers write it: text in pieces in, entries out, one at a time.

Every document is read by the same rules. Well-formed XML has its meaning by the standard. A fault
costs at most its entry, and the next entry is read again. Nothing is fetched, declared or expanded,
and memory does not grow with the document.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from service.connectors.references import A_ENTRY, Faults, References
from service.connectors.tokens import QUIET, Tokens, attributes

MAX_DEPTH = 100
MAX_NAMES = 10_000
"""Maximum number of names of elements; the reader stores them to the end."""
MAX_TEXT = 65_536
"""Maximum stored text of a field, characters."""
MAX_FIELDS = 100
"""Maximum number of fields of an entry; later ones are ignored."""


class Grammar(NamedTuple):
    """The elements of a kind of document, by their names without prefix in small letters."""

    entries: frozenset[str]
    """Elements that name a page; none lies within another."""
    fields: frozenset[str]
    """Fields of an entry to keep; they have no elements inside."""
    plain: frozenset[str] = frozenset()
    """Other elements that have no elements inside."""
    containers: frozenset[str] = frozenset()
    """Elements whose own fields have the names of an entry's."""
    heads: frozenset[str] = frozenset()
    """Elements outside of entries to keep, such as links of the document itself."""


ANY, ENTRY, FIELD, PLAIN = range(4)
"""Roles of an element in a grammar."""


class Name(NamedTuple):
    """Name of an element in small letters."""

    text: str
    local: str
    """Name without the prefix."""
    prefix: str
    role: int


class Element:
    """An element; `fields` of an entry are its fields in their order."""

    __slots__ = (
        "_attributes",
        "_parts",
        "_room",
        "content",
        "depth",
        "fields",
        "name",
        "parent",
        "tag",
    )

    def __init__(self, name: Name, tag: str, parent: "Element | None", content: str = "") -> None:
        self.name = name
        self.tag = tag
        """Text of the attributes."""
        self.parent = parent
        self.depth: int = 1 if parent is None else parent.depth + 1
        self.fields: list[Element] = []
        self.content = content
        """First text of a field, with its references."""
        self._parts: list[str] | None = None
        self._attributes: dict[str, str] | None = None

    @property
    def local(self) -> str:
        """Name without the prefix."""
        return self.name.local

    @property
    def raw(self) -> str:
        """Text of a field, with its references."""
        text = self.content if self._parts is None else "".join([self.content, *self._parts])
        return text[:MAX_TEXT]

    @property
    def attributes(self) -> dict[str, str]:
        """Values of the attributes, with their references, by their names in small letters."""
        if self._attributes is None:
            self._attributes = attributes(self.tag) if self.tag else {}
        return self._attributes

    @property
    def namespace(self) -> str | None:
        """Address of the prefix's namespace; None where the prefix was not declared."""
        prefix = self.name.prefix
        declared = f"xmlns:{prefix}" if prefix else "xmlns"
        element: Element | None = self
        while element is not None and declared not in element.attributes:
            element = element.parent
        return None if element is None else element.attributes[declared]

    def add(self, text: str) -> None:
        """Add text, as far as there is room."""
        if self._parts is None:
            self._parts, self._room = [], MAX_TEXT - len(self.content)
        if self._room > 0:
            self._parts.append(text[: self._room])
            self._room -= len(text)


class Markup:
    """A document that is read once.

    Raises
    ------
    ValueError
        The document has no root of `grammars`, too many levels or names, or a tag that does not
        end. The entries before the fault are yielded first.
    """

    def __init__(self, grammars: dict[str, Grammar], faults: Faults) -> None:
        self.root = ""
        """Name of the root without prefix; of the first element where no root is known."""
        self.has_root = self.is_whole = False
        """`is_whole` is true where the root has ended after the last entry."""
        self.faults = faults
        self.references = References(self.faults)
        self._tokens = Tokens(self.references)
        self._grammars = grammars
        self._grammar = Grammar(frozenset(), frozenset())
        self._names: dict[str, Name] = {}
        self._open: Element | None = None
        self._entry: Element | None = None
        self._done: list[Element] = []
        self.heads: list[Element] = []
        """Elements outside of entries that the grammar names, at most `MAX_FIELDS`."""

    @property
    def line(self) -> int:
        """Line up to which the document was read."""
        return self._tokens.line

    def entries(self, pieces: Iterable[str]) -> Iterator[Element]:
        """Yield the entries, each at its end."""
        done, names = self._done, self._names
        for before, end, tag_name, tag, empty, content in self._tokens.read(pieces):
            opened = self._open
            if before and opened is not None and opened.name.role == FIELD:
                opened.add(before)
            if tag_name is not None:
                # most elements are whole fields of the open entry
                if content is not None and opened is not None and opened is self._entry:
                    name = names.get(tag_name)
                    if name is not None and name.role >= FIELD:
                        if name.role == FIELD and len(opened.fields) < MAX_FIELDS:
                            opened.fields.append(Element(name, tag or "", opened, content))
                        continue
                self._start(tag_name, tag or "", empty, content)
            elif end is not None:
                if opened is not None and opened.name.text == end:
                    self._close()
                else:
                    self._end(end, empty)
            if done:
                yield from done
                done.clear()
        self._check_root()

    def _check_root(self) -> None:
        if not self.has_root:
            raise ValueError(f"no end of <{self.root}>" if self.root else "no element found")

    # -- tags

    def _start(self, tag_name: str, tag: str, empty: str | None, content: str | None) -> None:
        """Open an element, after the end of what it cannot be in."""
        name = self._names.get(tag_name) or self._named(tag_name)
        if empty == "<" and name.role == ANY:
            self._literal(f"<{tag_name}{tag}")
            return
        if not self.has_root:
            self._find_root(name.local)
            name = self._names.get(tag_name) or self._named(tag_name)
        if empty == "<":
            self.faults.note(f"<{name.text}> without >")
        if self._entry is None and name.local in self._grammar.heads:
            self._keep_head(Element(name, tag, None, content or ""))
        if self._entry is not None or (self._open is not None and self._open.name.role >= FIELD):
            name = self._made_room(name)
        parent = self._open
        if content is None or parent is None or name.role == ENTRY:
            self._enter(name, tag, parent)
            if empty == "/" or content is not None:
                self._close()
        elif name.role == FIELD and parent is self._entry and len(parent.fields) < MAX_FIELDS:
            parent.fields.append(Element(name, tag, parent, content))

    def _keep_head(self, head: Element) -> None:
        if len(self.heads) < MAX_FIELDS:
            self.heads.append(head)

    def _made_room(self, name: Name) -> Name:
        """End what an element of that name cannot be in; return the name with its role there."""
        opened = self._open
        if opened is not None and opened.name.role >= FIELD:
            if opened.name.role == FIELD:
                self.faults.note(f"<{opened.name.text}> without an end")
            self._close()
        if self._entry is not None:
            if name.role == ENTRY:
                return self._end_entry(self._entry, name)
            if name.role == FIELD and self._open is not self._entry:
                self._end_strangers(self._entry, name)
        return name

    def _enter(self, name: Name, tag: str, parent: Element | None) -> None:
        element = Element(name, tag, parent)
        if element.depth > MAX_DEPTH:
            element = Element(name, tag, self._shallow())
        self._open = element
        if name.role == ENTRY:
            self._entry, self.is_whole = element, False

    def _named(self, tag_name: str) -> Name:
        """Return the name of an element."""
        if len(self._names) >= MAX_NAMES:
            raise ValueError(f"over {MAX_NAMES:,} different names")
        text = tag_name.lower()
        prefix, _, local = text.rpartition(":")
        sets = (self._grammar.entries, self._grammar.fields, self._grammar.plain)
        role = next((i for i, names in enumerate(sets, ENTRY) if local in names), ANY)
        self._names[tag_name] = name = Name(text, local, prefix, role)
        return name

    def _find_root(self, name: str) -> None:
        """Begin the document at an element of a known name; what stands before is dropped."""
        if (grammar := self._grammars.get(name)) is not None:
            if self.root:
                self.faults.note("text before the document")
            self.root, self.has_root = name, True
            self._grammar, self._open = grammar, None
            self._names.clear()
        elif self._tokens.n_begun > QUIET:
            raise ValueError(f"no root in the first {QUIET:,} characters")
        self.root = self.root or name

    def _end_entry(self, entry: Element, name: Name) -> Name:
        """End the open entry before another; return the name with its role."""
        if entry.name.prefix != name.prefix:
            return name._replace(role=ANY)
        self.faults.note(f"<{entry.name.text}> without an end")
        self._close_to(entry)
        return name

    def _end_strangers(self, entry: Element, name: Name) -> None:
        """End the elements of an entry that cannot have its fields."""
        element = self._open
        if name.prefix != entry.name.prefix:
            return
        while element is not None and element is not entry:
            if element.name.local in self._grammar.containers:
                return
            element = element.parent
        if self._open is not None:
            self.faults.note(f"<{self._open.name.text}> without an end")
        self._close_within(entry)

    def _shallow(self) -> Element:
        """Return the open entry, out of elements that nest too deep."""
        if self._entry is None:
            raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
        self.faults.note(f"more than {MAX_DEPTH} levels")
        return self._entry

    def _end(self, tag_name: str, empty: str | None) -> None:
        """Close an element, and what is open in it."""
        name = self._names.get(tag_name) or Name(tag_name.lower(), "", "", ANY)
        opened = self._open
        if opened is not None and opened.name.text == name.text:
            self._close()
            return
        begun = opened
        while begun is not None and begun.name.text != name.text:
            begun = begun.parent
        if begun is not None and opened is not None:
            self.faults.note(f"<{opened.name.text}> without an end")
            self._close_to(begun)
        elif empty == "<":
            self._literal(f"</{tag_name}")
        else:
            self._stray(name)

    def _stray(self, name: Name) -> None:
        """Take the end of no open element for that of a child of the entry, whose name is wrong."""
        entry, opened = self._entry, self._open
        if name.role < FIELD:
            self.faults.note(f"</{name.text}> without a start")
        if entry is None or opened is None or opened is entry:
            return
        if name.role >= FIELD or opened.parent is entry:
            self._close_within(entry)

    def _close_to(self, last: Element) -> None:
        while self._open is not last.parent:
            self._close()

    def _close_within(self, entry: Element) -> None:
        while self._open is not entry:
            self._close()

    def _close(self) -> None:
        closed = self._open
        if closed is None:
            return
        self._open = parent = closed.parent
        if closed.name.role == FIELD:
            if parent is not None and parent is self._entry and len(parent.fields) < MAX_FIELDS:
                parent.fields.append(closed)
        elif closed is self._entry:
            self._entry = None
            self._done.append(closed)
            self.faults.limit += A_ENTRY
        if parent is None:
            self.is_whole = True

    def _literal(self, text: str) -> None:
        """Take for text what looked like a tag."""
        self.faults.note("a raw <")
        if self._open is not None and self._open.name.role == FIELD:
            self._open.add(text)
