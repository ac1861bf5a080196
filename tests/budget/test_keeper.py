"""The keeper: allotments of one pace, taken, given back, and lost with their server."""

from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from service.budget.allotments import HELD_S, Terms
from service.budget.keeper import Keeper
from service.core.pace import TakenAmounts
from service.model.errors import StoreUnavailable

pytestmark = pytest.mark.usefixtures("no_timers")

MIDNIGHT = datetime(2026, 5, 1, tzinfo=UTC)
DAY = int((MIDNIGHT - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(days=1))


def at(store, hours):
    store.clock = lambda: MIDNIGHT + timedelta(hours=hours)


def keeper_of(store, budget=24.0, **terms):
    return Keeper(store, Terms(budget, **terms), seconds=lambda: 0.0)


def crawl(keeper, count, **parts):
    """Take as many crawls as the grant has room for; return their number."""
    with keeper.grant(count) as grant:
        n = grant.allotment.crawls(count)
        grant.taken = TakenAmounts(float(n), **parts)
    return n


def spent(store):
    with store.begin(write=False) as tx:
        pace = tx.pace()
    return pace.spent


def test_a_new_corpus_may_spend_its_first_day_at_once(sql_store):
    at(sql_store, 23)
    keeper = keeper_of(sql_store)
    assert crawl(keeper, 100) == 24
    at(sql_store, 23.99)
    assert crawl(keeper, 100) == 0
    at(sql_store, 24 + 12)
    assert crawl(keeper, 100) == 12 + 1
    assert crawl(keeper, 100) == 0


def test_two_servers_share_one_pace(sql_store):
    at(sql_store, 0)
    keepers = [keeper_of(sql_store), keeper_of(sql_store)]
    days = [0] * 5
    for hour in range(5 * 24):
        at(sql_store, hour)
        for keeper in keepers:
            days[hour // 24] += crawl(keeper, 7)
    assert days == [24] * 5


def test_a_spent_pace_is_not_read_before_it_may_have_room(sql_store, monkeypatch):
    at(sql_store, 1)
    keeper = keeper_of(sql_store)
    assert crawl(keeper, 24) == 24
    assert crawl(keeper, 1) == 0
    assert keeper.spent_until() == MIDNIGHT + timedelta(days=1)
    monkeypatch.setattr(sql_store, "begin", lambda: pytest.fail("reads the pace"))
    assert crawl(keeper, 1) == 0


def test_a_large_budget_is_drawn_for_some_seconds(sql_store):
    at(sql_store, 1)
    keeper = keeper_of(sql_store, budget=86_400.0 * 100)
    crawl(keeper, 10)
    assert spent(sql_store) == 100 * HELD_S
    crawl(keeper, 10)
    assert spent(sql_store) == 100 * HELD_S


def test_what_a_server_does_not_use_goes_back(sql_store):
    at(sql_store, 1)
    first, second = keeper_of(sql_store), keeper_of(sql_store)
    with first.grant(24) as grant:
        assert grant.allotment.crawls(24) == 24
    assert crawl(second, 5) == 0
    first.give_back()
    at(sql_store, 1 + 2 * HELD_S / 3600)
    assert crawl(second, 5) == 5


def test_a_server_that_ends_gives_its_allotment_back(sql_store):
    at(sql_store, 1)
    with closing(keeper_of(sql_store)) as keeper, keeper.grant(24):
        pass
    assert spent(sql_store) == 0
    assert crawl(keeper_of(sql_store), 24) == 24


def test_a_server_that_dies_loses_its_allotment_and_no_more(sql_store):
    at(sql_store, 1)
    died = keeper_of(sql_store)
    with died.grant(10):
        pass
    assert crawl(keeper_of(sql_store), 24) == 14


def test_an_allotment_ends_with_its_day(sql_store):
    at(sql_store, 23.9)
    keeper = keeper_of(sql_store)
    with keeper.grant(20):
        pass
    at(sql_store, 24.0)
    assert crawl(keeper, 100) == 24
    assert spent(sql_store) == 24


def test_an_outage_of_the_commit_forfeits_the_allotment(sql_store):
    at(sql_store, 1)
    keeper = keeper_of(sql_store)
    with pytest.raises(StoreUnavailable), keeper.grant(20):
        raise StoreUnavailable
    assert crawl(keeper, 24) == 4


def test_an_error_of_the_request_forfeits_nothing(sql_store):
    at(sql_store, 1)
    keeper = keeper_of(sql_store)
    with pytest.raises(ValueError, match="wrong"), keeper.grant(20):
        raise ValueError("wrong")
    assert crawl(keeper, 24) == 24


def test_crawls_without_leases_use_up_their_day_only(sql_store):
    at(sql_store, 1)
    keeper = keeper_of(sql_store)
    keeper.count_unleased(DAY, TakenAmounts(20.0))
    keeper.count_unleased(DAY, TakenAmounts(500.0))
    assert crawl(keeper, 24) == 0
    at(sql_store, 36)
    assert crawl(keeper, 12) == 12
    keeper.count_unleased(DAY, TakenAmounts(20.0))  # the day is over
    at(sql_store, 47)
    assert crawl(keeper, 24) == 12
    keeper.close()


def test_a_clock_set_back_does_not_stop_the_pace(sql_store):
    at(sql_store, 24 * 9)
    keeper = keeper_of(sql_store)
    assert crawl(keeper, 24) == 24
    assert crawl(keeper, 24) == 0
    at(sql_store, 24 * 3)
    assert crawl(keeper, 24) == 0  # the amounts of the day stay
    at(sql_store, 24 * 4)
    assert crawl(keeper, 24) == 24


def test_without_a_budget_every_lease_is_granted(sql_store):
    keeper = Keeper(sql_store, None)
    assert crawl(keeper, 1_000_000) == 1_000_000
    assert keeper.spent_until() is None
    with sql_store.begin(write=False) as tx:
        assert tx.pace() is None


def test_a_changed_budget_is_in_force_at_once(sql_store):
    at(sql_store, 0)
    assert crawl(keeper_of(sql_store, budget=1000.0), 10) == 10
    low = keeper_of(sql_store, budget=24.0)
    assert crawl(low, 1000) == 14
    at(sql_store, 12)
    assert crawl(low, 1000) == 0  # its day is spent
    assert crawl(keeper_of(sql_store, budget=48.0), 1000) == 12  # half a day of 24 more


def test_crawls_without_leases_are_kept_over_an_outage(sql_store, monkeypatch):
    at(sql_store, 1)
    keeper = keeper_of(sql_store)
    keeper.count_unleased(DAY, TakenAmounts(20.0))

    def away(**_):
        raise StoreUnavailable

    with monkeypatch.context() as outage:
        outage.setattr(sql_store, "begin", away)
        with pytest.raises(StoreUnavailable):
            keeper.give_back()
    assert crawl(keeper, 24) == 4
    keeper.close()
