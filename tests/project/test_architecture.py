"""docs/architecture.md names what is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text()


def modules(text: str) -> set[str]:
    return set(re.findall(r"`((?:service|recrawl_cluster)/[a-z_/]+\.py)`", text))


def test_every_module_named_exists():
    assert not [name for name in sorted(modules(TEXT)) if not (ROOT / name).is_file()]


def index() -> list[list[str]]:
    rows = re.findall(r"^\| [^|]+ \| (`service/[^|]+) \| ([^|]+) \|$", TEXT, re.MULTILINE)
    return [re.findall(r"`([^`]+)`", " ".join(row)) for row in rows]


@pytest.mark.parametrize("entry", index(), ids=lambda entry: entry[-1])
def test_the_index_names_what_its_modules_define(entry):
    source = "\n".join((ROOT / name).read_text() for name in entry if name.endswith(".py"))
    for name in entry:
        if not name.endswith(".py"):
            assert re.search(
                rf"^(def|async def|class) {name}\b|^{name}\b.* = ", source, re.MULTILINE
            ), name
