"""Costs of pages after crawls, in both databases, and after a price that a site asks."""

import numpy as np
import pytest
from support.ingest_cases import HOUR, crawl
from support.store_cases import T0, due_of, publish, register, schedule_columns, states_of

from service.budget.spending import Spending, adopt_budget
from service.core.prices import WEIGHT
from service.model.amounts import typical_cost
from service.model.outcomes import OFFERED, Outcome


def cost_of(store, page_id):
    return float(states_of(store, [page_id]).cost[0])


def amounts(store, unit, page_id, most=np.inf):
    with store.begin() as tx:
        pages = tx.lock_pages(np.asarray(page_id, np.int64), T0).pages
        return Spending(unit, most=most).amounts(tx, pages).tolist()


def test_a_page_learns_the_mean_of_its_crawls(sql_store):
    (page_id,) = register(sql_store, 1)
    assert cost_of(sql_store, page_id) == 0
    crawl(sql_store, page_id, T0, digest=5, cost=1000.0)
    crawl(sql_store, page_id, T0 + HOUR, digest=5, cost=2000.0)
    assert cost_of(sql_store, page_id) == 1000.0 + WEIGHT * 1000.0


def test_a_crawl_without_a_cost_leaves_the_mean(sql_store):
    (page_id,) = register(sql_store, 1)
    crawl(sql_store, page_id, T0, digest=5, cost=0.012345678901)
    crawl(sql_store, page_id, T0 + HOUR, digest=5)
    crawl(sql_store, page_id, T0 + 2 * HOUR, status=500, cost=np.nan)
    assert cost_of(sql_store, page_id) == 0.012345678901  # all digits, also on Postgres


def test_a_failed_crawl_costs_too(sql_store):
    (page_id,) = register(sql_store, 1)
    crawl(sql_store, page_id, T0, status=0, cost=30.0)
    assert cost_of(sql_store, page_id) == 30.0


def test_a_price_replaces_the_mean_and_is_no_failure(sql_store):
    (page_id,) = register(sql_store, 1)
    publish(sql_store, schedule_columns([page_id], crawl_rate=96.0))
    crawl(sql_store, page_id, T0, digest=5, cost=0.01)
    crawl(sql_store, page_id, T0 + HOUR, status=OFFERED, cost=0.5)
    states = states_of(sql_store, [page_id])
    assert (states.cost[0], states.n_failures[0], states.outcome[0]) == (0.5, 0, Outcome.offered)
    assert states.digest[0] == 5
    # an epoch takes the price into the rate before the next crawl
    assert due_of(sql_store, page_id) == T0 + 2 * HOUR


def test_a_price_before_any_epoch_waits_for_one(sql_store):
    (page_id,) = register(sql_store, 1)
    crawl(sql_store, page_id, T0, status=OFFERED, cost=0.5)
    assert due_of(sql_store, page_id) is None


def test_epochs_read_the_costs(sql_store):
    ids = register(sql_store, 3)
    crawl(sql_store, ids[1], T0, digest=5, cost=7.0)
    with sql_store.read_whole() as tx:
        assert tx.load_columns().cost.tolist() == [0.0, 7.0, 0.0]


def test_an_amount_is_that_of_the_page_or_of_its_host(sql_store):
    (a, b), (c,) = register(sql_store, 2, host="a.x"), register(sql_store, 1, host="b.x")
    assert amounts(sql_store, "crawls", [a, b, c]) == [1.0, 1.0, 1.0]
    assert amounts(sql_store, "bytes", [a, b, c]) == [typical_cost("bytes")] * 3
    crawl(sql_store, a, T0, digest=5, cost=7.0)
    assert amounts(sql_store, "bytes", [a, b, c]) == [7.0, 7.0, 7.0]
    crawl(sql_store, c, T0, digest=5, cost=3.0)
    assert amounts(sql_store, "bytes", [a, b, c]) == [7.0, 7.0, 3.0]


@pytest.mark.parametrize(("unit", "kept"), [("bytes", 7.0), ("USD", 0.0), ("crawls", 7.0)])
def test_another_unit_forgets_the_costs(sql_store, unit, kept):
    (page_id,) = register(sql_store, 1)
    adopt_budget(sql_store, "bytes")
    crawl(sql_store, page_id, T0, digest=5, cost=7.0)
    adopt_budget(sql_store, unit)
    assert cost_of(sql_store, page_id) == kept


def test_pages_of_unknown_cost_do_not_take_an_absurd_price_of_their_host(sql_store):
    cheap, absurd, unknown = register(sql_store, 3)
    crawl(sql_store, cheap, T0, digest=5, cost=0.02)
    crawl(sql_store, absurd, T0, status=OFFERED, cost=1e9)
    assert amounts(sql_store, "USD", [cheap, absurd, unknown], most=5.0) == [0.02, 1e9, 0.02]
