"""URL groups in lessons and epochs: which get evidence, whom they teach, who follows them."""

from dataclasses import replace

import numpy as np
import pytest
from support.hourly_cases import (
    ESTIMATOR,
    at_day,
    epoch_at,
    hours_of,
    known,
    lesson_of,
    pages_of,
)
from support.hours_cases import HOURS, Day, burst, many

from service.core.change_hours.evidence import unpacked
from service.core.change_hours.profile import TERMS
from service.epochs.change_hours import learn_hours
from service.epochs.group_hours import HoursInForce, renewed
from service.epochs.inputs import Input, divided
from service.epochs.shifts import placed, shifted
from service.epochs.urgency import LastEpoch
from service.model.arrays import SHARD_BITS
from service.model.columns import CapColumns, ChangeHours, GroupHours, GroupProfiles
from service.storage.epochs.group_hours import NO_PROFILES, NO_RECORDS, NO_SCREENS


class Site:
    """A host whose sections change at an hour each; its pages are crawled about every 1.3 days."""

    def __init__(self, days, n=24, seed=5, change_rate=1.0):
        self.rng, self.days, self.n = np.random.default_rng(seed), days, n
        self.group = np.repeat(np.arange(len(days)), n)
        self.crawled_at = self.rng.random(len(self.group))
        self.hours = lesson_of(self.pages(np.zeros(len(self.group))), 1.0)
        self.rate = change_rate

    def pages(self, interval):
        n = len(self.group)
        ones = np.ones(n, np.int64)
        evidence = np.tile([90.0, 90.0], (n, 1))
        return pages_of(ones, self.crawled_at, interval, url_group=self.group, estimate=evidence)

    def learn(self, now):
        """Crawl the pages that are due before a day, and learn."""
        start = self.crawled_at.copy()
        due = start + self.rng.uniform(0.9, 1.7, len(start))
        done = due < now
        self.crawled_at = np.where(done, due, start)
        changed = np.zeros(len(start), np.bool_)
        for n, day in enumerate(self.days):
            rows = self.group == n
            gone = day.operational(self.crawled_at[rows]) - day.operational(start[rows])
            changed[rows] = self.rng.random(self.n) < -np.expm1(-self.rate * gone)
        interval = np.where(changed, 1.0, -1.0) * np.where(done, self.crawled_at - start, 0.0)
        pages = self.pages(interval)
        before = self.hours
        self.hours = lesson_of(pages, now, 1.0)._replace(
            hosts=before.hosts,
            groups=before.groups,
            learnt=before.learnt,
            records=before.records,
            screens=before.screens,
        )
        last = epoch_at(now - 1.0)
        self.hours = learn_hours(pages, ESTIMATOR, self.hours, last, at_day(now)[()])


def at_hour(hour):
    return Day(np.exp(-0.5 * ((HOURS - hour) / 0.03) ** 2))


@pytest.fixture(scope="module")
def odd():
    """A host of five sections after 60 days; the last one keeps an hour of its own."""
    site = Site([at_hour(0.3)] * 4 + [at_hour(0.75)])
    for now in range(2, 62):
        site.learn(float(now))
    return site


@pytest.mark.dear
def test_an_odd_section_gets_evidence_and_hours_of_its_own(odd):
    records = odd.hours.records
    assert 4 in records.url_group
    own = records.where(records.url_group == 4)
    assert own.has_own.all()
    assert own.in_force.all()
    assert own.certain[0] == 1.0
    peak = np.arctan2(own.profile[0, 10], own.profile[0, 2]) / (2 * np.pi) % 1
    assert peak == pytest.approx(0.75, abs=0.05)
    assert own.page_id[0] in odd.pages(odd.crawled_at).page_id[odd.group == 4]
    assert odd.hours.hosts.host_id.tolist() == [1]
    screened = set(odd.hours.screens.url_group.tolist())
    assert screened | set(records.url_group.tolist()) == {0, 1, 2, 3, 4}
    assert not screened & set(records.url_group.tolist())


@pytest.mark.dear
def test_an_odd_section_no_longer_teaches_its_host(odd):
    hours = odd.hours
    peak = np.arctan2(hours.hosts.profile[0, 10], hours.hosts.profile[0, 2]) / (2 * np.pi) % 1
    assert peak == pytest.approx(0.3, abs=0.04)


@pytest.mark.dear
def test_without_groups_the_lessons_of_hosts_are_the_same():
    with_groups, without = (Site([at_hour(0.3)] * 2, 12) for _ in range(2))
    without.hours = without.hours._replace(with_groups=False)
    for now in range(2, 12):
        for site in (with_groups, without):
            site.learn(float(now))
            site.hours = site.hours._replace(with_groups=site is with_groups)
    np.testing.assert_array_equal(with_groups.hours.learnt.evidence, without.hours.learnt.evidence)


def test_a_group_with_hardly_a_crawl_a_day_has_no_screen():
    rng = np.random.default_rng(1)
    n = 30
    group = np.repeat([0, 1], [n - 1, 1])
    interval = rng.uniform(0.5, 1.2, n) * rng.choice([-1.0, 1.0], n)
    pages = pages_of(np.ones(n, np.int64), 10.0 - 0.9 * rng.random(n), interval, url_group=group)
    hours = lesson_of(pages, 11.0, 2.0)
    after = learn_hours(pages, ESTIMATOR, hours, epoch_at(9.0), at_day(10.0)[()])
    assert after.screens.url_group.tolist() in ([0], [0, 1])
    one = pages.take(np.arange(n - 1, n))
    alone = lesson_of(one, 10.0)
    old = replace_learnt(alone, at_day([2.0]))
    late = learn_hours(one, ESTIMATOR, old, epoch_at(8.0), at_day(10.0)[()])
    assert not len(late.screens)


def replace_learnt(hours, learnt_at):
    learnt = ChangeHours(
        host_id=np.ones(1, np.int64),
        learnt_at=learnt_at,
        evidence=np.zeros((1, 223)),
        profile=np.append(0.0, np.eye(TERMS)[0])[None],
    )
    return hours._replace(learnt=learnt)


def always_changed(n=40, interval=1.9):
    """Return pages that nearly always change between two crawls, in groups of two."""
    at = 10.0 - np.linspace(0.05, 0.95, n)
    sure = np.tile([90.0, 30.0], (n, 1))
    groups = np.repeat(np.arange(n // 2), 2)
    intervals = np.full(n, interval)
    return pages_of(np.ones(n, np.int64), at, intervals, url_group=groups, estimate=sure)


def test_groups_whose_pages_always_change_get_evidence_at_once():
    pages = always_changed()
    after = learn_hours(pages, ESTIMATOR, lesson_of(pages, 10.0), None, at_day(10.0)[()])
    assert after.records.url_group.tolist() == list(range(20))
    assert not len(after.screens)
    assert after.records.certain.max() < 0.1, "their extra crawls go on"


@pytest.mark.parametrize(("interval", "shows"), [(1.9, False), (-1.9, False), (0.6, True)])
def test_only_extra_crawls_of_pages_that_always_change_show_hours(interval, shows):
    pages = always_changed(interval=interval)
    after = learn_hours(pages, ESTIMATOR, lesson_of(pages, 10.0), None, at_day(10.0)[()])
    for evidence in (after.records.evidence, after.learnt.evidence):
        assert ((np.abs(evidence).sum(axis=1) > 0) == shows).all()
        assert ((unpacked(evidence).information[:, 0] > 0) == shows).all()


def test_a_crawl_that_shows_nothing_leaves_the_screen_of_its_group():
    pages = always_changed()
    rare = np.arange(len(pages)) % 4 > 0
    one_group = np.zeros(len(pages), np.int32)
    estimate = np.where(rare[:, None], [9.0, 90.0], [90.0, 30.0])
    mixed = replace(pages, url_group=one_group, estimate=estimate)
    alone = mixed.take(np.flatnonzero(rare))
    screens = [
        learn_hours(each, ESTIMATOR, lesson_of(each, 10.0), None, at_day(10.0)[()]).screens
        for each in (mixed, alone)
    ]
    assert screens[0].numbers.any()
    np.testing.assert_array_equal(screens[0].numbers, screens[1].numbers)


def test_a_host_has_at_most_as_many_groups_with_evidence_as_crawls_a_day():
    pages = always_changed(40)
    one_each = replace(pages, url_group=np.arange(40, dtype=np.int32))
    hours = lesson_of(one_each, 10.0)
    kept = records_of(np.arange(100, 135), host_id=1)
    after = learn_hours(one_each, ESTIMATOR, hours._replace(records=kept), None, at_day(10.0)[()])
    assert len(after.records) <= 40
    assert set(range(100, 135)) <= set(after.records.url_group.tolist())
    assert len(after.records) + len(after.screens) == 35 + 40


def records_of(url_group, host_id=1, weight=0.5, **changes):
    """Return groups with evidence of nothing."""
    url_group = np.asarray(url_group, np.int32)
    n = len(url_group)
    values = {
        "host_id": np.broadcast_to(np.asarray(host_id, np.int64), n).copy(),
        "url_group": url_group,
        "seen_at": np.full(n, at_day([1.0])[0]),
        "page_id": np.ones(n, np.int64),
        "in_force": np.ones(n, np.bool_),
        "has_own": np.zeros(n, np.bool_),
        "certain": np.full(n, 0.25),
        "evidence": np.zeros((n, 223)),
        "profile": np.tile(np.append(weight, burst(0.5).coefficients), (n, 1)),
    }
    return GroupHours(**(values | changes))


def test_groups_learn_once_in_a_lost_attempt_of_an_epoch():
    pages = always_changed()
    first = learn_hours(pages, ESTIMATOR, lesson_of(pages, 10.0), None, at_day(10.0)[()])
    again = lesson_of(pages, 10.0)._replace(
        learnt=first.learnt, records=first.records, groups=first.groups, hosts=first.hosts
    )
    second = learn_hours(pages, ESTIMATOR, again, None, at_day(10.0)[()])
    assert not len(second.records)
    np.testing.assert_array_equal(second.groups.profile, first.groups.profile)
    for numbers in (first.records.profile, first.records.evidence, first.records.certain):
        np.testing.assert_array_equal(numbers, numbers.astype(np.float32))


def test_groups_in_force_are_replaced_by_those_of_the_hosts_that_learnt():
    before = profiles_of([1, 1, 2], [3, 9, 3])
    before = replace(before, delay_s=np.array([5.0, 5.0, 7.0]))
    learnt = replace_learnt(lesson_of(always_changed(), 10.0), at_day([9.0])).learnt
    new = records_of([3, 4, 8], in_force=np.array([True, False, True]))
    hosts = hours_of(burst(0.5), host_id=(7,)).hosts
    after = renewed(before, learnt, new, hosts)
    assert after.host_id.tolist() == [1, 1, 2]
    assert after.url_group.tolist() == [3, 8, 3]
    assert after.delay_s.tolist() == [5.0, 5.0, 7.0]


def profiles_of(host_id, url_group, weight=1.0, at=0.25):
    n = len(host_id)
    profile = np.tile(np.append(0.0, burst(at).coefficients), (n, 1))
    profile[:, 0] = weight
    return GroupProfiles(
        host_id=np.asarray(host_id, np.int64),
        url_group=np.asarray(url_group, np.int32),
        certain=np.broadcast_to(np.asarray(weight, np.float64), n).copy(),
        profile=profile,
        delay_s=np.full(n, np.nan),
    )


@pytest.mark.parametrize("base", [0, 3 << SHARD_BITS])
def test_pages_follow_their_group_else_their_host_as_a_loop_finds(monkeypatch, base):
    monkeypatch.setattr("service.epochs.group_hours.BLOCK", 17)
    rng = np.random.default_rng(2)
    host_id, group = base + rng.integers(1, 9, 200), rng.integers(0, 6, 200)
    hosts = hours_of(many(burst(0.5), 3), host_id=tuple(base + np.array([2, 3, 7]))).hosts
    chosen = sorted({(h, g) for h, g in zip(host_id.tolist(), group.tolist(), strict=True)})[::3]
    groups = profiles_of(*zip(*chosen, strict=True))
    pages = pages_of(host_id, np.full(200, 9.5), np.ones(200), url_group=group)
    place = placed(pages, HoursInForce.of(hosts, groups))
    rows = {h: n for n, h in enumerate(hosts.host_id.tolist())}
    of_groups = {each: 3 + n for n, each in enumerate(chosen)}
    expected = [
        of_groups.get((h, g), rows.get(h, -1))
        for h, g in zip(host_id.tolist(), group.tolist(), strict=True)
    ]
    assert place.tolist() == expected
    assert placed(pages, HoursInForce.of(hosts, NO_PROFILES)).max() < 3
    assert placed(pages, None).tolist() == [-1] * 200


def shift(groups, **changes):
    """Return shifts and next crawls of two sections of a host that changes at noon."""
    rng = np.random.default_rng(3)
    n = 200
    pages = pages_of(
        np.ones(n, np.int64), 9.0 + rng.random(n), np.full(n, -1.0), url_group=np.arange(n) % 2
    )
    hours = hours_of(burst(0.5))._replace(groups=groups, **changes)
    estimates, rate = known(np.full(n, 0.3)), np.ones(n)
    last = LastEpoch.of(epoch_at(10.0 - 1 / 24))
    place = placed(pages, hours.in_force)
    now = at_day(10.0)[()]
    after = shifted(pages, estimates, rate, rate, hours, place, CapColumns.empty(), last, now)
    crawled = (pages.last_observed_at - at_day(0.0)[()]) / np.timedelta64(1, "D")
    return pages, after, crawled + 1.0 / after.urgency


def test_crawls_of_a_section_come_after_its_own_hour():
    pages, _, at = shift(profiles_of([1], [1], at=0.05))
    own, hour = pages.url_group == 1, at % 1.0
    soon = at < 10.9
    lag = {odd: hour[soon & (own == odd)] - (0.05 if odd else 0.5) for odd in (True, False)}
    assert np.median(np.abs(lag[True] - np.median(lag[True]))) < 0.06
    assert 0 < np.median(lag[True]) < 0.12
    assert 0 < np.median(lag[False]) < 0.2


def test_crawls_of_a_flat_section_stay_where_they_are():
    pages, after, at = shift(profiles_of([1], [1], weight=0.0))
    own = pages.url_group == 1
    assert (after.shift[own] == np.iinfo(np.int16).min).mean() > 0.9, "only extra crawls"
    nominal = 1.0 + (pages.last_observed_at - at_day(0.0)[()]) / np.timedelta64(1, "D")
    still = own & (after.shift == np.iinfo(np.int16).min)
    np.testing.assert_allclose(at[still], nominal[still], atol=1e-9)
    assert (after.shift[~own] != np.iinfo(np.int16).min).any()


def test_a_part_has_the_groups_of_its_own_hosts():
    ids = np.array([1, 2]) + (np.array([0, 1]) << SHARD_BITS)
    pages = replace(pages_of(ids, [9.5, 9.5], [1.0, 1.0]), page_id=ids)
    records = records_of([4, 4], host_id=ids)
    hours = lesson_of(pages, 10.0)._replace(
        groups=profiles_of(ids, [4, 4]), records=records, screens=NO_SCREENS
    )
    whole = Input(pages, CapColumns.empty(), ESTIMATOR, None, hours, None)
    for shard, part in divided(whole).items():
        assert part.change_hours.groups.host_id.tolist() == [ids[shard]]
        assert part.change_hours.records.host_id.tolist() == [ids[shard]]
        assert len(part.change_hours.screens) == 0


def test_an_empty_lesson_teaches_nobody():
    pages = pages_of(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    after = learn_hours(pages, ESTIMATOR, lesson_of(pages, 10.0), None, at_day(10.0)[()])
    assert (len(after.records), len(after.screens)) == (len(NO_RECORDS), 0)
