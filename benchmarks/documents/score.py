"""Scores of readers: entries as a document's author meant them, less invented ones."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from random import Random
from typing import NamedTuple

from benchmarks.documents.rules import RULES, broken
from benchmarks.documents.written import BASE, FORMATS, Document, Entry, document
from service.connectors.dates import read_date
from service.connectors.sitemap import Sitemap
from service.model.errors import RequestError

MAX_BYTES = 50_000_000


class Case(NamedTuple):
    """A broken document."""

    format: str
    rules: tuple[str, ...]
    content: bytes
    entries: list[Entry]


BEFORE = ("marks", "noise", "doctype", "wrong_labels")
"""Rules that go together with any rule but those of encodings."""
ALONE = (*BEFORE, "utf_16", "labels", "latin_1_as_utf_8", "stray_bytes")


def cases(n_rounds: int, seed: int = 1) -> Iterator[Case]:
    """Yield rounds of documents: each format broken by each rule, and by a second one before it."""
    for number in range(n_rounds):
        for of in FORMATS:
            for name in RULES:
                rng = Random(f"{seed} {number} {of.name} {name}")
                yield case(broken(document(of, rng), rng, name), name)
                if name not in ALONE:
                    names = (name, rng.choice(BEFORE))
                    yield case(broken(document(of, rng), rng, *names), *names)


def case(doc: Document, *rules: str) -> Case:
    """Return a document as a case."""
    return Case(doc.format.name, rules, doc.written(), doc.entries)


def score(meant: Iterable[Entry], found: Iterable[Entry]) -> float:
    """Return the share of the entries that was found, less the invented ones; at least 0."""
    wanted, got = Counter(meant), Counter(found)
    n_right = (wanted & got).total()
    if not wanted:
        return float(not got)
    return max((n_right - (got.total() - n_right)) / wanted.total(), 0.0)


def ours(content: bytes) -> list[Entry]:
    """Return what the service's reader finds."""
    try:
        return [
            Entry(entry.loc, moment(entry.lastmod)) for entry in Sitemap(content, MAX_BYTES, BASE)
        ]
    except RequestError:
        return []


def moment(text: str | None) -> datetime | None:
    """Return the instant of a date."""
    date = read_date(text or "")
    return None if date is None else date.begins.astimezone(UTC)
