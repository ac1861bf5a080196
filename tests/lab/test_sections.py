"""Worlds of sections: their hours, and how Recrawl crawls them."""

from dataclasses import replace

import numpy as np
import pytest

from recrawl_lab.policies.lineup import DEFAULT_PLAN, LINEUP, UNIFORM, Game
from recrawl_lab.replay.replay import replay
from recrawl_lab.replay.staleness import averaged, uncrawled
from recrawl_lab.worlds.hourly import SPREAD
from recrawl_lab.worlds.sections import KINDS, section_world


def world(kind, seed=1, days=90.0, **sizes):
    return section_world(kind, rng=np.random.default_rng(seed), days=days, **sizes)


def deviation(made, at, page):
    """Return the deviations of changes from the mean hour of their pages' section, days."""
    section = np.array([int(url.split("section-")[1].split("/")[0]) for url in made.url])[page]
    waves = np.exp(2j * np.pi * at)
    of_section = np.bincount(section, waves.real) + 1j * np.bincount(section, waves.imag)
    hour = np.angle(of_section)[section] / (2 * np.pi)
    return (at - hour + 0.5) % 1.0 - 0.5, section


@pytest.mark.parametrize("kind", ["cron", "daily", "host"])
def test_changes_come_about_the_hour_of_their_section(kind):
    made = world(kind)
    off, section = deviation(made, made.changed_at, made.changed_page)
    assert off.std() == pytest.approx(SPREAD, rel=0.1)
    waves = np.exp(2j * np.pi * made.changed_at)
    together = np.abs(waves.mean())
    assert (together > 0.9) == (kind == "host")
    assert len(set(section.tolist())) == 20


@pytest.mark.parametrize("kind", ["flat", "bulk", "bot"])
def test_changes_of_other_kinds_come_at_any_hour_or_at_four(kind):
    made = world(kind, n_hosts=3)
    waves = np.exp(2j * np.pi * made.changed_at * (4 if kind == "bot" else 1))
    host = np.array([int(url.split(".")[0].removeprefix("https://host-")) for url in made.url])
    each = [np.abs(waves[host[made.changed_page] == n].mean()) for n in range(3)]
    assert all((size > 0.9) == (kind == "bot") for size in each)


def test_sections_may_have_two_hours():
    made = world("twice", days=400.0)
    section = np.array([int(url.split("section-")[1].split("/")[0]) for url in made.url])
    of_first = made.changed_at[section[made.changed_page] == 0]
    n_at = np.histogram(of_first % 1.0, bins=24, range=(0.0, 1.0))[0]
    busy = np.flatnonzero(n_at > 0.1 * len(of_first))
    assert n_at[busy].sum() > 0.95 * len(of_first)
    gap = np.ptp(busy)
    assert min(gap, 24 - gap) in (7, 8, 9)


def test_weekends_have_all_changes_of_a_week():
    made = world("weekend", days=140.0)
    off, _ = deviation(made, made.changed_at, made.changed_page)
    assert off.std() == pytest.approx(SPREAD, rel=0.1)
    # an hour of a section close to midnight moves a change to the next day
    assert np.isin(np.floor(made.changed_at) % 7, (5, 6)).mean() > 0.97


def test_every_other_section_of_half_has_hours():
    made = world("half", days=400.0)
    off, section = deviation(made, made.changed_at, made.changed_page)
    assert off[section % 2 == 0].std() < 2 * SPREAD
    assert off[section % 2 == 1].std() > 0.2


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_a_world(kind):
    made = world(kind, days=20.0, n_hosts=2, n_sections=3, n_pages=4)
    assert (len(made), made.name, made.first[-1]) == (
        24,
        f"sections-{kind}",
        len(made.changed_at),
    )
    assert ((made.changed_at > 0) & (made.changed_at <= 20.0)).all()
    again = world(kind, days=20.0, n_hosts=2, n_sections=3, n_pages=4)
    np.testing.assert_array_equal(made.changed_at, again.changed_at)
    expected = made.change_rate.sum() * 20
    if kind == "weekend":  # the last week has no weekend
        expected *= 14 / 20
    assert len(made.changed_at) == pytest.approx(expected, rel=0.35)


def staleness(made, rate, plan):
    """Return the harmonic staleness of the second half of the days, in the mean."""
    crawls = replay(made, rate * len(made), plan, step=0.25).crawls
    assert len(crawls.at) == pytest.approx(rate * len(made) * made.days, rel=0.02)
    return averaged(made, uncrawled(made, crawls), 40).harmonic


@pytest.mark.slow
def test_sections_at_hours_of_their_own_are_crawled_after_them():
    made = world("cron", days=70.0, n_sections=6, n_pages=8)
    by_groups = staleness(made, 1.0, DEFAULT_PLAN)
    by_host = staleness(made, 1.0, replace(DEFAULT_PLAN, group_hours=False))
    assert by_groups < 0.7 * by_host
    assert by_groups < 0.3


@pytest.mark.slow
def test_sections_that_are_crawled_every_two_days_are_crawled_after_their_hours():
    made = world("cron", days=240.0)
    uniform = LINEUP[UNIFORM].play(Game(made, 0.5 * len(made), None, None, 1), None).crawls
    of_uniform = averaged(made, uncrawled(made, uniform), 40).harmonic
    assert staleness(made, 0.5, DEFAULT_PLAN) < 0.9 * of_uniform
