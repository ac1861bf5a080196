"""K19 again: costs are the golden ones, learning is exact in time, claims follow the numbers."""

import json

import numpy as np
import pytest

from recrawl_lab.experiments import k19_corpus, k19_known, k19_learned, k19_learning
from recrawl_lab.experiments.base import Setup, ignore_progress
from recrawl_lab.experiments.k19_corpus import EQUATION_10, Corpus, cost
from recrawl_lab.experiments.k19_learning import CrawlDay, Likeliest, Policy, Posterior, learned
from service.core.allocation import ALLOCATORS
from service.core.allocation.harmonic import allocate_harmonic
from service.core.estimators.gamma import Gamma
from service.model.errors import UnreadableFile

SMALL = Setup(scale=0.05)


def golden_set(n=1000):
    """The set that the optimum was computed for independently (K19's shape, seeded)."""
    rng = np.random.default_rng(20190619)
    importance = np.exp(rng.normal(np.log(10), 1.5, n))
    change_rate = np.exp(rng.normal(np.log(0.3), 1.2, n))
    complete = np.zeros(n, bool)
    complete[rng.choice(n, n // 25, replace=False)] = True
    return Corpus(importance, change_rate, complete)


# -- known change rates


def test_costs_of_the_golden_set_are_the_golden_ones():
    pages = golden_set()
    found = cost(pages, ALLOCATORS["harmonic"](*pages, pages.bandwidth))
    assert found == pytest.approx((20.464670689440187, 12.466805628779392), rel=1e-9)


def test_the_made_up_pages_have_the_published_shape():
    pages = k19_corpus.made_up(np.random.default_rng(1), 20_000)
    assert pages.complete.mean() == pytest.approx(0.04)
    assert (pages.importance < 1000).mean() > 0.99
    assert 1 < np.median(1 / pages.change_rate) < 7
    assert pages.bandwidth == pytest.approx(4000)


def test_lc_beats_blc_in_binary_cost_where_complete_pages_matter_more():
    rng = np.random.default_rng(1)
    pages = k19_corpus.made_up(rng, 5_000)
    pages = pages._replace(importance=np.where(pages.complete, 10.0, 1.0) * pages.importance)
    lc, blc = (
        cost(pages, ALLOCATORS[name](*pages, pages.bandwidth)) for name in ("harmonic", "binary")
    )
    assert lc.binary < blc.binary


def test_an_infinite_cost_is_a_word_in_the_table():
    result = k19_known.known_rates(Setup(scale=0.01))
    (row,) = (row for row in result.tables[0].rows if row[0] == "BLC")
    assert row[1] == "infinite"
    assert row[3] > 0.1


# -- learning


@pytest.mark.parametrize("on_time", [False, True])
def test_pages_are_crawled_at_their_rates_and_intervals_end_where_days_do(on_time):
    rng = np.random.default_rng(1)
    rates = np.array([0.0, 0.25, 2.0, 5.0])
    n_pages, n_days = 2_000, 8
    clock = k19_learning._Clock(4 * n_pages, on_time=on_time)
    n_crawls = np.zeros(4 * n_pages)
    lived = np.zeros(4 * n_pages)
    for day in range(n_days):
        page, interval = clock.play(np.tile(rates, n_pages), day, rng)
        assert (np.diff(page) >= 0).all()
        n_crawls += np.bincount(page, minlength=4 * n_pages)
        lived += np.bincount(page, interval, minlength=4 * n_pages)
    per_day = n_crawls.reshape(n_pages, 4) / n_days
    assert per_day.mean(axis=0) == pytest.approx(rates, rel=0.03)
    assert lived == pytest.approx(clock.last)
    assert clock.last.max() <= n_days
    deviation = per_day.std(axis=0)[1:] * np.sqrt(n_days / rates[1:])
    assert (deviation < 0.5).all() if on_time else deviation == pytest.approx(1.0, rel=0.1)


def test_on_time_a_page_is_crawled_each_interval_from_its_last_crawl_on():
    clock = k19_learning._Clock(2, on_time=True)
    rng = np.random.default_rng(1)
    page, interval = clock.play(np.array([4.0, 0.5]), 0, rng)
    assert page.tolist() == [0, 0, 0, 0]
    assert interval[1:] == pytest.approx(0.25)
    assert clock.last.tolist() == [0.75, 0.0]
    page, interval = clock.play(np.array([1.0, 0.5]), 1, rng)
    assert page.tolist() == [0, 1]
    assert interval == pytest.approx([1.0, 0.6180339887 / 0.5])


def some_days(n_pages, n_days, seed=1):
    rng = np.random.default_rng(seed)
    for _ in range(n_days):
        page = np.sort(rng.integers(n_pages, size=n_pages))
        yield CrawlDay(page, rng.exponential(2.0, n_pages), rng.random(n_pages) < 0.5)


def test_equation_10_is_solved_for_each_page_over_all_of_its_crawls():
    days = list(some_days(6, 4))
    learner = Likeliest(7)
    for day in days:
        learner.learn(day)
    for page in range(6):
        mine = [day.pick(day.page == page) for day in days]
        interval = np.concatenate([part.interval for part in mine])
        changed = np.concatenate([part.changed for part in mine])
        rate = learner.change_rate[page]
        slope = np.sum(interval[changed] / np.expm1(rate * interval[changed]))
        quiet = interval[~changed].sum() + 0.5
        assert slope + 0.5 / np.expm1(0.5 * rate) == pytest.approx(quiet)
    assert learner.change_rate[6] == k19_learning.START


def test_posteriors_take_a_page_s_crawls_of_a_day_in_their_order():
    (day,) = some_days(5, 1)
    learner = Posterior(5)
    learner.learn(day)
    for page in range(5):
        state = Gamma().init()
        for interval, changed in zip(*day.pick(day.page == page)[1:], strict=True):
            state = Gamma().update(state, interval, changed)
        assert [column[page] for column in learner._state] == pytest.approx(list(state))


def test_a_day_without_crawls_teaches_nothing():
    nothing = CrawlDay(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, bool))
    for learner in (Likeliest(3), Posterior(3)):
        before = learner.change_rate.copy()
        learner.learn(nothing)
        assert learner.change_rate == pytest.approx(before)


def test_who_does_not_know_of_complete_observations_crawls_those_pages_on_the_clock():
    pages = k19_corpus.made_up(np.random.default_rng(1), 400)
    for knows in (True, False):
        policy = Policy("LLC", allocate_harmonic, knows_complete=knows)
        (day,) = learned(policy, pages, 1, np.random.default_rng(2))
        assert (day.allocation.crawl_rate[pages.complete] > 0).any() == (not knows)
        assert (day.allocation.crawl_probability > 0).any() == knows


@pytest.mark.parametrize("policy", k19_learned.POLICIES, ids=lambda policy: policy.name)
def test_what_is_learned_approaches_what_is_known(policy):
    pages = k19_corpus.made_up(np.random.default_rng(1), 4_000)
    known = policy.allocate(*pages[:2], pages.complete & policy.knows_complete, pages.bandwidth)
    least = cost(pages, known).harmonic
    first, *_, last = (
        cost(pages, day.allocation).harmonic / least - 1
        for day in learned(policy, pages, 21, np.random.default_rng(2))
    )
    assert last < first
    assert last < 0.08


# -- the data set


def polite(folder, rows):
    """Write (url_id, importance, rate or None, history) in the layout of PoliteCrawling."""
    for name, line in (
        ("urlid_imp", lambda i, importance, rate, history: f"{i}\t{importance}"),
        (
            "urlid_offset_history",
            lambda i, importance, rate, history: f"{i}\t0.5\t{json.dumps(history)}",
        ),
    ):
        (folder / f"{name}.txt").write_text("".join(line(*row) + "\n" for row in rows))
    announced = "".join(f"{i}\t{rate}\n" for i, _, rate, _ in rows if rate is not None)
    (folder / "urlid_chrate_compl_obs_hist.txt").write_text(announced)
    return folder


def test_the_data_set_gives_rates_announced_and_by_equation_10(tmp_path):
    folder = polite(
        tmp_path,
        [
            (7, 50, None, [[1.0, 1], [1.0, 0], [2.0, 1]]),
            (3, 20, 0.4, [[1.0, 1]]),
            (9, 0, None, [[1.0, 1]]),
            (5, 10, None, []),
        ],
    )
    pages = k19_corpus.read_pages(folder, ignore_progress)
    assert pages.importance.tolist() == [20, 50]
    assert pages.complete.tolist() == [True, False]
    history = EQUATION_10.init(1)
    for interval, changed in ((1.0, True), (1.0, False), (2.0, True)):
        history = EQUATION_10.update(history, [interval], [changed])
    assert pages.change_rate == pytest.approx([0.4, EQUATION_10.change_rate(history)[0]])


@pytest.mark.dear
def test_all_three_experiments_take_the_data_set(tmp_path):
    rng = np.random.default_rng(1)
    rows = [
        (
            i,
            int(rng.integers(1, 500)),
            0.3 if i % 10 == 0 else None,
            [[1.0, int(rng.random() < 0.3)] for _ in range(20)],
        )
        for i in range(100)
    ]
    setup = Setup(scale=0.002, data=polite(tmp_path, rows))
    assert "100 pages" in k19_known.known_rates(setup).title
    assert "10 pages" in k19_known.complete_only(setup).title
    assert k19_learned.learning(setup).notes == (k19_learned.OVERSPENT,)


def test_a_data_set_without_a_usable_page_is_refused(tmp_path):
    folder = polite(tmp_path, [(9, 0, None, [[1.0, 1]])])
    with pytest.raises(UnreadableFile, match="no page has an importance and a change rate"):
        k19_corpus.read_pages(folder, ignore_progress)
