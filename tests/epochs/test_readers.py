"""The budget factor for readers without leases: as many crawls are due as are wanted."""

from dataclasses import replace

import numpy as np
import pytest
from support.spread_cases import corpus as inputs_of
from support.spread_cases import epoch_before, ran, task
from support.store_cases import columns
from support.urgency_cases import DAY, NO_CAPS, NOW, corpus, known, urgency

from service.core.budget_factor import HIGHEST, LOWEST, Window
from service.core.due_counts import MOST_MOVED
from service.epochs.inputs import divided
from service.epochs.requests import RequestCounts
from service.epochs.urgency import FARTHEST_DAYS, LastEpoch, Readers
from service.model.arrays import INSTANT, NO_TIME
from service.model.columns import CapColumns

QUARTER = np.timedelta64(6, "h")
N = 1_000


def last_crawled(pages, days):
    at = (NOW - days * 86_400e6 * np.timedelta64(1, "us")).astype(INSTANT)
    return replace(pages, last_observed_at=at)


def pages_of(seed=1, **given):
    """Return pages with crawls as far apart as their rates, and the rates."""
    rng = np.random.default_rng(seed)
    pages, _ = corpus(N, seed, **given)
    rate = rng.lognormal(np.log(0.1), 1.0, N)
    return last_crawled(pages, rng.random(N) / rate), rate


def due(pages, rate, urgency, days):
    """Return the crawls of each page within some days, one after the other."""
    at = pages.last_observed_at + (pages.interval_factor / (rate * urgency) * 86_400e6).astype(
        "m8[us]"
    )
    at, n = np.maximum((at - NOW) / DAY, 0.0), np.zeros(len(pages), int)
    while (there := at <= days).any():
        at[there] += 1 / (rate * urgency)[there]
        n[there] += 1
    return n


def counted(pages, rate, wanted, caps=NO_CAPS, factor=1.0, since=QUARTER, tail=0.0, **more):
    """Return the urgency of an epoch that wants some crawls until the next one."""
    window = Window(since / DAY + tail, tail)
    a_day = wanted / min(since / DAY, FARTHEST_DAYS) if wanted else 0.0
    readers = Readers(0.0, window, a_day, **more)
    last = LastEpoch(NOW - since)
    return urgency(pages, known(N), rate, caps, NOW, last, factor, readers=readers)


def settled(pages, rate, wanted, *others, **more):
    """Return the urgency after as many epochs as the factor needs to move as far as wanted."""
    factor = 1.0
    for _ in range(40):
        urgent = counted(pages, rate, wanted, *others, factor=factor, **more)
        factor = urgent.budget_factor
    assert LOWEST < factor < HIGHEST
    assert urgent.still_due == pytest.approx(0.0, abs=1e-9)
    return urgent


def test_a_lack_of_due_pages_is_made_up_as_far_as_a_quarter_of_a_day():
    pages, _ = pages_of()
    new = last_crawled(pages, np.full(N, 1e-6))
    assert counted(new, np.full(N, 1e-3), 40).still_due == 0.0
    assert counted(new, np.full(N, 1e-3), 40, since=DAY).still_due == pytest.approx(-30.0)


@pytest.mark.parametrize("seed", range(5))
def test_as_many_crawls_are_due_until_the_next_epoch_as_are_wanted(seed):
    pages, rate = pages_of(seed)
    for wanted in (20, 41, 80):
        urgent = settled(pages, rate, wanted)
        assert due(pages, rate, urgent.of_pages, 0.25).sum() == pytest.approx(wanted, abs=1)
        assert urgent.of_pages.std() > 0.05


def test_crawls_that_come_in_a_wave_are_spread():
    pages, _ = corpus(N, interval_factor=1.0, last_interval=0.0)
    pages, rate = last_crawled(pages, np.linspace(9.9, 9.3, N)), np.full(N, 0.1)
    assert due(pages, rate, np.ones(N), 0.25).sum() == 250
    urgent = counted(pages, rate, 25)
    assert due(pages, rate, urgent.of_pages, 0.25).sum() == pytest.approx(25, abs=1)
    assert urgent.budget_factor == pytest.approx(1 / (0.1 * (9.9 - 0.6 * 25 / N + 0.25)), rel=1e-3)


def test_the_crawls_that_the_factor_may_not_hold_back_at_once_are_due_beyond_the_plan():
    pages, rate = pages_of()
    burst = last_crawled(pages, 3.0 / rate)
    urgent = counted(burst, rate, 40)
    assert urgent.budget_factor == pytest.approx(np.exp(-MOST_MOVED))
    assert urgent.still_due == due(burst, rate, urgent.of_pages, 0.25).sum() - 40 > 900


def test_bounds_of_pages_and_hosts_with_a_cap_take_their_crawls_first():
    rng = np.random.default_rng(2)
    pages, rate = pages_of()
    low = np.where(rng.random(N) < 0.2, 1.1 * rate, np.nan)
    high = np.where(rng.random(N) < 0.2, 0.9 * rate, np.nan)
    pages = replace(pages, min_crawl_rate=low, max_crawl_rate=np.fmax(high, low))
    cap = {"host": "h", "max_crawl_rate": 1.0, "group_id": 0, "group": ""}
    caps = columns(CapColumns, 1, host_id=3, group_max_crawl_rate=np.nan, first_share=None, **cap)
    urgent = settled(pages, rate, 50, caps)
    assert (urgent.of_pages[pages.host_id == 3] == 1.0).all()
    assert due(pages, rate, urgent.of_pages, 0.25).sum() == pytest.approx(50, abs=1)


def test_pages_that_were_never_crawled_do_not_count():
    pages, rate = pages_of()
    never = np.arange(N) % 2 == 0
    at = np.where(never, NO_TIME, pages.last_observed_at)
    urgent = settled(replace(pages, last_observed_at=at), rate, 20)
    made = due(pages, rate, urgent.of_pages, 0.25)[~never].sum()
    assert made == pytest.approx(20, abs=1)


def test_crawls_that_the_history_does_not_count_yet_are_paid():
    pages, rate = pages_of()
    tail = 0.1
    n_late = np.count_nonzero((NOW - pages.last_observed_at) / DAY <= tail)
    assert n_late > 10
    urgent = settled(pages, rate, 40, tail=tail)
    made = due(pages, rate, urgent.of_pages, 0.25).sum()
    assert made == pytest.approx(40 * 1.4 - n_late, abs=1)


def test_where_hosts_with_windows_have_most_crawls_the_factor_is_the_feedback():
    pages, rate = pages_of()
    few, many = np.arange(N) % 20 == 0, np.arange(N) % 5 == 0
    alone = counted(pages, rate, 40, feedback=0.77).budget_factor
    assert counted(pages, rate, 40, feedback=0.77, in_hours=few).budget_factor == alone != 0.77
    assert counted(pages, rate, 40, feedback=0.77, in_hours=many).budget_factor == 0.77


def test_after_a_long_time_without_epochs_a_day_is_counted():
    pages, rate = pages_of()
    urgent = settled(pages, rate, 160, since=30 * DAY)
    assert due(pages, rate, urgent.of_pages, FARTHEST_DAYS).sum() == pytest.approx(160, abs=1)


def test_an_epoch_at_the_instant_of_the_last_one_keeps_its_factor():
    pages, rate = pages_of()
    assert counted(pages, rate, 0, factor=1.3, since=0 * DAY).budget_factor == 1.3


@pytest.mark.parametrize("seed", range(3))
def test_parts_count_their_crawls_together(seed):
    requests = RequestCounts(n_since=20.0, n_reported=400.0, since=Window(0.25, 0.0))
    whole = inputs_of(seed, {0: 150, 2: 90, 3: 30})._replace(requests=requests)
    inputs = divided(whole)
    one = ran({0: whole}, {0: 0}, task(epoch_before())).certificate
    parts = ran(inputs, {0: 0, 2: 1, 3: 0}, task(epoch_before())).certificate
    assert one.feedback == pytest.approx(parts.feedback, rel=1e-12)
    assert one.feedback != 1.07
    assert LOWEST < parts.budget_factor < HIGHEST
    assert parts.budget_factor == pytest.approx(one.budget_factor, rel=1e-4)
    assert parts.still_due == pytest.approx(one.still_due, abs=0.5)
