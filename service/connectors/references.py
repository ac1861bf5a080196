"""Text of strangers' documents: references replaced, what no text has taken out."""

import re
from html.entities import html5

REFERENCE = re.compile(r"&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([A-Za-z][\w.-]{0,99}));")
CONTROLS = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
XML = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
UNREADABLE = "\ufffd"
"""Character in place of one that cannot be known."""
SURROGATES, LAST = range(0xD800, 0xE000), 0x10FFFF
MAX_ENTITIES = 10_000


MAX_KINDS, LONGEST_KIND = 20, 60
MAX_FAULTS, A_ENTRY = 10_000, 20
"""Maximum number of faults in a document, and for each of its entries."""


class Faults(dict[str, int]):
    """Number of faults of each kind that were repaired, in the order of their first ones."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 0
        """Number of all faults."""
        self.limit = MAX_FAULTS

    def note(self, kind: str) -> None:
        """Count a fault; raise `ValueError` beyond the maximum, because repairs take time."""
        self.n += 1
        if self.n > self.limit:
            raise ValueError(f"over {self.limit:,} faults")
        kind = kind[:LONGEST_KIND]
        if kind not in self and len(self) >= MAX_KINDS:
            kind = "others"
        self[kind] = self.get(kind, 0) + 1


class References:
    """The references of one document, whose own entities are never expanded.

    Examples
    --------
    >>> references = References(Faults())
    >>> references.text(" caf&eacute;?a=1&b=2&amp;c "), references.faults
    ('café?a=1&b=2&c', {'an entity of HTML': 1, 'a raw &': 1})
    """

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self._own: set[str] = set()

    def declare(self, name: str) -> None:
        """Note that the document declares an entity."""
        if len(self._own) < MAX_ENTITIES:
            self._own.add(name)

    def text(self, raw: str) -> str:
        """Return text without references, control characters and outer blanks.

        A reference that neither HTML nor the document knows is text. One that the document
        declares becomes U+FFFD.
        """
        n_references = raw.count("&") if "&" in raw else 0
        if n_references and n_references == raw.count("&amp;"):
            raw = raw.replace("&amp;", "&")
        elif n_references:
            raw, n_read = REFERENCE.subn(self._read, raw)
            if n_read < n_references:
                self.faults.note("a raw &")
        text = raw.strip()
        if not text.isprintable() and (clean := CONTROLS.sub("", text)) != text:
            self.faults.note("a control character")
            text = clean.strip()
        return text

    def _read(self, reference: re.Match[str]) -> str:
        decimal, hexadecimal, name = reference.groups()
        if name is None:
            return self._character(int(decimal) if decimal else int(hexadecimal, 16))
        if name in XML:
            return XML[name]
        if (character := html5.get(f"{name};")) is not None:
            self.faults.note("an entity of HTML")
            return character
        if name in self._own:
            self.faults.note("an entity of its own, which is never expanded")
            return UNREADABLE
        self.faults.note("a raw &")
        return reference[0]

    def _character(self, number: int) -> str:
        if number > LAST or number in SURROGATES:
            self.faults.note("a number of no character")
            return UNREADABLE
        return chr(number)
