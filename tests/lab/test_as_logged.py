"""The policy `as logged`: what the crawls cost that were really made, by a brute-force oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recrawl_lab.policies.lineup import LOGGED, Game, chosen
from recrawl_lab.replay.comparison import Comparison, play
from recrawl_lab.worlds.recording import Recording, recorded_world

DAY = 86_400.0
N = 3
instants = st.lists(
    st.tuples(st.integers(0, N - 1), st.integers(1, 95)), min_size=1, max_size=30, unique=True
)


def world_of(changes, crawls, days=np.inf):
    """A world of three pages that live from day 0 to day 24; instants are quarters of a day."""

    def columns(events, shift):
        page = np.array([page for page, _ in events], np.int64)
        return page, np.array([(at + shift) / 4 for _, at in events]) * DAY

    changed_page, changed_at = columns(changes, 0.0)
    crawled_page, crawled_at = columns(crawls, 0.5)  # no crawl at the instant of a change
    recording = Recording(
        site="a log",
        url=tuple(f"https://a.example/{n}" for n in range(N)),
        started=np.zeros(N),
        ended=np.full(N, 24 * DAY),
        changed_page=changed_page,
        changed_at=changed_at,
        bulk=np.zeros(len(changed_at), np.bool_),
        importance=np.array([1.0, 2.0, 5.0]),
        crawled_page=crawled_page,
        crawled_at=crawled_at,
    )
    rng = np.random.default_rng(1)
    return recorded_world(recording, rng=rng, importance="column", days=days)


def brute_force(changes, crawls, first=0.0):
    """Return the harmonic staleness by eighths of a day, each with one state."""
    cost = weight = 0.0
    for page, importance in enumerate((1.0, 2.0, 5.0)):
        n_stale = 0
        for eighth in range(int(8 * first), 8 * 24):
            at = eighth / 8
            n_stale += any(p == page and at == t / 4 > first for p, t in changes)
            if any(p == page and at == (t + 0.5) / 4 for p, t in crawls):
                n_stale = 0
            cost += importance / 8 * sum(1 / k for k in range(1, n_stale + 1))
            weight += importance / 8
    return cost / weight


def harmonic(world):
    game = Game(world, bandwidth=1.0)
    outcome = play(LOGGED, game)
    return outcome, float(Comparison(game, [outcome]).measures[LOGGED].harmonic)


@given(instants, instants)
def test_its_staleness_is_that_of_the_crawls_that_were_made(changes, crawls):
    outcome, found = harmonic(world_of(changes, crawls))
    assert found == pytest.approx(brute_force(changes, crawls), abs=1e-12)
    assert outcome.n_crawls == len(crawls)


def test_only_the_crawls_of_the_window_count():
    changes, crawls = [(0, 60), (1, 8), (2, 90)], [(0, 4), (0, 70), (1, 12), (2, 95)]
    outcome, found = harmonic(world_of(changes, crawls, days=12))
    assert outcome.n_crawls == 2
    assert found == pytest.approx(brute_force(changes, crawls, first=12.0), abs=1e-12)


def test_groups_of_policies_leave_it_out():
    assert LOGGED not in {*chosen("all"), *chosen("default"), *chosen("parts")}
    assert chosen(LOGGED) == (LOGGED,)
