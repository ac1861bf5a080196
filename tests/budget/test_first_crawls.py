"""First crawls of new pages: junk ends soon, good pages all come, on both databases."""

import pytest
from support.new_page_cases import Fleet, all_different, of_one_digest

N = 5_000


def letters(i):
    return "".join(chr(97 + int(digit)) for digit in str(i))


PLACES = {
    "a directory of its own": lambda i: f"https://h0.example/search/list?id={i}",
    "among changing pages": lambda i: f"https://h0.example/d0/list?id={i}",
    "5,000 directories of one": lambda i: f"https://h0.example/t/{letters(i)}/x?id={i}",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.dear
def test_junk_of_one_digest_costs_at_most_40_crawls_and_then_a_sample(sql_store, place):
    fleet = Fleet(sql_store)
    good = fleet.register([f"https://h0.example/d{i % 5}/p{i}" for i in range(30)])
    assert len(good) == 30
    fleet.crawl(all_different)
    n_good = len(fleet.crawled)
    fleet.register([PLACES[place](i) for i in range(N)])
    first, second, third = fleet.play(of_one_digest, 3)
    assert 5 <= len(first) - (30 - n_good) <= 40
    assert len(second) <= 0.01 * fleet.budget
    assert len(third) <= 0.01 * fleet.budget
    assert len(second) + len(third) >= 1
