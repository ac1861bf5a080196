"""docs/theory.md: its examples run, its figures exist and its table names every estimator."""

import doctest
import re
from pathlib import Path

from service.core import ESTIMATORS

PAGE = Path(__file__).parents[2] / "docs" / "theory.md"


def test_the_examples_print_what_the_page_says():
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    results = doctest.testfile(str(PAGE), module_relative=False, optionflags=options)
    assert results.attempted > 0
    assert results.failed == 0


def test_every_figure_exists():
    figures = re.findall(r"\]\((figures/[^)]+)\)", PAGE.read_text())
    assert len(figures) == 3
    assert all((PAGE.parent / figure).is_file() for figure in figures)


def test_the_decision_table_names_every_estimator():
    table = PAGE.read_text().partition("## Which estimator when")[2].partition("\n\n`lln`")[0]
    assert set(re.findall(r"`(\w+)`", table)) >= set(ESTIMATORS)
