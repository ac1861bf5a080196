"""Which games the evidence has, which are left, and that they go on after a break."""

import gzip
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from support.evidence_cases import FEEDS, OI_WIKI, lines_of

from benchmarks.evidence import grid as command
from benchmarks.evidence.cells import (
    EVERYTHING,
    OUTDATED,
    SITES,
    Cell,
    Choice,
    cell_of,
    grid,
    read,
    site_of,
    written,
)
from benchmarks.evidence.figures import (
    HEURISTICS,
    VARIANTS,
)
from benchmarks.evidence.grid import world_of
from benchmarks.evidence.left import COMPARED, Task, duration, left, seconds, sentences, tasks
from benchmarks.evidence.page import ordered
from recrawl_lab.policies.lineup import LINEUP, PARTS

# -- cells


def test_the_grid_has_the_first_seed_of_all_cells_first_and_the_usual_bandwidth_before_others():
    every = list(grid())
    assert len(every) == len(set(every))
    plain, revisions, outages = 4 * 9 * 5, 5 * 3, 9 * 3
    assert len(every) == plain + revisions + outages + 4 * 9
    assert [seed for cell, seed in every if cell.importance == "equal"] == sorted(
        seed for cell, seed in every if cell.importance == "equal"
    )
    assert {cell.bandwidth_per_page for cell, _ in every[: 9 + 5 + 9]} == {0.1}
    assert [cell.importance for cell, _ in every[-36:]] == ["lognormal"] * 36
    assert {cell.site for cell, _ in every} == set(SITES)
    assert len(SITES) == 9
    assert site_of("oi-wiki").window("revisions") > site_of("oi-wiki").window("plain") == 731.0
    assert site_of("openstates-people").window("outages") == 548.0


def test_a_choice_restricts_the_grid_and_other_traces_are_played_with_revisions_too():
    choice = Choice(sites=["mine"], importance=["equal"], bandwidths=[0.1], seeds=[2])
    assert [f"{cell}, {seed}" for cell, seed in grid(choice)] == [
        "mine, plain, equal, R = 0.1, 2",
        "mine, revisions, equal, R = 0.1, 2",
        "mine, outages, equal, R = 0.1, 2",
    ]


def test_games_without_random_numbers_play_once_in_an_equal_world():
    every = tasks(Choice(sites=["mine"], bandwidths=[0.1]), ("uniform", "recrawl"))
    assert len(set(every)) == len(every)
    played = [(task.cell.kind, task.cell.importance, task.seed) for task in every]
    uniform = [each for each, task in zip(played, every, strict=True) if task.policy == "uniform"]
    assert uniform == [
        ("plain", "equal", 1),
        ("revisions", "equal", 1),
        ("outages", "equal", 1),
        ("plain", "lognormal", 1),
    ]
    assert len(every) - len(uniform) == 5 + 3 + 3 + 1


def test_every_variant_and_heuristic_plays_in_every_cell():
    assert {*VARIANTS, *HEURISTICS} < set(COMPARED) < set(LINEUP)
    assert set(PARTS) < set(VARIANTS)
    by_policy = dict.fromkeys(COMPARED, 0)
    for task in tasks(EVERYTHING):
        by_policy[task.policy] += task.seed == 1
    assert set(by_policy.values()) == {4 * 9 + 5 + 9 + 4 * 9}


# -- what is left


def test_what_is_left_has_no_line_or_an_outdated_one_and_takes_as_long_as_like_games():
    every = tasks(Choice(["oi-wiki", "data-feeds"], ["plain"], ["equal"], [0.1], [1]))
    done = lines_of(OI_WIKI, uniform=1.0, recrawl=0.5, recrawl_no_ages=0.5)
    done[1]["cpu_seconds"], done[2][OUTDATED] = 40.0, True
    todo = left(every, done)
    assert len(todo) == len(every) - 2
    assert Task(OI_WIKI, 1, "recrawl-no-ages") in todo
    few = [Task(OI_WIKI, 2, "recrawl"), Task(FEEDS, 1, "uniform"), Task(FEEDS, 1, "recrawl")]
    assert seconds(few, done) == 40.0 + 1.0 + 40.0
    assert seconds(few, []) > 30.0
    named = list(sentences(few))
    assert named == [
        "plain, equal, R = 0.1: seed 2 of oi-wiki",
        "plain, equal, R = 1: seed 1 of data-feeds",
        "1 game of other policies",
    ]


def test_games_are_written_as_they_finish_and_go_on_after_a_break(tmp_path):
    trace(tmp_path)
    choice = Choice(["small"], ["plain"], ["equal"], [0.1], [1])
    every, out = tasks(choice, ("uniform", "fixed-tuned")), tmp_path / "games"
    chunk = partial(command.line, tmp_path, "0a1b2c3d")
    with ThreadPoolExecutor(1) as pool:
        (first,) = command.run(every, out, chunk, pool, last=0.0)
        assert [path.name for path in out.iterdir()] == ["small-plain-equal-0.1.jsonl"]
        assert read(out) == [first]
        todo = left(every, read(out))
        assert [task.policy for task in todo] == ["fixed-tuned"]
        (second,) = command.run(todo, out, chunk, pool)
    assert read(out) == [first, second]
    assert left(every, read(out)) == []
    assert first["harmonic"] > 0
    assert first["commit"] == "0a1b2c3d"


def test_a_variant_without_an_idle_part_has_the_line_of_the_default(tmp_path):
    names = "recrawl", "recrawl-no-ages", "recrawl-no-siblings"
    every = [Task(OI_WIKI, 1, name) for name in names]

    def chunk(task):
        (one,) = lines_of(task.cell, **{task.policy.replace("-", "_"): 0.5})
        return {**one, "idle": ["ages", "wide_revisions"]}

    with ThreadPoolExecutor(1) as pool:
        default, same, other = command.run(every, tmp_path / "a", chunk, pool)
        (known,) = command.run(every[1:2], tmp_path / "b", chunk, pool, played=[default])
        (alone,) = command.run(every[1:2], tmp_path / "c", chunk, pool, played=[other])
    assert same == known == {**default, "policy": "recrawl-no-ages", "cpu_seconds": 0.0}
    assert [line["cpu_seconds"] for line in (default, other, alone)] == [1.0] * 3
    assert read(tmp_path / "a") == [default, same, other]


def test_the_command_names_what_is_left_and_its_time(tmp_path, capsys, monkeypatch):
    path = tmp_path / OI_WIKI.file_name
    path.write_text("".join(map(written, lines_of(OI_WIKI, uniform=1.0, recrawl=0.5))))
    asked = f"evidence --out {tmp_path} --sites oi-wiki --bandwidths .1 --kinds plain --seeds 1"
    asked += " --policies uniform,recrawl --left --importance equal"
    monkeypatch.setattr("sys.argv", asked.split())
    command.main()
    assert capsys.readouterr().out.startswith("0 of 2 games are left, about 0 min on one core")
    monkeypatch.setattr("sys.argv", [*asked.split(), "--forget", "uniform", "--outdate", "recrawl"])
    command.main()
    assert "2 of 2 games are left" in (said := capsys.readouterr().out)
    assert "- plain, equal, R = 0.1: seed 1 of oi-wiki" in said
    (kept,) = read(tmp_path)
    assert (kept["policy"], kept[OUTDATED]) == ("recrawl", True)


def test_a_world_with_outages_has_the_same_changes(tmp_path):
    trace(tmp_path)
    plain, away = (
        world_of(tmp_path, Cell("small", kind, "equal", 0.0)) for kind in ("plain", "outages")
    )
    assert plain.changed_at.tolist() == away.changed_at.tolist()
    assert len(plain.outages) == 0 < len(away.outages)


def trace(folder, days=40):
    """Write the trace of three pages, two of which change every second day."""
    day = 86_400
    at = [(page, 2 * day * k + 60) for page in "ab" for k in range(1, days // 2)]
    events = "".join(f"/{page},{t},0,0,1\n" for page, t in at)
    with gzip.open(folder / "small.csv.gz", "wt") as file:
        file.write("page,t,bulk,created_at,n_commit\n" + events)
    (folder / "pages").mkdir()
    rows = "".join(f"/{page},0,,0,{days * day},{19 * (page != 'c')},0\n" for page in "abc")
    with gzip.open(folder / "pages" / "small.pages.csv.gz", "wt") as file:
        file.write("page,created_at,deleted_at,obs_start,obs_end,n_changes,n_bulk\n" + rows)


def test_lines_are_published_in_the_order_of_play_one_for_each_game():
    second = lines_of(OI_WIKI, seed=2, recrawl=0.7)
    first = lines_of(OI_WIKI, uniform=1.0, recrawl=0.5)
    old = [{**line, "harmonic": 9.0, OUTDATED: True} for line in first]
    assert ordered([*second, *old, *first]) == [*first, *second]


def test_lines_are_read_from_folders_and_files(tmp_path):
    path = tmp_path / "lines.jsonl"
    (line,) = lines_of(OI_WIKI, uniform=1.0, seed=7)
    path.write_text(written(line))
    assert read(path, tmp_path) == [line, line]
    assert cell_of(line) == OI_WIKI
    assert read(tmp_path / "absent.jsonl", tmp_path / "absent") == []


def test_a_duration_is_in_hours_and_minutes():
    assert [duration(s) for s in (20.0, 60.0, 3599.0, 7320.0)] == [
        "0 min",
        "1 min",
        "1 h 0 min",
        "2 h 2 min",
    ]
