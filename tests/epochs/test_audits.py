"""Audits of pings come out of the bandwidth, whatever part of it minimum crawl rates fill."""

import numpy as np
import pytest
from support.store_cases import DAY, T0, columns, read_schedule, register, save

from service.core.common_values import alone
from service.core.estimators.gamma import Gamma
from service.core.pings import AUDIT_SHARE, recent_days
from service.epochs import solve as module
from service.epochs.plan import Plan
from service.epochs.run import run_epoch
from service.estimation.estimates import RateEstimates
from service.model.columns import CapColumns, EpochColumns
from service.model.domain import EpochStatus, Observability

RECENT = 60 / 31 * recent_days(31.0)
"""Recent pings of 60 in 30 days, at a rate of 60 / 31 a day."""

NOW = np.datetime64("2026-05-01T12:00", "us")
N, BANDWIDTH = 60, 12.0
SHARES = (1.0, 0.99, 0.9)
"""Parts of the bandwidth that minima fill."""
CLOSE = 1 + 1e-9
NAN = float("nan")
HOST = 1 + np.arange(N) % 3


def solve(*arguments):
    """Return the result for one part alone."""
    return alone(module.solve(module.Problem(*arguments)))


def minima(share):
    """Return unequal minimum crawl rates that fill a share of the bandwidth."""
    weight = np.random.default_rng(1).uniform(0.5, 1.5, N)
    return share * BANDWIDTH * weight / weight.sum()


def schedule(caps=None, objective="harmonic", **limits):
    """Return the crawls a day on the clock and on pings, and the certificate."""
    missing = {name: np.datetime64("NaT", "us") for name in ("last_observed_at", "last_ping_at")}
    values = dict.fromkeys(EpochColumns.__dataclass_fields__, 0) | missing
    values |= {
        "page_id": np.arange(1, N + 1),
        "importance": np.random.default_rng(2).pareto(1.5, N) + 0.1,
        "observability": Observability.auto,
        "min_crawl_rate": NAN,
        "max_crawl_rate": NAN,
        "host_id": HOST,
        "interval_factor": 1.0,
        "pings_since": np.datetime64("NaT", "us"),
        "last_failure_at": np.datetime64("NaT", "us"),
        "born_at": np.datetime64("NaT", "us"),
        "cost": 0.0,
    }
    pages = columns(EpochColumns, N, **(values | limits))
    rates = (np.full(N, each) for each in (0.8, 0.7, 0.8, 0.7))
    estimates = RateEstimates(*rates)
    plan = Plan(Gamma(), objective=objective, bandwidth=BANDWIDTH)
    rows, certificate, _ = solve(pages, estimates, plan, None, caps or CapColumns.empty(), NOW)
    return rows.crawl_rate, rows.crawl_probability * estimates.ping_rate, certificate


def caps_at(host_share=NAN, group_share=NAN, *, used):
    """Return caps at a share of what hosts use; hosts 1 and 2 are a group."""
    of_host = np.bincount(HOST, used)[1:]
    in_group = np.array([1, 1, 0])
    group = of_host[:2].sum() * group_share
    return CapColumns(
        host_id=np.array([1, 2, 3]),
        host=np.array(["a", "b", "c"], object),
        max_crawl_rate=of_host * host_share,
        group_id=in_group,
        group=np.array(["g", "g", ""], object),
        group_max_crawl_rate=np.where(in_group, group, NAN),
    )


@pytest.mark.parametrize("share", SHARES)
def test_minima_and_audits_fit_the_bandwidth(share):
    on_clock, on_pings, certificate = schedule(min_crawl_rate=minima(share))
    assert certificate.bandwidth_used == pytest.approx((on_clock + on_pings).sum(), rel=1e-12)
    assert certificate.bandwidth_used <= BANDWIDTH * CLOSE
    assert certificate.bandwidth_used == pytest.approx(BANDWIDTH, rel=1e-9)
    assert (on_clock + on_pings >= minima(share) / CLOSE).all()
    assert certificate.kkt_residual < 1e-9


def test_audits_are_as_many_as_the_minima_leave_room_for():
    """Here all crawls of the optimum follow pings, so that the clock has the audits alone."""
    audits = {share: schedule(min_crawl_rate=minima(share))[0] for share in SHARES}
    assert audits[1.0].sum() == pytest.approx(0, abs=1e-9 * BANDWIDTH)
    assert audits[0.99].sum() == pytest.approx(0.01 * BANDWIDTH, rel=1e-6)
    assert audits[0.9].sum() == pytest.approx(AUDIT_SHARE * BANDWIDTH, rel=1e-6)
    assert (audits[0.99] > 0).all()


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("level", ["host_share", "group_share"])
def test_minima_and_audits_fit_the_caps_of_hosts_and_groups(share, level):
    """Two hosts have no room beyond 1 % above their minima, and the bandwidth is left over."""
    least = minima(share)
    caps = caps_at(**{level: 1.01}, used=least)
    on_clock, on_pings, certificate = schedule(caps, min_crawl_rate=least)
    used = np.bincount(HOST, on_clock + on_pings)[1:]
    if level == "host_share":
        assert (used <= caps.max_crawl_rate * CLOSE).all()
    assert used[:2].sum() <= np.bincount(HOST, least)[1:3].sum() * 1.01 * CLOSE
    assert certificate.bandwidth_used <= BANDWIDTH * CLOSE
    assert (on_clock + on_pings >= least / CLOSE).all()
    if share < 1:
        assert (on_clock > 0).all()


@pytest.mark.parametrize("share", SHARES)
def test_minima_and_audits_fit_the_maxima_of_pages(share):
    least = minima(share)
    most = 1.005 * least
    on_clock, on_pings, certificate = schedule(min_crawl_rate=least, max_crawl_rate=most)
    assert (on_clock + on_pings <= most * CLOSE).all()
    assert (on_clock + on_pings >= least / CLOSE).all()
    assert certificate.bandwidth_used <= BANDWIDTH * CLOSE


@pytest.mark.parametrize("objective", ["approximate", "uniform"])
def test_minima_that_an_objective_ignores_take_nothing_from_its_bandwidth(objective):
    _, _, certificate = schedule(objective=objective, min_crawl_rate=minima(1.0))
    assert certificate.bandwidth_used == pytest.approx(BANDWIDTH, rel=1e-9)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("share", SHARES)
def test_an_epoch_spends_no_more_than_its_bandwidth(store, share):
    def now():
        return T0 + 30 * DAY

    ids = np.sort(register(store, N, host="a.example", min_crawl_rate=minima(share)))
    pinged = {
        "n_pings": 60,
        "recent_pings": RECENT,
        "real_pings": 40.0,
        "false_pings": 5.0,
        "trust": 9.0,
    }
    save(store, ids, last_ping_at=now(), **pinged)
    epoch = run_epoch(store, Plan(Gamma(), bandwidth=BANDWIDTH), now)
    assert epoch.status is EpochStatus.published, epoch.reason
    rows = read_schedule(store, epoch.epoch)
    ping_rate = 60 / 31
    used = sum(row.crawl_rate + row.crawl_probability * ping_rate for row in rows)
    assert epoch.certificate.bandwidth_used <= BANDWIDTH * CLOSE
    assert epoch.certificate.bandwidth_used == pytest.approx(BANDWIDTH, rel=1e-9)
    assert used == pytest.approx(BANDWIDTH, rel=5e-7)
    assert len(rows) == N
    audits = sum(row.crawl_rate for row in rows)
    assert audits == pytest.approx(min(1 - share, AUDIT_SHARE) * BANDWIDTH, rel=1e-3, abs=1e-9)
