"""First crawls of new pages: junk ends soon, good pages all come, on both databases."""

from zlib import crc32

import numpy as np
import pytest
from support.new_page_cases import Fleet, absent, all_different, of_one_digest
from support.store_cases import DAY, T0, crawl_columns, instants, page_columns

from service.batching.reports import CrawlReport
from service.budget.admission import forget, overrule
from service.budget.shown import groups_above, ladder_named, stopped_of
from service.core import worth
from service.ingest.page_names import PageNames
from service.model.columns import PageColumns
from service.model.ladder import ladder
from service.model.outcomes import OFFERED, ROBOTS_DENIED
from service.status.facts import stopped_groups

N = 5_000


def letters(i):
    return "".join(chr(97 + int(digit)) for digit in str(i))


PLACES = {
    "a directory of its own": lambda i: f"https://h0.example/search/list?id={i}",
    "among changing pages": lambda i: f"https://h0.example/d0/list?id={i}",
    "5,000 directories of one": lambda i: f"https://h0.example/t/{letters(i)}/x?id={i}",
}


def known(fleet):
    """Crawl thirty good pages of the host; return their number."""
    fleet.register([f"https://h0.example/d{i % 5}/p{i}" for i in range(30)])
    fleet.play(all_different, 1)
    assert len(fleet.crawled) == 30


@pytest.mark.dear
@pytest.mark.parametrize("answers", [of_one_digest, absent])
@pytest.mark.parametrize("place", PLACES)
def test_junk_costs_at_most_40_crawls_and_then_a_sample(sql_store, place, answers):
    fleet = Fleet(sql_store)
    known(fleet)
    fleet.register([PLACES[place](i) for i in range(N)])
    first, second = fleet.play(answers, 2, hours=4)
    assert 9 <= len(first) <= 40
    assert len(second) <= 0.01 * fleet.budget
    fleet.day = 11
    (later,) = fleet.play(answers, 1, hours=4)
    assert 1 <= len(later) <= 0.01 * fleet.budget


@pytest.mark.dear
def test_junk_on_ten_hosts_costs_at_most_150_crawls(sql_store):
    fleet = Fleet(sql_store)
    fleet.register([f"https://h{i % 10}.example/search/list?id={i}" for i in range(N)])
    first, second = fleet.play(of_one_digest, 2, hours=4)
    assert len(first) <= 150
    assert len(second) <= 0.01 * fleet.budget


@pytest.mark.dear
def test_samples_of_days_without_a_crawler_are_not_crawled_on_one_day(sql_store):
    fleet = Fleet(sql_store)
    fleet.register([f"https://h{i % 20}.example/search/list?id={i}" for i in range(N)])
    fleet.play(of_one_digest, 2, hours=4)
    for _ in range(6):
        fleet.day += 1
        fleet.now = T0 + fleet.day * DAY
        fleet.round()
    for samples in fleet.play(of_one_digest, 8, hours=4):
        assert len(samples) == 0.01 * fleet.budget


@pytest.mark.parametrize("place", [*PLACES, "pages of the host"])
def test_good_pages_are_all_admitted_within_a_day(sql_store, place):
    fleet, n = Fleet(sql_store), 500
    of = PLACES.get(place, lambda i: f"https://h0.example/page-{i}")
    fleet.register([of(i) for i in range(n)])
    (day,) = fleet.play(all_different, 1, hours=12)
    assert len(set(day)) == len(day) == n


def test_a_trap_whose_pages_all_differ_is_not_stopped(sql_store):
    fleet = Fleet(sql_store)
    fleet.register([f"https://h0.example/calendar/day?n={i}" for i in range(200)])
    (day,) = fleet.play(all_different, 1, hours=8)
    assert len(day) == 200


@pytest.mark.slow
def test_hosts_of_several_databases_are_judged_each_in_its_own(sharded_store):
    fleet, n = Fleet(sharded_store), 300
    fleet.register([f"https://h{i % 9}.example/new/p{i}" for i in range(n)])
    (day,) = fleet.play(all_different, 1, hours=8)
    assert len(day) == n
    with sharded_store.begin(write=False) as tx:
        hosts = [
            level
            for level in tx.shown_levels("", 1000, "", only_stopped=False)
            if level.parent == 0
        ]
    assert len(hosts) == 9
    assert sum(level.n_new for level in hosts) == n


@pytest.mark.dear
def test_a_good_sample_lifts_the_stop(sql_store):
    fleet = Fleet(sql_store)
    fleet.register([f"https://h0.example/list?id={i}" for i in range(100)])
    first, *_ = fleet.play(of_one_digest, 2, hours=2)
    assert len(first) < 40
    fleet.day = 10
    rest = [url for day in fleet.play(all_different, 4, hours=4) for url in day]
    assert len(first) + len(rest) >= 99


def test_a_failed_first_crawl_is_no_verdict_before_the_third(sql_store):
    fleet = Fleet(sql_store)
    fleet.register([f"https://h0.example/list?id={i}" for i in range(12)])
    failing = lambda urls: {"digest": np.zeros(len(urls), np.int64), "status": 500}  # noqa: E731
    fleet.crawl(failing)
    assert levels_of(sql_store, "https://h0.example/list?id=1").n_first.sum() == 0
    fleet.play(failing, 1)
    assert levels_of(sql_store, "https://h0.example/list?id=1").stopped.any()
    with sql_store.begin(write=False) as tx:
        assert stopped_groups(tx)
    sql_store.holds_new = False  # as after RECRAWL_ADMISSION=all: no page waits any more
    fleet.round()
    with sql_store.begin(write=False) as tx:
        assert tx.stopped_levels(9)
        assert not stopped_groups(tx)


def offers(urls):
    return {"digest": np.zeros(len(urls), np.int64), "status": OFFERED}


def shop(i):
    return f"https://h0.example/list?id={i}"


def last_level(store):
    levels = levels_of(store, shop(1))
    return levels.where(levels.last)


def buy(fleet, page_id, answers):
    """Report crawls of pages after all others, without leases."""
    urls = [shop(i) for i in range(len(page_id))]
    fleet.now += 4 * DAY
    columns = crawl_columns(page_id, instants([fleet.now] * len(page_id)), **answers(urls))
    names = PageNames(page_id, np.full(len(page_id), -1), PageColumns.empty())
    fleet.recorder.flush_crawls([CrawlReport(columns, names, False, fleet.now)])


@pytest.mark.parametrize(("answers", "n_new"), [(all_different, 60), (of_one_digest, 1)])
def test_offers_are_no_verdict_and_what_is_bought_has_one(sql_store, answers, n_new):
    fleet, n = Fleet(sql_store), 60
    page_id = fleet.register([shop(i) for i in range(n)])
    (first,) = fleet.play(offers, 1, hours=8)
    assert len(first) == n
    level = last_level(sql_store)
    assert (level.n_first[0], level.n_in_flight[0], level.stopped[0]) == (0, 0, False)
    buy(fleet, page_id, offers)
    buy(fleet, page_id, answers)
    level = last_level(sql_store)
    assert (level.n_first[0], level.n_new[0], level.n_in_flight[0]) == (n, n_new, 0)
    assert level.stopped[0] == (n_new == 1)


def test_offered_pages_have_no_place_to_give_back_twice(sql_store):
    fleet = Fleet(sql_store)
    page_id = fleet.register([shop(i) for i in range(9)])
    fleet.crawl(offers)
    fleet.register([shop(i) for i in range(9, 12)])
    assert last_level(sql_store).n_in_flight[0] == 3
    with sql_store.begin() as tx:
        forget(tx, page_id, T0)
    assert last_level(sql_store).n_in_flight[0] == 3


def test_first_crawls_that_robots_txt_forbids_are_counted_in_all_levels(sql_store):
    fleet = Fleet(sql_store)
    fleet.register([f"https://h0.example/private/list?id={i}" for i in range(40)])
    fleet.register([f"https://h0.example/open/page?id={i}" for i in range(40)])

    def of_robots(urls):
        denied = np.array(["/private/" in url for url in urls])
        digest = np.where(denied, 0, [crc32(url.encode()) for url in urls])
        return {"digest": digest, "status": np.where(denied, ROBOTS_DENIED, 200)}

    fleet.play(of_robots, 2, hours=4)
    url = "https://h0.example/private/list?id=1"
    n_forbidden = levels_of(sql_store, url).n_forbidden
    assert set(n_forbidden.tolist()) == {n_forbidden[0]}
    with sql_store.begin(write=False) as tx:
        stop = stopped_of(groups_above(tx, url)).level
        facts = {group.name: group for group in stopped_groups(tx)}
        (last,) = (each for each in tx.stopped_levels(9) if "?" in each.name)
    assert last.n_forbidden == last.n_first == n_forbidden[0] > 0
    assert stop.is_forbidden
    assert facts[stop.name].n_forbidden == n_forbidden[0]
    assert last._replace(n_forbidden=1).is_forbidden is False


def test_a_store_that_holds_nothing_admits_what_was_held(sql_store):
    fleet = Fleet(sql_store)
    fleet.register([f"https://h0.example/list?id={i}" for i in range(40)])
    sql_store.holds_new = False
    fleet.round()
    assert len(fleet.crawl(of_one_digest)) == 40


def test_pages_that_were_imported_are_listed_and_admitted_in_the_next_round(sql_store):
    fleet = Fleet(sql_store)
    with sql_store.begin() as tx:
        tx.register(page_columns([f"https://h0.example/list?id={i}" for i in range(40)]), T0)
    assert fleet.crawl(all_different) == []
    fleet.round()
    assert len(fleet.crawl(all_different)) == 40


def levels_of(store, url):
    with store.begin() as tx:
        return tx.lock_levels(np.array(ladder(url).levels[-1:]))


@pytest.mark.dear
def test_a_sample_of_a_stopped_directory_is_of_the_group_with_most_pages(sql_store):
    fleet = Fleet(sql_store)
    known(fleet)
    fleet.register([f"https://h0.example/t/{letters(i)}/x?id={i}" for i in range(100)])
    fleet.play(of_one_digest, 2, hours=2)
    fleet.register([f"https://h0.example/t/good/p{i}" for i in range(9)])
    fleet.register([f"https://h0.example/t/{letters(i)}/x?id={i}" for i in range(100, 150)])
    fleet.day = 12
    found = lambda urls: {  # noqa: E731
        "digest": np.array([1 + hash(url) % (1 << 60) if "good" in url else 777 for url in urls]),
        "status": 200,
    }
    days = fleet.play(found, 2, hours=4)
    assert sum("/good/" in url for day in days for url in day) == 9


def test_a_rule_above_a_stopped_group_ends_its_samples_until_the_rule_ends(sql_store):
    fleet = Fleet(sql_store)
    fleet.register([f"https://h0.example/s/deep/list?id={i}" for i in range(200)])
    fleet.play(of_one_digest, 2, hours=4)

    def rule(number):
        with sql_store.begin() as tx:
            names = ladder_named(tx, "https://h0.example/s/")
            overrule(tx, names, number, T0)

    rule(worth.HOLD)
    fleet.day = 12
    assert fleet.play(of_one_digest, 1, hours=4) == [[]]
    rule(worth.NO_RULE)
    assert [len(day) for day in fleet.play(of_one_digest, 1, hours=4)] == [1]


def test_a_stopped_group_below_another_one_is_no_problem_of_its_own(sql_store):
    fleet = Fleet(sql_store)
    fleet.register([f"https://h0.example/s/deep/list?id={i}" for i in range(200)])
    fleet.play(of_one_digest, 2, hours=4)
    with sql_store.begin(write=False) as tx:
        assert len(tx.stopped_levels(9)) > 1
        assert len(stopped_groups(tx)) == 1
