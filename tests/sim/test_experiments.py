"""Experiments as such: what they say follows from their numbers, and what is written is that."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from service.errors import UnknownExperiment
from service.sim.experiments import EXPERIMENTS, Check, Result, Setup, Table, find
from service.sim.experiments.report import document, show, write

TABLE = Table("errors", ("estimator", "error"), [("sa", 0.123456), ("lln", 2.0)])
RESULT = Result(
    title="Title",
    tables=[TABLE],
    checks=[Check("SA wins", "1 against 2", True), Check("LLN wins", "2 against 1", False)],
    draw=lambda figure: figure.subplots().plot([1, 2]),
    notes=("a [stand-in]",),
)


def test_a_claim_stands_on_the_side_where_its_numbers_put_it():
    assert RESULT.agrees == "1 of 2 claims: SA wins (1 against 2)"
    assert RESULT.differs == "1 of 2 claims: LLN wins (2 against 1)"
    borne_out = replace(RESULT, checks=[c._replace(holds=True) for c in RESULT.checks])
    assert borne_out.differs == "none of the 2 claims that were checked"
    assert borne_out.agrees.startswith("2 of 2")


def test_an_unknown_name_is_told_with_those_there_are():
    with pytest.raises(UnknownExperiment, match=r"no experiment 'a22-9'; there are a22-1, a22-2"):
        find("a22-9")


def test_names_are_unique_and_in_the_order_of_the_figures():
    for paper in {name.split("-")[0] for name in EXPERIMENTS}:
        numbers = [int(n.split("-")[1]) for n in EXPERIMENTS if n.startswith(paper)]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_files_hold_what_was_found(tmp_path):
    setup = Setup(seed=5, scale=0.5)
    paths = list(write("x-1", RESULT, setup, tmp_path))
    assert [path.name for path in paths] == ["x-1.json", "x-1-1.csv", "x-1.png"]
    with paths[1].open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [["estimator", "error"], ["sa", "0.123456"], ["lln", "2.0"]]
    kept = json.loads(paths[0].read_text())
    assert kept == json.loads(json.dumps(document("x-1", RESULT, setup)))
    assert kept["tables"][0]["rows"][0] == ["sa", 0.123456]
    assert (kept["seed"], kept["agrees"]) == (5, RESULT.agrees)
    assert paths[2].read_bytes().startswith(b"\x89PNG")


def test_a_reader_sees_tables_both_lines_and_notes():
    console = Console(record=True, width=60)
    show(RESULT, console)
    shown = console.export_text()
    for text in ("Title", "errors", "0.123", "a [stand-in]"):
        assert text in shown
    assert f"Agrees: {RESULT.agrees}." in shown
    assert f"Differs: {RESULT.differs}." in shown


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_tells_finite_numbers_and_draws_its_figure(name, tmp_path):
    heard = []
    setup = Setup(scale=0.004, progress=heard.append)
    result = find(name).run(setup)
    *_, figure = write(name, result, setup, tmp_path)
    assert figure.stat().st_size > 5_000
    assert heard == sorted(heard)
    assert heard[-1] == pytest.approx(1.0)
    for table in result.tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}
        numbers = [cell for row in table.rows for cell in row if not isinstance(cell, str)]
        assert np.isfinite(numbers).all()


def test_a_seed_repeats_itself_and_another_gives_other_numbers():
    seeds = (1, 1, 2)
    first, again, other = (find("gf08-4").run(Setup(scale=0.02, seed=seed)) for seed in seeds)
    assert first.tables == again.tables
    assert first.checks == again.checks
    assert first.tables != other.tables


def test_on_a_narrow_terminal_headers_wrap_and_numbers_stay_whole():
    columns = ("estimator", *(f"after {k} crawls" for k in range(9)))
    wide = Table("errors", columns, [("gamma", *(0.000123 + k for k in range(9)))])
    console = Console(record=True, width=40)
    show(replace(RESULT, tables=[wide]), console)
    (line,) = (line for line in console.export_text().splitlines() if "gamma" in line)
    assert line.split() == ["gamma", "0.000123", *(str(k) for k in range(1, 9))]
