"""Names of pages: by id, by URL, by lease, and as targets of redirects."""

from dataclasses import replace

import numpy as np
import pytest
from support.ingest_cases import rules
from support.store_cases import DAY, T0, crawl_columns, page_columns, page_of, register, urls

from service.ingest.page_names import PageNames, resolve
from service.ingest.record import record
from service.model.domain import ItemVerdict
from service.model.outcomes import Leads


@pytest.mark.parametrize("register_new", [True, False])
def test_targets_of_redirects_are_resolved_with_the_pages(store, register_new):
    one, other = register(store, 2)
    with store.begin() as tx:
        named = PageNames(
            page_id=np.array([one, 0, 0, one]),
            row=np.array([-1, 0, 1, -1]),
            pages=page_columns([urls(2)[1], "https://new.example/", urls(2)[0]]),
            target=np.array([1, 0, -1, 2]),
        )
        page_id, redirects_to, new, leads, _ = resolve(tx, named, T0 + DAY, register=register_new)
        (added,) = tx.page_ids(page_columns(["https://new.example/"]).key).tolist()
    assert page_id.tolist() == [one, other, added, one]
    # a page that redirects to itself has itself as target
    assert redirects_to.tolist() == [added if register_new else -1, other, 0, one]
    assert new.tolist() == ([added] if register_new else [])
    # an item names the new page too, so that it is asked for
    assert leads.tolist() == [Leads.on, Leads.nowhere, Leads.on, Leads.nowhere]


def test_an_item_whose_url_is_of_another_page_than_its_lease_says_nothing_and_registers_none(store):
    one, other = register(store, 2)
    with store.begin() as tx:
        named = PageNames(
            page_id=np.array([0, 0, 0, 0, one]),
            row=np.array([0, 1, 2, 1, -1]),
            pages=page_columns([*urls(2), "https://new.example/", "https://far.example/"]),
            target=np.array([-1, 3, 3, -1, -1]),
        )
        leased = np.array([one, one, one, 0, one])
        found = resolve(tx, named, T0 + DAY, register=True, leased=leased)
        assert tx.page_ids(named.pages.key).tolist() == [one, other, 0, 0]
        crawls = replace(
            crawl_columns(found.page_id, [T0, T0, T0, T0 + DAY, T0 + DAY], digest=1),
            redirects_to=found.redirects_to,
        )
        made = record(tx, crawls, rules())
    assert found.page_id.tolist() == [one, -1, -1, other, one]
    assert (found.redirects_to.tolist(), found.new.tolist()) == ([0] * 5, [])
    taken, not_taken = ItemVerdict.accepted, ItemVerdict.elsewhere
    assert made.verdict.tolist() == [taken, not_taken, not_taken, taken, taken]
    assert page_of(store, other).last_crawl_at == T0 + DAY


@pytest.mark.parametrize("allowed", [True, False])
def test_urls_are_resolved_and_registered_only_if_allowed(store, allowed):
    known = register(store, 2)
    with store.begin() as tx:
        named = PageNames(
            page_id=np.array([77, 0, 0, 0, 0]),
            row=np.array([-1, 2, 0, 2, 1]),
            pages=page_columns([urls(2)[1], urls(2)[0], "https://new.example/"]),
        )
        found = resolve(tx, named, T0 + DAY, register=allowed).page_id
        (new,) = tx.page_ids(page_columns(["https://new.example/"]).key)
    assert (new > 0) is np.bool_(allowed)
    assert found.tolist() == [77, new, known[1], new, known[0]]
