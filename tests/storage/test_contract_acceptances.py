"""Needs that operators have accepted, as every database keeps them."""

from datetime import timedelta

from support.store_cases import T0

from service.model.acceptances import Acceptance

DAY = timedelta(days=1)
ONE = Acceptance("window_too_narrow", "a.example", T0, T0 + 30 * DAY, "by contract")


def save(store, *acceptances):
    with store.begin() as tx:
        for each in acceptances:
            tx.accept_need(each)


def read(store, now):
    with store.begin(write=False) as tx:
        return tx.acceptances(now)


def test_an_acceptance_is_read_until_it_ends(sql_store):
    other = Acceptance("webhook_failing", "a.example", T0 + DAY, T0 + 2 * DAY)
    save(sql_store, other, ONE)
    assert read(sql_store, T0 + DAY) == [ONE, other]
    assert read(sql_store, T0 + 2 * DAY) == [ONE]
    assert read(sql_store, T0 + 30 * DAY) == []


def test_a_later_acceptance_of_a_need_replaces_the_earlier_one(sql_store):
    later = ONE._replace(accepted_at=T0 + DAY, until=T0 + 9 * DAY, reason="")
    save(sql_store, ONE, later)
    assert read(sql_store, T0) == [later]


def test_what_has_ended_is_deleted_with_the_next_acceptance(sql_store):
    ended_at = T0 + 30 * DAY
    other = ONE._replace(subject="b.example", accepted_at=ended_at, until=ended_at + DAY)
    save(sql_store, ONE, other)
    assert [each.subject for each in read(sql_store, T0)] == ["b.example"]


def test_a_withdrawn_acceptance_is_gone_and_others_stay(sql_store):
    other = ONE._replace(kind="host_paused")
    save(sql_store, ONE, other)
    with sql_store.begin() as tx:
        tx.withdraw_acceptance(*ONE[:2])
        tx.withdraw_acceptance("host_paused", "none.example")
    assert read(sql_store, T0) == [other]
