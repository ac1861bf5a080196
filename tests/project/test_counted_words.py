"""One page is "1 page": no sentence writes a plural behind a number that may be one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.model.words import counted

ROOT = Path(__file__).parents[2]
PLURALS = [
    "answers",
    "bytes",
    "captures",
    "cells",
    "changes",
    "characters",
    "columns",
    "commits",
    "copies",
    "crawls",
    "databases",
    "days",
    "deliveries",
    "directories",
    "entries",
    "epochs",
    "events",
    "failures",
    "feeds",
    "files",
    "groups",
    "hosts",
    "hours",
    "intervals",
    "items",
    "keys",
    "leases",
    "lines",
    "links",
    "minutes",
    "months",
    "numbers",
    "observations",
    "pages",
    "parts",
    "pings",
    "redirects",
    "reports",
    "requests",
    "rows",
    "rules",
    "seconds",
    "servers",
    "shards",
    "sitemaps",
    "states",
    "subscriptions",
    "tags",
    "URLs",
    "validators",
    "webhooks",
    "weeks",
    "workers",
    "years",
]
BEHIND = re.compile(rf" (?:[a-z]+ )?(?:{'|'.join(PLURALS)})\b(?!-)")
IN_TEMPLATE = re.compile(
    rf"{{{{[^}}]*(?:\| number|\| length)[^}}]*}}}} (?:[a-z]+ )?(?:{'|'.join(PLURALS)})\b"
)
VERBS = {
    " answers",
    " because pages",
    " by the hours",
    " crawls",
    " has leases",
    " has no shards",
    " has other characters",
    " has pages",
    " has shards",
    " holds states",
    " if its pages",
    " names pages",
    " of pages",
    " on other hosts",
    " redirects",
    " states",
}
"""Words behind a name or a share, which count nothing."""
ABOVE_ONE = {
    ("service/api/holds/rules.py", "n"),
    ("service/api/responses/outcomes.py", "n"),
    ("service/api/responses/unfinished.py", "page.n"),
    ("service/model/field_faults.py", "len(value)"),
    ("service/status/epoch_needs.py", "n"),
    ("recrawl_client/errors.py", "len(items)"),
    ("recrawl_client/batches.py", "n"),
    ("recrawl_client/scrapy.py", "n"),
    ("service/agents/server.py", "len(written)"),
    ("recrawl_client/wire/common.py", "n_late"),
    ("service/api/requests/meter.py", "most_text // self.width"),
    ("service/core/ping_feeds.py", "packed.size"),
    ("service/core/shared_changes.py", "packed.size"),
    ("service/core/wide_revisions.py", "packed.size"),
    # refusals of what exceeds a limit of at least one
    ("service/access/keys.py", "n_limits"),
    ("service/api/requests/blocks.py", "self.n_decoded"),
    ("service/api/requests/items.py", "n_items"),
    ("service/api/requests/meter.py", "self.n_items"),
    ("service/api/requests/rules.py", "size"),
    ("service/epochs/what_if.py", "last.certificate.n_pages"),
    ("service/leases/listing.py", "self.n"),
    ("service/model/urls.py", "n_bytes"),
    ("service/model/windows.py", "len(usual)"),
    ("recrawl_client/scrapy_notes.py", "len(note)"),
}
"""Numbers that another branch or a limit keeps above one."""
MEASURES = {"n_bytes / n_rows", "n_crawls / n_pages", "ratio", "1 / ratio"}
"""Decimal fractions, which take the plural."""


def _texts() -> Iterator[tuple[str, int, str, str]]:
    """Yield the number and the words behind it, of each formatted text with its place."""
    for package in ("service", "recrawl_client", "recrawl_cluster"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.JoinedStr):
                    continue
                for value, text in zip(node.values, node.values[1:], strict=False):
                    if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                        number = ast.unparse(value.value)
                        yield path.relative_to(ROOT).as_posix(), value.lineno, number, text.value


def _may_be_one(path: str, number: str) -> bool:
    last = number.rpartition(".")[2]
    limit = last.isupper() or last.startswith(("max_", "most_", "limit", "widest", "shortest"))
    return not (
        limit or number in MEASURES or (path, number) in ABOVE_ONE or "'maxLength'" in number
    )


def test_no_plural_stands_behind_a_number_that_may_be_one():
    found = [
        f"{path}:{line}: {{{number}}}{words[0]}"
        for path, line, number, text in _texts()
        if (words := BEHIND.match(text)) and words[0] not in VERBS and _may_be_one(path, number)
    ]
    assert not found, "write counted(n, 'page') of service.model.words"


def test_no_plural_stands_behind_a_number_of_the_console():
    folder = ROOT / "service/console/templates"
    found = [
        f"{path.name}: {match[0]}"
        for path in sorted(folder.glob("*.html"))
        for match in IN_TEMPLATE.finditer(path.read_text())
    ]
    assert not found, "write {{ n | counted('page') }}"


@pytest.mark.parametrize("plural", ["pages", "entries", "copies"])
def test_only_one_thing_has_the_singular(plural):
    one = {"pages": "page", "entries": "entry", "copies": "copy"}[plural]
    words = [counted(n, one, plural).split()[1] for n in range(1_200)]
    assert [n for n, word in enumerate(words) if word == one] == [1]
