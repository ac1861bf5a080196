"""The figures of README.md are those of docs/evidence.jsonl and of the demo."""

import re

import pytest

from benchmarks import front
from benchmarks.evidence.cells import read
from benchmarks.evidence.figures import by_cell
from recrawl_lab.demo.game import GameResult, draw

AS_PLAYED = 0.02
"""Maximum relative difference of two games of one demo: numpy differs between processors."""


def rows() -> list[list[str]]:
    """Return the cells of the demo's table, without its head."""
    lines = front.part("demo").splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_sentences_of_the_evidence_follow_from_its_lines():
    assert front.part("evidence") == front.evidence(by_cell(read(front.LINES)))


def test_the_sentences_follow_other_lines_too():
    equal = {"seed": 1, "site": "s", "kind": "plain", "importance": "equal"}
    names = {"recrawl": 0.3, "stormcrawler-tuned": 0.6, "nutch-tuned": 1.2}
    lines = [
        {**equal, "importance": importance, "bandwidth_per_page": r, "policy": name}
        | {"site": f"site-{k}", "harmonic": harmonic * (r if name == "recrawl" else 1.0)}
        for k in range(7)
        for importance in ("equal", "lognormal")
        for r in (1.0, 1.5)
        for name, harmonic in names.items()
    ]
    text = front.evidence(by_cell(lines))
    assert "**0.62 times**" in text
    assert "medians of 14 settings; the worst are 0.75 and 0.38" in text
    assert "The histories of seven real sites" in text
    assert text.endswith("the medians of 14 settings are 0.62 and 0.31.")


def test_only_plain_worlds_count_and_what_was_not_played_is_not_mentioned():
    plain = {"seed": 1, "site": "s", "importance": "equal", "bandwidth_per_page": 0.1}
    names = {"recrawl": 0.3, "stormcrawler-tuned": 0.6, "nutch-tuned": 1.2}
    lines = [
        {**plain, "kind": kind, "policy": name, "harmonic": harmonic * (kind == "plain" or k + 1)}
        for kind in ("plain", "outages")
        for k, (name, harmonic) in enumerate(names.items())
    ]
    text = front.evidence(by_cell(lines))
    assert text.endswith("These are medians of 1 settings; the worst are 0.50 and 0.25.")


def test_table_and_figure_are_of_one_game():
    numbers = re.findall(r">([^<>]+) (\d\.\d{3})<", front.FIGURE.read_text())
    head = front.part("demo").splitlines()[0].strip("|").split("|")
    policies = [cell.strip() for cell in head[1:-1]]
    shown = [
        (name, value) for row in rows() for name, value in zip(policies, row[1:], strict=False)
    ]
    assert [(name.strip(), value) for name, value in numbers] == shown
    assert len(shown) == 3 * 4


@pytest.mark.slow
def test_the_demo_has_the_figures_that_are_shown(tmp_path):
    results = front.play()
    played = [
        list(map(str.strip, line.strip("|").split("|")))
        for line in front.table(results).splitlines()[2:]
    ]
    for row, own in zip(rows(), played, strict=True):
        assert row[0] == own[0]
        for value, now in zip(row[1:-1], own[1:-1], strict=True):
            assert float(value) == pytest.approx(float(now), rel=AS_PLAYED), (
                "python -m benchmarks.front"
            )
    check_the_drawing(results, tmp_path / "demo.svg")


def check_the_drawing(results: list[GameResult], path) -> None:
    """The figure has the texts that the demo draws now, but for numbers."""
    draw(results, path)
    texts = [
        re.findall(r"<text[^>]*>([^<]*[a-z]{3}[^<]*)</text>", each.read_text())
        for each in (path, front.FIGURE)
    ]
    drawn, shown = ([re.sub(r"[\d.]+", "#", text) for text in each] for each in texts)
    assert drawn == shown
