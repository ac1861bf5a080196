"""The figures of the evidence follow from its lines: made-up lines with round numbers."""

import json

import numpy as np
import pytest
from support.sim_cases import world_of

from benchmarks.evidence.cells import OUTDATED, SITES, Cell, cell_of, grid, read
from benchmarks.evidence.figures import VARIANTS, Mean, against, by_cell, live, summary
from benchmarks.evidence.grid import LIVE_RATE, Task, of_live_pages, tasks
from benchmarks.evidence.page import figure, markdown
from recrawl_lab.policies.lineup import HINDSIGHT_KNOWS, LINEUP, PARTS
from recrawl_lab.replay.measures import measured, terms
from recrawl_lab.replay.staleness import Crawls, uncrawled

OI_WIKI = Cell("oi-wiki", False, "equal", 0.1)
FEEDS = Cell("data-feeds", False, "equal", 1.0)


def lines_of(cell, *, seed=1, ece=None, live=None, **staleness):
    """Return a line for each policy, whose name has _ for -."""
    return [
        {
            **cell._asdict(),
            "seed": seed,
            "policy": name.replace("_", "-"),
            "harmonic": harmonic,
            "harmonic_live": live and live * harmonic,
            "ece_learnt": ece,
        }
        for name, harmonic in staleness.items()
    ]


# -- cells


def test_a_line_without_a_seed_is_of_seed_1(tmp_path):
    path = tmp_path / "lines.jsonl"
    (line,) = lines_of(OI_WIKI, uniform=1.0, seed=7)
    old = {name: value for name, value in line.items() if name != "seed"}
    path.write_text("".join(json.dumps(each) + "\n" for each in (old, line)))
    assert [each["seed"] for each in read(path)] == [1, 7]
    assert {cell_of(each) for each in read(path)} == {OI_WIKI}
    assert read(tmp_path / "absent.jsonl") == []


def test_the_grid_has_each_world_once_and_each_sites_bandwidths():
    cells = list(grid(SITES, ["equal", "lognormal"], None))
    assert len(cells) == len(set(cells)) == 4 * 12 + 6 + 2 * 8
    assert {cell.site for cell in cells if cell.bulk} == {
        "oi-wiki",
        "nodejs-org",
        "powershell-docs",
        "php-manual",
    }
    at_one = {cell.site for cell in cells if cell.bandwidth_per_page == 1.0}
    assert at_one == {"scoop-extras", "data-feeds"}


def test_bandwidths_may_be_chosen_and_an_unlisted_trace_is_played_with_and_without_bulk():
    cells = list(grid(["mine", "data-feeds"], ["equal"], [0.3]))
    assert [str(cell) for cell in cells] == [
        "mine, bulk out, equal, 0.3",
        "mine, bulk in, equal, 0.3",
        "data-feeds, no bulk, equal, 0.3",
    ]


def test_tasks_of_one_world_follow_each_other():
    cells = list(grid(["mine"], ["equal"], [0.1, 0.5]))
    every = tasks(cells, [1, 2], ("uniform", "recrawl"))
    assert len(set(every)) == len(every) == 2 * 2 * 2 * 2
    assert every[0] == Task(cells[0], 1, "uniform")
    worlds = [(task.cell.bulk, task.seed) for task in every]
    assert [world for k, world in enumerate(worlds) if k == 0 or worlds[k - 1] != world] == [
        (False, 1),
        (False, 2),
        (True, 1),
        (True, 2),
    ]


def test_cells_that_repeat_the_world_without_bulk_revisions_count_once():
    old = [Cell("ota-contrib", bulk, "equal", 0.1) for bulk in (False, True)]
    lines = [line for cell in old for line in lines_of(cell, uniform=1.0, recrawl=0.5)]
    assert list(by_cell(lines)) == old[:1]
    both = [OI_WIKI, OI_WIKI._replace(bulk=True)]
    lines = [line for cell in both for line in lines_of(cell, uniform=1.0, recrawl=0.5)]
    assert list(by_cell(lines)) == both


# -- means over seeds


def test_ratios_are_averaged_over_the_seeds_that_both_policies_have_played():
    lines = [
        *lines_of(OI_WIKI, seed=1, uniform=1.0, recrawl=0.5),
        *lines_of(OI_WIKI, seed=2, uniform=2.0, recrawl=1.4),
        *lines_of(OI_WIKI, seed=3, uniform=9.0),
    ]
    played = by_cell(lines)[OI_WIKI]
    ratio = played.over("recrawl", "uniform")
    assert ratio.value == pytest.approx(0.6)
    assert ratio.error == pytest.approx(0.1)  # |.7 - .5| / 2, of two seeds
    assert played.measure("uniform").value == pytest.approx(4.0)
    assert played.over("hindsight", "uniform") is None


def test_a_policy_without_random_numbers_plays_an_equal_world_once_for_all_seeds():
    lines = [
        *lines_of(OI_WIKI, seed=1, uniform=1.0, recrawl=0.5, recrawl_no_change_hours=0.5),
        *lines_of(OI_WIKI, seed=2, recrawl=0.7),
    ]
    played = by_cell(lines)[OI_WIKI]
    assert played.over("recrawl", "uniform").value == pytest.approx(0.6)
    assert played.over("recrawl", "recrawl-no-change-hours").value == pytest.approx(1.0)  # seed 1
    weighted = [{**line, "importance": "lognormal"} for line in lines]  # drawn by the seed
    (played,) = by_cell(weighted).values()
    assert played.over("recrawl", "uniform").value == pytest.approx(0.5)


def test_a_mean_has_its_standard_error_beside_it_where_there_are_several_seeds():
    assert Mean(0.53125, None).text() == "0.531"
    assert Mean(0.53125, 0.0042).text() == "0.531 ± 0.0042"
    assert Mean(0.53125, 0.0042).text(2) == "0.53 ± 0.004"
    assert Mean(1.0, 0.0).text() == "1.000"


# -- gaps


def gap_lines():
    cells = [OI_WIKI._replace(bandwidth_per_page=per_page) for per_page in (0.02, 0.1, 0.5)]
    closed = [0.5, 0.9, 2.5]
    lines = [
        line
        for cell, share in zip(cells, closed, strict=True)
        for line in lines_of(cell, uniform=1.0, hindsight=0.8, recrawl=1.0 - 0.2 * share)
    ]
    narrow = OI_WIKI._replace(bulk=True)
    return [*lines, *lines_of(narrow, uniform=1.0, hindsight=0.95, recrawl=0.8)]


def test_the_gap_closed_is_summarised_by_median_mean_and_least_where_the_gap_is_wide():
    sentences = list(summary(by_cell(gap_lines())))
    (gap,) = [text for text in sentences if text.startswith("gap closed")]
    assert gap == (
        "gap closed by recrawl in the 3 cells where hindsight is at least 10% better than "
        "uniform: median 0.900, mean 1.300 of ratios up to 2.50, least 0.50"
    )


def test_the_summary_says_that_hindsight_is_no_bound_and_how_often_it_is_beaten():
    sentences = list(summary(by_cell(gap_lines())))
    assert f"hindsight knows {HINDSIGHT_KNOWS}" in sentences
    assert "Recrawl is better than hindsight in 2 of 4 cells" in sentences


def test_no_gap_is_closed_where_hindsight_gains_nothing():
    (played,) = by_cell(lines_of(OI_WIKI, uniform=1.0, hindsight=1.0, recrawl=0.9)).values()
    assert played.gap_closed() is None
    assert not played.has_gap


# -- our own variants


def variant_lines():
    fast, slow = OI_WIKI, OI_WIKI._replace(bandwidth_per_page=0.02)
    tied = OI_WIKI._replace(bandwidth_per_page=0.5)
    return [
        *lines_of(fast, recrawl=1.02, recrawl_no_siblings=1.0, lambdacrawl_gamma=1.01, uniform=2.0),
        *lines_of(slow, recrawl=0.90, recrawl_no_siblings=1.0, lambdacrawl_gamma=1.20, uniform=2.0),
        *lines_of(tied, recrawl=1.002, recrawl_no_siblings=1.0, uniform=2.0),
    ]


def test_recrawl_is_compared_with_the_best_of_our_own_variants():
    cells = by_cell(variant_lines())
    over = [played.over_variant().value for played in cells.values()]
    assert over == pytest.approx([0.9, 1.02, 1.002])
    (sentence,) = [text for text in summary(cells) if text.startswith("a variant")]
    assert sentence == (
        "a variant of our own is better than Recrawl by over 0.3% in 1 of 3 cells; Recrawl's "
        "staleness over its best variant's is at most 1.020 (recrawl-no-siblings in oi-wiki, bulk "
        "out, equal, 0.1)"
    )


def test_a_loss_against_a_variant_is_compared_with_its_standard_error():
    lines = [
        line
        for seed, certain, doubtful in ((1, 1.03, 1.0), (2, 1.05, 1.3))
        for cell, ours in ((OI_WIKI, certain), (OI_WIKI._replace(bulk=True), doubtful))
        for line in lines_of(cell, seed=seed, recrawl=ours, lambdacrawl_gamma=1.0, uniform=2.0)
    ]
    sentences = list(summary(by_cell(lines)))
    assert "in 1 of these cells the loss exceeds two standard errors" in sentences
    assert sentences[-1] == "figures are means of up to 2 seeds ± their standard error"


def test_every_part_is_a_variant_of_the_lineup():
    assert set(PARTS) < set(VARIANTS) < set(LINEUP)


def test_a_cell_without_variants_has_no_ratio():
    (played,) = by_cell(lines_of(OI_WIKI, recrawl=1.0, uniform=2.0)).values()
    assert played.over_variant() is None


# -- rivals


def test_recrawl_over_each_rival_counts_the_cells_that_both_have_played():
    first = {one.name: one for one in against(by_cell(variant_lines()))}
    assert first.keys() == {"uniform", "lambdacrawl-gamma", "recrawl-no-siblings"}
    gamma = first["lambdacrawl-gamma"]
    assert (gamma.n_cells, gamma.n_won) == (2, 1)
    assert gamma.worst == pytest.approx(1.02 / 1.01)
    assert gamma.median == pytest.approx((1.02 / 1.01 + 0.75) / 2)


def test_recrawl_is_best_in_a_cell_if_no_rival_is_better():
    sentences = list(summary(by_cell(variant_lines())))
    assert sentences[0] == (
        "Recrawl is better than all policies of today's crawlers in 3 of 3 cells, than all "
        "policies without foresight in 1"
    )


def test_calibration_is_averaged_over_cells_and_seeds_of_a_site():
    lines = [
        *lines_of(OI_WIKI, seed=1, ece=0.01, recrawl=1.0, uniform=2.0),
        *lines_of(OI_WIKI, seed=2, ece=0.05, recrawl=1.0, uniform=2.0),
        *lines_of(OI_WIKI._replace(bulk=True), ece=0.03, recrawl=1.0, uniform=2.0),
    ]
    assert (
        "expected calibration error after the first quarter, oi-wiki: mean 0.030, worst 0.050"
        in list(summary(by_cell(lines)))
    )


# -- live pages


def test_measures_of_live_pages_are_those_of_a_world_of_them_alone():
    often, rarely = [1.0, 2.0, 3.0], [5.0]
    every = world_of([often, rarely], days=20.0)
    alone = world_of([often], days=20.0)
    assert every.change_rate.tolist() == [0.15, 0.05]
    assert 0.05 < LIVE_RATE < 0.15
    crawls = Crawls(np.array([0, 1]), np.array([2.5, 6.0]))
    of_live = of_live_pages(every, terms(every, uncrawled(every, crawls)))
    only = Crawls(crawls.page[:1], crawls.at[:1])
    expected = measured(terms(alone, uncrawled(alone, only)))
    assert of_live == {
        "n_live": 1,
        "harmonic_live": pytest.approx(expected.harmonic),
        "binary_live": pytest.approx(expected.binary),
    }


def test_a_world_without_live_pages_has_no_measure_of_them():
    quiet = world_of([[5.0]], days=20.0)
    none = Crawls(np.array([0]), np.array([6.0]))
    of_live = of_live_pages(quiet, terms(quiet, uncrawled(quiet, none)))
    assert of_live == {"n_live": 0, "harmonic_live": None, "binary_live": None}
    json.dumps(of_live, allow_nan=False)


def test_live_pages_are_shown_of_sites_where_nearly_all_pages_are_dead():
    lines = [
        *lines_of(FEEDS, live=40.0, uniform=0.01, recrawl=0.002),
        *lines_of(OI_WIKI, live=2.0, uniform=1.0, recrawl=0.5),
    ]
    assert list(live(by_cell(lines))) == [FEEDS]
    assert live(by_cell(lines_of(FEEDS, uniform=0.01))) == {}


# -- the page


def test_the_page_has_the_variants_and_the_live_pages_in_tables():
    lines = [
        *lines_of(FEEDS, seed=1, live=40.0, uniform=0.01, recrawl=0.002, lambdacrawl_gamma=0.004),
        *lines_of(FEEDS, seed=2, live=40.0, uniform=0.01, recrawl=0.003, lambdacrawl_gamma=0.004),
        *gap_lines(),
    ]
    rows = list(markdown(by_cell(lines)))
    assert (
        "| site | bulk | importance | R | LambdaCrawl | Recrawl | hindsight | own best | "
        "gap closed | seeds |"
    ) in rows
    assert (
        "| data-feeds | none | equal | 1 | 0.40 | 0.25 ± 0.050 |  | 0.625 ± 0.1250 |  | 2 |"
    ) in rows
    assert "| oi-wiki | out | equal | 0.5 |  | 0.50 | 0.80 |  | 2.50 | 1 |" in rows
    assert "| data-feeds | none | equal | 1 | 0.400 | 0.160 | 0.100 ± 0.0200 |" in rows


def test_lines_of_an_earlier_policy_are_marked_until_it_has_played_again():
    old = [{**line, OUTDATED: True} for line in lines_of(OI_WIKI, uniform=1.0, recrawl=0.5)]
    new = lines_of(OI_WIKI, uniform=1.0, recrawl=0.4)
    assert "| oi-wiki | out | equal | 0.1 | 0.50 |  |  | old |" in list(markdown(by_cell(old)))
    for lines in (new + old, old + new):
        assert "| oi-wiki | out | equal | 0.1 | 0.40 |  |  | 1 |" in list(markdown(by_cell(lines)))


def test_every_row_of_a_table_has_as_many_cells_as_its_head():
    lines = [*lines_of(FEEDS, live=40.0, uniform=0.01, recrawl=0.002), *gap_lines()]
    rows = [row for row in markdown(by_cell(lines)) if row.startswith("|")]
    widths = [row.count("|") for row in rows]
    heads = [k for k, row in enumerate(rows) if k + 1 < len(rows) and "---" in rows[k + 1]]
    assert len(heads) == 3
    for start, end in zip(heads, [*heads[1:], len(rows)], strict=True):
        assert len(set(widths[start:end])) == 1


def test_the_figure_has_a_row_for_each_played_site_and_a_point_for_each_policy():
    lines = [*lines_of(FEEDS, uniform=0.01, recrawl=0.002), *gap_lines()]
    axes = figure(by_cell(lines)).axes
    titles = [each.get_title() for each in axes]
    assert titles == [
        f"{site}, {importance}"
        for site in ("data-feeds", "oi-wiki")
        for importance in ("equal", "lognormal")
    ]
    points = [float(np.ravel(drawn.get_xdata())[0]) for drawn in axes[0].get_lines()[1:]]
    assert points == pytest.approx([0.2])
