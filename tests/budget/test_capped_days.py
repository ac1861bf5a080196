"""Caps of hosts and groups by UTC day."""

import numpy as np
import pytest
from support.budget_cases import BUDGET, Fleet, service, urls

from service.budget.host_days import after, first_room, on_day, room
from service.storage.budget.caps import NO_DAY, CappedDays


def capped(cap, first_share=np.nan):
    cells = {"queue_id": 1, "max_crawl_rate": cap, "first_share": first_share, "day": NO_DAY}
    counts = dict.fromkeys(("n_crawls", "n_first", "carried"), 0.0)
    return CappedDays(**{k: np.array([v]) for k, v in {**cells, **counts}.items()})


def spend(days, day):
    """Return the counts after all crawls that a day allows, and their number."""
    days = on_day(days, day)
    n = room(days)
    return after(days, n, np.zeros(1, int)), int(n[0])


@pytest.mark.parametrize(
    ("cap", "crawls"), [(2.5, [2, 3, 2, 3]), (0.3, [1, 0, 0, 0, 1, 0, 0, 1]), (3.0, [3, 3, 3])]
)
def test_a_fraction_of_a_cap_is_carried(cap, crawls):
    days, taken = capped(cap), []
    for day in range(100, 100 + len(crawls)):
        days, n = spend(days, day)
        taken.append(n)
    assert taken == crawls


def test_idle_days_leave_at_most_one_crawl():
    days, _ = spend(capped(2.5), 100)
    assert spend(days, 200)[1] == 3
    days, _ = spend(capped(0.3), 100)
    assert spend(days, 102)[1] == 0
    assert spend(days, 104)[1] == 1


def test_a_clock_set_back_keeps_the_counts():
    days, n = spend(capped(4.0), 100)
    assert n == 4
    assert spend(days, 50)[1] == 0
    assert spend(spend(days, 50)[0], 51)[1] == 4


def test_first_crawls_have_a_share_of_a_cap_and_one_at_least():
    assert [int(first_room(capped(cap), 0.5)[0]) for cap in (0.1, 3.0, 8.0)] == [1, 2, 4]


def test_a_host_may_have_its_own_share_of_first_crawls():
    shares = (0.0, 0.25, 1.0, np.nan)
    assert [int(first_room(capped(8.0, own), 0.5)[0]) for own in shares] == [0, 2, 8, 4]


@pytest.mark.dear
def test_a_host_has_at_most_its_cap_on_every_day(database_url):
    with service(database_url) as live:
        live.register(*urls(40), *urls(10, "b.example"))
        live.client.put("/hosts/a.example", json={"max_crawl_rate": 2.5})
        fleet = Fleet(live)
        fleet.play(days=4)
        assert fleet.of("a.example") == [2, 3, 2, 3]
        assert fleet.of("b.example")[0] > 10


@pytest.mark.dear
def test_first_crawls_of_a_host_keep_to_its_own_share_or_that_of_the_settings(database_url):
    with service(database_url, first_share=0.75) as live:
        old = live.register(*urls(20, "old.example"))
        at = live.clock().isoformat()
        live.post("/observations", [{"page_id": i, "observed_at": at, "digest": "1"} for i in old])
        live.service.runner.run_once()
        for host, share in (("a.example", 0.25), ("b.example", None), ("c.example", 0)):
            live.register(*urls(20, host))
            settings = {"max_crawl_rate": 8, "first_share": share}
            assert live.client.put(f"/hosts/{host}", json=settings).status_code == 200
        live.clock.advance(hours=23)
        fleet = Fleet(live)
        fleet.ask()
        crawls = [fleet.of(f"{host}.example") for host in "abc"]
        assert crawls == [[2], [6], [0]]


def grouped(live, n_other):
    """Register 20 pages of a host with a cap of 2, and others, in one group."""
    for host, n, cap in (("a.example", 20, 2), ("b.example", n_other, None)):
        live.register(*urls(n, host))
        live.client.put(f"/hosts/{host}", json={"group": "cdn", "max_crawl_rate": cap})
    return Fleet(live)


@pytest.mark.dear
def test_a_group_has_at_most_its_cap_on_every_day(database_url):
    with service(database_url) as live:
        fleet = grouped(live, 40)
        live.client.put("/groups/cdn", json={"max_crawl_rate": 9})
        assert fleet.play(days=3) == [9, 9, 9]
        assert max(fleet.of("a.example")) <= 2


@pytest.mark.dear
def test_a_host_in_a_group_has_at_most_its_own_cap(database_url):
    with service(database_url) as live:
        fleet = grouped(live, 1)
        fleet.play(days=3)
        assert fleet.of("a.example") == [2, 2, 2]


def test_a_raised_cap_is_in_force_at_once(database_url):
    with service(database_url) as live:
        live.register(*urls(40))
        live.client.put("/hosts/a.example", json={"max_crawl_rate": 3})
        fleet = Fleet(live)
        assert fleet.ask() == 3
        live.client.put("/hosts/a.example", json={"max_crawl_rate": 5})
        assert fleet.ask() == 2
        live.client.put("/hosts/a.example", json={"max_crawl_rate": None})
        assert fleet.ask() == BUDGET - 5


def test_a_deleted_host_leaves_no_counts(database_url):
    with service(database_url) as live:
        ids = live.register(*urls(5))
        live.client.put("/hosts/a.example", json={"max_crawl_rate": 3})
        Fleet(live).ask()
        with live.service.store.begin(write=False) as tx:
            assert tx.scalar("SELECT count(*) FROM crawl_days") == 1
        for page_id in ids:
            assert live.client.delete(f"/pages/{page_id}").status_code == 204
        assert live.client.delete("/hosts/a.example").status_code == 204
        with live.service.store.begin(write=False) as tx:
            assert tx.scalar("SELECT count(*) FROM crawl_days") == 0
