"""Epochs: what they publish and certify, how they fail, and when they are due."""

from dataclasses import fields, replace
from datetime import timedelta

import numpy as np
import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs
from support.epoch_cases import corpus_prior, watched
from support.store_cases import (
    DAY,
    T0,
    crawl_columns,
    log_columns,
    page_columns,
    page_of,
    read_schedule,
    register,
    same,
    save,
    states_of,
)

from recrawl_lab.memory.store import MemoryStore
from service.core.allocation import ALLOCATORS
from service.core.allocation.harmonic import allocate_harmonic, harmonic_optimum
from service.core.common_values import alone
from service.core.costs import costs
from service.core.estimators.base import PriorEstimator
from service.core.estimators.gamma import CompleteObservations, Gamma
from service.core.estimators.lln import LLN
from service.core.estimators.lognormal import LogNormal
from service.core.prior import DEFAULT_PRIOR, fit_gamma_prior
from service.epochs.part import refit
from service.epochs.plan import Plan
from service.epochs.run import run_epoch
from service.estimation.estimates import estimate_rates
from service.estimation.page_estimate import of_page
from service.estimation.rules import Rules, rules_in_force
from service.ingest.record import record
from service.model.arrays import instant
from service.model.domain import EpochStatus, Kind, Observability, PagePatch, Timing
from service.model.errors import EpochRunning, StoreUnavailable

HOUR = timedelta(hours=1)
PLAN = Plan(Gamma())


def test_an_epoch_allocates_the_whole_bandwidth_to_the_pages(store, clock):
    ids = watched(store)
    clock.at = T0 + 30 * DAY
    epoch = run_epoch(store, replace(PLAN, bandwidth=7.5), clock)
    assert epoch.status is EpochStatus.published
    rows = read_schedule(store, epoch.epoch)
    assert [row.page_id for row in rows] == ids.tolist()
    with store.begin(write=False) as tx:
        pages = tx.load_columns()
    estimator = alone(refit(Gamma(), pages))
    change_rate = estimate_rates(pages, estimator, instant(clock.at)).change_rate
    complete = pages.observability == Observability.complete
    optimum = allocate_harmonic(pages.importance, change_rate, complete, 7.5)
    assert complete.sum() == 10
    np.testing.assert_allclose([r.change_rate for r in rows], change_rate, rtol=1e-6)
    np.testing.assert_allclose([r.crawl_rate for r in rows], optimum.crawl_rate, rtol=5e-7)
    chances = [r.crawl_probability for r in rows]
    np.testing.assert_allclose(chances, optimum.crawl_probability, rtol=1e-12)
    crawls = [r.crawl_rate for r in rows] + np.array(chances) * change_rate
    assert crawls.sum() == pytest.approx(7.5, rel=5e-7)


def test_an_epoch_that_the_database_fails_tells_what_that_said(memory, clock, monkeypatch):
    """What it said, not what it was asked: reasons are shown to whoever reads epochs."""

    def fail(*_):
        said = RuntimeError("canceling statement due to statement timeout")
        asked = sa.exc.OperationalError("SELECT secret FROM x", {"key": "hunter2"}, said)
        raise StoreUnavailable from asked

    monkeypatch.setattr("service.epochs.run._load_solve_publish", fail)
    reason = run_epoch(memory, PLAN, clock).reason
    assert reason == "the database failed: canceling statement due to statement timeout"


@pytest.mark.parametrize("objective", [name for name in ALLOCATORS if name != "binary_floor"])
def test_pages_that_are_gone_cost_no_bandwidth(store, clock, objective):
    ids = watched(store)
    gone = ids[[0, 3, 30, 59]]
    save(store, gone, gone=True)
    with store.begin() as tx:
        tx.change_page(int(gone[0]), PagePatch(min_crawl_rate=0.5), T0)
    clock.at = T0 + 30 * DAY
    epoch = run_epoch(store, replace(PLAN, bandwidth=7.5, objective=objective), clock)
    rows = {row.page_id: row for row in read_schedule(store, epoch.epoch)}
    assert [rows[page_id].crawl_rate for page_id in gone.tolist()] == [0, 0, 0, 0]
    assert [rows[page_id].crawl_probability for page_id in gone.tolist()] == [0, 0, 0, 0]
    assert rows.keys() == set(ids.tolist())
    assert epoch.certificate.bandwidth_used == pytest.approx(7.5)
    assert np.isfinite(epoch.certificate.harmonic_cost) == (objective != "binary")
    assert page_of(store, gone[0]).importance > 0


@pytest.mark.parametrize("objective", ALLOCATORS)
def test_only_an_optimum_is_certified_as_one(store, clock, objective):
    watched(store)
    clock.at = T0 + 30 * DAY
    plan = replace(PLAN, bandwidth=7.5, timing=Timing.poisson)
    best = run_epoch(store, plan, clock).certificate
    epoch = run_epoch(store, replace(plan, objective=objective), clock).certificate
    if objective in {"harmonic", "binary", "binary_floor"}:
        assert epoch.kkt_residual < 1e-9
        assert epoch.duality_gap < 1e-9
    else:
        assert 0.1 < epoch.kkt_residual <= 1
        above = epoch.harmonic_cost - best.harmonic_cost
        assert epoch.duality_gap == pytest.approx(above, rel=1e-4)  # priors are refitted
        assert above > 1


def test_an_epoch_of_pages_that_are_all_gone_spends_nothing(memory, clock):
    save(memory, register(memory, 3), gone=True)
    certificate = run_epoch(memory, PLAN, clock).certificate
    assert (certificate.bandwidth_used, certificate.harmonic_cost) == (0, 0)


def test_the_certificate_can_be_checked_from_what_is_published(store, clock):
    watched(store)
    clock.at = T0 + 30 * DAY
    with capture_logs() as logs:
        epoch = run_epoch(store, replace(PLAN, bandwidth=7.5), clock)
    certificate = epoch.certificate
    rows = read_schedule(store, epoch.epoch)
    complete = [page_of(store, row.page_id).observability == 1 for row in rows]
    priced = (
        [row.importance for row in rows],
        [row.change_rate for row in rows],
        [row.crawl_rate for row in rows],
        [row.crawl_probability for row in rows],
        np.array(complete),
    )
    assert certificate.bandwidth == 7.5
    assert certificate.bandwidth_used == pytest.approx(7.5, rel=1e-12)
    assert certificate.harmonic_cost == pytest.approx(
        costs(*priced, timing="periodic").harmonic.sum()
    )
    assert certificate.binary_cost == pytest.approx(costs(*priced, timing="periodic").binary.sum())
    assert certificate.kkt_residual < 1e-9
    assert certificate.n_pages == len(rows) == 60
    rates = sorted(row.crawl_rate for row in rows)
    quantiles = certificate.crawl_rate_quantiles
    assert len(quantiles) == 101
    assert quantiles[::50] == pytest.approx([rates[0], np.median(rates), rates[-1]])
    assert list(quantiles) == sorted(quantiles)
    assert set(certificate.seconds) == {"load", "estimate", "allocate", "publish"}
    assert all(seconds >= 0 for seconds in certificate.seconds.values())
    begin, *rest = logs
    assert (begin["event"], begin["epoch"]) == ("this process leads: epoch started", epoch.epoch)
    stages = [(e["event"], e["epoch"], e["n_pages"]) for e in rest]
    told = ("epoch loaded", "epoch allocated", "epoch published")
    assert stages == [(event, epoch.epoch, 60) for event in told]
    assert (epoch.started_at, epoch.finished_at, epoch.reason) == (clock.at, clock.at, None)
    with store.begin(write=False) as tx:
        assert tx.epoch_in_force() == epoch


def test_costs_are_those_of_the_timing_in_use(memory, clock):
    watched(memory)
    periodic = run_epoch(memory, PLAN, clock).certificate
    poisson = run_epoch(memory, replace(PLAN, timing=Timing.poisson), clock).certificate
    assert poisson.bandwidth_used == pytest.approx(periodic.bandwidth_used)
    assert poisson.harmonic_cost > periodic.harmonic_cost


def test_without_a_bandwidth_each_page_is_given_a_fifth_of_a_crawl_a_day(memory, clock):
    watched(memory, 50)
    assert run_epoch(memory, PLAN, clock).certificate.bandwidth == pytest.approx(10.0)


def test_the_prior_is_fitted_to_the_pages_that_are_not_complete(memory, clock):
    ids = watched(memory)
    certificate = run_epoch(memory, PLAN, clock).certificate
    estimate = states_of(memory, ids[10:]).estimate
    expected = fit_gamma_prior(estimate[:, 0], estimate[:, 1])
    assert corpus_prior(certificate) == expected
    assert expected != DEFAULT_PRIOR


def test_a_page_nobody_has_crawled_is_believed_to_be_like_its_siblings(memory, clock):
    fast = [f"https://a.example/news/{i}" for i in range(30)]
    slow = [f"https://a.example/about/{i}" for i in range(30)]
    with memory.begin() as tx:
        ids = tx.register(page_columns([*fast, *slow]), T0).page_id
    seen = np.sort(np.append(ids[1:30], ids[31:]))
    changes = np.where(np.isin(seen, ids[:30]), 20.0, 1.0)
    save(memory, seen, estimate=np.column_stack([changes, np.full(58, 50.0)]))
    epoch = run_epoch(memory, PLAN, clock)
    assert epoch.certificate.prior["between_shape"] < 5
    rate = {row.page_id: row.change_rate for row in read_schedule(memory, epoch.epoch)}
    assert rate[ids[0]] == pytest.approx(0.4, rel=0.2)
    assert rate[ids[30]] == pytest.approx(0.02, rel=0.5)
    with memory.begin(write=False) as tx:
        by = rules_in_force(tx, Rules(Gamma(), Timing.periodic, np.random.default_rng(0)))
        told = of_page(tx, tx.page(int(ids[0])), by.estimator, instant(T0))
    assert told.change_rate == pytest.approx(rate[ids[0]], rel=1e-12)
    assert told.url_group_change_rate == pytest.approx(told.change_rate, rel=1e-6)
    assert told.interval[0] < 0.4 < told.interval[1]


def test_the_fitted_prior_is_the_one_that_ingest_learns_on(memory, clock):
    ids = watched(memory)
    fitted = corpus_prior(run_epoch(memory, PLAN, clock).certificate)
    gamma = Gamma(half_life_days=365.0)
    with memory.begin() as tx:
        by = rules_in_force(tx, Rules(gamma, Timing.periodic, np.random.default_rng(0)))
        before = tx.lock_states(ids[-1:])
        record(tx, crawl_columns(ids[-1:], T0, digest=1), by)
        record(tx, crawl_columns(ids[-1:], T0 + DAY, digest=2), by)
        after = tx.lock_states(ids[-1:])
    expected = Gamma(fitted, 365.0).update(Gamma.State(*before.estimate.T), 1.0, changed=True)
    np.testing.assert_allclose(after.estimate, np.column_stack(expected), rtol=1e-13)
    other = gamma.update(Gamma.State(*before.estimate.T), 1.0, changed=True)
    assert not np.allclose(after.estimate, np.column_stack(other), rtol=1e-6)


def test_a_lognormal_prior_is_fitted_recorded_and_learnt_on(memory, clock):
    lognormal = LogNormal(half_life_days=365.0)
    rules = Rules(lognormal, Timing.periodic, np.random.default_rng(0))
    ids = np.sort(register(memory, 40, observability=0))
    for day in range(6):
        with memory.begin() as tx:
            record(tx, crawl_columns(ids, T0 + day * DAY, changed=(ids + day) % 2), rules)
    estimate = states_of(memory, ids).estimate
    expected = fit_gamma_prior(*lognormal.evidence(LogNormal.State(*estimate.T)))
    certificate = run_epoch(memory, Plan(lognormal), clock).certificate
    assert corpus_prior(certificate) == expected
    assert expected.mean > 2 * DEFAULT_PRIOR.mean
    with memory.begin(write=False) as tx:
        in_force = rules_in_force(tx, rules).estimator
    assert (in_force.prior.a, in_force.prior.b) == (expected.a, expected.b)
    again = run_epoch(memory, Plan(lognormal), clock).certificate
    same = pytest.approx(certificate.prior, rel=1e-3)
    assert again.prior == same, "the same evidence gives the same prior"


def test_the_next_refit_starts_from_the_prior_of_the_last(memory, clock, monkeypatch):
    watched(memory, 500)
    starts = []

    fit = PriorEstimator.fitted

    def spy(estimator, state, url_group, n_url_groups, last):
        starts.append(last)
        return fit(estimator, state, url_group, n_url_groups, last)

    monkeypatch.setattr(PriorEstimator, "fitted", spy)
    first = run_epoch(memory, PLAN, clock)
    second = run_epoch(memory, PLAN, clock)
    assert starts[0] == PLAN.estimator
    assert starts[1].corpus() == first.certificate.prior
    with memory.begin(write=False) as tx:
        published = tx.url_group_rate(first.epoch)
    np.testing.assert_array_equal(starts[1].url_group_rate, published)
    assert second.certificate.prior == pytest.approx(first.certificate.prior, rel=1e-3)


def test_the_next_epoch_starts_from_the_multiplier_of_the_last(memory, clock, monkeypatch):
    watched(memory, 500)
    starts = []

    def spy(*pages, start=None, **bounds):
        starts.append(start)
        return harmonic_optimum(*pages, start=start, **bounds)

    monkeypatch.setattr("service.epochs.optimum.harmonic_optimum", spy)
    first = run_epoch(memory, PLAN, clock).certificate
    second = run_epoch(memory, PLAN, clock).certificate
    assert starts == [None, first.multiplier]
    assert second.passes < first.passes
    assert second.multiplier == pytest.approx(first.multiplier, rel=1e-4)


@pytest.mark.parametrize("multiplier", [0.0, np.inf, 1e-300, 1e300])
def test_any_multiplier_of_the_last_epoch_is_a_start(memory, clock, multiplier):
    watched(memory)
    expected = run_epoch(memory, PLAN, clock)
    with memory.begin() as tx:
        tx._put_epoch(
            replace(expected, certificate=replace(expected.certificate, multiplier=multiplier))
        )
    found = run_epoch(memory, PLAN, clock).certificate
    assert found.multiplier == pytest.approx(expected.certificate.multiplier, rel=1e-4)
    assert found.kkt_residual < 1e-9


def test_an_epoch_without_pages_publishes_an_empty_schedule(store, clock):
    epoch = run_epoch(store, PLAN, clock)
    assert epoch.status is EpochStatus.published
    assert (epoch.certificate.n_pages, epoch.certificate.crawl_rate_quantiles) == (0, ())
    assert read_schedule(store, epoch.epoch) == []
    register(store, 3)
    assert run_epoch(store, PLAN, clock).certificate.bandwidth_used == pytest.approx(0.6)


def test_change_rates_of_complete_pages_are_their_pings_a_day(memory):
    ids = register(memory, 3, observability=[1, 1, 0])
    save(memory, ids, n_pings=[9, 0, 9], estimate=[[3.0, 5.0]])
    with memory.begin() as tx:
        pages = tx.load_columns()
    found = estimate_rates(pages, Gamma(), instant(T0 + 10 * DAY)).change_rate
    counted = CompleteObservations()
    expected = counted.change_rate(counted.State(np.array([9.0, 0.0]), 10.0))
    np.testing.assert_allclose(found[:2], expected)
    np.testing.assert_allclose(found[2], 3.5 / 20.0)


def test_a_clock_behind_the_registration_does_no_harm(memory):
    register(memory, 2, observability=1)
    with memory.begin() as tx:
        found = estimate_rates(tx.load_columns(), Gamma(), instant(T0 - DAY)).change_rate
    assert np.isfinite(found).all()
    assert (found > 0).all()


def test_a_page_that_was_never_seen_to_change_is_not_starved(clock):
    memory = MemoryStore(3)
    ids = np.sort(register(memory, 3))
    save(memory, ids, estimate=[[9.0, 9.0, 0.0], [9.0, 3.0, 12.0], [0.0, 0.0, 0.0]])
    epoch = run_epoch(memory, Plan(LLN(), timing=Timing.poisson), clock)
    rows = read_schedule(memory, epoch.epoch)
    assert [row.change_rate for row in rows] == pytest.approx([DEFAULT_PRIOR.mean, 3.0, 1 / 30])
    assert all(row.crawl_rate > 0 for row in rows)
    assert epoch.certificate.prior == {}


def test_bounds_of_pages_are_kept(store, clock):
    nan = np.nan
    ids = register(
        store, 4, min_crawl_rate=[0.5, nan, nan, 0.9], max_crawl_rate=[nan, 0.01, nan, 0.3]
    )
    epoch = run_epoch(store, replace(PLAN, bandwidth=2.0), clock)
    rate = {row.page_id: row.crawl_rate for row in read_schedule(store, epoch.epoch)}
    rate = [rate[i] for i in ids.tolist()]
    assert rate[0] >= 0.5
    assert rate[1] <= 0.01
    assert rate[3] == pytest.approx(0.9)  # a minimum beats a maximum
    assert sum(rate) == pytest.approx(2.0)
    assert epoch.certificate.kkt_residual < 1e-9


def test_a_failed_epoch_is_recorded_with_its_reason_and_the_old_schedule_stays(
    store, clock, monkeypatch
):
    watched(store)
    good = run_epoch(store, PLAN, clock)
    rows = read_schedule(store, good.epoch)

    def breaks(*_pages, **_given):
        raise ZeroDivisionError("the sun has set")

    monkeypatch.setattr("service.epochs.optimum.harmonic_optimum", breaks)
    clock.at = T0 + HOUR
    with capture_logs() as logs:
        failed = run_epoch(store, PLAN, clock)
    assert failed.status is EpochStatus.failed
    assert failed.reason == "ZeroDivisionError: the sun has set"
    assert (failed.started_at, failed.finished_at) == (clock.at, clock.at)
    assert failed.certificate is None
    assert [e["event"] for e in logs if e["log_level"] == "error"] == ["epoch failed"]
    with store.begin(write=False) as tx:
        assert tx.epoch_in_force() == good
    assert read_schedule(store, good.epoch) == rows
    monkeypatch.undo()
    assert run_epoch(store, PLAN, clock).status is EpochStatus.published


@pytest.mark.dear
@pytest.mark.sampled(2)
@pytest.mark.parametrize("step", ["write_schedule", "publish"])
def test_an_epoch_that_fails_while_publishing_publishes_nothing(store, clock, step, monkeypatch):
    watched(store)
    good = run_epoch(store, PLAN, clock)
    rows = read_schedule(store, good.epoch)
    writer = store if step == "publish" else store.parts[0]  # each database writes its own pages
    with writer.begin() as tx:
        kind = type(tx)
    plain = getattr(kind, step)

    def breaks(self, *args):
        plain(self, *args)
        raise ZeroDivisionError("half-way")

    monkeypatch.setattr(kind, step, breaks)
    assert run_epoch(store, replace(PLAN, bandwidth=1.0), clock).status is EpochStatus.failed
    with store.begin(write=False) as tx:
        assert tx.epoch_in_force() == good
    assert read_schedule(store, good.epoch) == rows
    monkeypatch.undo()
    assert run_epoch(store, PLAN, clock).status is EpochStatus.published


def test_minimum_rates_beyond_the_bandwidth_fail_the_epoch_by_name(memory, clock):
    register(memory, 3, min_crawl_rate=5.0)
    (greedy,) = register(memory, 1, T0, "greedy.example", min_crawl_rate=700.0).tolist()
    with capture_logs() as logs:
        failed = run_epoch(memory, replace(PLAN, bandwidth=1.0), clock)
    assert failed.status is EpochStatus.failed
    assert failed.reason.startswith("BandwidthInfeasible: ")
    (entry,) = [entry for entry in logs if entry["event"] == "epoch failed"]
    reason, highest = entry["reason"].rsplit("; ", 1)
    assert reason.endswith("add up to 715 a day, more than the bandwidth 1; lower them or raise it")
    pages = f"page {greedy} (700), page 1 (5), page 2 (5)"
    assert highest == f"the highest minimum crawl rates are those of {pages}"
    assert not entry["exc_info"], "no trace of what is no fault"


def test_what_is_reported_during_an_epoch_is_kept_and_counts_in_the_next(store, clock, monkeypatch):
    """States are not written by an epoch; a page registered meanwhile waits for the next."""
    ids = watched(store)
    ids = ids[states_of(store, ids).observability == Observability.auto]
    clock.at = T0 + 30 * DAY
    by = Rules(Gamma(), Timing.periodic, np.random.default_rng(0))
    late = []

    def meanwhile(*pages, **given):
        with store.begin() as tx:
            for day in (1, 2):
                record(tx, crawl_columns(ids, T0 + day * DAY, digest=1_000 * day + ids), by)
        late.extend(register(store, 5, host="late.example").tolist())
        return harmonic_optimum(*pages, **given)

    before = states_of(store, ids)
    monkeypatch.setattr("service.epochs.optimum.harmonic_optimum", meanwhile)
    epoch = run_epoch(store, PLAN, clock)
    after = states_of(store, ids)
    assert (after.n_observations == before.n_observations + 1).all()
    assert set(after.last_crawl_at.tolist()) == {(T0 + 2 * DAY).replace(tzinfo=None)}
    with store.begin(write=False) as tx:
        assert len(tx.log_of(ids)) == 2 * len(ids)
    assert {row.page_id for row in read_schedule(store, epoch.epoch)}.isdisjoint(late)
    monkeypatch.undo()
    following = run_epoch(store, PLAN, clock)
    same(
        after,
        replace(
            states_of(store, ids),
            crawl_rate=after.crawl_rate,
            crawl_probability=after.crawl_probability,
        ),
    )
    rows = {row.page_id: row for row in read_schedule(store, following.epoch)}
    assert set(late) <= set(rows)
    changed = [rows[i].change_rate for i in ids.tolist()]
    assert min(changed) > 0


def test_while_another_leads_no_epoch_runs(store, clock):
    register(store, 3)
    with store.lead(), pytest.raises(EpochRunning):
        run_epoch(store, PLAN, clock)
    assert run_epoch(store, PLAN, clock).status is EpochStatus.published


def test_the_lead_is_free_after_an_epoch(store, clock):
    register(store, 3)
    for _ in range(3):
        run_epoch(store, PLAN, clock)
    with store.lead():
        pass


def test_an_epoch_keeps_house(store, clock):
    (page_id,) = register(store, 1)
    with store.begin() as tx:
        tx.append_log(log_columns([page_id, page_id], [T0 - 100 * DAY, T0], kind=Kind.crawl))
    run_epoch(store, PLAN, clock)
    with store.begin(write=False) as tx:
        assert len(tx.log_of(np.array([page_id]))) == 2
    run_epoch(store, replace(PLAN, retention=30 * DAY), clock)
    with store.begin(write=False) as tx:
        assert len(tx.log_of(np.array([page_id]))) == 1


def test_a_plan_is_a_value():
    assert replace(PLAN, bandwidth=1.0) != PLAN
    assert {f.name for f in fields(Plan)} == {
        "estimator",
        "objective",
        "timing",
        "bandwidth",
        "unit",
        "first_share",
        "retention",
        "audit_retention",
        "history_retention",
        "url_groups",
        "change_hours",
        "group_hours",
        "ages",
        "wide_revisions",
        "host_delay_s",
    }
