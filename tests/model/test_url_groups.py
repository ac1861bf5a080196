"""URL groups: what counts as one directory, and that its number is the same everywhere."""

import subprocess
import sys

import numpy as np
import pytest

from service.model.urls import URL_GROUPS, n_buckets, normalise, url_groups


def url_group(url):
    return int(url_groups([normalise(url).url])[0])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://e.example/docs/a", "https://e.example/docs/b"),
        ("https://e.example/docs/a/", "https://e.example/docs/b"),
        ("https://e.example/docs/a?page=2", "https://e.example/docs/b?back=/x/y"),
        ("http://e.example/docs/a", "https://e.example/docs/a"),
        ("https://e.example/", "https://e.example/about"),
        ("https://e.example/?q=1", "https://e.example/"),
        ("https://e.example/questions/123/how", "https://e.example/questions/98765/why"),
        ("https://e.example/item-123456/reviews", "https://e.example/item-654321/reviews"),
        ("https://e.example/a/8f3a2b1c/x", "https://e.example/a/00ffee11/y"),
        (
            "https://e.example/u/1b4e28ba-2fa1-11d2-883f-0016d3cca427/x",
            "https://e.example/u/6ba7b810-9dad-11d1-80b4-00c04fd430c8/y",
        ),
        ("https://e.example/2024/05/slug/", "https://e.example/2024/06/17/slug"),
        ("https://e.example/2024/5/slug/", "https://e.example/2024/slug"),
    ],
)
def test_siblings_share_a_url_group(one, other):
    assert url_group(one) == url_group(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://e.example/docs/a", "https://f.example/docs/a"),
        ("https://e.example/docs/a", "https://e.example/docs/a/b"),
        ("https://e.example/docs/a/b", "https://e.example/Docs/a/b"),
        ("https://e.example/docs/7.4/a", "https://e.example/docs/7.5/a"),
        ("https://e.example/docs/15/a", "https://e.example/docs/16/a"),
        ("https://e.example/2023/05/a", "https://e.example/2024/05/a"),
        ("https://e.example/deadbeef/a", "https://e.example/cafebabe/a"),
        ("https://12345678.example/a", "https://87654321.example/a"),
        ("https://e.example/questions/123/a", "https://e.example/answers/123/a"),
        ("https://e.example:8080/a", "https://e.example/a"),
    ],
)
def test_what_may_change_differently_has_url_groups_of_its_own(one, other):
    assert url_group(one) != url_group(other)


def test_the_numbers_are_those_that_databases_hold():
    """A migration is due when this fails: stored URL groups would no longer be found."""
    urls = ["https://example.com/a/b", "https://example.com/", "https://example.com/2024/05/x"]
    assert url_groups(urls).tolist() == GOLDEN


GOLDEN = [230059, 247059, 969160]


def test_another_process_gives_the_same_numbers():
    url = "https://example.com/docs/open.html"
    code = f"from service.model.urls import url_groups; print(url_groups([{url!r}])[0])"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    assert int(told.stdout) == url_group(url)


@pytest.mark.dear
def test_directories_spread_evenly_over_the_buckets():
    found = url_groups(f"https://e.example/d{i % 250}/e{i // 250}/x" for i in range(50_000))
    assert found.dtype == np.int32
    assert (found >= 0).all()
    assert (found < URL_GROUPS).all()
    n_distinct = URL_GROUPS * -np.expm1(50_000 * np.log1p(-1 / URL_GROUPS))
    assert abs(len(np.unique(found)) - n_distinct) < 5 * np.sqrt(50_000**2 / URL_GROUPS / 2)
    assert np.bincount(found // (URL_GROUPS // 16)).min() > 50_000 / 16 * 0.9


@pytest.mark.parametrize("n_pages", [0, 1, 7, 1000, 65_536, 65_537, 20_000_000])
def test_buckets_are_as_many_as_the_pages_need(n_pages):
    n = n_buckets(n_pages)
    assert URL_GROUPS % n == 0
    assert n == URL_GROUPS or 16 * n_pages <= n < 32 * max(n_pages, 1)


def test_no_pages_have_no_url_groups():
    assert url_groups([]).shape == (0,)
