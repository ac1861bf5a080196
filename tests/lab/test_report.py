"""The report: what it says follows from the numbers, and it is one well-formed page."""

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from support.sim_cases import world_of

from recrawl_lab.policies.lineup import Game
from recrawl_lab.replay.comparison import MIN_CHANGES, MIN_CRAWLS, Comparison, play
from recrawl_lab.replay.staleness import Crawls
from recrawl_lab.reports.charts import Bar, Series, bars, ceiling, lines, reliability
from recrawl_lab.reports.findings import findings
from recrawl_lab.reports.page import page
from recrawl_lab.reports.results import Circumstances, document
from recrawl_lab.worlds.notices import true_notices
from recrawl_lab.worlds.world import synthetic_world

TOLD = Circumstances("recrawl replay --git '<here>'", "none")


def compared(names, n_pages=400, days=30.0, per_page=0.2, world=None, notices=None):
    world = world or synthetic_world(n_pages, days, rng=np.random.default_rng(4))
    game = Game(world, per_page * len(world), 1.0, notices)
    return Comparison(game, [play(name, game) for name in names])


@pytest.fixture(scope="module")
def found():
    return compared(["uniform", "fixed-tuned", "stormcrawler", "recrawl", "hindsight"])


@pytest.mark.dear
def test_savings_and_gaps_are_those_of_the_harmonic_means(found):
    uniform, ours, best = (found.measures[n].harmonic for n in ("uniform", "recrawl", "hindsight"))
    saved, (low, high) = found.saving("recrawl", "uniform")
    assert saved == pytest.approx(1 - ours / uniform)
    assert low < saved < high
    closed, (low, high) = found.gap_closed("recrawl")
    assert closed == pytest.approx((uniform - ours) / (uniform - best))
    assert low < closed < high
    assert found.gap_closed("hindsight")[0] == pytest.approx(1.0)
    assert found.saving("uniform", "uniform") == (0.0, (0.0, 0.0))


def test_each_finding_names_its_numbers(found):
    said = findings(found)
    saved, (low, high) = found.saving("recrawl", "uniform")
    assert said[0] == (
        f"Recrawl leaves {saved:.0%} less staleness than uniform crawling (90% interval "
        f"{low:.0%} to {high:.0%}), with the same bandwidth."
    )
    assert f"{found.gap_closed('recrawl')[0]:.0%}" in said[2]
    assert "Hindsight knows the true mean change rate of every page but" in said[2]
    assert "percentage points on average; they save" in said[3]


@pytest.mark.dear
def test_what_bootstrap_cannot_tell_apart_is_not_called_better():
    said = findings(compared(["uniform", "recrawl"], n_pages=12, days=100.0))
    assert said[0].startswith("Recrawl and uniform crawling cannot be distinguished here")


@pytest.mark.parametrize(("per_page", "days"), [(0.001, 30.0), (30.0, 0.5)])
def test_too_few_crawls_or_changes_allow_no_verdict(per_page, days):
    few = compared(["uniform", "recrawl"], n_pages=100, days=days, per_page=per_page)
    assert (few.n_crawls < MIN_CRAWLS) != (few.n_changes < MIN_CHANGES)
    no_verdict, remedy = findings(few)
    assert no_verdict.startswith(f"No verdict: {few.n_crawls:,} crawls and {few.n_changes:,} ")
    assert f"at least {MIN_CRAWLS} crawls and {MIN_CHANGES} changes" in remedy
    for policy in document(few, TOLD)["policies"]:
        assert policy["saving_over_uniform"] is policy["gap_closed"] is None
        assert policy["harmonic"]["value"] >= 0


def test_idle_bandwidth_is_named_but_not_that_of_who_knows_the_future():
    found = compared(["stormcrawler", "clairvoyant"], per_page=30.0, n_pages=20)
    storm, knows = found.outcomes
    assert knows.bandwidth_used < 0.9
    assert findings(found) == [
        f"Not all of the bandwidth was used by: stormcrawler {storm.bandwidth_used:.0%}."
    ]


@pytest.mark.slow
def test_who_hears_notices_may_get_ahead_of_hindsight_which_hears_none_and_says_so():
    world = synthetic_world(100, 100.0, rng=np.random.default_rng(4), complete_share=0.0)
    told = true_notices(world, np.arange(100))
    names = ["uniform", "recrawl", "hindsight"]
    hearing = compared(names, world=world, notices=Crawls(told.page, told.told_at))
    assert hearing.gap_closed("recrawl")[0] > 1
    (said,) = [text for text in findings(hearing) if text.startswith("Hindsight receives no")]
    assert "may exceed it" in said
    assert said not in findings(compared(names, world=world))


def test_without_a_gap_none_is_closed():
    found = compared(["uniform", "hindsight"], world=world_of([[], []]))
    assert found.gap_closed("uniform") is None


def test_the_page_is_well_formed_fetches_nothing_and_repeats_itself(found):
    made = document(found, TOLD)
    text = page(made)
    assert text == page(document(found, TOLD))
    assert "&lt;here&gt;" in text
    assert "$" not in text
    assert not re.search(r"<script|src=|href=|url\(|@import", text)
    body = text.split("</style>")[1].removesuffix("</html>\n")
    svg_and_tables = ET.fromstring(f"<html>{body}</html>")
    assert len(svg_and_tables.findall(".//svg")) == 3
    rows = svg_and_tables.findall(".//tbody/tr")
    assert [row[0].text for row in rows] == [p["policy"] for p in made["policies"]]
    for finding in made["findings"]:
        assert f"<p>{finding}</p>" in text


def test_a_comparison_without_predictions_has_no_reliability_diagram():
    text = page(document(compared(["uniform"], n_pages=10), TOLD))
    assert text.count("<svg") == 2


def test_bars_are_as_long_as_their_values_and_cut_off_where_they_would_dwarf_the_others():
    rows = [Bar("a", 1, 0.9, 1.1, 0), Bar("b", 2, 2, 2, 1), Bar("c", 90, 80, 99, 2)]
    widths = [float(w) for w in re.findall(r'<rect[^>]* width="([\d.]+)"', bars(rows, "t"))]
    assert widths[1] == pytest.approx(2 * widths[0], abs=0.11)
    assert widths[2] == pytest.approx(6 * widths[0], abs=0.6)
    assert "90 →" in bars(rows, "t")


def test_lines_and_points_stand_where_their_values_are():
    drawn = lines([Series("a", [0, 5, 10], [0, 1, 2], 0)], "t", "day")
    points = re.search(r'points="([^"]*)"', drawn).group(1).split()
    x, y = np.array([[float(v) for v in point.split(",")] for point in points]).T
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.11)
    assert y[0] - y[1] == pytest.approx(y[1] - y[2], abs=0.11)
    drawn = reliability([Series("a", [0.2], [0.2], 0)], "t")
    x, y = (float(v) for v in re.search(r'cx="([\d.]+)" cy="([\d.]+)"', drawn).groups())
    assert (x, y) == (388.0, 8.0)  # the upper right corner


@pytest.mark.parametrize("value", [1e-9, 0.013, 0.99, 1.0, 1.01, 7.7, 123456.0])
def test_axes_end_at_a_round_number_not_far_beyond(value):
    assert value <= ceiling(value) * (1 + 1e-9)
    assert ceiling(value) <= 1.5 * value


def test_the_same_bandwidth_is_that_of_as_many_crawls_within_a_hundredth(found):
    for n_crawls, same in ((1.009, True), (0.95, False), (1.1, False)):
        outcomes = [
            replace(o, n_crawls=round(n_crawls * o.n_crawls), bandwidth_used=n_crawls)
            if o.name == "recrawl"
            else replace(o, bandwidth_used=1.0)
            for o in found.outcomes
        ]
        uniform, own = outcomes[0].n_crawls, outcomes[3].n_crawls
        said = findings(Comparison(found.game, outcomes))[0]
        if abs(own - uniform) <= 0.01 * uniform:
            assert said.endswith("with the same bandwidth.")
        else:
            assert said.endswith(
                f"with {own:,} crawls against {uniform:,}: {n_crawls:.0%} of the bandwidth against "
                "100%."
            )
        assert same == said.endswith("with the same bandwidth.")
