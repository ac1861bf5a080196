"""A budget in another unit: servers that do not know of it yet draw nothing from the pace."""

import threading
from contextlib import closing
from datetime import timedelta

import pytest
from structlog.testing import capture_logs
from support.store_cases import T0

from service.budget.allotments import Terms
from service.budget.keeper import Keeper
from service.budget.spending import adopt_pace
from service.core.pace import TakenAmounts
from service.model.errors import OtherUnit
from service.storage import open_store

pytestmark = pytest.mark.usefixtures("no_timers")

MIDNIGHT = T0.replace(hour=0, minute=0, second=0, microsecond=0)
BYTES = Terms(1e9, unit="bytes")


@pytest.fixture
def stores(database_url):
    """Stores of two servers of one database, at one o'clock."""
    with closing(open_store(database_url, 2)) as one, closing(open_store(database_url, 2)) as other:
        at(one, other, 1)
        yield one, other


def at(*stores_and_hours):
    *stores, hours = stores_and_hours
    for store in stores:
        store.clock = lambda: MIDNIGHT + timedelta(hours=hours)


def crawl(keeper, count):
    with keeper.grant(count) as grant:
        n = grant.allotment.crawls(count)
        grant.taken = TakenAmounts(float(n))
    return n


def order(store, terms):
    with store.begin() as tx:
        adopt_pace(tx, terms)


def pace(store):
    with store.begin(write=False) as tx:
        return tx.pace()


def test_a_server_that_has_not_followed_an_order_leases_nothing(stores):
    one, other = stores
    late = Keeper(other, Terms(24.0), seconds=lambda: 0.0)
    assert crawl(late, 6) == 6
    order(one, BYTES)
    before = pace(one)
    assert before.spent == 0.25e9, "the share of the day that was spent"
    at(one, other, 2)
    assert crawl(late, 6) == 0
    late.count_unleased(int(before.at), TakenAmounts(3.0))
    late.give_back()
    assert pace(one) == before
    late.adopt(BYTES)
    with late.grant(1) as grant:
        assert (grant.allotment.unit, grant.is_open) == ("bytes", True)


def test_what_a_late_server_held_counts_as_used(stores):
    one, other = stores
    late = Keeper(other, Terms(24.0), seconds=lambda: 0.0)
    with late.grant(12):
        pass
    order(one, BYTES)
    late.close()
    assert pace(one).spent == 0.5e9


def test_an_order_that_commits_while_a_draw_waits_is_in_force_for_the_draw(stores):
    """The draw has begun, and waits for the lock of the pace that the order holds."""
    one, other = stores
    late = Keeper(other, Terms(24.0), seconds=lambda: 0.0)
    assert crawl(late, 1) == 1
    at(one, other, 2)
    leased, begun = [], threading.Event()

    def draw():
        begun.set()
        leased.append(crawl(late, 20))

    drawing = threading.Thread(target=draw)
    with one.begin() as tx:
        adopt_pace(tx, BYTES)
        drawing.start()
        assert begun.wait(10)
        drawing.join(0.2)
        assert not leased, "the draw waits"
    drawing.join()
    assert leased == [0]
    assert pace(one).budget == BYTES.budget


def test_an_order_before_the_first_draw_leaves_no_amount_in_the_old_unit(stores):
    one, other = stores
    order(one, BYTES)
    assert crawl(Keeper(other, Terms(24.0), seconds=lambda: 0.0), 5) == 0
    assert pace(one) is None
    keeper = Keeper(one, BYTES, seconds=lambda: 0.0)
    with keeper.grant(1) as grant:
        assert grant.is_open
    assert pace(one).budget == BYTES.budget


def test_a_server_that_keeps_another_unit_says_so_once(stores):
    one, other = stores
    order(one, BYTES)
    late = Keeper(other, Terms(24.0), seconds=lambda: 0.0)
    with capture_logs() as logs:
        for n in range(8):
            at(one, other, 1 + n / 1800)
            assert crawl(late, 1) == 0
            assert late.spent_until() == other.clock() + timedelta(seconds=1)
    (warning,) = logs
    assert "the same unit of RECRAWL_BUDGET" in warning["event"]
    assert warning["reason"] == "the budget is in bytes, not in crawls"


def test_the_statement_refuses_another_unit_whoever_writes(stores):
    one, _ = stores
    with one.begin() as tx:
        adopt_pace(tx, Terms(24.0))
    assert crawl(Keeper(one, Terms(24.0), seconds=lambda: 0.0), 1) == 1
    stored = pace(one)
    with pytest.raises(OtherUnit, match="in crawls, not in USD"), one.begin() as tx:
        tx.save_pace(tx.lock_pace(), "USD")
    assert pace(one) == stored
