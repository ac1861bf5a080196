"""Admission in a replay: the pages that a store admits, in the same order."""

import numpy as np
import pytest
from support.new_page_cases import Fleet

from recrawl_lab.replay.admitted import IN_FLIGHT, WAITS, Admission
from service.model.urls import normalise

pytestmark = pytest.mark.dear

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


def letters(number):
    return "".join(chr(97 + int(digit)) for digit in str(number))


def tree(n_children, depth):
    """Return the URL of a number in directories of directories."""

    def url(i):
        parts = [letters(i // n_children**k % n_children) for k in range(depth)]
        return f"https://h0.example/t/{'/'.join(parts)}/x{letters(i)}"

    return url


TRAPS = {
    "a directory each": lambda i: f"https://h0.example/t/{letters(i)}/x?id={i}",
    "70 of 70 directories": tree(70, 2),
    "17 of 17 of 17": tree(17, 3),
    "12 of 12 of 12": tree(12, 3),
    "trees of five directories": tree(6, 5),
    "trees of six directories": tree(4, 6),
    "trees of seven directories": tree(3, 7),
    "a chain for each": lambda i: f"https://h0.example/t/{'/'.join(letters(i))}/x",
    "ever deeper": lambda i: f"https://h0.example/t/{'q/' * (1 + i % 200)}{letters(i)}",
    "parameters of other names": lambda i: f"https://h0.example/t/list?a{letters(i)}=1",
    "pairs of parameters": lambda i: (
        f"https://h0.example/t/list?{letters(i % 70)}=1&{letters(i // 70)}=2"
    ),
    "long names": lambda i: f"https://h0.example/t/{'y' * 300}{letters(i)}/{'z' * 300}/x",
    "other case": lambda i: f"https://h0.example/t/{cased(i)}/x",
    "percent-encoded": lambda i: f"https://h0.example/t/{encoded(i)}/x",
    "slashes at the end": lambda i: f"https://h0.example/t/{letters(i // 30)}{'/' * (i % 30)}",
    "dot segments": lambda i: f"https://h0.example/t/{'u/../' * (i % 3)}./{letters(i)}/x",
    "session ids": lambda i: f"https://h0.example/t/x;sid={letters(i)}/y",
}


def cased(number):
    """Return a name whose letters are capital by the bits of a number."""
    bits = f"{number:013b}"
    return "".join(
        letter.upper() if bit == "1" else letter for letter, bit in zip(NAME, bits, strict=True)
    )


def encoded(number):
    """Return a name whose letters are percent-encoded by the bits of a number."""
    bits = f"{number:013b}"
    return "".join(
        f"%{ord(letter):x}" if bit == "1" else letter
        for letter, bit in zip(NAME, bits, strict=True)
    )


NAME = "abcdefghijklm"
SITE = [f"https://h0.example/d{i % 5}/p{i}" for i in range(30)]


def answered(lab, digest):
    """Answer first crawls until none is admitted; return their number."""
    n = 0
    while (page := np.flatnonzero(lab.state == IN_FLIGHT)).size:
        lab.answer(page, digest(page))
        n += len(page)
    return n


@pytest.mark.sampled(12)
@pytest.mark.parametrize("digest", [7, 0], ids=["junk", "absent"])
@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_of_directories_on_a_good_site_costs_at_most_40_first_crawls(trap, digest):
    junk = {normalise(TRAPS[trap](i)).url: None for i in range(2_000)}
    lab = Admission([*SITE, *junk])
    lab.enter(np.arange(len(SITE)))
    assert answered(lab, lambda page: 100 + page) == len(SITE)
    lab.enter(np.arange(len(SITE), len(SITE) + len(junk)))
    assert answered(lab, lambda page: np.full(len(page), digest)) <= 40
