"""Intervals hold the true rate as often as docs/theory.md states, in small simulations."""

import re
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from support.store_cases import T0, crawl_columns, register

from benchmarks.coverage import (
    CRAWLS,
    ESTIMATORS,
    INTERVAL,
    KNOWN,
    MASS,
    MEAN_RATE,
    SHAPES,
    Corpus,
    Setting,
    Shapes,
    crawl,
    draw,
    factors,
    intervals,
    learn,
    log_loss,
    mean,
    outcomes,
    row,
)
from recrawl_lab.memory.store import MemoryStore
from service.core.estimators import make_estimator
from service.core.estimators.base import from_columns
from service.epochs.run import run_epoch
from service.epochs.solve import Plan
from service.estimation.estimates import Rules, of_page, rules_in_force, width
from service.ingest.record import record
from service.model.arrays import instant
from service.model.domain import Timing

PAGE = Path(__file__).parents[2] / "docs" / "theory.md"
DAY = timedelta(days=1)
N_PAGES = 1500
AT = (5, 20)
PER_DIRECTORY = (3, 20, None)
"""Without 200 pages in each directory, because 7 directories differ too much between corpora."""
MARGIN = 4.0
"""Standard errors of a share of `N_PAGES`."""
OF_CORPUS = 1.5
"""Factor on the binomial error, because pages of one corpus share their priors."""
ROUNDING = 0.005


def settings():
    return [
        Setting(SHAPES[0], distribution, per)
        for distribution in ("gamma", "lognormal")
        for per in PER_DIRECTORY
    ]


@pytest.fixture(scope="module")
def simulated():
    """Return the outcomes of each estimator in one corpus of each setting."""
    rng = np.random.default_rng(11)
    return {setting: outcomes(setting, N_PAGES, rng, AT) for setting in settings()}


def margin(share):
    return MARGIN * OF_CORPUS * np.sqrt(share * (1 - share) / N_PAGES) + ROUNDING


def stated():
    """Return the shares of the page's table by distribution, pages a directory and estimator."""
    section = PAGE.read_text().partition("## How far to trust an interval")[2].partition("\n## ")[0]
    head, _, *body = [line for line in section.splitlines() if line.startswith("|")]
    assert re.findall(r"`(\w+)`(, directories known)?", head) == [
        ("bursty", ""),
        ("gamma", ""),
        ("gamma", ", directories known"),
        ("lognormal", ""),
        ("bursty", ""),
        ("gamma", ""),
    ]
    table = {}
    for line in body:
        rates, directory, *shares, _ = (cell.strip() for cell in line.strip("|").split("|"))
        per = None if directory == "no directories" else int(directory)
        setting = Setting(SHAPES[0], rates.lower().replace("-", ""), per)
        names = ("bursty", "gamma", KNOWN, "lognormal")
        figures = ([float(share) for share in cell.split()] for cell in shares)
        table[setting] = dict(zip(names, figures, strict=True))
    return table


def test_the_page_has_the_coverage_of_every_setting():
    table = stated()
    assert table.keys() >= set(settings())
    assert len(table) == 2 * 4
    assert all(len(shares) == len(CRAWLS) for named in table.values() for shares in named.values())


@pytest.mark.parametrize("setting", settings(), ids=str)
@pytest.mark.parametrize("name", [*ESTIMATORS, KNOWN])
def test_intervals_hold_the_rate_as_often_as_the_page_states(simulated, setting, name):
    assert CRAWLS[: len(AT)] == AT
    for k, share in zip(AT, stated()[setting][name], strict=False):
        measured = simulated[setting][name].coverage[k]
        assert measured == pytest.approx(share, abs=margin(share)), k


@pytest.mark.parametrize("distribution", ["gamma", "lognormal"])
def test_few_pages_in_a_directory_make_intervals_too_narrow_by_more_than_chance(
    simulated, distribution
):
    few, none = (
        simulated[Setting(SHAPES[0], distribution, per)]["gamma"].coverage[5] for per in (3, None)
    )
    assert few < MASS - margin(MASS) / OF_CORPUS
    assert few < none - margin(none)


def test_on_the_true_prior_gamma_intervals_hold_at_least_the_stated_share(simulated):
    for setting in settings():
        held = simulated[setting][KNOWN].coverage
        assert all(share > MASS - margin(MASS) for share in held.values()), setting


def test_intervals_of_lognormal_miss_the_rates_of_quiet_pages_from_above(simulated):
    for setting in settings():
        outcome = simulated[setting]["lognormal"]
        assert outcome.quiet[20] < simulated[setting]["gamma"].quiet[20] - 0.1
        assert outcome.below[20] > 0.5 * (1 - outcome.coverage[20])


def test_bursty_is_wider_than_gamma_and_costs_little_on_steady_pages(simulated):
    for setting in settings():
        gamma, bursty = (simulated[setting][name] for name in ("gamma", "bursty"))
        assert all(bursty.coverage[k] > gamma.coverage[k] for k in AT)
        assert 0 < bursty.log_loss / gamma.log_loss - 1 < 0.01


# -- the simulation itself


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_intervals_are_those_that_the_service_shows(name):
    estimator = make_estimator(name, half_life_days=365.0)
    store, rng = MemoryStore(width(estimator)), np.random.default_rng(1)
    rules = Rules(estimator, Timing.periodic, rng)
    ids = np.sort(register(store, 12, observability=0))
    for day in range(9):
        at = T0 + day * DAY
        run_epoch(store, Plan(estimator), lambda at=at: at)
        with store.begin() as tx:
            changed = rng.random(12) < np.linspace(0.05, 0.9, 12)
            columns = crawl_columns(ids, [at] * 12, changed=changed.astype(int))
            record(tx, columns, rules_in_force(tx, rules))
    now = T0 + 10 * DAY
    run_epoch(store, Plan(estimator), lambda: now)
    with store.begin(write=False) as tx:
        fitted = rules_in_force(tx, rules).estimator
        shown = [of_page(tx, tx.page(int(i)), fitted, instant(now)).interval for i in ids]
        pages = tx.load_columns()
    ours = intervals(fitted, pages.url_group, from_columns(fitted, pages.estimate))
    np.testing.assert_allclose(np.transpose(ours), shown, rtol=1e-9)


@pytest.mark.parametrize("distribution", ["gamma", "lognormal"])
def test_factors_have_mean_1_and_the_variance_of_their_shape(distribution):
    drawn = factors(distribution, 3.0, 200_000, np.random.default_rng(5))
    assert drawn.mean() == pytest.approx(1.0, abs=4 * np.sqrt(1 / 3 / 200_000))
    assert drawn.var() == pytest.approx(1 / 3, rel=0.05)
    assert drawn.min() > 0


def test_pages_of_a_directory_share_its_mean():
    alike = Setting(Shapes(1e6, 1.0), "gamma", 20)
    corpus = draw(alike, 1000, np.random.default_rng(2))
    assert np.bincount(corpus.url_group).tolist() == [20] * 50
    expected = corpus.directory_rate[corpus.url_group]
    np.testing.assert_allclose(corpus.change_rate, expected, rtol=0.01)
    assert corpus.directory_rate.std() > 0.5 * MEAN_RATE


def test_crawls_find_a_page_changed_with_the_probability_of_a_poisson_process():
    corpus = Corpus(np.array([0.0, 0.01, 0.2]), None, np.array([0.07]), 1.0)
    changed = crawl(corpus, np.random.default_rng(4), 40_000)
    expected = -np.expm1(-corpus.change_rate * INTERVAL)
    error = np.sqrt(expected * (1 - expected) / 40_000)
    assert (np.abs(changed.mean(axis=0) - expected) <= 4 * error).all()


def test_shares_are_of_all_pages_and_of_the_quiet_ones():
    rates = np.array([0.2, 0.2, 50.0, 1e-9, 0.01])  # two held, one above, one below, one held
    changed = np.array([[True, True, True, False, False]] * 5)
    corpus = Corpus(rates, None, np.array([MEAN_RATE]), 1.0)
    outcome = learn(make_estimator("gamma"), corpus, changed, (5,))
    assert outcome.coverage == {5: pytest.approx(0.6)}
    assert outcome.below == {5: pytest.approx(0.2)}
    assert outcome.quiet == {5: 0.5}
    all_changed = learn(make_estimator("gamma"), corpus, np.ones((5, 5), bool), (5,))
    assert np.isnan(all_changed.quiet[5])


def test_log_loss_is_the_mean_of_minus_the_log_of_what_happened():
    loss = log_loss(np.array([0.9, 0.2]), np.array([True, False]))
    assert loss == pytest.approx(-(np.log(0.9) + np.log(0.8)) / 2)


def test_means_leave_out_corpora_without_a_figure():
    assert mean([1.0, np.nan, 3.0]) == {"mean": 2.0, "error": pytest.approx(1.0)}
    assert mean([2.0]) == {"mean": 2.0, "error": None}
    assert mean([np.nan]) == {"mean": None, "error": None}


def test_a_row_has_the_figures_of_every_estimator_and_the_price_of_bursty():
    setting = Setting(SHAPES[0], "gamma", 3)
    rng = np.random.default_rng(9)
    corpora = [outcomes(setting, 60, rng) for _ in range(2)]
    figures = row(setting, corpora)
    assert list(figures["intervals"]) == [*ESTIMATORS, KNOWN]
    held = [corpus["bursty"].coverage[20] for corpus in corpora]
    assert figures["intervals"]["bursty"][20]["coverage"]["mean"] == pytest.approx(np.mean(held))
    price = [corpus["bursty"].log_loss / corpus["gamma"].log_loss - 1 for corpus in corpora]
    assert figures["excess_log_loss_of_bursty"]["mean"] == pytest.approx(np.mean(price))
