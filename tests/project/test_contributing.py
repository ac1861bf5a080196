"""The right code of CONTRIBUTING.md stands in the tree, and the paths that it names exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
RIGHT = re.findall(r"^```python\n# right: (\S+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
ROOTS = ("service/", "recrawl_", "tests/", "tools/", "migrations/", "deploy/", "openapi/", "docs/")


def files(path: str) -> list[Path]:
    """Return the files and folders whose path begins so."""
    return sorted(ROOT.glob(path.rstrip("/") + "*"))


def source(path: str) -> str:
    modules = (file for at in files(path) for file in (at.rglob("*.py") if at.is_dir() else [at]))
    return "\n".join(file.read_text() for file in modules)


@pytest.mark.parametrize(("path", "excerpt"), RIGHT, ids=[path for path, _ in RIGHT])
def test_right_code_is_an_excerpt_of_our_code(path, excerpt):
    text = source(path)
    assert [part for part in excerpt.split("...\n") if part not in text] == []


def test_wrong_code_stands_beside_right_code():
    assert RIGHT
    assert len(RIGHT) == len(re.findall("^# wrong: ", TEXT, re.MULTILINE))


def test_every_path_named_exists():
    named = {name for name in re.findall(r"`([\w/.]+)`", TEXT) if name.startswith(ROOTS)}
    assert named
    assert [name for name in sorted(named) if not files(name)] == []
