"""`recrawl experiment`: tables, files, JSON; unknown names refused."""

import json

import pytest


def test_it_lists_what_there_is(recrawl):
    for ended in (recrawl("experiment", "--list"), recrawl("experiment")):
        assert ended.status == 0
        assert "a22-1" in ended.out
        assert "step sizes of LLN, SA and SAM" in ended.out


def test_an_unknown_name_is_refused_before_anything_runs(recrawl, tmp_path):
    said = recrawl("experiment", "a22-3", "a22-33").refusal()
    assert said.startswith("recrawl: no experiment 'a22-33'; choose one of a22-1, a22-2")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_it_prints_the_table_and_writes_figure_csv_and_json(recrawl, tmp_path):
    ended = recrawl("experiment", "gf08-7", "--scale", 0.02, "--out", "found")
    assert ended.status == 0
    for text in ("20 new pages", "\n imaginary intervals ", "Agrees:", "Differs:"):
        assert text in ended.out
    assert sorted(path.name for path in (tmp_path / "found").iterdir()) == [
        "claims.md",
        "gf08-7-1.csv",
        "gf08-7.json",
        "gf08-7.png",
    ]


def test_a_folder_that_cannot_be_made_is_refused_before_anything_runs(recrawl, tmp_path):
    (tmp_path / "taken").write_text("")
    assert "taken: File exists" in recrawl("experiment", "a22-3", "--out", "taken").refusal()


@pytest.mark.dear
def test_json_is_one_line_an_experiment_and_nothing_else(recrawl):
    ended = recrawl("experiment", "gf08-6", "gf08-3", "--scale", 0.01, "--seed", 7, "--json")
    documents = [json.loads(line) for line in ended.out.splitlines()]
    assert [d["experiment"] for d in documents] == ["gf08-6", "gf08-3"]
    assert {d["seed"] for d in documents} == {7}
    assert all(d["tables"] and d["checks"] for d in documents)
