"""The figures of the evidence follow from its lines: made-up lines with round numbers."""

import json

import numpy as np
import pytest
from support import sim_cases
from support.evidence_cases import FEEDS, OI_WIKI, lines_of

from benchmarks.evidence.cells import (
    OUTDATED,
)
from benchmarks.evidence.figures import (
    HEURISTICS,
    VARIANTS,
    Mean,
    against,
    by_cell,
    live,
    summary,
)
from benchmarks.evidence.grid import LIVE_RATE, of_live_pages
from benchmarks.evidence.page import figure, markdown
from recrawl_lab.policies.lineup import HINDSIGHT_KNOWS
from recrawl_lab.replay.measures import measured, terms
from recrawl_lab.replay.staleness import Crawls, uncrawled

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


def test_a_ratio_has_a_standard_error_only_where_seeds_are_common():
    lines = [
        *lines_of(OI_WIKI, seed=1, uniform=1.0, nutch_tuned=0.9, recrawl=0.5, recrawl_no_ages=0.5),
        *lines_of(OI_WIKI, seed=2, recrawl=0.7),
    ]
    played = by_cell(lines)[OI_WIKI]
    assert played.over("recrawl", "recrawl-no-ages").stated() == "1.000, one seed"
    assert played.over("recrawl", "uniform").stated() == "0.600 ± 0.1000"
    assert played.over("nutch-tuned", "uniform").stated() == "0.900", "no seed matters there"
    weighted = by_cell([{**line, "importance": "lognormal"} for line in lines])
    (played,) = weighted.values()
    assert played.over("nutch-tuned", "uniform").stated() == "0.900, one seed"


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
    narrow = OI_WIKI._replace(kind="revisions")
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


def variants(**staleness):
    """Return the staleness of all variants, 9 unless it is stated."""
    return dict.fromkeys(VARIANTS, 9.0) | {
        name.replace("_", "-"): value for name, value in staleness.items()
    }


def variant_lines():
    fast, slow = OI_WIKI, OI_WIKI._replace(bandwidth_per_page=0.02)
    tied = OI_WIKI._replace(bandwidth_per_page=0.5)
    return [
        *lines_of(
            fast,
            recrawl=1.02,
            uniform=2.0,
            **variants(recrawl_no_siblings=1.0, lambdacrawl_gamma=1.01),
        ),
        *lines_of(
            slow,
            recrawl=0.90,
            uniform=2.0,
            **variants(recrawl_no_siblings=1.0, lambdacrawl_gamma=1.20),
        ),
        *lines_of(tied, recrawl=1.002, uniform=2.0, **variants(recrawl_no_siblings=1.0)),
    ]


def test_recrawl_is_compared_with_the_best_of_our_own_variants():
    cells = by_cell(variant_lines())
    over = [played.over_variant().value for played in cells.values()]
    assert over == pytest.approx([0.9, 1.02, 1.002])
    (sentence,) = [text for text in summary(cells) if "best variant" in text and "weak" not in text]
    assert sentence == (
        "Recrawl's staleness over that of its own best variant is 1.002 in the median of 3 cells, "
        "at worst 1.020, one seed (recrawl-no-siblings in oi-wiki, plain, equal, R = 0.1); above "
        "1.005 in 1, 1 of them by one seed"
    )


def test_a_cell_is_compared_with_variants_and_heuristics_only_if_all_have_played():
    some = lines_of(OI_WIKI, recrawl=1.0, uniform=2.0, recrawl_no_siblings=0.5)
    (played,) = by_cell(some).values()
    assert played.over_variant() is None
    assert played.best_heuristic is None
    assert played.weak_against == []
    heuristics = dict.fromkeys(HEURISTICS, 2.0) | {"nutch-tuned": 0.9}
    (played,) = by_cell(lines_of(OI_WIKI, recrawl=1.0, **heuristics)).values()
    assert played.best_heuristic == "nutch-tuned"


def weak_lines():
    """Return cells in which Recrawl is certainly, perhaps, and hardly above its rivals."""
    cells = [OI_WIKI, OI_WIKI._replace(kind="revisions"), OI_WIKI._replace(kind="outages")]
    ours = [(1.03, 1.05), (1.0, 1.3), (1.002, 1.003)]
    heuristics = dict.fromkeys(HEURISTICS, 2.0) | {"nutch-tuned": 1.0}
    return [
        line
        for cell, pair in zip(cells, ours, strict=True)
        for seed, own in enumerate(pair, start=1)
        for line in lines_of(
            cell, seed=seed, recrawl=own, **heuristics, **variants(lambdacrawl_gamma=1.0)
        )
    ]


def test_a_weak_cell_loses_more_than_allowed_and_more_than_two_standard_errors():
    cells = by_cell(weak_lines())
    weak = {cell.kind: played.weak_against for cell, played in cells.items()}
    assert weak == {
        "plain": ["nutch-tuned", "lambdacrawl-gamma"],
        "revisions": [],
        "outages": [],
    }
    (sentence,) = [text for text in summary(cells) if text.startswith("weak cells")]
    assert sentence.endswith(
        "beyond two standard errors: 1 of 3 (oi-wiki, plain, equal, R = 0.1); all variants "
        "have played in 3"
    )


# -- rivals


def test_recrawl_over_each_rival_counts_the_cells_that_both_have_played():
    first = {one.name: one for one in against(by_cell(variant_lines()))}
    assert first.keys() == {"uniform", *VARIANTS}
    gamma = first["lambdacrawl-gamma"]
    assert (gamma.n_cells, gamma.n_won) == (3, 2)
    assert (gamma.worst, gamma.worst_cell) == (pytest.approx(1.02 / 1.01), OI_WIKI)
    assert gamma.median == pytest.approx(0.75)
    assert next(iter(first)) == "uniform"


def test_sizes_come_before_counts_with_equal_importance_first():
    away = [{**line, "kind": "outages"} for line in variant_lines()]
    sentences = list(summary(by_cell([*away, *variant_lines()])))
    size = "Recrawl has 0.50 of the staleness of uniform in the median of 3 cells; at worst 0.510"
    assert sentences[:2] == [
        f"plain worlds, equal importance: {size} (oi-wiki, R = 0.1)",
        f"worlds with outages, equal importance: {size} (oi-wiki, R = 0.1)",
    ]
    rivals = lines_of(OI_WIKI, recrawl=0.6, uniform=2.0, nutch_tuned=1.0, stormcrawler_tuned=0.8)
    of_rivals = list(summary(by_cell(rivals)))[:3]
    for sentence, (name, value) in zip(
        of_rivals,
        {"stormcrawler-tuned": "0.75", "nutch-tuned": "0.60", "uniform": "0.30"}.items(),
        strict=True,
    ):
        assert f"has {value} of the staleness of {name} in the median of 1 cell" in sentence


def test_recrawl_is_best_in_a_cell_if_no_rival_is_better():
    sentences = list(summary(by_cell(variant_lines())))
    assert sentences[1] == (
        "Recrawl is better than all policies of today's crawlers in 3 of 3 cells, than all "
        "policies without foresight in 1"
    )


def test_calibration_is_averaged_over_cells_and_seeds_of_a_site():
    lines = [
        *lines_of(OI_WIKI, seed=1, ece=0.01, recrawl=1.0, uniform=2.0),
        *lines_of(OI_WIKI, seed=2, ece=0.05, recrawl=1.0, uniform=2.0),
        *lines_of(OI_WIKI._replace(kind="revisions"), ece=0.03, recrawl=1.0, uniform=2.0),
    ]
    assert (
        "expected calibration error after the first quarter, oi-wiki: mean 0.030, worst 0.050"
        in list(summary(by_cell(lines)))
    )


# -- live pages


def test_measures_of_live_pages_are_those_of_a_world_of_them_alone():
    often, rarely = [1.0, 2.0, 3.0], [5.0]
    every = sim_cases.world_of([often, rarely], days=20.0)
    alone = sim_cases.world_of([often], days=20.0)
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
    quiet = sim_cases.world_of([[5.0]], days=20.0)
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


def page_lines():
    return [
        *lines_of(FEEDS, seed=1, live=40.0, uniform=0.01, recrawl=0.002, lambdacrawl_gamma=0.004),
        *lines_of(FEEDS, seed=2, live=40.0, uniform=0.01, recrawl=0.003, lambdacrawl_gamma=0.004),
        *gap_lines(),
    ]


def page(lines):
    return list(markdown(by_cell(lines), lines))


def test_the_page_has_a_table_for_each_kind_of_world_and_the_live_pages():
    rows = page(page_lines())
    assert (
        "| site | world | importance | R | LambdaCrawl | Recrawl | hindsight | own best | "
        "gap closed | seeds |"
    ) in rows
    assert "| data-feeds | plain | equal | 1 | 0.40 | 0.25 ± 0.050 |  |  |  | 2 |" in rows
    assert "| oi-wiki | plain | equal | 0.5 |  | 0.50 | 0.80 |  | 2.50 | one seed |" in rows
    assert "| data-feeds | plain | equal | 1 | 0.400 | 0.160 | 0.100 ± 0.0200 |" in rows
    revised = rows.index("### Worlds with revisions of many pages, equal importance")
    assert revised < rows.index(
        "| oi-wiki | revisions | equal | 0.1 | 0.80 | 0.95 |  | 4.00 | one seed |"
    )
    assert "- The games of Recrawl were played by 0a1b2c3d." in rows
    assert "  - outages, equal, R = 0.1: seeds 1 to 3 of every site." in rows
    (rest,) = [row for row in rows if row.startswith("  - plain, equal, R = 1: ")]
    assert rest.startswith("  - plain, equal, R = 1: seeds 1 to 5 of ota-contrib, oi-wiki, ")
    assert rest.endswith("; seeds 3 to 5 of data-feeds.")


def test_the_weakest_cell_stands_first_among_the_targets_in_bold_if_it_is_certain():
    rows = page(weak_lines())
    head = rows.index(
        "| site | world | importance | R | best heuristic | Recrawl over it | best variant | "
        "Recrawl over it | seeds |"
    )
    shown = {"revisions": "1.150 ± 0.1500", "plain": "**1.040 ± 0.0100**"}
    for (kind, over), row in zip(shown.items(), rows[head + 2 :], strict=False):
        heuristic, variant = f"`nutch-tuned` | {over}", f"`lambdacrawl-gamma` | {over}"
        assert row == f"| oi-wiki | {kind} | equal | 0.1 | {heuristic} | {variant} | 2 |"


def test_lines_of_an_earlier_policy_are_marked_until_it_has_played_again():
    old = [{**line, OUTDATED: True} for line in lines_of(OI_WIKI, uniform=1.0, recrawl=0.5)]
    new = lines_of(OI_WIKI, uniform=1.0, recrawl=0.4)
    assert "| oi-wiki | plain | equal | 0.1 | 0.50 |  |  | old |" in page(old)
    for lines in (new + old, old + new):
        assert "| oi-wiki | plain | equal | 0.1 | 0.40 |  |  | one seed |" in page(lines)


def test_every_row_of_a_table_has_as_many_cells_as_its_head():
    lines = [*page_lines(), *weak_lines()]
    rows = [row for row in page(lines) if row.startswith("|")]
    widths = [row.count("|") for row in rows]
    heads = [k for k, row in enumerate(rows) if k + 1 < len(rows) and "---" in rows[k + 1]]
    assert len(heads) == 1 + 2 * 3 + 1
    for start, end in zip(heads, [*heads[1:], len(rows)], strict=True):
        assert len(set(widths[start:end])) == 1


def test_the_figure_has_a_row_for_each_played_site_and_a_point_for_each_policy():
    lines = [*lines_of(FEEDS, uniform=0.01, recrawl=0.002), *gap_lines()]
    axes = figure(by_cell(lines)).axes
    titles = [each.get_title() for each in axes]
    assert titles == [f"{site}, equal" for site in ("data-feeds", "oi-wiki")]
    points = [float(np.ravel(drawn.get_xdata())[0]) for drawn in axes[0].get_lines()[1:]]
    assert points == pytest.approx([0.2])
