"""What hosts learn of their change hours in an epoch: from crawls, dates and pings, each once."""

from dataclasses import replace

import numpy as np
import pytest
from support.hourly_cases import (
    ESTIMATOR,
    MIDNIGHT,
    at_day,
    epoch_at,
    lesson_of,
    pages_of,
)
from support.hours_cases import HOURS, Day, burst

from service.core.budget_factor import Window
from service.core.change_hours.evidence import unpacked
from service.core.change_hours.profile import Profiles, busiest
from service.epochs.change_hours import learn_hours, lesson
from service.model.columns import ChangeHours, HostHours
from service.model.domain import Observability


def learnt(pages, now, last=None, passed=1.0, before=None):
    """Return the evidence of hosts after the lesson of an epoch."""
    change_hours = lesson_of(pages, now, passed)
    if before is not None:
        known = np.isin(before.host_id, change_hours.lesson.host_id)  # as `load_hours` reads them
        change_hours = change_hours._replace(learnt=before.where(known))
    return learn_hours(pages, ESTIMATOR, change_hours, last, at_day(now)[()]).learnt


def crawled(n=40, seed=1, days=1.0, host_id=1, every=1.3):
    """Return pages of one host, each last crawled within the last days."""
    rng = np.random.default_rng(seed)
    interval = rng.uniform(0.5, every, n) * rng.choice([-1.0, 1.0], n)
    return pages_of(np.full(n, host_id), 10.0 - days * rng.random(n) - 0.01, interval)


def test_a_host_learns_once_a_day_at_an_hour_of_its_own():
    pages = pages_of(np.arange(1, 49), np.full(48, 9.99), np.full(48, 1.0))
    late = 10 / 1440
    hours = np.arange(1, 25) / 24
    rows = [
        lesson(pages, Window(1 / 24 + late, late), at_day(10.0 + hour)[()]).row for hour in hours
    ]
    assert np.sort(np.concatenate(rows)).tolist() == list(range(48))
    assert max(map(len, rows)) <= 4  # evenly: two each in the mean


def test_a_host_that_learnt_in_a_lost_attempt_of_an_epoch_does_not_learn_again():
    pages = crawled()
    first = learnt(pages, 10.0)
    assert first.host_id.tolist() == [1]
    for numbers in (first.profile, first.evidence):  # as a database returns them
        np.testing.assert_array_equal(numbers, numbers.astype(np.float32))
    assert not len(learnt(pages, 10.0, before=first))


def test_a_host_that_learnt_by_a_clock_ahead_learns_again_once_the_clock_is_set_back():
    ahead = replace(learnt(crawled(), 10.0), learnt_at=at_day([400.0]))
    again = learnt(crawled(), 10.0, before=ahead)
    assert again.learnt_at.tolist() == at_day([10.0]).tolist()
    assert again.evidence.sum() > ahead.evidence.sum()


def test_a_host_with_pages_that_are_crawled_often_learns_in_every_epoch():
    late = 10 / 1440
    often = pages_of([1, 1], [9.999, 9.5], [0.03, -1.2])
    for hour in range(24):
        now = at_day(10.0 + hour / 24)[()]
        pages = replace(often, last_observed_at=at_day([9.99 + hour / 24] * 2))
        assert len(lesson(pages, Window(1 / 24 + late, late), now)) == 3
        assert lesson(pages, Window(1 / 24 + late, late), now).row.tolist() == [0, 1]


def test_a_crawl_counts_once_though_two_lessons_see_it():
    pages = crawled()
    first = learnt(pages, 10.0)
    again = learnt(pages, 10.5, epoch_at(10.0), 0.5, first)
    assert len(again) == 0 or np.allclose(
        unpacked(again.evidence).information, unpacked(first.evidence).information, rtol=0.01
    )


def test_crawls_of_two_days_count_as_much_as_in_one_lesson():
    one, two = crawled(30, 1), crawled(30, 2)
    two = replace(two, last_observed_at=two.last_observed_at + np.timedelta64(1, "D"))
    first = learnt(one, 10.0)
    second = learnt(two, 11.0, epoch_at(10.0), 1.0, first)
    alone = learnt(two, 11.0)
    total = unpacked(second.evidence).information
    expected = unpacked(first.evidence).information + unpacked(alone.evidence).information
    np.testing.assert_allclose(total, expected, rtol=0.02, atol=0.02 * np.abs(expected).max())


def test_hosts_with_hardly_a_crawl_a_day_learn_nothing():
    old = ChangeHours(
        host_id=np.array([1]),
        learnt_at=at_day([2.0]),
        evidence=learnt(crawled(), 10.0).evidence,
        profile=learnt(crawled(), 10.0).profile,
    )
    assert len(learnt(crawled(1), 10.0, epoch_at(9.0), 1.0, old)) == 0  # of the last two days
    assert len(learnt(crawled(2), 10.0, epoch_at(9.0), 1.0, old)) == 1, "idle days do not count"


@pytest.mark.parametrize(
    "change",
    [
        {"n_observations": 2},
        {"importance": 0.0},
        {"last_interval": np.full(40, 20.0)},
        {"last_interval": np.zeros(40)},
    ],
)
def test_crawls_that_show_nothing_of_the_hour_are_left_out(change):
    values = {name: np.full(40, value) for name, value in change.items()}
    assert len(learnt(replace(crawled(), **values), 10.0)) == 0


def test_a_reported_date_is_the_instant_of_the_change():
    pages = crawled()
    end = (pages.last_observed_at - MIDNIGHT) / np.timedelta64(1, "D")
    age = (end - 0.26) % 1.0  # all at 06:14
    age = np.where(age < np.abs(pages.last_interval), age, 0.01)
    age[pages.last_interval < 0] = 30.0
    evidence = unpacked(learnt(replace(pages, last_age=age), 10.0).evidence)
    n_changed = np.count_nonzero(pages.last_interval > 0)
    at_six = np.count_nonzero((pages.last_interval > 0) & (age != 0.01))
    assert evidence.dated[0].sum() == pytest.approx(min(n_changed, 10.0))
    assert evidence.dated[0, 6] >= at_six * min(1.0, 10.0 / n_changed) - 1e-6
    assert evidence.exposure.sum() > 0
    assert not evidence.score.any()  # these crawls count as dates alone


def test_a_date_before_the_interval_of_a_change_is_not_believed():
    pages = replace(crawled(), last_interval=np.full(40, 1.0), last_age=np.full(40, 5.0))
    evidence = unpacked(learnt(pages, 10.0).evidence)
    assert not evidence.dated.any()
    assert evidence.score.any()


def pinged(rng, day, last_ping, *, peaked, n=30, rate=1.5):
    """Return last pings of pages that announce each change, after one more day."""
    for page in range(n):
        at = day + np.sort(rng.random(rng.poisson(rate)))
        likely = np.where(np.abs(at % 1.0 - 0.5) < 0.1, 1.0, 0.02 if peaked else 1.0)
        kept = at[rng.random(len(at)) < likely]
        if len(kept):
            last_ping[page] = kept[-1]
    return last_ping


@pytest.mark.dear
def test_pings_show_the_hour_without_a_bias_towards_the_lesson():
    """Pages ping at any hour, or at hours about noon; a host sees each page's last ping a day."""
    rng = np.random.default_rng(3)
    for peaked in (False, True):
        before, last_ping = None, np.full(30, np.nan)
        for day in range(60):
            last_ping = pinged(rng, float(day), last_ping, peaked=peaked)
            n_pings = np.where(np.isnan(last_ping), 0, 1 + day)
            pages = pages_of(
                np.ones(30, np.int64),
                np.full(30, day + 0.5),
                np.zeros(30),
                observability=Observability.complete,
                last_ping_at=at_day(last_ping),
                n_pings=n_pings,
                recent_pings=n_pings.astype(np.float64),
                pings_since=at_day(np.zeros(30)),
            )
            last = epoch_at(float(day)) if day else None
            new = learnt(pages, day + 1.0, last, 1.0, before)
            before = new if len(new) else before
        weight, profile = before.profile[0, 0], before.profile[:1, 1:]
        if peaked:
            hours = busiest(Profiles(profile, np.ones(1)))
            assert weight > 0.95
            assert 8.5 <= hours.start[0] < hours.end[0] <= 15.5
        else:
            assert weight < 0.1


def test_a_host_whose_change_hours_appear_joins_the_others_in_order():
    profiles = burst(0.25)
    row = np.column_stack((profiles.weight, profiles.coefficients))
    others = HostHours(host_id=np.array([0, 5]), profile=np.vstack((row, row)), delay_s=np.ones(2))
    pages = crawled()
    change_hours = lesson_of(pages, 10.0)._replace(hosts=others)
    after = learn_hours(pages, ESTIMATOR, change_hours, None, at_day(10.0)[()])
    assert np.isin([0, 5], after.hosts.host_id).all()
    assert (np.diff(after.hosts.host_id) > 0).all()


def test_crawls_at_the_change_hours_are_recognised_as_one():
    """Forty pages crawled every 1.3 days, of a host that changes about seven, over 60 days."""
    rng, day = np.random.default_rng(5), Day(np.exp(-0.5 * ((HOURS - 0.3) / 0.03) ** 2))
    crawled_at = rng.random(40)
    before = None
    for now in range(2, 70):
        start = crawled_at.copy()
        due = start + 1.3 * rng.uniform(0.9, 1.1, 40)
        done = due < now
        crawled_at = np.where(done, due, start)
        expected = day.operational(crawled_at) - day.operational(start)
        changed = rng.random(40) < -np.expm1(-expected)
        interval = np.where(changed, 1.0, -1.0) * np.where(done, crawled_at - start, 0.0)
        pages = pages_of(np.ones(40, np.int64), crawled_at, interval)
        new = learnt(pages, float(now), epoch_at(now - 1.0), 1.0, before)
        before = new if len(new) else before
    assert before.profile[0, 0] > 0.9
    hours = busiest(Profiles(before.profile[:1, 1:], np.ones(1)))
    middle = (hours.start[0] + (hours.end[0] - hours.start[0]) % 24 / 2) % 24
    assert abs(middle - 0.3 * 24) < 2.5
