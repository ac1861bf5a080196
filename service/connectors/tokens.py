"""Tokens of XML as strangers write it: text in pieces in, tags and the text between them out.

Comments, instructions and declarations are skipped; a character section is text. The beginning of
anything without an end is skipped alone, so all that follows is read.
"""

import re
from collections.abc import Generator, Iterable, Iterator
from itertools import islice

from service.connectors.references import References

QUIET = 1_000_000
"""Maximum length of a tag, a comment or anything else between brackets, characters."""
LONGEST_ODD, MAX_ODD = 1_000, 10_000
"""Maximum length of a tag with `<` in quotes, characters, and maximum number of such attempts."""

NAME = r"[^\W\d][\w:.-]*+"
TOKEN = re.compile(
    rf"""([^<]*+)(?:<(?:/({NAME})\s*+>"""
    rf"""|({NAME})(\s(?:[^<>"'/]++|"[^"<]*+"|'[^'<]*+'|/(?!>))*+)?+"""
    r"""(?:(/)>|>(?:([^<]*+)</\3\s*+>)?+))?+|\Z)"""
)
"""Pattern of a text and the tag after it; without the tag where `<` begins anything else, and at
the end of what is there.

An element without elements inside is one match, which saves a fifth of the reader's time."""
ODD = re.compile(
    rf"""<()({NAME})(\s(?:[^<>"'/]++|"[^"\n]{{0,200}}+"(?=[\s/>])|'[^'\n]{{0,200}}+'(?=[\s/>])|/(?!>))*+)(/?+)>"""
)
"""Pattern of a tag whose attributes contain `<`; a long one more probably lacks a quote."""
TORN = re.compile(rf"<(/?+)({NAME})([^<>]*?)(/?+)(?:>|(?=<))")
"""Pattern of a tag with an odd quote, or without its `>`."""
LIKE_A_TAG = re.compile(r"</?+(?:[^\W\d]|\Z)")
OTHER = re.compile(r"<(!--|!\[CDATA\[|\?xml\b|\?|![a-z]+)", re.IGNORECASE)
LONGEST_OTHER = 12
"""Length of what decides on a token that is no tag, characters."""
ENDS = {"!--": "-->", "![cdata[": "]]>", "?xml": ">", "?": "?>"}
SECTION, ENTITY = "![cdata[", "!entity"
DECLARATION = re.compile(r"""(?:[^<>"'\[]++|"[^"]*+"|'[^']*+')*+[\[>]""")
"""Pattern of the rest of a declaration, up to its end or the beginning of its subset."""
DECLARED = re.compile(r"\s+(?:%\s+)?([^\s\"'<>&;%]{1,100})")

ATTRIBUTE = re.compile(
    r"""(?:^|(?<=[\s"'/]))([^\s=<>"'/]++)\s*+=\s*+(?:"([^"]*+)"?+|'([^']*+)'?+|([^\s"'<>]++))"""
)
MAX_ATTRIBUTES = 100
"""Maximum number of attributes of an element; later ones are ignored."""

Token = tuple[str, str | None, str | None, str | None, str | None, str | None]
"""Text before a tag; name of an end tag; name, attributes and `/` of a start tag; text of an
element that ends at once. `<` in place of `/` marks a tag without its `>`."""


def _text(text: str) -> Token:
    return text, None, None, None, None, None


def attributes(tag: str) -> dict[str, str]:
    """Return the attributes of a tag by their names in small letters, the first of each name.

    >>> attributes(" a='1' b=2 A=3 href='x>y")
    {'a': '1', 'b': '2', 'href': 'x>y'}
    """
    values: dict[str, str] = {}
    for match in islice(ATTRIBUTE.finditer(tag), MAX_ATTRIBUTES):
        values.setdefault(match[1].lower(), match[2] or match[3] or match[4] or "")
    return values


class Tokens:
    """The tokens of a document that is read once.

    Raises
    ------
    ValueError
        A tag, or what else begins with `<`, does not end.
    """

    def __init__(self, references: References) -> None:
        self.line = 1
        """Line up to which the document was read."""
        self.n_begun = 0
        """Characters that reading has begun with."""
        self._references = references
        self._absent: set[str] = set()
        """Ends that do not occur in the rest of the present part."""
        self._n_odd = 0
        self._is_last = False

    def read(self, pieces: Iterable[str]) -> Iterator[Token]:
        """Yield the tokens."""
        rest = ""
        for piece in pieces:
            self.n_begun += len(piece)
            rest = yield from self._part(rest + piece)
        self._is_last = True
        yield from self._part(rest)

    def _part(self, text: str) -> Generator[Token, None, str]:
        """Yield the tokens of a part of the document; return its end that needs the next part."""
        self._absent.clear()
        at = 0
        try:
            while True:
                for match in TOKEN.finditer(text, at):
                    at = match.end()
                    token: Token = match.groups()  # type: ignore[assignment]
                    if token[1] is None and token[2] is None:
                        break
                    yield token
                yield token
                if text[at - 1 : at] != "<" or match.end() == match.end(1):
                    return ""
                at -= 1
                if (other := self._other(text, at)) is None:
                    return text[at:]
                token, at = other
                yield token
        finally:
            self.line += text.count("\n", 0, at)

    def _other(self, text: str, at: int) -> tuple[Token, int] | None:
        """Return what begins with the `<` at a position, and its end; None without its end."""
        n_left = len(text) - at
        if match := OTHER.match(text, at):
            other = self._skipped(text, match)
        elif text[at + 1 : at + 2] in ("!", "?") and not self._is_last and n_left < LONGEST_OTHER:
            return None
        elif LIKE_A_TAG.match(text, at):
            other = self._odd_tag(text, at)
        else:
            return self._literal(text, at, at + 1)
        if other is None and n_left > QUIET:
            raise ValueError(f"over {QUIET:,} bytes without an element")
        return other

    def _literal(self, text: str, at: int, end: int) -> tuple[Token, int]:
        if not self._is_last or text.find(">", at) >= 0:  # others are a tag that was cut short
            self._references.faults.note("a raw <")
        return _text(text[at:end]), end

    def _waits(self, text: str, at: int) -> bool:
        """Return whether what begins at a position may end in the next part."""
        is_quiet = text.find("<", at + 1) < 0
        return not self._is_last and (is_quiet or len(text) - at <= QUIET)

    def _skipped(self, text: str, opened: re.Match[str]) -> tuple[Token, int] | None:
        """Return the content of a character section, or nothing for what is skipped."""
        kind, begun = opened[1].lower(), opened.end()
        if (end := self._end_of(kind, text, begun)) is not None:
            if kind == SECTION:
                return self._section(text, begun, end)
            return _text(""), end
        if self._waits(text, opened.start()):
            return None
        self._references.faults.note(f"<{opened[1]} without an end")
        if kind == SECTION:
            return self._section(text, begun, None)
        return _text(""), begun

    def _end_of(self, kind: str, text: str, begun: int) -> int | None:
        if kind not in ENDS:
            if kind == ENTITY and (declared := DECLARED.match(text, begun)):
                self._references.declare(declared[1])
            rest = DECLARATION.match(text, begun)
            return rest and rest.end()
        end = ENDS[kind]
        if end not in self._absent and (at := text.find(end, begun)) >= 0:
            return at + len(end)
        self._absent.add(end)
        return None

    def _section(self, text: str, begun: int, end: int | None) -> tuple[Token, int]:
        """Return the text of a character section; without its end, the text up to the next tag."""
        if end is None or text.find("<![CDATA[", begun, end) >= 0:
            end = text.find("<", begun)
            end = len(text) if end < 0 else end
            content = text[begun:end]
        else:
            content = text[begun : end - len(ENDS[SECTION])]
        return _text(content.replace("&", "&amp;")), end

    def _odd_tag(self, text: str, at: int) -> tuple[Token, int] | None:
        """Return a tag that has `<` in quotes, odd quotes, or no end."""
        is_quiet = text.find("<", at + 1) < 0
        if not self._is_last and (is_quiet or len(text) - at < LONGEST_ODD):
            return None
        self._n_odd += 1
        if self._n_odd <= MAX_ODD and (odd := ODD.match(text, at, at + LONGEST_ODD)):
            self._references.faults.note("a raw <")
            return ("", None, odd[2], odd[3], odd[4], None), odd.end()
        if (torn := TORN.match(text, at)) is None:
            return self._literal(text, at, at + 1)
        slash, name, rest, empty = torn.groups()
        has_end = torn[0].endswith(">")
        if has_end:
            self._references.faults.note("a tag with odd quotes")
        if slash:
            return ("", name, None, None, None if has_end else "<", None), torn.end()
        return ("", None, name, rest, empty if has_end else "<", None), torn.end()
