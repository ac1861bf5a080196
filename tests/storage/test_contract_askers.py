"""Filters of requests for leases, as every database keeps them."""

from datetime import timedelta

import pytest
from support.store_cases import DAY, T0

from service.storage.queue import askers
from service.storage.queue.askers import Asker, Askers
from service.storage.queue.columns import ALL_PAGES, LeaseFilter
from service.storage.queue.signs import Asked

MINUTE = timedelta(minutes=1)
OF_AB, OF_B = LeaseFilter(("a.example", "b.example")), LeaseFilter(("b.example",))
ODD = LeaseFilter(slice=1, slices=2)


def asked(minutes: int, wait: int = 0) -> Asked:
    return Asked(T0 + minutes * MINUTE, T0 + (minutes + wait) * MINUTE)


def save(store, *requests):
    with store.begin() as tx:
        tx.save_askers(requests)


def read(store, *hosts) -> Askers:
    with store.begin(write=False) as tx:
        return tx.askers(hosts)


def test_a_host_has_the_newest_request_of_the_filters_that_name_it(queue_store):
    assert read(queue_store, "a.example") == Askers(None, [])
    save(queue_store, (OF_AB, asked(0)))
    save(queue_store, (OF_B, asked(5, wait=2)), (OF_AB, asked(3)))
    save(queue_store, (OF_B, asked(4)))
    known = read(queue_store, "a.example", "b.example", "c.example")
    assert known.since == T0
    assert known.newest("a.example", 1) == asked(3)
    assert known.newest("b.example", 1) == asked(5, wait=2)
    assert known.newest("c.example", 1) is None
    assert read(queue_store).each == []


def test_filters_for_all_hosts_count_for_the_queues_of_their_slice(queue_store):
    save(queue_store, (ODD, asked(1)), (OF_AB, asked(0)))
    known = read(queue_store, "c.example")
    assert known.each == [Asker(None, 1, 2, asked(1))]
    assert [known.newest("c.example", queue) for queue in (1, 2, -3)] == [asked(1), None, asked(1)]
    save(queue_store, (ALL_PAGES, asked(2)))
    assert read(queue_store).newest("c.example", 2) == asked(2)


def test_filters_are_forgotten_after_a_week_or_when_there_are_too_many(queue_store, monkeypatch):
    save(queue_store, (OF_AB, asked(0)))
    later = Asked(T0 + 8 * DAY, T0 + 8 * DAY)
    save(queue_store, (OF_B, later))
    known = read(queue_store, "a.example", "b.example")
    assert (known.newest("a.example", 1), known.newest("b.example", 1)) == (None, later)
    assert known.since == T0


@pytest.mark.parametrize("most", [4])
def test_the_newest_filters_stay_and_what_came_before_them_is_unknown(
    queue_store, monkeypatch, most
):
    monkeypatch.setattr(askers, "DROP_MOST", askers.DROP_MOST.replace("200000", str(most)))
    for n in range(5):
        save(queue_store, (LeaseFilter((f"{n}.example",)), asked(n)))
    known = read(queue_store, *(f"{n}.example" for n in range(5)))
    assert sorted(one.host for one in known.each) == ["3.example", "4.example"]
    assert known.since == asked(3).at
