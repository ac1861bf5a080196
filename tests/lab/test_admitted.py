"""Admission in a replay: the pages that a store admits, in the same order."""

import numpy as np
import pytest
from support.new_page_cases import Fleet

from recrawl_lab.replay.admitted import IN_FLIGHT, WAITS, Admission

GOOD = [f"https://h{i % 2}.example/d{i % 3}/p{i}" for i in range(60)]
JUNK = [f"https://h0.example/search/list?id={i}" for i in range(200)]
JUNK += [f"https://h1.example/t/{name}/x" for name in ("ab", "cd", "ef", "gh")]
URLS = GOOD + JUNK


def digest_of(url):
    """All junk shows one content; each good page has its own."""
    return 7 if url in JUNK else 1 + (hash(url) % (1 << 60))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_replay_admits_what_a_store_admits(sqlite_store, seed):
    order = np.random.default_rng(seed).permutation(len(URLS))
    urls = [URLS[i] for i in order]
    fleet = Fleet(sqlite_store)
    lab = Admission(urls)
    for page, url in enumerate(urls):  # alone, so that the ids of the store are in this order
        fleet.register([url])
        lab.enter(np.array([page]))
    for _ in range(30):
        in_flight = [urls[i] for i in np.flatnonzero(lab.state == IN_FLIGHT).tolist()]
        batches: list[list[str]] = []

        def answers(some, batches=batches):
            batches.append(some)
            digests = np.array([digest_of(url) for url in some], np.int64)
            return {"digest": digests, "status": 200}

        before = len(fleet.crawled)
        fleet.crawl(answers)
        crawled = fleet.crawled[before:]
        if not batches:
            break
        assert sorted(batches[0]) == sorted(in_flight)
        for batch in batches:
            page = np.array([urls.index(url) for url in batch])
            assert lab.admitted(page).all()
            lab.answer(page, np.array([digest_of(url) for url in batch], np.int64))
        assert len(crawled) == sum(map(len, batches))
    assert set(GOOD) <= set(fleet.crawled)
    assert len(set(JUNK) & set(fleet.crawled)) < 50


def test_a_level_has_a_sample_in_ten_days_within_the_share_of_the_budget():
    lab = Admission(JUNK)
    lab.enter(np.arange(len(JUNK)))
    while (page := np.flatnonzero(lab.state == IN_FLIGHT)).size:
        lab.answer(page, np.full(len(page), 7))
    n = np.count_nonzero(lab.state == WAITS)
    assert n > 100
    sampled = []
    for day in range(12):
        for _ in range(4):
            lab.sample(100.0, day)
        page = np.flatnonzero(lab.state == IN_FLIGHT)
        assert len(page) <= 1
        lab.answer(page, np.full(len(page), 7))
        sampled += [day] * len(page)
    assert sampled == [0, 10]
    assert np.count_nonzero(lab.state == WAITS) == n - 2
