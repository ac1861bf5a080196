"""The page on the sizes of several databases has the constants and the results of the model."""

import re
from functools import cache

import pytest
from support.pages import DOCS

from benchmarks.scale.__main__ import DEFAULT, number
from benchmarks.scale.costs import Costs
from benchmarks.scale.epoch import Machines
from benchmarks.scale.plant import described, results

PAGE = (DOCS / "how-to/scale.md").read_text()
CLOSE = 0.03
"""Maximum relative difference between a number on the page and that of the model."""


def table(heading: str) -> list[list[str]]:
    """Return the rows of the first table below a heading, without its head."""
    below = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.*) \|$", below, re.MULTILINE)
    return [row.split(" | ") for row in rows[2:]]


def value(text: str) -> float:
    return float(text.replace(",", ""))


@cache
def computed() -> tuple[dict[str, float], ...]:
    every = (results(plant, Costs(), Machines()) for plant in DEFAULT)
    return tuple({line.name: line.value for line in lines} for lines in every)


def test_the_constants_are_those_of_the_model() -> None:
    assert table("Constants") == [
        [name, number(amount), unit, source] for name, amount, unit, source in Costs().rows()
    ]


def test_the_assumptions_are_those_of_the_model() -> None:
    plants = [described(plant, Machines()) for plant in DEFAULT]
    shown = {name: cells for name, *cells in table("Assumptions")}
    assert shown == {name: [number(one[name]) for one in plants] for name in plants[0]}


def test_the_rules_follow_from_the_constants() -> None:
    costs, shown = Costs(), {name: (rule, example) for name, rule, example in table("Rules")}
    assert shown["tables"] == (f"{costs.state:g} bytes · N", f"{costs.state / 1e3:.2f} TB")
    assert shown["log in the database"][1] == f"{costs.log * 0.2 * 30 / 1e3:.2f} TB for 30 days"
    archive = next(example for name, (_, example) in shown.items() if "archive" in name)
    assert archive == f"{costs.archive * 0.2 * 365 / 1e3:.2f} TB a year"
    assert shown["memory of an actor"] == (
        f"{costs.memory:.0f} bytes · its pages",
        f"{costs.memory * 1e9 / 32 / 1e9:.0f} GB if even",
    )


@pytest.mark.slow
def test_the_results_are_those_of_the_model() -> None:
    shown = {name: cells for name, *cells in table("Results")}
    assert shown.keys() == computed()[0].keys()
    for name, (*cells, _) in shown.items():
        for cell, own in zip(cells, computed(), strict=True):
            assert value(cell) == pytest.approx(own[name], rel=CLOSE, abs=0.02), name
