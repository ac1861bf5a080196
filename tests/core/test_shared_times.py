"""Times that pages share: revisions are found, independent pages stay as they are."""

import numpy as np
import pytest

from service.core.savings import Stretches, drawn_changes
from service.core.shared_times import shared_times

DAYS = 100.0


def crawled(n_pages, change_at, interval=10.0, seed=1):
    """Crawl pages at even intervals with random phases; `change_at` has the changes of each."""
    rng = np.random.default_rng(seed)
    parts = []
    for page in range(n_pages):
        ends = np.arange(rng.uniform(0, interval), DAYS, interval)
        begin = np.append(ends[0] - interval, ends[:-1])
        at = np.asarray(change_at(page, rng))
        changed = [bool(((b < at) & (at <= e)).any()) for b, e in zip(begin, ends, strict=True)]
        parts.append((np.full(len(ends), page), begin, ends, np.array(changed, float)))
    page, begin, end, changed = map(np.concatenate, zip(*parts, strict=True))
    return Stretches(page, begin, end, changed, 0.02 * (end - begin))


def learnt(stretches, n_pages, group=None):
    own = np.zeros(n_pages, np.int64)
    group = own if group is None else group
    changed = stretches.probability > 0
    rate = np.full(n_pages, 0.02)
    return shared_times(*stretches[:3], changed, rate, own, group, (-10.0, DAYS))


def test_a_revision_of_all_pages_is_found_within_a_day():
    stretches = crawled(60, lambda *_: [43.3])
    times = learnt(stretches, 60)
    changes = drawn_changes(stretches, np.random.default_rng(2), times=times)
    at = changes.at[np.diff(changes.stretch, prepend=-1) != 0]
    assert len(at) == 60
    assert np.median(np.abs(at - 43.3)) < 0.6
    assert np.mean(np.abs(at - 43.3) < 1.0) > 0.8
    plain = drawn_changes(stretches, np.random.default_rng(2))
    assert np.median(np.abs(plain.at - 43.3)) > 1.5


def test_groups_of_a_host_have_revisions_of_their_own():
    group = np.arange(80) // 40
    stretches = crawled(80, lambda page, _: [20.0 + 50.0 * group[page]])
    changes = drawn_changes(stretches, np.random.default_rng(2), times=learnt(stretches, 80, group))
    off = np.abs(changes.at - (20.0 + 50.0 * group[stretches.page[changes.stretch]]))
    assert np.median(off) < 0.3


def test_independent_pages_change_anywhere_in_their_stretches():
    stretches = crawled(200, lambda _, rng: rng.uniform(0, DAYS, rng.poisson(1.5)))
    times = learnt(stretches, 200)
    parts = []
    for seed in range(20):
        changes = drawn_changes(stretches, np.random.default_rng(seed), times=times)
        first = np.diff(changes.stretch, prepend=-1) != 0
        stretch = changes.stretch[first]
        begin, end = stretches.begin[stretch], stretches.end[stretch]
        parts.append((changes.at[first] - begin) / (end - begin))
    assert np.mean(np.concatenate(parts)) == pytest.approx(0.5, abs=0.04)


def test_times_and_instants_are_inverse_and_rise():
    stretches = crawled(60, lambda page, _: [43.3, 5.0 + page])
    group = np.arange(60) % 7
    times = learnt(stretches, 60, group)
    page = np.repeat(np.arange(60), 50)
    at = np.tile(np.linspace(-9.9, 99.9, 50), 60)
    value = times.of(page, at)
    assert (np.diff(value.reshape(60, 50), axis=1) > 0).all()
    np.testing.assert_allclose(times.back(page, value), at, atol=1e-6)
    beyond = times.of(np.array([0, 0]), np.array([-1e6, 1e6]))
    assert times.back(np.array([0, 0]), beyond) == pytest.approx([-10.0, DAYS])


def test_no_stretches_and_no_changes_are_days():
    none = Stretches(*(np.zeros(0, kind) for kind in (int, float, float, float, float)))
    times = learnt(none, 3)
    assert np.diff(times.of(np.array([1, 1]), np.array([0.0, 7.0]))).tolist() == pytest.approx([7])
    quiet = crawled(5, lambda *_: [])
    values = learnt(quiet, 5).of(np.array([2, 2]), np.array([0.0, 50.0]))
    assert 0 < np.diff(values)[0] <= 50
