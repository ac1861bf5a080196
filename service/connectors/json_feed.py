"""JSON Feed 1.0 and 1.1 (jsonfeed.org) as strangers write it: text in, entries out.

A fault costs at most its own item. The members of the feed are read one at a time, and so are the
items, each within `MAX_VALUE`. So memory is that of the text and of one item.
"""

import json
import re
from collections.abc import Generator, Iterator
from typing import Any

from service.connectors.entries import HeadField, SitemapEntry
from service.connectors.links import resolved
from service.connectors.references import Faults
from service.model.errors import MalformedBody

SPACE = re.compile(r"[\s,\ufeff\0]*")
"""Pattern of what stands between two values; a comma too many is no fault worth a word."""
NEXT_ITEM = re.compile(r"\}\s*,\s*(?=\{)")
"""Pattern of the end of an item before another."""
NESTED_END = re.compile(r"\](?:\s*[\]}])*\s*\}\s*,\s*(?=\{)")
"""Pattern of the end of a list within an item, up to the next item."""
MAX_HEADS = 100
"""Maximum number of hubs that are kept."""
MAX_VALUE = 1_048_576
"""Maximum length of an item, or of another member of the feed, characters."""
MAX_BROKEN = 20
"""Maximum number of items that are no JSON; each may cost a search through its text."""
AN_ITEM = ("id", "url", "external_url")


class JsonFeed:
    """A JSON Feed that is read once; `head`, `broke_off` and `first_fault` are final at the end.

    Raises
    ------
    MalformedBody
        The text is an object without `items`.

    Examples
    --------
    >>> text = '{"items": [{"id": "1", "url": "/a", "date_published": "2026-04-30T12:00:00Z"}]}'
    >>> [(item.loc, item.lastmod) for item in JsonFeed(text, "https://example.com/", Faults())]
    [('https://example.com/a', '2026-04-30T12:00:00Z')]
    """

    def __init__(self, text: str, base: str, faults: Faults) -> None:
        self.head: list[HeadField] = []
        self.broke_off = ""
        self.first_fault = 0
        """Entry at which the first fault was met."""
        self._text, self._base, self._faults = text, base, faults
        # numbers are not read, so none can be too long
        self._decoder = json.JSONDecoder(
            strict=False, parse_int=str, parse_float=str, parse_constant=str
        )
        self._n = self._n_broken = 0
        self._start, self._window = 0, text[:MAX_VALUE]

    def __iter__(self) -> Iterator[SitemapEntry]:
        """Yield the items in their order."""
        text, at, has_items = self._text, 1, False
        while True:
            at = self._skip(at)
            if text[at : at + 1] in ("}", ""):
                if at >= len(text):
                    self.broke_off = "it has no end"
                break
            try:
                name, at = self._name(at)
                if name == "items" and text[at : at + 1] == "[":
                    has_items = True
                    at = yield from self._items(at + 1)
                else:
                    value, at = self._value(at)
                    self._take(name, value)
            except ValueError as error:
                self.broke_off = str(error)
                break
        if not has_items:
            raise MalformedBody(
                "the document is JSON without a list of items; send a JSON Feed, or XML"
            )

    def _name(self, at: int) -> tuple[Any, int]:
        """Return the name of a member, and the place of its value."""
        name, at = self._value(at)
        at = self._skip(at)
        if self._text[at : at + 1] != ":":
            raise ValueError("a member has no value")
        return name, self._skip(at + 1)

    def _items(self, at: int) -> Generator[SitemapEntry, None, int]:
        """Yield the items of a list; return the place after the list."""
        text = self._text
        while True:
            at = self._skip(at)
            if text[at : at + 1] == "]":
                nested = NESTED_END.match(text, at) if self._n_broken else None
                if nested is None:
                    return at + 1
                at = nested.end()
                continue
            if at >= len(text):
                raise ValueError("its items have no end")
            try:
                item, at = self._value(at)
            except ValueError:
                self._note("an item that is no JSON")
                self._n_broken += 1
                following = NEXT_ITEM.search(text, at)
                if following is None or self._n_broken > MAX_BROKEN:
                    raise
                at = following.end()
                continue
            # after a broken item, an object may be a part of it, such as an attachment
            names = AN_ITEM[:1] if self._n_broken else AN_ITEM
            if isinstance(item, dict) and any(item.get(name) for name in names):
                yield self._entry(item)
                self._n += 1
            else:
                self._note("an item without id and url")

    def _entry(self, item: dict[str, Any]) -> SitemapEntry:
        loc = _text(item, "url")
        name = _text(item, "id")
        if not loc and name.startswith(("http://", "https://")):
            loc = name
        loc = loc or _text(item, "external_url")
        date = _text(item, "date_modified") or _text(item, "date_published")
        return SitemapEntry(self._n, resolved(self._base, loc), date or None, is_child=False)

    def _take(self, name: Any, value: Any) -> None:
        """Keep what the feed states about itself."""
        if name == "feed_url" and isinstance(value, str):
            self.head.append(HeadField("link", "self", value))
        elif name == "hubs" and isinstance(value, list):
            hubs = (hub for hub in value[:MAX_HEADS] if isinstance(hub, dict))
            self.head += [
                HeadField("link", "hub", _text(hub, "url"))
                for hub in hubs
                if _text(hub, "type").lower() == "websub"
            ]

    def _value(self, at: int) -> tuple[Any, int]:
        """Return the value at a place and the place after it.

        The decoder sees a window of the text, which moves on where a value does not end in it.
        """
        if not self._start <= at < self._start + len(self._window):
            self._move(at)
        try:
            return self._decoded(at)
        except ValueError:
            if at == self._start:
                raise
        self._move(at)
        return self._decoded(at)

    def _move(self, at: int) -> None:
        self._start, self._window = at, self._text[at : at + MAX_VALUE]

    def _decoded(self, at: int) -> tuple[Any, int]:
        try:
            value, end = self._decoder.raw_decode(self._window, at - self._start)
        except json.JSONDecodeError as error:
            raise ValueError(error.msg) from error
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        if end == len(self._window) == MAX_VALUE:  # a number may go on beyond the window
            raise ValueError(f"a value has over {MAX_VALUE:,} characters")
        return value, self._start + end

    def _skip(self, at: int) -> int:
        blanks = SPACE.match(self._text, at)
        return at if blanks is None else blanks.end()

    def _note(self, fault: str) -> None:
        if not self._faults:
            self.first_fault = self._n
        self._faults.note(fault)


def _text(item: dict[str, Any], name: str) -> str:
    value = item.get(name)
    return value.strip() if isinstance(value, str) else ""
