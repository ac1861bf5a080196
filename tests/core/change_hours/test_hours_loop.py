"""The closed loop: crawls show the change hours of hosts, and move to their best hours."""

from typing import NamedTuple

import numpy as np
import pytest

from service.core.change_hours.best_hours import Planned, excess_mass, moves, probe_delay, turns
from service.core.change_hours.evidence import HourEvidence, Intervals, faded, learn
from service.core.change_hours.fit import fit
from service.core.change_hours.profile import Profiles, busiest

HOSTS, PAGES = 12, 40
MINUTE = 1.0 / 1440.0
UNIX_ZERO = 0.5


class Web(NamedTuple):
    """Pages of hosts with an hour each, and all their changes."""

    host: np.ndarray
    hour: np.ndarray
    change_rate: np.ndarray
    changed_at: np.ndarray
    first: np.ndarray
    days: float

    def version(self, page, at):
        """Return the number of changes of pages up to instants."""
        far = 2.0 * self.days
        keys = np.repeat(np.arange(len(self.host)), np.diff(self.first)) * far + self.changed_at
        return np.searchsorted(keys, page * far + at, side="right") - self.first[page]


def web(rng, *, clock, days, cron=False):
    host = np.repeat(np.arange(HOSTS), PAGES)
    hour = rng.random(HOSTS)
    rate = rng.lognormal(np.log(0.3), 0.8, len(host))
    counts = rng.poisson(rate * days)
    if cron:
        rate, counts = np.ones(len(host)), np.full(len(host), int(days))
    page = np.repeat(np.arange(len(host)), counts)
    at = days * rng.random(len(page))
    if cron:
        at = np.tile(np.arange(days), len(host))
    if clock:
        at = np.floor(at) + hour[host[page]] + 10 * MINUTE * rng.standard_normal(len(page))
    at = np.clip(at, 1e-9, days)
    order = np.lexsort((at, page))
    first = np.concatenate(([0], np.cumsum(np.bincount(page, minlength=len(host)))))
    return Web(host, hour, rate, at[order], first, days)


class Loop(NamedTuple):
    """What came of crawling a web."""

    staleness: float
    """Mean of 1 + 1/2 + … + 1/n over pages and the last half of the days."""
    n_crawls: int
    profiles: Profiles
    load: np.ndarray
    """(HOSTS, 24) crawls by hour in the last half of the days."""


def play(pages, interval, *, spread=1 / 6, moving=True, probing=False, seed=1):
    """Crawl pages by their intervals, with a jitter of 5 %; learn and move at each epoch."""
    rng = np.random.default_rng(seed)
    n = len(pages.host)
    page = np.arange(n)
    nominal, last = rng.random(n) * interval, np.full(n, np.nan)
    evidence, profiles = HourEvidence.none(HOSTS), Profiles.flat(HOSTS)
    crawls, probes = [], (np.zeros(0, int), np.zeros(0))
    for now in np.arange(0.0, pages.days, UNIX_ZERO):
        mass = excess_mass(profiles, spread)
        results = []
        while True:
            turn = turns(page, nominal)
            planned = Planned(pages.host, nominal, interval, pages.change_rate, turn)
            at = np.maximum(nominal + moving * moves(mass, planned, spread), now)
            due = np.flatnonzero(at < now + UNIX_ZERO)
            if not due.size:
                break
            results.append((due, last[due], at[due]))
            last[due] = at[due]
            if probing:
                weight = profiles.weight[pages.host[due]]
                expected = (pages.change_rate * interval)[due]
                delay = probe_delay(due, at[due], weight, expected)
                extra = ~np.isnan(delay)
                late = due[extra], (at[due] + delay)[extra]
                probes = tuple(np.concatenate(pair) for pair in zip(probes, late, strict=True))
            nominal[due] += interval[due] * rng.uniform(0.95, 1.05, len(due))
        soon = probes[1] < now + UNIX_ZERO
        page_probed, probed_at = probes[0][soon], np.maximum(probes[1][soon], last[probes[0][soon]])
        results.append((page_probed, last[page_probed], probed_at))
        last[page_probed] = probed_at
        probes = probes[0][~soon], probes[1][~soon]
        due, before, at = map(np.concatenate, zip(*results, strict=True))
        crawls.append((due, at))
        again = np.flatnonzero(at > before)
        again = again[np.argsort(pages.host[due[again]], kind="stable")]
        due, before, at = due[again], before[again], at[again]
        changed = pages.version(due, at) > pages.version(due, before)
        b = np.full(len(due), 20.0)
        some = Intervals(pages.host[due], before, at, pages.change_rate[due] * b, b)
        evidence = learn(faded(evidence, UNIX_ZERO), profiles, some, changed)
        profiles = fit(evidence)
    return outcome(pages, *map(np.concatenate, zip(*crawls, strict=True)), profiles)


def outcome(pages, page, at, profiles):
    """Return the mean staleness in the last half of the days, and the load."""
    counted = at > pages.days / 2
    events = np.concatenate((at, pages.changed_at))
    owner = np.concatenate((page, np.repeat(np.arange(len(pages.host)), np.diff(pages.first))))
    is_crawl = np.arange(len(events)) < len(at)
    order = np.lexsort((events, owner))
    events, owner, is_crawl = events[order], owner[order], is_crawl[order]
    row = np.arange(len(events))
    crawl = np.maximum.accumulate(np.where(is_crawl, row, -1))
    n_missed = row - crawl
    known = (crawl >= 0) & (owner[np.maximum(crawl, 0)] == owner)
    harmonic = np.concatenate(([0.0], np.cumsum(1.0 / np.arange(1, n_missed.max() + 2))))
    end = np.append(np.where(owner[1:] == owner[:-1], events[1:], pages.days), pages.days)
    length = np.clip(end, pages.days / 2, None) - np.clip(events, pages.days / 2, None)
    cost = (harmonic[n_missed] * length)[known].sum()
    hour = (at[counted] % 1.0 * 24).astype(int)
    load = np.bincount(pages.host[page[counted]] * 24 + hour, minlength=24 * HOSTS)
    staleness = cost / (len(pages.host) * pages.days / 2)
    return Loop(float(staleness), len(at), profiles, load.reshape(HOSTS, 24))


def intervals(rng, mean):
    return mean * np.exp(rng.normal(0.0, 0.3, HOSTS * PAGES))


@pytest.mark.dear
@pytest.mark.parametrize(
    ("spread", "ratio", "most"),
    [(1 / 6, 0.45, 6.5), pytest.param(1 / 3, 0.58, 3.6, marks=pytest.mark.slow)],
)
def test_daily_change_hours_are_learnt_and_crawled_after(spread, ratio, most):
    """At about one crawl a day; the rate stays, and no hour takes more than its share."""
    rng = np.random.default_rng(5)
    pages, interval = web(rng, clock=True, days=60.0), intervals(rng, 1.0)
    plain = play(pages, interval, moving=False)
    moved = play(pages, interval, spread=spread)
    assert moved.staleness < ratio * plain.staleness
    assert abs(moved.n_crawls / plain.n_crawls - 1) < 0.005
    assert (moved.profiles.weight > 0.9).all()
    share = moved.load / moved.load.mean(axis=1, keepdims=True)
    assert np.median(share.max(axis=1)) < most
    start, end, _ = busiest(moved.profiles)
    middle = (start + 0.5 * ((end - start) % 24)) % 24
    off = (middle - 24 * pages.hour + 12) % 24 - 12
    assert np.abs(off).max() < 1.5


@pytest.mark.dear
def test_crawls_of_pages_without_change_hours_are_not_shifted():
    rng = np.random.default_rng(6)
    pages, interval = web(rng, clock=False, days=40.0), intervals(rng, 1.0)
    plain = play(pages, interval, moving=False)
    moved = play(pages, interval)
    assert moved.staleness == pytest.approx(plain.staleness, rel=0.01)
    assert np.mean(moved.profiles.weight) < 0.1


@pytest.mark.slow
def test_slower_crawls_take_longer_to_show_change_hours_and_gain_less():
    """At about one crawl in two days: the limit of this lag is a ratio of about 0.65."""
    rng = np.random.default_rng(7)
    pages, interval = web(rng, clock=True, days=200.0), intervals(rng, 2.0)
    plain = play(pages, interval, moving=False)
    moved = play(pages, interval)
    assert 0.6 < moved.staleness / plain.staleness < 0.8
    assert (moved.profiles.weight > 0).mean() > 0.6


@pytest.mark.slow
def test_extra_crawls_show_strict_change_hours():
    """Pages that change once a day have always changed after two days; 1 % more crawls."""
    rng = np.random.default_rng(5)
    pages, interval = web(rng, clock=True, days=400.0, cron=True), intervals(rng, 2.0)
    plain = play(pages, interval, moving=False)
    moved = play(pages, interval)
    probed = play(pages, interval, probing=True)
    assert moved.staleness > 0.94 * plain.staleness
    assert probed.staleness < 0.87 * plain.staleness
    assert probed.profiles.weight.mean() > 0.6
    assert probed.n_crawls < 1.02 * plain.n_crawls
