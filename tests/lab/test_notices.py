"""Change notices of a world: counted by hand, by loops, and in the mean."""

import numpy as np
import pytest
from support.sim_cases import world_of

from recrawl_lab.worlds.notices import (
    Notices,
    delayed,
    imperfect_notices,
    lying_sitemap_notices,
    sitemap_notices,
    true_notices,
)
from recrawl_lab.worlds.world import synthetic_world
from service.core.checks import InvalidInput

EVERY = 0.7


def rng(seed=0):
    return np.random.default_rng(seed)


def rows(notices):
    return sorted(zip(*(column.tolist() for column in notices), strict=True))


def ragged_world(seed=3):
    """Pages that come and go; some never change."""
    draw = rng(seed)
    created = np.where(draw.random(40) < 0.5, 0.0, draw.random(40) * 5)
    ended = np.where(draw.random(40) < 0.5, 10.0, 5 + draw.random(40) * 5)
    lives = zip(created, ended, draw.poisson(6, 40), strict=True)
    changes = [(b - draw.random(n) * (b - a)).tolist() for a, b, n in lives]
    return world_of(changes, created=created, ended=ended)


def changes_of(world, pages):
    return [(page, at) for page in pages.tolist() for at in world.changes_of(page).tolist()]


SOME = np.array([31, 0, 7, 8, 22, 5])


def test_true_notices_are_the_changes_of_their_pages():
    world = ragged_world()
    notices = true_notices(world, SOME)
    assert rows(notices) == sorted((page, at, at) for page, at in changes_of(world, SOME))
    assert (np.diff(notices.told_at) >= 0).all()
    everyone = true_notices(world, np.arange(40))
    assert len(everyone.page) == len(world.changed_at)


def test_the_same_delay_moves_every_notice_and_loses_those_after_the_end():
    world = ragged_world()
    late = delayed(true_notices(world, SOME), world, 1.5)
    told = [(page, at, at + 1.5) for page, at in changes_of(world, SOME) if at + 1.5 <= 10]
    assert rows(late) == sorted(told)
    assert 0 < len(told) < len(changes_of(world, SOME))
    assert rows(delayed(late, world, 0.0)) == rows(late)


def test_exponential_delays_have_their_mean_and_keep_what_notices_say():
    world = world_of([np.linspace(0.001, 500, 20_000).tolist()], days=1_000.0)
    late = delayed(true_notices(world, np.array([0])), world, 2.0, rng=rng())
    assert sorted(late.changed_at.tolist()) == world.changed_at.tolist()
    delay = late.told_at - late.changed_at
    assert (delay >= 0).all()
    assert delay.mean() == pytest.approx(2.0, abs=4 * 2 / np.sqrt(20_000))
    assert (delay > 2).mean() == pytest.approx(np.exp(-1), abs=4 * 0.5 / np.sqrt(20_000))
    assert (np.diff(late.told_at) >= 0).all()
    assert (np.diff(late.changed_at) < 0).any()


def true_and_false(world, notices):
    changes = set(changes_of(world, np.arange(len(world))))
    told = zip(notices.page.tolist(), notices.changed_at.tolist(), strict=True)
    is_true = np.array([notice in changes for notice in told], np.bool_)
    return is_true, ~is_true


@pytest.mark.parametrize(("recall", "precision"), [(0.3, 0.8), (0.9, 0.25), (1.0, 1.0), (0.0, 0.5)])
def test_recall_and_precision_are_those_that_were_asked_for(recall, precision):
    world = synthetic_world(300, 60.0, rng=rng(1))
    pages = np.arange(0, 300, 2)
    notices = imperfect_notices(world, pages, recall=recall, precision=precision, rng=rng())
    is_true, is_false = true_and_false(world, notices)
    n_changes = len(changes_of(world, pages))
    mean_true = recall * n_changes
    assert is_true.sum() == pytest.approx(
        mean_true, abs=4 * np.sqrt(n_changes * recall * (1 - recall))
    )
    mean_false = world.change_rate[pages].sum() * 60 * recall * (1 / precision - 1)
    assert is_false.sum() == pytest.approx(mean_false, abs=4 * np.sqrt(mean_false))
    if recall:
        error = 4 * np.sqrt(1 / (n_changes * recall))
        assert is_true.mean() == pytest.approx(precision, abs=error)
    assert (notices.told_at == notices.changed_at).all()
    assert (np.diff(notices.told_at) >= 0).all()
    assert np.isin(notices.page, pages).all()


def test_each_page_has_its_own_recall_and_precision():
    world = synthetic_world(400, 60.0, rng=rng(2))
    pages = np.arange(400)[::-1]
    recall, precision = (np.where(pages < 200, low, high) for low, high in ((0.2, 1.0), (1.0, 0.3)))
    notices = imperfect_notices(world, pages, recall=recall, precision=precision, rng=rng())
    is_true, _ = true_and_false(world, notices)
    n_changes = np.diff(world.first)
    low = notices.page < 200
    assert is_true[low].all()
    assert low.sum() == pytest.approx(0.2 * n_changes[:200].sum(), rel=0.1)
    assert (is_true & ~low).sum() == n_changes[200:].sum()
    assert is_true[~low].mean() == pytest.approx(0.3, abs=0.03)


def test_false_notices_come_within_a_page_s_life_and_of_pages_that_change():
    world = ragged_world()
    notices = imperfect_notices(world, np.arange(40), recall=1.0, precision=0.02, rng=rng())
    _, is_false = true_and_false(world, notices)
    page, at = notices.page[is_false], notices.told_at[is_false]
    assert (at > world.created[page]).all()
    assert (at <= world.ended[page]).all()
    share = (at - world.created[page]) / world.life[page]
    assert share.mean() == pytest.approx(0.5, abs=4 * np.sqrt(1 / 12 / len(share)))
    quiet = np.flatnonzero(world.change_rate == 0)
    assert not np.isin(quiet, notices.page).any()


def fetched(world, pages, every):
    """An honest sitemap read fetch by fetch."""
    told, k = [], 1
    while k * every <= world.days:
        at = k * every
        for page in pages.tolist():
            new = [t for t in world.changes_of(page).tolist() if (k - 1) * every < t <= at]
            if new and not (world.ended[page] <= at and world.ended[page] < world.days):
                told.append((page, max(new), at))
        k += 1
    return sorted(told)


def test_an_honest_sitemap_tells_the_last_change_before_each_fetch():
    world = ragged_world()
    notices = sitemap_notices(world, SOME, EVERY)
    assert rows(notices) == fetched(world, SOME, EVERY)
    assert (np.diff(notices.told_at) >= 0).all()
    several = len(changes_of(world, SOME)) - len(notices.page)
    assert several > 0


def test_by_hand_several_changes_show_as_one_and_at_the_fetch_is_in_time():
    world = world_of([[0.5, 1.5, 2.0, 3.0, 9.5], [2.5]], ended=[10.0, 3.5])
    assert rows(sitemap_notices(world, np.arange(2), 2.0)) == [
        (0, 2.0, 2.0),
        (0, 3.0, 4.0),
        (0, 9.5, 10.0),
    ]
    assert rows(sitemap_notices(world, np.arange(2), 4.0)) == [(0, 3.0, 4.0)]
    assert rows(sitemap_notices(world, np.arange(2), 11.0)) == []


def test_fetched_often_enough_a_sitemap_misses_no_change():
    world = synthetic_world(30, 10.0, rng=rng(4))
    often = sitemap_notices(world, np.arange(30), 10.0 / 2**20)
    true = true_notices(world, np.arange(30))
    assert sorted(often.changed_at.tolist()) == sorted(true.changed_at.tolist())
    assert (often.told_at - often.changed_at).max() <= 10.0 / 2**20


def test_a_lying_sitemap_says_of_every_page_that_it_changed_when_the_site_was_built():
    world = world_of([[0.5, 4.0], [], [1.5], []], created=[0, 0, 0, 6.2], ended=[10, 10, 7.5, 10])
    assert rows(lying_sitemap_notices(world, np.array([3, 1, 2]), 2.0)) == [
        (1, 1.5, 2.0),
        (1, 4.0, 4.0),
        (1, 7.5, 8.0),
        (2, 1.5, 2.0),
        (2, 4.0, 4.0),
        (3, 7.5, 8.0),
    ]


def test_a_lying_sitemap_tells_all_pages_at_every_fetch_after_a_build():
    world = ragged_world()
    notices = lying_sitemap_notices(world, SOME, EVERY)
    built = np.concatenate((world.changed_at, world.created, world.ended[world.ended < 10]))
    told, k = [], 1
    while k * EVERY <= world.days:
        new = built[(built > (k - 1) * EVERY) & (built <= k * EVERY)]
        listed = (world.created <= k * EVERY) & ((world.ended > k * EVERY) | (world.ended == 10))
        told += [(page, new.max(), k * EVERY) for page in SOME if listed[page] and len(new)]
        k += 1
    assert rows(notices) == sorted(told)
    assert (np.diff(notices.told_at) >= 0).all()
    honest = rows(sitemap_notices(world, SOME, EVERY))
    assert {(page, at) for page, _, at in honest} <= {(page, at) for page, _, at in rows(notices)}


@pytest.mark.parametrize("sitemap", [sitemap_notices, lying_sitemap_notices])
def test_worlds_that_stand_still_have_nothing_to_tell(sitemap):
    still = world_of([[], []])
    nobody = np.zeros(0, np.int64)
    for notices in (
        true_notices(still, np.arange(2)),
        sitemap(still, np.arange(2), 1.0),
        sitemap(ragged_world(), nobody, 1.0),
        imperfect_notices(ragged_world(), nobody, recall=1, precision=0.1, rng=rng()),
        delayed(Notices(nobody, np.zeros(0), np.zeros(0)), still, 1.0, rng=rng()),
    ):
        assert rows(notices) == []


def test_a_seed_makes_the_same_notices():
    world = ragged_world()
    one, same, other = (
        imperfect_notices(world, SOME, recall=0.5, precision=0.5, rng=rng(seed))
        for seed in (1, 1, 2)
    )
    assert rows(one) == rows(same) != rows(other)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda w: imperfect_notices(w, SOME, recall=1.1, precision=1, rng=rng()), "recall must"),
        (
            lambda w: imperfect_notices(w, SOME, recall=np.nan, precision=1, rng=rng()),
            "recall must",
        ),
        (lambda w: imperfect_notices(w, SOME, recall=1, precision=0, rng=rng()), "precision must"),
        (lambda w: sitemap_notices(w, SOME, 0.0), "every must be positive and finite, not 0"),
        (lambda w: lying_sitemap_notices(w, SOME, np.inf), "every must be positive"),
        (lambda w: delayed(true_notices(w, SOME), w, -1.0), "mean_delay must be finite and not"),
    ],
)
def test_what_cannot_be_is_refused(ask, said):
    with pytest.raises(InvalidInput, match=said):
        ask(ragged_world())
