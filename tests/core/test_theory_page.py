"""docs/theory.md: its examples run, its figures exist and its table names every estimator."""

import dataclasses
import doctest
import re
from pathlib import Path

from service.core.estimators import ESTIMATORS

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


def test_the_decision_table_says_which_interval_and_forecast_each_estimator_has():
    table = PAGE.read_text().partition("## Which estimator when")[2].partition("\n\nA **cred")[0]
    kinds = {"credible": "credible_interval", "confidence": "confidence_interval", "none": None}
    told = set()
    for row in table.strip().splitlines()[2:]:
        _, choices, _, interval, forecast = (cell.strip() for cell in row.strip("|").split("|"))
        for name in re.findall(r"`(\w+)`", choices):
            has = {kind for kind in kinds.values() if kind and hasattr(ESTIMATORS[name], kind)}
            assert has == {kinds[interval]} - {None}, name
            assert forecast == ("averaged" if interval == "credible" else "plug-in"), name
            told.add(name)
    assert told == set(ESTIMATORS)


def test_the_page_names_what_is_fitted_fades_and_is_refused():
    text = PAGE.read_text()
    fitted = {name for name, kind in ESTIMATORS.items() if hasattr(kind, "evidence")}
    fading = {name for name, kind in ESTIMATORS.items() if "half_life_days" in fields(kind)}
    assert fitted == fading == {"gamma", "bursty", "lognormal"}
    assert "`gamma`, `bursty` and `lognormal` loses half of its weight in `half_life_days`" in text
    refused = {name for name, kind in ESTIMATORS.items() if not kind.periodic_timing_ok}
    assert refused == {"lln", "sa", "sam"}
    assert "`lln`, `sa` and `sam` are **refused together with periodic timing**" in text


def fields(kind):
    return {field.name for field in dataclasses.fields(kind)}
