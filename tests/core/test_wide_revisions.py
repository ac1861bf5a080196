"""Wide revisions: numbers by hand, brute force, the posterior by simulation, and no evidence."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plain_revisions import plain_chances, plainly_found

from service.core.checks import InvalidInput
from service.core.estimators.gamma import Gamma
from service.core.prior import Prior
from service.core.quiet_intervals import (
    LEAST_CHANGED,
    PROOF,
    SHARES,
    QuietIntervals,
    calibrated,
    find,
    rate_before,
)
from service.core.wide_revisions import (
    LONGEST_DAYS,
    MOST_KNOWN,
    Uncrawled,
    WideRevisions,
    hazard,
    own_share,
    stale,
)

NOW = np.datetime64("2026-05-01T12:00", "us")
DAY = np.timedelta64(1, "D")


def intervals(start, end, changed, expected, site=0, url_group=0):
    n = len(start)
    site, url_group = (np.broadcast_to(column, n).astype(int) for column in (site, url_group))
    start, end, expected = (
        np.array(np.broadcast_to(column, n), float) for column in (start, end, expected)
    )
    return QuietIntervals(site, url_group, start, end, np.array(changed, bool), expected)


def revisions(*hosts_and_ages, share=0.9):
    host_id, age = zip(*hosts_and_ages, strict=True)
    at = NOW - (np.array(age) * 86_400e6).astype("m8[us]")
    return WideRevisions(np.array(host_id), at, np.full(len(at), share))


# -- numbers by hand


def test_five_changes_in_a_row_with_one_chance_in_ten():
    """ln(1 + .95 x 9) = 2.2565: of 200 crawls, the last five or four find a change."""
    one, expected = np.log1p(SHARES[-1] * 9), -np.log(0.9)
    assert one == pytest.approx(2.2565, abs=1e-4)
    assert 4 * one < PROOF < 5 * one
    end = np.arange(200.0)
    for n, found in ((4, []), (5, [0])):
        changed = (end < n) | (end % 20 == 10)
        site, age = find(intervals(end + 9.5, end, changed, expected))
        assert site.tolist() == found
        assert age.tolist() == [n - 1.0] * len(found)


def test_where_pages_change_more_often_than_expected_changes_are_no_surprise():
    end = np.arange(2_000.0)
    changed = np.random.default_rng(1).random(2_000) < 0.4
    quiet = intervals(end / 100 + 20, end / 100, changed, 0.1)
    assert find(quiet)[0].size == 0
    assert calibrated(quiet)[0] == pytest.approx(0.4, abs=0.05)


def test_the_share_and_the_groups_by_hand():
    """Six of eight crawls found a change: h = (.5 + 6)/(2 + 8), as own changes hardly occur."""
    changed = [1, 1, 1, 1, 1, 1, 0, 0]
    group = [0, 0, 1, 1, 2, 2, 3, 3]
    quiet = intervals(np.full(8, 20.0), np.full(8, 1.0), changed, 0.003, url_group=group)
    pages = Uncrawled(np.zeros(3, int), np.array([0, 3, 9]), np.array([15.0, 15.0, 0.5]))
    known = stale(pages, quiet, np.array([[2.0, *[np.inf] * (MOST_KNOWN - 1)]]))
    assert known.share[0] == pytest.approx(0.65, abs=1e-3)
    more, less, none = known.probability
    assert more > 0.65 > less > 0
    # two changes of two, or none of two, beside kappa pages that are like the site
    kappa = (2 - 2 * more) / (more - 0.65)
    assert less == pytest.approx(kappa * 0.65 / (kappa + 2), rel=0.01)
    assert none == 0  # crawled since


def test_a_change_teaches_a_page_as_far_as_it_is_its_own():
    expected = -np.log(0.99)
    assert own_share(expected, 0.95) == pytest.approx(0.01 / (0.01 + 0.95 - 0.0095))
    assert own_share(expected, 0.0) == 1.0
    assert np.exp(-hazard(np.array([0.75]))) == pytest.approx(0.25)


# -- brute force


@st.composite
def crawled_sites(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 60))
    end = rng.uniform(0, 30, n).round(draw(st.integers(0, 3)))
    start = end + rng.uniform(0.5, 20, n).round(3)
    revised = (end < 8) & (start > 8) & (rng.random(n) < draw(st.sampled_from([0.0, 0.4, 1.0])))
    return intervals(
        start,
        end,
        revised | (rng.random(n) < 0.05),
        rng.uniform(0.001, 0.6, n),
        site=rng.integers(0, 3, n),
    )


def best_by_hand(quiet, site):
    """Return the highest log-likelihood ratio, trying every stretch and share one by one."""
    best, chance = 0.0, calibrated(quiet)
    for age in np.unique(np.concatenate((quiet.start, quiet.end))):
        within = (
            (quiet.site == site) & (quiet.end <= age) & (quiet.start > age)
        )  # of instants just before this age
        if (within & quiet.changed).sum() < LEAST_CHANGED:
            continue
        for share in SHARES:
            p = chance[within]
            y = quiet.changed[within]
            best = max(
                best,
                np.log((1 - share) * p + share)[y].sum()
                - np.log(p)[y].sum()
                + (~y).sum() * np.log(1 - share),
            )
    return best


@settings(max_examples=60, deadline=None)
@given(crawled_sites())
def test_a_revision_is_found_where_trying_all_instants_finds_one(quiet):
    site, _ = find(quiet)
    for number in range(3):
        best = best_by_hand(quiet, number)
        assert (number in site) == (best > PROOF)


@settings(max_examples=60, deadline=None)
@given(crawled_sites())
def test_screens_leave_sites_instants_and_chances_as_they_are(quiet):
    site, age = find(quiet)
    sites, ages = plainly_found(quiet)
    assert site.tolist() == sites.tolist()
    np.testing.assert_allclose(age, ages, atol=1e-5)
    chance = plain_chances(quiet)
    np.testing.assert_allclose(calibrated(quiet), chance, rtol=1e-12)
    row = np.flatnonzero(quiet.site != 1)
    np.testing.assert_allclose(calibrated(quiet, row), chance[row], rtol=1e-12)


def posterior_share(quiet):
    """Return the mean of the share by quadrature: Beta(1/2, 3/2), then the crawls."""
    h = (np.arange(4_000) + 0.5) / 4_000
    p = quiet.chance[:, np.newaxis]
    likelihood = np.where(quiet.changed[:, np.newaxis], h + (1 - h) * p, (1 - h) * (1 - p))
    weight = np.exp(np.log(likelihood).sum(axis=0)) * np.sqrt((1 - h) / h)
    return weight @ h / weight.sum()


def test_the_probabilities_are_those_of_pages_that_are_stale():
    """Revisions of 250 sites by simulation: of the pages with probability P, P are stale."""
    rng = np.random.default_rng(7)
    n, said, true, off = 60, [], [], []
    ages = np.array([[5.0, *[np.inf] * (MOST_KNOWN - 1)]])
    for _ in range(250):
        expected, last = rng.lognormal(np.log(0.04), 1.0, n), rng.uniform(10, 40, n)
        hit = rng.random(n) < rng.beta(0.5, 1.5)
        own = rng.random(n) < -np.expm1(-expected)
        seen = rng.random(n) < 0.5
        end = rng.uniform(0, 5, seen.sum())
        quiet = intervals(last[seen], end, (hit | own)[seen], expected[seen])
        pages = Uncrawled(*np.zeros((2, (~seen).sum()), int), last[~seen])
        known = stale(pages, quiet, ages)
        off.append(known.share[0] - posterior_share(quiet))
        said.append(known.probability)
        true.append(hit[~seen])
    assert np.abs(off).max() < 0.06
    assert np.mean(off) == pytest.approx(0.0, abs=0.01)
    probability, is_stale = np.concatenate(said), np.concatenate(true)
    for low in np.arange(0, 1, 0.25):
        some = (probability >= low) & (probability < low + 0.25)
        assert probability[some].mean() == pytest.approx(is_stale[some].mean(), abs=0.03)


def test_groups_that_were_spared_get_less():
    """A revision of every page of a quarter of 40 directories, of which half are crawled."""
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(40), 10)
    hit, crawled = group < 10, rng.random(400) < 0.5
    quiet = intervals(
        np.full(crawled.sum(), 30.0),
        rng.uniform(0, 5, crawled.sum()),
        hit[crawled],
        0.02,
        url_group=group[crawled],
    )
    pages = Uncrawled(
        np.zeros((~crawled).sum(), int), group[~crawled], np.full((~crawled).sum(), 20.0)
    )
    known = stale(pages, quiet, np.array([[6.0, *[np.inf] * (MOST_KNOWN - 1)]]))
    assert known.share[0] == pytest.approx(0.25, abs=0.06)
    assert known.probability[hit[~crawled]].mean() > 0.85
    assert known.probability[~hit[~crawled]].mean() < 0.08


def test_of_groups_that_differ_only_a_sample_comes_first():
    group = np.repeat(np.arange(30), 10)
    seen = group < 6
    quiet = intervals(
        np.full(60, 30.0), np.full(60, 1.0), group[seen] < 2, 0.02, url_group=group[seen]
    )
    pages = Uncrawled(np.zeros(240, int), group[~seen], np.linspace(10, 20, 240))
    known = stale(pages, quiet, np.array([[5.0, *[np.inf] * (MOST_KNOWN - 1)]]))
    assert np.bincount(group[~seen][known.probability > 0])[6:].tolist() == [3] * 24


@pytest.mark.parametrize("changed", [False, True])
def test_the_rate_before_a_crawl_is_recovered(changed):
    prior, rng = Prior(a=0.4, b=200.0), np.random.default_rng(2)
    gamma = Gamma(prior)
    state = gamma.init(500)
    for _ in range(8):
        interval = rng.uniform(5, 40, 500)
        before = gamma.change_rate(state)
        state = gamma.update(state, interval, rng.random(500) < 0.1)
    state, before = gamma.update(state, 30.0, changed), gamma.change_rate(state)
    again = rate_before(
        prior.a, prior.b, *gamma.evidence(state), np.full(500, 30.0 if changed else -30.0)
    )
    if not changed:
        np.testing.assert_allclose(again, before, rtol=1e-9)
    assert np.abs(np.log(again / before)).max() < 0.25
    assert np.log(again / before).mean() == pytest.approx(0.0, abs=0.06)


# -- no evidence, and the columns


def test_without_a_change_at_one_instant_nothing_is_found():
    """Pages that change on their own, as often as expected, hardly ever look like a revision."""
    rng = np.random.default_rng(5)
    n = 20_000
    expected = rng.uniform(0.001, 0.6, n)
    end = rng.uniform(0, 30, n)
    quiet = intervals(
        end + 15, end, rng.random(n) < -np.expm1(-expected), expected, site=rng.integers(0, 200, n)
    )
    assert find(quiet)[0].size <= 1


def test_pages_crawled_since_have_probability_zero():
    quiet = intervals(np.full(9, 20.0), np.full(9, 1.0), np.ones(9), 0.01)
    pages = Uncrawled(np.zeros(4, int), np.zeros(4, int), np.array([2.0, 1.0, np.nan, 2.5]))
    ages = np.array([[2.0, *[np.inf] * (MOST_KNOWN - 1)]])
    assert (stale(pages, quiet, ages).probability > 0).tolist() == [False, False, False, True]
    nothing = intervals([], [], [], [])
    assert not stale(pages, nothing, ages).probability.any()
    assert find(nothing)[0].size == 0


def test_a_host_keeps_its_newest_revisions():
    known = revisions((3, 50.0), (3, 40.0), (3, 30.0), (3, 20.0), (8, LONGEST_DAYS + 1))
    more = known.with_new(revisions((3, 2.0), (5, 1.0))).newest(NOW)
    assert more.host_id.tolist() == [3, 3, 3, 3, 5]
    assert more.ages(np.array([3, 5]), NOW).round(6).tolist() == [
        [40.0, 30.0, 20.0, 2.0],
        [1.0, np.inf, np.inf, np.inf],
    ]
    within = more.probability(np.array([3, 3, 5, 4]), NOW - 35 * DAY, np.full(4, NOW - DAY))
    assert within.round(6).tolist() == [0.999, 0.999, 0.9, 0.0]


def test_revisions_are_packed_in_numbers():
    known = revisions((3 << 42, 50.0), ((1 << 53) + 1, 40.0), share=0.625)
    again = WideRevisions.unpacked(known.packed())
    for ours, theirs in zip(again, known, strict=True):
        assert ours.tolist() == theirs.tolist()
    with pytest.raises(InvalidInput, match="has 4 numbers"):
        WideRevisions.unpacked(np.zeros(4, np.int64))
    assert WideRevisions.of_all([None, WideRevisions.none()]) is None
    assert WideRevisions.of_all([known, None]).host_id.tolist() == known.host_id.tolist()
