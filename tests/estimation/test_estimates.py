"""Pages whose pings may be true, false or missing: what is learnt of them, and what follows."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from support.store_cases import T0, crawl_columns, ping_columns, read_schedule, register, states_of

from recrawl_lab.memory.store import MemoryStore
from service.core.estimators import ESTIMATORS, make_estimator
from service.core.estimators.gamma import Gamma
from service.epochs.plan import Plan
from service.epochs.run import run_epoch
from service.estimation.estimates import HISTORY_BLOCK, estimate_rates, rates_from_log, width
from service.estimation.page_estimate import of_page
from service.estimation.rules import Rules, rules_in_force
from service.ingest.record import ping, record
from service.model.arrays import instant
from service.model.domain import Observability, PingReason, Timing

DAY = timedelta(days=1)


class Play:
    """A page of a host that changes and announces as told, crawled as the service says."""

    def __init__(self, *, n_pages: int, seed: int, bandwidth: float) -> None:
        self.store = MemoryStore(2)
        self.rng = np.random.default_rng(seed)
        self.rules = Rules(Gamma(half_life_days=365.0), Timing.periodic, self.rng)
        self.plan = Plan(Gamma(half_life_days=365.0), bandwidth=bandwidth)
        self.ids = np.sort(register(self.store, n_pages, observability=int(Observability.auto)))
        self.changed = np.zeros(n_pages, np.bool_)
        self.n_crawls = 0
        self.crawl(self.ids, T0)

    def crawl(self, ids, at) -> None:
        row = np.searchsorted(self.ids, ids)
        with self.store.begin() as tx:
            crawls = crawl_columns(ids, [at] * len(ids), changed=self.changed[row].astype(int))
            record(tx, crawls, rules_in_force(tx, self.rules))
        self.changed[row] = False
        self.n_crawls += len(ids)

    def run(self, days: int, *, change_rate: float, recall: float, false_rate: float) -> None:
        """Days in hours: changes, pings, the crawls they lead to, and the crawls that are due."""
        for day in range(days):
            at = T0 + (day + 1) * DAY
            run_epoch(self.store, self.plan, lambda at=at: at)
            for hour in range(24):
                self.hour(at + timedelta(hours=hour, minutes=1), change_rate, recall, false_rate)

    def hour(self, at, change_rate, recall, false_rate) -> None:
        new = self.rng.random(len(self.ids)) < change_rate / 24
        self.changed |= new
        pinged = new & (self.rng.random(len(self.ids)) < recall)
        pinged |= self.rng.random(len(self.ids)) < false_rate / 24
        if pinged.any():
            with self.store.begin() as tx:
                given = ping_columns(self.ids[pinged], [at] * int(pinged.sum()))
                answered = ping(tx, given, rules_in_force(tx, self.rules))
            asked = self.ids[pinged][answered.crawl]
            if len(asked):
                self.crawl(asked, at + timedelta(minutes=1))
        states = states_of(self.store, self.ids)
        with np.errstate(divide="ignore"):
            due_in = states.interval_factor / states.crawl_rate
        age = (instant(at) - states.last_crawl_at) / np.timedelta64(1, "D")
        due = self.ids[age >= due_in]
        if len(due):
            self.crawl(due, at + timedelta(minutes=2))

    def known(self, at):
        with self.store.begin(write=False) as tx:
            pages = tx.load_columns()
            estimator = rules_in_force(tx, self.rules).estimator
        return pages, estimate_rates(pages, estimator, instant(at))

    def schedule(self):
        with self.store.begin(write=False) as tx:
            epoch = tx.epoch_in_force()
        return epoch, read_schedule(self.store, epoch.epoch, limit=10_000)


@pytest.mark.dear
def test_pages_that_are_never_pinged_are_incomplete_ones():
    auto = Play(n_pages=20, seed=1, bandwidth=4.0)
    auto.run(10, change_rate=0.3, recall=0.0, false_rate=0.0)
    pages, found = auto.known(T0 + 11 * DAY)
    with auto.store.begin(write=False) as tx:
        estimator = rules_in_force(tx, auto.rules).estimator
    incomplete = replace(pages, observability=np.zeros(20, np.int16))
    same = estimate_rates(incomplete, estimator, instant(T0 + 11 * DAY))
    for ours, theirs in zip(found, same, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not found.ping_rate.any()


@pytest.mark.dear
def test_true_pings_come_to_be_believed_and_save_crawls():
    play = Play(n_pages=30, seed=2, bandwidth=15.0)
    play.run(60, change_rate=0.2, recall=1.0, false_rate=0.0)
    _, found = play.known(T0 + 61 * DAY)
    assert np.median(found.precision) > 0.85
    assert np.median(found.recall) > 0.8
    _, rows = play.schedule()
    assert np.mean([row.crawl_probability for row in rows]) > 0.9
    assert sum(row.crawl_rate for row in rows) < 15.0 * 0.8


@pytest.mark.dear
def test_lying_pings_lose_their_influence_within_twenty_crawls_of_a_page():
    play = Play(n_pages=30, seed=3, bandwidth=15.0)
    play.run(40, change_rate=0.02, recall=0.0, false_rate=1.0)
    _, found = play.known(T0 + 41 * DAY)
    assert np.mean(found.ping_rate > 0) < 0.2, "of hardly a page do pings count"
    assert np.median(found.change_rate) < 0.1
    assert play.n_crawls / 30 < 25
    _, rows = play.schedule()
    by_pings = sum(row.crawl_probability * 1.0 for row in rows)
    assert by_pings < 0.2 * 15.0


@pytest.mark.slow
def test_pings_that_miss_changes_leave_the_clock_its_crawls():
    play = Play(n_pages=90, seed=4, bandwidth=36.0)
    play.run(60, change_rate=0.4, recall=0.3, false_rate=0.0)
    _, found = play.known(T0 + 61 * DAY)
    assert 0.1 < np.median(found.recall) < 0.65
    assert abs(np.median(found.change_rate) - 0.4) < 0.15
    epoch, rows = play.schedule()
    assert sum(row.crawl_rate for row in rows) > 12.0
    assert epoch.certificate.bandwidth_used <= 36.0 * (1 + 1e-9)


@pytest.mark.dear
def test_audits_are_paid_from_the_bandwidth():
    play = Play(n_pages=30, seed=5, bandwidth=3.0)
    play.run(30, change_rate=0.5, recall=1.0, false_rate=0.0)
    epoch, rows = play.schedule()
    assert all(row.crawl_rate > 0 for row in rows if row.crawl_probability > 0)
    pages, found = play.known(T0 + 30 * DAY)
    spent = sum(row.crawl_rate for row in rows) + sum(
        row.crawl_probability * rate for row, rate in zip(rows, found.ping_rate, strict=True)
    )
    assert spent == pytest.approx(3.0, rel=0.1)
    assert epoch.certificate.bandwidth_used == pytest.approx(3.0, rel=1e-9)
    assert len(pages) == 30


@pytest.mark.dear
def test_a_feed_that_falls_silent_is_no_longer_waited_for():
    play = Play(n_pages=10, seed=6, bandwidth=5.0)
    play.run(30, change_rate=0.3, recall=1.0, false_rate=0.0)
    _, alive = play.known(T0 + 30 * DAY)
    _, silent = play.known(T0 + 40 * DAY)
    assert (alive.ping_rate > 0).sum() >= 8
    assert not silent.ping_rate.any(), "10 pages x 0.3 pings x 10 days expected, none came"
    assert not silent.recall.any()


def test_pings_are_counted_and_believed_once_a_crawl_without_one_has_found_nothing():
    play = Play(n_pages=3, seed=7, bandwidth=1.0)
    run_epoch(play.store, play.plan, lambda: T0 + DAY)
    with play.store.begin() as tx:
        given = ping_columns(play.ids[:2], [T0 + DAY] * 2)
        answered = ping(tx, given, rules_in_force(tx, play.rules))
    assert set(answered.reason) == {PingReason.not_trusted}
    assert not answered.crawl.any()
    play.changed[:] = [True, True, False]
    play.crawl(play.ids[:2], T0 + DAY)
    run_epoch(play.store, play.plan, lambda: T0 + 2 * DAY)
    assert not any(row.crawl_probability for row in play.schedule()[1])
    play.crawl(play.ids[:1], T0 + 3 * DAY)
    run_epoch(play.store, play.plan, lambda: T0 + 3 * DAY)
    believed, doubted, never_pinged = (row.crawl_probability for row in play.schedule()[1])
    assert believed > 0
    assert (doubted, never_pinged) == (0, 0)


def test_a_ping_told_before_an_earlier_crawl_belongs_to_the_next_interval():
    play = Play(n_pages=1, seed=8, bandwidth=1.0)
    with play.store.begin() as tx:
        ping(tx, ping_columns(play.ids, [T0 + 3 * DAY]), play.rules)
        record(tx, crawl_columns(play.ids, [T0 + 2 * DAY], changed=0), play.rules)
    states = states_of(play.store, play.ids)
    assert (states.pings_since_crawl[0], states.false_pings[0]) == (1, 0.0)
    with play.store.begin() as tx:
        record(tx, crawl_columns(play.ids, [T0 + 4 * DAY], changed=0), play.rules)
    states = states_of(play.store, play.ids)
    assert (states.pings_since_crawl[0], states.false_pings[0]) == (0, 1.0)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_estimator_learns_publishes_and_is_shown(name):
    estimator = make_estimator(name, half_life_days=365.0)
    store = MemoryStore(width(estimator))
    timing = Timing.periodic if estimator.periodic_timing_ok else Timing.poisson
    rules = Rules(estimator, timing, np.random.default_rng(1))
    plan = Plan(estimator, timing=timing)
    ids = np.sort(register(store, 6, observability=0))
    for day in range(8):
        at = T0 + day * DAY
        run_epoch(store, plan, lambda at=at: at)
        with store.begin() as tx:
            changed = ([0, 0, 0, 1, 1, 1] if day % 2 else [0, 0, 1, 0, 1, 1])[: len(ids)]
            record(tx, crawl_columns(ids, [at] * 6, changed=np.array(changed)), rules)
    now = instant(T0 + 9 * DAY)
    assert run_epoch(store, plan, lambda: T0 + 9 * DAY).certificate is not None
    with store.begin(write=False) as tx:
        pages = tx.load_columns()
        rules = rules_in_force(tx, rules)
        from_log = rates_from_log(tx, ids, estimator) if estimator.needs_history else None
        rates = estimate_rates(pages, rules.estimator, now, from_log).change_rate
        shown = [of_page(tx, tx.page(int(i)), rules.estimator, now) for i in ids]
    assert (rates > 0).all()
    assert rates[:2].max() < rates[4:].min(), "pages that change more often have a higher rate"
    np.testing.assert_allclose([page.change_rate for page in shown], rates, rtol=1e-12)
    assert all(page.estimator == name for page in shown)
    assert (shown[2].interval is not None) == (name not in {"mm", "lln", "sa", "sam", "naive"})
    for page in shown:
        if page.interval is not None:
            assert page.interval[0] < page.change_rate < page.interval[1]


def test_rates_from_the_log_do_not_depend_on_the_block(monkeypatch):
    estimator = make_estimator("mle")
    store = MemoryStore(width(estimator))
    rng = np.random.default_rng(3)
    ids = np.sort(register(store, 25, observability=0))
    rules = Rules(estimator, Timing.periodic, rng)
    for day in range(12):
        some = np.sort(rng.choice(ids, 15, replace=False))
        with store.begin() as tx:
            changed = rng.integers(0, 2, 15)
            record(tx, crawl_columns(some, [T0 + day * DAY] * 15, changed=changed), rules)
    with store.begin(write=False) as tx:
        whole = rates_from_log(tx, ids, estimator)
        monkeypatch.setattr("service.estimation.estimates.HISTORY_BLOCK", 4)
        np.testing.assert_allclose(rates_from_log(tx, ids, estimator), whole, rtol=1e-12)
    assert HISTORY_BLOCK > 25
    assert np.unique(whole).size > 5


@pytest.mark.parametrize("low", [5e-324, 1e-41, 1e-10])
def test_a_minimum_too_small_to_matter_fails_no_epoch(low):
    play = Play(n_pages=2, seed=9, bandwidth=6.0)
    register(play.store, 1, min_crawl_rate=low)
    assert run_epoch(play.store, play.plan, lambda: T0 + DAY).reason is None


def test_bounds_of_pages_hold_in_the_schedule():
    play = Play(n_pages=3, seed=9, bandwidth=6.0)
    register(play.store, 1, min_crawl_rate=3.0)
    register(play.store, 2, max_crawl_rate=0.25)
    plan = replace(play.plan, first_share=0.0)  # the pages are new, and more are not expected
    epoch = run_epoch(play.store, plan, lambda: T0 + DAY)
    _, rows = play.schedule()
    assert epoch.certificate.bandwidth_used == pytest.approx(6.0)
    assert rows[0].crawl_rate >= 0.25 - 1e-12
    assert rows[1].crawl_rate == pytest.approx(0.25)
    assert rows[2].crawl_rate == pytest.approx(6.0 - rows[0].crawl_rate - 0.25)
