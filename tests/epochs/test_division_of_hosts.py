"""The division over mixtures of hosts: caps, windows, delays, groups, new pages, costs, bounds."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.store_cases import T0, columns

from service.core.checks import BandwidthInfeasible
from service.core.common_values import alone
from service.core.division import Wanted
from service.core.estimators.gamma import Gamma
from service.core.open_hours import OpenHours
from service.epochs import bandwidth_plans
from service.epochs.bandwidth_plans import Basis, Members
from service.epochs.plan import Plan
from service.epochs.solve import Problem, solve
from service.epochs.windows import HostWindows
from service.estimation.estimates import RateEstimates
from service.model.arrays import NO_TIME, instant
from service.model.columns import CapColumns, EpochColumns
from service.model.domain import Epoch, EpochStatus, Observability

NOW = instant(T0)
DAY = np.timedelta64(1, "D")
NAN = float("nan")
MIDNIGHTS = NOW.astype("M8[D]").astype("M8[us]") + np.arange(-40, 40) * DAY


def hours(opens, closes):
    """Return the hours of a window of each day."""
    hour = np.timedelta64(1, "h")
    openings, closings = MIDNIGHTS + opens * hour, MIDNIGHTS + closes * hour
    return OpenHours.of(openings, closings, MIDNIGHTS[0], MIDNIGHTS[-1])


NEVER = OpenHours.of(MIDNIGHTS[:0], MIDNIGHTS[:0], MIDNIGHTS[0], MIDNIGHTS[-1])
CALENDARS = {"": "", "day": hours(0, 23), "night": hours(2, 4), "never": NEVER}


@dataclass
class Page:
    """One page; the rates of a page without a copy are beside the budget."""

    copy: bool = True
    importance: float = 1.0
    change_rate: float = 1.0
    complete: bool = False
    ping_rate: float = 0.0
    least: float = NAN
    most: float = NAN
    url_group: int = 0
    cost: float = 0.0


@dataclass
class Host:
    """One host with its pages; a group has what its first host has."""

    pages: list[Page]
    cap: float = NAN
    window: str = ""
    capacity: float = np.inf
    """Crawls a day by its delay."""
    group: int = 0
    group_cap: float = NAN


def corpus(hosts):
    """Return pages, their estimates, caps and the windows of hosts numbered from 1."""
    pages = [(n, page) for n, host in enumerate(hosts, 1) for page in host.pages]
    values = dict.fromkeys(("pings_since", "last_ping_at", "last_failure_at", "born_at"), NO_TIME)
    values |= dict.fromkeys(("n_pings", "recent_pings", "real_pings", "false_pings", "trust"), 0)
    values |= {"last_age": NAN, "last_interval": -3.0, "interval_factor": 1.0, "estimate": 0.0}
    copies = np.array([page.copy for _, page in pages], np.bool_)
    values |= {
        "page_id": np.arange(1, len(pages) + 1),
        "host_id": [n for n, _ in pages],
        "importance": [page.importance for _, page in pages],
        "observability": [
            Observability.complete if page.complete else Observability.auto for _, page in pages
        ],
        "min_crawl_rate": [page.least for _, page in pages],
        "max_crawl_rate": [page.most for _, page in pages],
        "url_group": [page.url_group for _, page in pages],
        "cost": [page.cost for _, page in pages],
        "n_observations": np.where(copies, 5, 0),
        "last_observed_at": np.where(copies, NOW - 20 * DAY, NO_TIME),
    }
    rates = RateEstimates(
        change_rate=np.array([page.change_rate for _, page in pages], np.float64),
        recall=np.array([0.8 if page.ping_rate else 0.0 for _, page in pages]),
        precision=np.ones(len(pages)),
        ping_rate=np.array([page.ping_rate for _, page in pages], np.float64),
    )
    return columns(EpochColumns, len(pages), **values), rates, caps_of(hosts), windows_of(hosts)


def group_of(hosts, host):
    """Return the values of a host's group."""
    return next(each for each in hosts if each.group == host.group)


def caps_of(hosts):
    """Return the caps as a store loads them."""
    rows = []
    for n, host in enumerate(hosts, 1):
        group_cap = group_of(hosts, host).group_cap if host.group else NAN
        if not np.isnan([host.cap, group_cap]).all():
            group = 0 if np.isnan(group_cap) else host.group
            rows.append((n, f"h{n}", host.cap, group, f"g{group}", group_cap, NAN))
    if not rows:
        return CapColumns.empty()
    names = "host_id", "host", "max_crawl_rate", "group_id", "group", "group_max_crawl_rate"
    each = zip((*names, "first_share"), zip(*rows, strict=True), strict=True)
    return columns(CapColumns, len(rows), **dict(each))


def windows_of(hosts):
    """Return the hosts with windows or a delay; a group has one host queue."""
    row = [n for n, host in enumerate(hosts, 1) if host.window or np.isfinite(queue(hosts, host))]
    if not row:
        return None
    texts, calendars = np.empty(len(row), object), np.empty(len(row), object)
    texts[:] = [(hosts[n - 1].window, "") for n in row]
    calendars[:] = [CALENDARS[hosts[n - 1].window] for n in row]
    at_delay = np.array([queue(hosts, hosts[n - 1]) for n in row])
    share = np.array([each.share * (not each.is_never_open) if each else 1.0 for each in calendars])
    values = {
        "host_id": np.array(row),
        "host": np.array([f"h{n}" for n in row], object),
        "queue_id": np.array([-hosts[n - 1].group or n for n in row]),
        "hours": calendars,
        "texts": texts,
        "capacity": np.where(share > 0, at_delay * np.maximum(share, 1e-9), 0.0),
        "at_delay": at_delay,
    }
    return HostWindows(*(values[name] for name in HostWindows._fields))


def queue(hosts, host):
    """Return the capacity of the host queue of a host."""
    return group_of(hosts, host).capacity if host.group else host.capacity


def solved(hosts, budget, unit="crawls", last=None, now=NOW):
    pages, rates, caps, windows = corpus(hosts)
    plan = Plan(Gamma(), bandwidth=budget, unit=unit)
    problem = Problem(pages, rates, plan, last, caps, now, windows=windows)
    return pages, alone(solve(problem))


def planned(hosts, budget):
    """Return the plan of a budget of crawls."""
    pages, rates, caps, windows = corpus(hosts)
    plan = Plan(Gamma(), bandwidth=budget)
    _, result = solved(hosts, budget)
    n = len(pages)
    basis = Basis(
        epoch=1,
        at=T0,
        in_force=result.certificate,
        wants=Wanted(n, 0, 0.0),
        pages=pages,
        estimates=rates,
        caps=caps,
        hosts=Members.of(slice(None), pages.host_id),
        tags=Members.of(np.zeros(0, np.int64), np.zeros(0, np.int64)),
        has_copy=np.ones(n, np.bool_),
        importance_apart=0.0,
        n_assumed=0,
        windows=windows,
    )
    return bandwidth_plans.planned(basis, plan, budget)


amounts = st.sampled_from([1e-3, 0.1, 1.0, 30.0, 1e4])
pages = st.builds(
    Page,
    copy=st.booleans(),
    importance=st.sampled_from([0.0, 0.1, 1.0, 50.0]),
    change_rate=st.sampled_from([0.0, 1e-3, 1.0, 500.0]),
    complete=st.booleans(),
    ping_rate=st.sampled_from([0.0, 0.0, 2.0]),
    least=st.sampled_from([NAN, NAN, NAN, 0.01]),
    most=st.sampled_from([NAN, NAN, NAN, 0.5]),
    url_group=st.integers(0, 2),
    cost=st.sampled_from([0.0, 1.0, 20.0]),
)
mixtures = st.lists(
    st.builds(
        Host,
        pages=st.lists(pages, max_size=4),
        cap=st.sampled_from([NAN, NAN]) | amounts,
        window=st.sampled_from([*CALENDARS]),
        capacity=st.just(np.inf) | amounts,
        group=st.sampled_from([0, 0, 1, 2]),
        group_cap=st.just(NAN) | amounts,
    ),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(mixtures, st.sampled_from([1.0, 20.0, 1e3, 1e5, 1e7]), st.sampled_from(["crawls", "USD"]))
def test_every_mixture_has_finite_rates_within_its_limits(hosts, budget, unit):
    try:
        pages, result = solved(hosts, budget, unit)
    except BandwidthInfeasible:
        assume(False)
    schedule, certificate = result.schedule, result.certificate
    assert np.isfinite(schedule.crawl_rate).all()
    assert (schedule.crawl_rate >= 0).all()
    assert ((schedule.crawl_probability >= 0) & (schedule.crawl_probability <= 1)).all()
    assert certificate.bandwidth_used <= certificate.planned * (1 + 1e-6)
    copies = ~np.isnat(pages.last_observed_at)
    if not copies.any():
        copies[:] = True
    on_clock = np.where(copies, schedule.crawl_rate, 0.0)
    of_hosts = np.bincount(pages.host_id, on_clock, len(hosts) + 1)
    minima = np.where(copies, np.nan_to_num(pages.min_crawl_rate), 0.0)
    least = np.bincount(pages.host_id, minima, len(hosts) + 1)
    for n, host in enumerate(hosts, 1):
        assert of_hosts[n] <= max(np.nan_to_num(host.cap, nan=np.inf), least[n]) * (1 + 1e-6)
    for group in {host.group for host in hosts} - {0}:
        members = [n for n, host in enumerate(hosts, 1) if host.group == group]
        cap = np.nan_to_num(group_of(hosts, hosts[members[0] - 1]).group_cap, nan=np.inf)
        assert of_hosts[members].sum() <= max(cap, least[members].sum()) * (1 + 1e-6)
    windows = windows_of(hosts)
    for queue_id in () if windows is None else np.unique(windows.queue_id).tolist():
        own = windows.queue_id == queue_id
        if not windows.closes[own].any():
            members = windows.host_id[own]
            most = max(windows.capacity[own][0], least[members].sum())
            assert of_hosts[members].sum() <= most * 1.002


@pytest.mark.parametrize("budget", [1e3, 1e5, 1e7])
def test_new_pages_of_other_hosts_have_rates_while_a_windowed_host_is_at_its_capacity(budget):
    new = Page(copy=False)
    hosts = [Host([Page(change_rate=50.0), new], window="day", capacity=20.0), Host([new])]
    _, result = solved(hosts, budget)
    busy, new_there, new_elsewhere = result.schedule.crawl_rate.tolist()
    assert busy == pytest.approx(20.0 * CALENDARS["day"].share, rel=0.05)
    assert 0 < new_there <= new_elsewhere


def test_new_pages_have_the_price_of_their_own_host():
    # the capped host is the second among caps that begin with the windowed one
    new = Page(copy=False)
    hosts = [
        Host([Page(change_rate=50.0)] * 9, window="day", capacity=20.0),
        Host([Page(), new], cap=0.01),
        Host([Page(), new]),
    ]
    _, result = solved(hosts, 1e4)
    capped, free = result.schedule.crawl_rate[[10, 12]].tolist()
    assert capped == pytest.approx(0.01, rel=1e-3)
    assert free > 100.0


def test_a_plan_names_hosts_at_their_own_caps_alone():
    hosts = [
        Host([Page(change_rate=50.0)] * 9, window="day", capacity=20.0),
        Host([Page(), Page()], cap=0.5),
        Host([Page(), Page()], cap=1e9),
        Host([Page(change_rate=50.0)] * 9, cap=1e5, capacity=300.0),
    ]
    assert planned(hosts, 1e4).at_cap == {2}


def test_no_host_is_planned_above_what_its_delay_permits():
    slow = Host([Page(change_rate=1e3)] * 3, capacity=43_200.0)
    hosts = [slow, replace(slow), Host([Page(change_rate=1e3)])]
    pages, result = solved(hosts, 1e7)
    a_day = np.bincount(pages.host_id, result.schedule.crawl_rate)
    assert a_day[1:3].tolist() == pytest.approx([43_200.0] * 2, rel=1e-3)
    assert result.certificate.window_losses == ()
    assert result.certificate.window_demand == ()
    figures = planned(hosts, 1e7).figures
    free = planned([replace(host, capacity=np.inf) for host in hosts], 1e7).figures
    assert figures.fresh_share < free.fresh_share


def test_a_delay_that_leaves_room_changes_no_rate():
    hosts = [Host([Page(change_rate=2.0)] * 3) for _ in range(3)]
    slow = [replace(host, capacity=1e4) for host in hosts]
    (_, free), (_, limited) = solved(hosts, 5e3), solved(slow, 5e3)
    assert limited.schedule.crawl_rate.tolist() == free.schedule.crawl_rate.tolist()
    assert limited.certificate.passes == free.certificate.passes


def test_a_loss_is_that_by_windows_and_keeps_its_begin():
    slow = Host([Page(change_rate=50.0)] * 9, window="day", capacity=100.0)
    narrow = replace(slow, window="night")
    _, result = solved([slow, narrow], 1e6)
    (loss,) = result.certificate.window_losses
    host, wanted, by_delay, by_closures, since = loss
    assert (host, since) == ("h2", T0.timestamp())
    assert wanted == pytest.approx(100.0, rel=1e-3)
    assert by_delay + by_closures == pytest.approx(100.0 * (1 - CALENDARS["night"].share), rel=0.1)
    last = Epoch(1, EpochStatus.published, T0, T0, T0, certificate=result.certificate)
    hours_later = NOW + 3 * np.timedelta64(1, "h")
    _, result = solved([slow, narrow], 1e6, last=last, now=hours_later)
    assert [loss[4] for loss in result.certificate.window_losses] == [T0.timestamp()]


def delay_losses_of(hosts, budget=1e4, **others):
    _, result = solved(hosts, budget, **others)
    return result.certificate, result.certificate.delay_losses


def test_a_delay_that_costs_much_freshness_is_named_with_the_crawls_it_leaves():
    slow = Host([Page(change_rate=2.0)] * 100, capacity=24.0)
    hosts = [slow, Host([Page(change_rate=2.0)] * 100)]
    certificate, losses = delay_losses_of(hosts)
    ((host, wanted, permitted, staler, since),) = losses
    assert (host, permitted, since) == ("h1", 24.0, T0.timestamp())
    assert wanted == pytest.approx(5e3, rel=0.01)
    assert staler > 0.8
    assert planned(hosts, 1e4).figures.delay_losses[0].wanted == pytest.approx(wanted, rel=1e-3)
    last = Epoch(1, EpochStatus.published, T0, T0, T0, certificate=certificate)
    _, losses = delay_losses_of(hosts, last=last, now=NOW + 3 * np.timedelta64(1, "h"))
    assert [since for *_, since in losses] == [T0.timestamp()]


@pytest.mark.parametrize(
    ("change_rate", "is_named"), [(0.02, False), (0.5, True)], ids=["static", "live"]
)
def test_a_delay_that_leaves_pages_fresh_is_not_named_however_many_crawls_it_takes(
    change_rate, is_named
):
    # each page is crawled once a day in place of a thousand times
    hosts = [Host([Page(change_rate=change_rate)] * 50, capacity=50.0)]
    certificate, losses = delay_losses_of(hosts, budget=5e4)
    assert certificate.bandwidth_used == pytest.approx(50.0, rel=0.01)
    assert bool(losses) == is_named


def test_a_group_is_named_once_and_a_loss_by_windows_is_not_one_by_the_delay():
    group = {"group": 1, "capacity": 24.0}
    few = Host([Page(change_rate=2.0)] * 5, **group)
    many = Host([Page(change_rate=2.0)] * 50, **group)
    night = Host([Page(change_rate=2.0)] * 9, window="night", capacity=1e5)
    _, losses = delay_losses_of([few, many, night])
    assert [host for host, *_ in losses] == ["h2"]
