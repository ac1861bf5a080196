"""docs/concepts/experiments.md: verdicts follow from numbers, and differences are explained."""

import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from recrawl_lab.experiments import EXPERIMENTS, Setup, find
from recrawl_lab.experiments.checks import DIFFERS, Tolerance
from recrawl_lab.experiments.report import COLUMNS

PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "experiments.md").read_text()
NUMBER = r"-?(?:\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?(?:e[+-]\d+)?)|infinite"
ROUNDING = 0.01
"""Largest relative error of a number in three digits."""


class Row(NamedTuple):
    experiment: str
    claim: str
    place: str
    paper: str
    ours: str
    tolerance: str
    verdict: str


def rows():
    lines = PAGE.partition("<!-- claims -->\n")[2].partition("<!-- end of claims -->")[0]
    head, _, *body = ([*map(str.strip, line.split("|")[1:-1])] for line in lines.splitlines())
    assert head == list(COLUMNS) == list(Row._fields)
    return [Row(*cells)._replace(experiment=cells[0].strip("`")) for cells in body]


def value(text):
    (number,) = re.findall(NUMBER, text.split()[0])
    return float("inf") if number == "infinite" else float(number.replace(",", ""))


def tolerance_in(text):
    amount = float(re.search(r"[\d.]+", text)[0])
    if text.startswith("factor"):
        return Tolerance("factor", amount)
    return Tolerance("share", amount / 100) if text.endswith("%") else Tolerance("distance", amount)


def groups_in(ours):
    """Return the (name, value) pairs of each group of an order."""
    return [
        [(name, value(number)) for name, number in re.findall(rf"(.+?) ({NUMBER})(?:, |$)", group)]
        for group in ours.split("; ")
    ]


def is_ordered(row, slack):
    part = re.search(r"by over ([\d.]+) %", row.tolerance)
    margin = 1 + (float(part[1]) / 100 if part else 0.0)
    groups = [[number for _, number in group] for group in groups_in(row.ours)]
    return all(max(low) * margin <= min(high) * (1 + slack) for low, high in pairwise(groups))


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.experiment}, {row.claim}")
def test_the_verdict_of_a_row_follows_from_its_numbers(row):
    assert row.experiment in EXPERIMENTS
    assert row.verdict in {"agrees", "differs"}
    if row.tolerance.startswith("order"):
        names = " < ".join(", ".join(name for name, _ in group) for group in groups_in(row.ours))
        assert names == row.paper
        assert is_ordered(row, ROUNDING if row.verdict == "agrees" else -ROUNDING) == (
            row.verdict == "agrees"
        )
    else:
        stated, measured = value(row.paper), value(row.ours)
        within = stated == measured or tolerance_in(row.tolerance).admits(measured, stated)
        assert within == (row.verdict == "agrees")


def test_the_page_counts_its_claims():
    verdicts = [row.verdict for row in rows()]
    counted = re.search(r"(\d+) of the (\d+) claims agree, (\d+) differ", PAGE)
    expected = verdicts.count("agrees"), len(verdicts), verdicts.count(DIFFERS)
    assert tuple(map(int, counted.groups())) == expected


def test_every_difference_is_explained_and_nothing_else():
    section = PAGE.partition("## Why some differ")[2].partition("\n## ")[0]
    heads = [line.partition("*: ")[0] for line in section.splitlines() if line.startswith("- `")]
    explained = {pair for head in heads for pair in re.findall(r"`([\w-]+)`, \*([^*]+)", head)}
    differing = [row for row in rows() if row.verdict == DIFFERS]
    for row in differing:
        assert any(
            row.experiment == name and row.claim.startswith(text) for name, text in explained
        )
    for name, text in explained:
        assert any(row.experiment == name and row.claim.startswith(text) for row in differing)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_page_has_the_claims_of_every_experiment(name):
    """The numbers are those of full size; claims, places and the papers' figures do not change."""
    checks = find(name).run(Setup(scale=0.02)).checks
    listed = [row for row in rows() if row.experiment == name]
    assert [(row.claim, row.place) for row in listed] == [(c.claim, c.place) for c in checks]
    for row, check in zip(listed, checks, strict=True):
        assert set(re.split(" < |, ", row.paper)) == set(re.split(" < |, ", check.paper))
        if not check.place.startswith("independent"):
            assert row.tolerance == check.tolerance
