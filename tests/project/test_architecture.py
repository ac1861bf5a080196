"""The walks of docs/architecture.md name modules that exist, and not too many."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text()


def modules(text: str) -> set[str]:
    return set(re.findall(r"`(service/[a-z_/]+\.py)`", text))


def test_every_module_named_exists():
    assert not [name for name in sorted(modules(TEXT)) if not (ROOT / name).is_file()]


@pytest.mark.parametrize(("walk", "most"), [("observation", 28), ("lease", 15), ("epoch", 25)])
def test_a_walk_names_few_modules(walk, most):
    (section,) = re.findall(rf"^## The walk of an? {walk}$(.*?)(?=^## |\Z)", TEXT, re.M | re.S)
    assert 5 < len(modules(section)) <= most
    assert "```mermaid" in section
