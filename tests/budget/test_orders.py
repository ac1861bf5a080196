"""A budget that an operator sets: it wins over the settings, and every process follows it."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from functools import partial
from itertools import product

import numpy as np
import pytest
from support.store_cases import T0

from service.budget.allotments import Terms
from service.budget.in_force import BudgetInForce, BudgetSettings
from service.budget.keeper import Keeper
from service.budget.spending import adopt_pace
from service.core.pace import TakenAmounts
from service.model.amounts import Amount
from service.storage.budget.orders import Orders
from service.storage.budget.pace import days_since_1970

MIDNIGHT = T0.replace(hour=0, minute=0, second=0, microsecond=0)
OURS = BudgetSettings(Amount(24.0, "crawls"), loan_days=3.0, first_share=0.3)


def at(store, hours):
    store.clock = lambda: MIDNIGHT + timedelta(hours=hours)


def crawl(keeper, count):
    """Lease as many of `count` crawls as are granted."""
    with keeper.grant(count) as grant:
        n = grant.allotment.crawls(count)
        grant.taken = grant.taken._replace(total=float(n))
    return n


def adopted(store, keeper, terms):
    """Set the budget as one act does: in the pace, then in the server."""
    with store.begin() as tx:
        adopt_pace(tx, terms)
    keeper.adopt(terms)


def spent(store):
    with store.begin(write=False) as tx:
        return tx.pace().spent


def test_an_order_wins_until_it_is_unset_and_keeps_the_loan_of_the_settings():
    budget = BudgetInForce(OURS)
    assert (budget.by_operator, budget.terms) == (False, Terms(24.0, 3.0, "crawls", 0.3))
    budget.follow(Orders("100 crawls", T0))
    assert (budget.by_operator, budget.terms) == (True, Terms(100.0, 3.0, "crawls", 0.3))
    budget.follow(Orders("5 USD", T0))
    assert budget.terms == Terms(5.0, 0.0, "USD", 0.3)  # money has no loan
    budget.follow(Orders("", T0))
    assert (budget.amount, budget.unit) == (Amount(24.0, "crawls"), "crawls")
    nothing = BudgetInForce(BudgetSettings())
    assert (nothing.amount, nothing.unit, nothing.terms) == (None, "crawls", None)


def test_orders_are_stored_until_they_are_replaced(sql_store):
    with sql_store.begin() as tx:
        assert tx.orders() == Orders()
        tx.order_budget("50 GB", T0)
        tx.order_pause(T0 + timedelta(hours=1))
        assert tx.orders() == Orders("50 GB", T0, T0 + timedelta(hours=1))
        tx.order_budget("", T0 + timedelta(hours=2))
        tx.order_pause(None)
    with sql_store.begin(write=False) as tx:
        assert tx.orders() == Orders("", T0 + timedelta(hours=2), None)


def test_a_lower_budget_holds_for_what_the_day_has_spent(sql_store):
    at(sql_store, 1)
    keeper = Keeper(sql_store, Terms(24.0), seconds=lambda: 0.0)
    assert crawl(keeper, 10) == 10
    adopted(sql_store, keeper, Terms(12.0))
    assert crawl(keeper, 10) == 2
    assert spent(sql_store) == 12.0


def test_a_higher_budget_gives_its_share_of_the_day_and_what_was_held_is_kept(sql_store):
    at(sql_store, 1)
    keeper = Keeper(sql_store, Terms(24.0), seconds=lambda: 0.0)
    with keeper.grant(20) as grant:  # holds 20, and uses 4 of them
        grant.taken = grant.taken._replace(total=4.0)
    adopted(sql_store, keeper, Terms(2_400.0))
    assert spent(sql_store) == 4.0
    more = (2_400 - 24) * 23 / 24
    assert crawl(keeper, 10_000) == pytest.approx(20 + more, abs=1)
    at(sql_store, 2)
    assert crawl(keeper, 1_000) == 0  # the first day has had its integral
    at(sql_store, 25)
    assert crawl(keeper, 10_000) == 2_400


@pytest.mark.parametrize("terms", [None, Terms(4.0, unit="USD")])
def test_a_budget_in_another_unit_begins_without_the_old_allotment(sql_store, terms):
    at(sql_store, 1)
    keeper = Keeper(sql_store, Terms(24.0), seconds=lambda: 0.0)
    with keeper.grant(12):
        pass
    if terms is not None:
        with sql_store.begin() as tx:
            adopt_pace(tx, terms)
    keeper.adopt(terms)
    # what was held goes back to a pace in its own unit only
    assert spent(sql_store) == (0.0 if terms is None else 2.0)
    with keeper.grant(1) as grant:
        assert grant.allotment.unit == ("crawls" if terms is None else "USD")
        assert grant.is_open


def test_a_server_that_had_no_budget_begins_to_keep_one(sql_store):
    at(sql_store, 1)
    keeper = Keeper(sql_store, None)
    assert crawl(keeper, 1_000) == 1_000
    keeper.adopt(Terms(24.0))
    assert crawl(keeper, 1_000) == 24


@pytest.mark.parametrize("terms", [None, Terms(24.0)])
def test_a_pause_of_all_hosts_closes_every_grant_until_its_end(sql_store, terms):
    at(sql_store, 1)
    keeper = Keeper(sql_store, terms, seconds=lambda: 0.0)
    keeper.paused_until = MIDNIGHT + timedelta(hours=2)
    for ahead in (False, True):
        with keeper.grant(5, 3.0, ahead=ahead) as grant:
            assert not grant.is_open
    assert keeper.spent_until() == MIDNIGHT + timedelta(hours=2)
    at(sql_store, 2)
    assert crawl(keeper, 5) == 5
    assert keeper.pause_in_force() is None


def test_the_day_of_a_pause_is_that_of_its_end(sql_store):
    """A pause keeps no allotment of the day before."""
    at(sql_store, 23.5)
    keeper = Keeper(sql_store, Terms(24.0), seconds=lambda: 0.0)
    with keeper.grant(3):
        pass
    keeper.paused_until = MIDNIGHT + timedelta(hours=25)
    at(sql_store, 25)
    assert crawl(keeper, 24) == 24
    with sql_store.begin(write=False) as tx:
        assert int(tx.pace().at) == int(days_since_1970(MIDNIGHT)) + 1


class Overtaken(Keeper):
    """A keeper that follows an order, in another thread, after one of the reads of its terms."""

    order, reads_left = None, 0

    @property
    def terms(self):
        terms = self.followed
        self.reads_left -= 1
        if self.reads_left == 0:
            self.thread = threading.Thread(target=self.order)
            self.thread.start()
            self.thread.join(0.02)  # an order that waits for the request comes after it
        return terms

    @terms.setter
    def terms(self, terms):
        self.followed = terms


ORDERS = {
    "unset": lambda keeper: keeper.adopt(None),
    "lower": lambda keeper: keeper.adopt(Terms(2.0)),
    "another unit": lambda keeper: keeper.adopt(Terms(4.0, unit="USD")),
    "pause": lambda keeper: setattr(keeper, "paused_until", MIDNIGHT + timedelta(days=2)),
}
REQUESTS = {
    "leases": lambda keeper, day: crawl(keeper, 3),
    "a return": lambda keeper, day: keeper.count_returned(
        7, np.datetime64(day, "D").astype("M8[us]"), first=True
    ),
    "reports": lambda keeper, day: keeper.count_reports(
        day, np.array([0, 7]), np.array([1.0, np.nan])
    ),
    "a crawl without a lease": lambda keeper, day: keeper.count_unleased(day, TakenAmounts(1.0)),
    "the next lease": lambda keeper, day: keeper.spent_until(),
}


@pytest.mark.usefixtures("no_timers")
@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("order", ORDERS)
def test_an_order_may_come_at_any_step_of_a_request(sql_store, order, request_):
    at(sql_store, 1)
    day = int(days_since_1970(sql_store.clock()))
    for unit, n_read in product(("crawls", "USD"), range(1, 6)):
        keeper = Overtaken(sql_store, Terms(24.0, unit=unit), seconds=lambda: 0.0)
        keeper.order, keeper.reads_left = partial(ORDERS[order], keeper), n_read
        REQUESTS[request_](keeper, day)
        if keeper.reads_left <= 0:
            keeper.thread.join()
        keeper.reads_left = 0
        crawl(keeper, 1)  # the keeper goes on


def test_a_pause_holds_for_a_lease_that_waits_for_its_turn(sql_store):
    at(sql_store, 1)
    keeper, granted = Keeper(sql_store, Terms(24.0), seconds=lambda: 0.0), []
    with ThreadPoolExecutor(1) as pool, keeper.grant(1):
        waits = pool.submit(lambda: granted.append(crawl(keeper, 3)))
        while not waits.running():
            pass
        wait([waits], 0.02)  # it has looked for a pause, and there was none
        keeper.paused_until = MIDNIGHT + timedelta(hours=2)
    assert granted == [0]
