"""What every database promises of subscriptions (see `service.storage.webhooks.subscriptions`)."""

from dataclasses import replace

import pytest
from support.store_cases import DAY, T0

from service.model.errors import SubscriptionNotFound
from service.model.subscriptions import (
    ContentNote,
    HostPolicy,
    LeasePlan,
    SubscriptionState,
    TroubledSubscription,
)
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
        tx.verify_subscription(subscription_id, now, LeasePlan(expires_at, now + DAY, None))


def test_a_subscription_comes_out_as_it_went_in(sql_store):
    whole = replace(ONE, id="c", secret=None, verified_at=T0 + DAY, expires_at=T0 + 2 * DAY)
    add(sql_store, ONE, whole)
    with sql_store.begin(write=False) as tx:
        assert tx.subscription("b") == ONE
        assert tx.subscription("c") == whole


def test_every_field_comes_out_as_it_went_in(sql_store):
    entry = {"at": T0.isoformat(), "url": "https://a.example/é"}
    whole = replace(
        ONE,
        host_policy=HostPolicy.listed,
        listed_hosts=("b.example", "c.example"),
        public_url="https://recrawl.example",
        ask_at=T0 + DAY,
        warn_at=T0 + 2 * DAY,
        denied_at=T0,
        ending_at=T0,
        n_asked=3,
        reason="no",
        n_contents=4,
        n_unsigned=5,
        n_taken=2**40,
        n_rejected=6,
        last_content_at=T0,
        last_taken=(entry,),
        last_rejected=(entry | {"code": "x", "detail": "y"}, entry),
    )
    add(sql_store, whole)
    assert all_of(sql_store) == [whole]


def test_each_hub_has_a_share_of_those_that_are_due(sql_store):
    asked = replace(ONE, public_url="https://r.example", ask_at=T0)
    many = [replace(asked, id=f"a{i}", ask_at=T0 - i * DAY) for i in range(5)]
    other = replace(asked, id="other", hub="https://other.example/")
    add(sql_store, *many, other, replace(asked, id="later", ask_at=T0 + DAY), ONE)
    with sql_store.begin(write=False) as tx:
        due = [one.id for one in tx.due_subscriptions(T0, 2, 10)]
        assert due == ["a4", "a3", "other"]
        assert [one.id for one in tx.due_subscriptions(T0, 9, 2)] == ["a4", "a3"]


def test_a_change_is_written_only_where_nobody_was_first(sql_store):
    add(sql_store, replace(ONE, ask_at=T0))
    with sql_store.begin() as tx:
        assert tx.change_subscription("b", seen=T0, ask_at=T0 + DAY)
        assert not tx.change_subscription("b", seen=T0, ask_at=T0 + 2 * DAY)
        assert tx.change_subscription("b", reason="any")
        assert not tx.change_subscription("missing", reason="any")
    (one,) = all_of(sql_store)
    assert (one.ask_at, one.reason) == (T0 + DAY, "any")


def test_contents_are_counted_and_their_last_entries_are_kept(sql_store):
    add(sql_store, ONE)
    for n in range(12):
        entry = {"at": T0.isoformat(), "url": f"https://a.example/{n}"}
        with sql_store.begin() as tx:
            tx.note_content("b", T0 + n * DAY, ContentNote(2, 1, 0, (entry,), (entry,)))
    with sql_store.begin() as tx:
        tx.note_content("b", T0 + 20 * DAY, ContentNote(0, 0, 1))
        tx.note_content("missing", T0, ContentNote(1, 1, 1, ({"url": ""},)))
    (one,) = all_of(sql_store)
    counts = (one.n_contents, one.n_taken, one.n_rejected, one.n_unsigned)
    assert counts == (13, 24, 12, 1)
    assert one.last_content_at == T0 + 20 * DAY
    urls = [f"https://a.example/{n}" for n in range(11, 1, -1)]
    assert [entry["url"] for entry in one.last_taken] == urls
    assert [entry["url"] for entry in one.last_rejected] == urls


def test_states_are_counted_as_each_is_judged(sql_store):
    verified = replace(ONE, verified_at=T0)
    ones = [
        ONE,
        replace(verified, id="for ever"),
        replace(verified, id="runs", expires_at=T0 + DAY),
        replace(verified, id="ends now", expires_at=T0),
        replace(verified, id="denied", denied_at=T0),
        replace(verified, id="ending", denied_at=T0, ending_at=T0),
    ]
    add(sql_store, *ones)
    with sql_store.begin(write=False) as tx:
        counts = tx.count_subscriptions(T0)
    states = [one.state(T0) for one in ones]
    assert counts == {state: states.count(state) for state in SubscriptionState}


def test_those_that_need_somebody_are_read_the_longest_first(sql_store):
    warned = replace(ONE, warn_at=T0)
    add(
        sql_store,
        warned,
        replace(warned, id="a", warn_at=T0 - DAY, verified_at=T0, expires_at=T0 - DAY),
        replace(warned, id="ending", ending_at=T0),
        replace(warned, id="later", warn_at=T0 + DAY),
    )
    with sql_store.begin(write=False) as tx:
        first, second = tx.troubled_subscriptions(T0, 5)
        assert len(tx.troubled_subscriptions(T0, 1)) == 1
    ended = SubscriptionState.ended
    assert first == TroubledSubscription(ONE.topic, ONE.hub, ended, T0, T0 - DAY, T0 - DAY)
    assert (second.state, second.since) == (SubscriptionState.pending, T0)


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
