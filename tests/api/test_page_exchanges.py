"""A page is shown after a few exchanges with Postgres, however many statements they have."""

import threading

import pytest
from support.live_server import running

from service.api.routes.pages import page_response
from service.storage.postgres.statements import Statements

URLS = [f"https://a.example/{n}" for n in range(3)]


@pytest.fixture
def exchanges(monkeypatch):
    """Return the numbers of statements of all exchanges of this thread."""
    sizes, this = [], threading.get_ident()
    exchange = Statements._exchange

    def counted(self, messages):
        if threading.get_ident() == this:
            sizes.append(len(messages))
        return exchange(self, messages)

    monkeypatch.setattr(Statements, "_exchange", counted)
    return sizes


def test_a_page_that_is_not_due_is_read_in_three_exchanges(postgres_url, exchanges):
    with running(postgres_url) as live:
        page_id, *_ = live.register(*URLS)
        at = live.clock().isoformat()
        crawls = [{"url": url, "observed_at": at, "digest": "a"} for url in URLS]
        assert live.post("/observations", crawls).status_code == 200
        live.epoch()
        live.get(f"/pages/{page_id}")
        exchanges.clear()
        with live.service.store.begin(write=False) as tx:
            shown = page_response(tx, live.service, page_id)
        assert shown.status_code == 200
        assert b'"hold":"not_due"' in shown.body
        assert exchanges == [8, 3, 1]


def test_a_read_that_was_foreseen_has_the_same_result(postgres_url, exchanges):
    with running(postgres_url) as live:
        page_id, other, _ = live.register(*URLS)
        with live.service.store.begin(write=False) as tx:
            place, orders = tx.page_place(page_id), tx.orders()
            exchanges.clear()
            tx.foresee(lambda: tx.page_place(page_id), tx.orders)
            assert exchanges == []
            assert (tx.orders(), tx.page_place(page_id)) == (orders, place)
            assert exchanges == [2]
            assert tx.page_place(other) == tx.page_place(other)
            assert exchanges == [2, 1, 1]
