"""The line of submissions that wait for a key: bounds, and turns."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.connectors.indexnow import KeyClaim
from service.connectors.indexnow_keys import (
    ALL_WEIGHT,
    LEAST_WEIGHT,
    MAX_PEER_TURNS,
    MAX_SITE_TURNS,
    RETRIES_S,
    SHARE_WEIGHT,
    KeyQueue,
    Waiting,
)
from service.model.errors import Overloaded

MB = 1_000_000
SHARE, ALL = SHARE_WEIGHT // LEAST_WEIGHT, ALL_WEIGHT // LEAST_WEIGHT


def waiting(peer: str, site: str, key: str = "key-0000", n_bytes: int = 100) -> Waiting:
    return Waiting(KeyClaim(key, f"https://{site}/{key}.txt", site), peer, n_bytes, then=print)


def filled(*waitings: Waiting) -> KeyQueue:
    line = KeyQueue()
    for one in waitings:
        line.add(one)
    return line


def turns(line: KeyQueue) -> list[str]:
    """Serve all that waits, one after the other; gives the sites in their order."""
    sites = []
    while (claim := line.next()) is not None:
        sites.append(claim.host)
        line.done(claim)
    return sites


def test_turns_go_round_over_the_peers_and_within_each_over_its_sites():
    line = filled(
        *(waiting("p", site, f"key-000{i}") for site in ("p1", "p2") for i in range(3)),
        *(waiting("q", "q1", f"key-000{i}") for i in range(2)),
        waiting("r", "r1"),
    )
    assert turns(line) == ["p1", "q1", "r1", "p2", "q1", "p1", "p2", "p1", "p2"]


def test_a_newcomer_waits_for_one_turn_of_each_other_peer_at_most():
    line = filled(*(waiting(f"p{p}", f"p{p}-{i}") for i in range(20) for p in range(5)))
    for _ in range(7):
        line.done(line.next())
    line.add(waiting("honest", "honest"))
    assert "honest" in turns(line)[:6]


def test_only_so_many_keys_of_a_site_and_of_a_peer_are_checked_at_a_time():
    line = filled(*(waiting(f"p{i}", "site", f"key-000{i}") for i in range(5)))
    assert [line.next() is not None for _ in range(5)] == [True] * MAX_SITE_TURNS + [False] * 3
    line.done(line.running[0].claim)
    assert line.next() is not None
    assert line.next() is None
    line = filled(*(waiting("p", f"site-{i}") for i in range(30)))
    assert sum(line.next() is not None for _ in range(30)) == MAX_PEER_TURNS
    line.add(waiting("q", "other"))
    assert line.next().host == "other"


def test_all_submissions_of_a_claim_are_settled_by_one_check():
    line = filled(waiting("p", "site"), waiting("q", "site"), waiting("p", "site", "other-key"))
    first = line.next()
    assert line.next().key == "other-key"
    assert [one.peer for one in line.done(first)] == ["p", "q"]
    assert line.next() is None


def test_a_key_that_a_hostile_peer_sends_too_is_checked_in_the_turn_of_the_honest_one():
    line = filled(*(waiting("hostile", f"h{i}") for i in range(30)), waiting("hostile", "honest"))
    line.add(waiting("honest", "honest"))
    assert turns(line)[:2] == ["h0", "honest"]


def test_a_peer_beyond_its_share_is_refused_and_others_are_not():
    line = filled(*(waiting("p", f"site-{i}") for i in range(SHARE)))
    with pytest.raises(Overloaded, match="too many keys of your address wait"):
        line.add(waiting("p", "one-more"))
    assert line.add(waiting("q", "site-0")) == []


def test_large_submissions_count_by_their_bytes():
    line = filled(waiting("p", "a", n_bytes=MB), waiting("p", "b", n_bytes=MB))
    with pytest.raises(Overloaded):
        line.add(waiting("p", "c", n_bytes=MB))
    assert len(line.waiting) == 2


def test_a_site_behind_the_same_proxy_takes_the_place_of_one_that_floods():
    line = filled(*(waiting("proxy", "flood", f"key-{i:04}") for i in range(SHARE)))
    (dropped,) = line.add(waiting("proxy", "honest"))
    assert dropped.claim.key == f"key-{SHARE - 1:04}"
    assert "honest" in turns(line)[:2]


def test_bogus_keys_for_a_site_do_not_use_up_what_its_own_server_may_send():
    line = filled(*(waiting("hostile", "honest", f"key-{i:04}") for i in range(SHARE)))
    (dropped,) = line.add(waiting("own", "honest", "own-key-1"))
    assert dropped.peer == "hostile"
    line.next()
    assert line.next().key == "own-key-1"


@pytest.mark.dear
def test_in_a_full_line_a_newcomer_takes_the_place_of_the_peer_that_holds_most():
    line = filled(*(waiting(f"p{i % 8}", f"site-{i}") for i in range(ALL)))
    (dropped,) = line.add(waiting("honest", "honest"))
    assert dropped.site == f"site-{ALL - 8}"
    with pytest.raises(Overloaded, match="in all"):
        filled(*(waiting(f"p{i}", f"site-{i}") for i in range(ALL + 1)))


def test_a_refused_newcomer_costs_nobody_a_place():
    line = filled(*(waiting(f"p{i % 8}", f"site-{i}") for i in range(ALL)))
    before = list(line.waiting)
    with pytest.raises(Overloaded):
        line.add(waiting("p0", "one-more"))
    assert line.waiting == before


T0 = datetime(2026, 5, 1, tzinfo=UTC)


def test_a_claim_whose_site_is_away_waits_and_takes_no_turn_of_others():
    line = filled(waiting("p", "away"), waiting("p", "well"), waiting("q", "away"))
    at = T0
    claim = line.next(at)
    for wait_s in RETRIES_S:
        assert line.postpone(claim, at, 0.0)
        assert not any(one.claim == claim for one in line.running)
        soon = at + timedelta(seconds=wait_s - 1)
        assert line.next(soon) in (None, waiting("p", "well").claim)
        at += timedelta(seconds=wait_s)
        assert line.next(at) == claim
    assert not line.postpone(claim, at, 0.0), "the last look"
    assert [one.peer for one in line.done(claim)] == ["p", "q"]
    assert not line.has_delays


@pytest.mark.parametrize(("retry_after_s", "wait_s"), [(1, 30), (300, 300), (1e9, 600)])
def test_a_site_may_ask_for_a_longer_wait_up_to_a_limit(retry_after_s, wait_s):
    line = filled(waiting("p", "away"))
    line.postpone(line.next(T0), T0, retry_after_s)
    assert line.next(T0 + timedelta(seconds=wait_s - 1)) is None
    assert line.next(T0 + timedelta(seconds=wait_s)) is not None


def test_a_delay_ends_with_the_last_who_waits():
    line = filled(*(waiting("proxy", "flood", f"key-{i:04}") for i in range(SHARE)))
    while (claim := line.next(T0)) is not None:
        line.postpone(claim, T0, 0.0)
    (dropped,) = line.add(waiting("proxy", "honest"))
    assert dropped.claim not in line._delays
    assert len(line._delays) == SHARE - 1


STEP = st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 20), st.booleans())


@given(st.lists(STEP, max_size=200), st.integers(1, MB))
def test_bounds_hold_whatever_comes_and_nothing_is_kept_of_who_has_gone(steps, n_bytes):
    line = KeyQueue()
    n_in = n_out = 0
    for peer, site, key, serve in steps:
        try:
            dropped = line.add(waiting(f"p{peer}", f"s{site}", f"key-{key:04}", n_bytes))
        except Overloaded:
            dropped = []
        else:
            n_in += 1
        n_out += len(dropped)
        if serve and (claim := line.next()) is not None:
            n_out += len(line.done(claim))
        weights = Counter()
        for one in line.waiting:
            weights["all"] += one.weight
            weights["peer", one.peer] += one.weight
            weights["site", one.site] += one.weight
        most = {name: ALL_WEIGHT if name == "all" else SHARE_WEIGHT for name in weights}
        assert all(weights[name] <= most[name] for name in weights)
    n_left = len(line.waiting)
    assert n_in == n_out + n_left
    turns(line)
    assert not line.waiting
    assert not line.running
    assert not line._last
