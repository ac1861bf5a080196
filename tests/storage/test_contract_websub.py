"""What every database promises of subscriptions (see `service.storage.webhooks.subscriptions`)."""

from dataclasses import replace

import pytest
from support.store_cases import DAY, T0

from service.model.errors import SubscriptionNotFound
from service.storage import Subscription

ONE = Subscription("b", "https://a.example/feed", "secret", "https://hub.example/", T0)


def add(store, *subscriptions):
    with store.begin() as tx:
        for one in subscriptions:
            tx.add_subscription(one)


def all_of(store, after="", limit=10):
    with store.begin(write=False) as tx:
        return tx.subscriptions(after, limit)


def verify(store, subscription_id, now=T0, expires_at=None):
    with store.begin() as tx:
        tx.verify_subscription(subscription_id, now, expires_at)


def test_a_subscription_comes_out_as_it_went_in(sql_store):
    whole = replace(ONE, id="c", secret=None, verified_at=T0 + DAY, expires_at=T0 + 2 * DAY)
    add(sql_store, ONE, whole)
    with sql_store.begin(write=False) as tx:
        assert tx.subscription("b") == ONE
        assert tx.subscription("c") == whole


def test_they_are_listed_by_id_in_parts(sql_store):
    add(sql_store, *(replace(ONE, id=name) for name in "cab"))
    assert [one.id for one in all_of(sql_store, limit=2)] == ["a", "b"]
    assert [one.id for one in all_of(sql_store, after="b")] == ["c"]


def test_a_verified_one_replaces_earlier_ones_to_its_topic_at_its_hub_only(sql_store):
    later = replace(ONE, id="later", requested_at=T0 + DAY)
    latest = replace(ONE, id="latest", requested_at=T0 + 2 * DAY)
    topic, hub = replace(ONE, id="t", topic="https://b/"), replace(ONE, id="h", hub="https://c/")
    add(sql_store, ONE, later, latest, topic, hub)
    verify(sql_store, "later", T0 + 3 * DAY, T0 + 4 * DAY)
    after = {one.id: one for one in all_of(sql_store)}
    verified = replace(later, verified_at=T0 + 3 * DAY, expires_at=T0 + 4 * DAY)
    assert after == {"later": verified, "latest": latest, "t": topic, "h": hub}


def test_one_that_has_ended_is_known_and_not_verified(sql_store):
    add(sql_store, ONE)
    verify(sql_store, "b", expires_at=T0 + DAY)
    with sql_store.begin() as tx:
        tx.end_subscription("b")
    assert all_of(sql_store) == [ONE]


def test_one_that_is_not_there_is_said_so(sql_store):
    for call in ("subscription", "delete_subscription"):
        with sql_store.begin() as tx, pytest.raises(SubscriptionNotFound):
            getattr(tx, call)("b")
    with pytest.raises(SubscriptionNotFound):
        verify(sql_store, "b")


def test_one_that_is_deleted_is_gone(sql_store):
    add(sql_store, ONE, replace(ONE, id="c"))
    with sql_store.begin() as tx:
        tx.delete_subscription("b")
    assert [one.id for one in all_of(sql_store)] == ["c"]


def test_a_secret_is_not_shown():
    assert "secret" not in repr(ONE)
