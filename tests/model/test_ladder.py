"""The ladder of a URL."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.model.ladder import (
    MOST_DIRECTORIES,
    MOST_NAME,
    directory_level,
    ladder,
    last_levels,
    level_of,
)


@pytest.mark.parametrize(
    ("url", "last"),
    [
        ("https://a.example/", "a.example/*?"),
        ("https://a.example/about", "a.example/*?"),
        ("https://a.example/some-post/", "a.example/*/?"),
        ("https://a.example/p17.html", "a.example/p#.html?"),
        ("https://a.example/list?id=3&page=2", "a.example/list?id&page"),
        ("https://a.example/list?page=2&id=3", "a.example/list?id&page"),
        ("https://a.example/2024/05/17/title", "a.example/2024/*?"),
        ("https://a.example/u/1b4e28ba-2fa1-11d2-883f-0016d3cca427/x", "a.example/u/#/*?"),
        ("https://a.example/a-title-of-2024-with-3-numbers", "a.example/*#*?"),
    ],
)
def test_the_last_level_is_the_shape_of_the_last_segment(url, last):
    assert ladder(url).names[-1] == last


def test_pages_of_one_shape_share_a_level_and_other_parameters_do_not():
    one, two, other = last_levels(
        [f"https://a.example/list?{query}" for query in ("id=1", "id=2", "day=1")]
    ).tolist()
    assert one == two != other


segments = st.text("ab1./-", max_size=8)


@given(st.lists(segments, max_size=12), st.text("ab=&1", max_size=12))
def test_each_level_is_below_the_one_before(parts, query):
    url = "https://a.example/" + "/".join(parts) + (f"?{query}" if query else "")
    names, levels = ladder(url)
    assert len(names) == len(levels) <= MOST_DIRECTORIES + 3
    assert levels[-1] == last_levels([url])[0]
    for above, below in pairwise(names):
        assert below.startswith((f"{above}/", f"{above}?"))
    assert ["?" in name for name in names] == [False] * (len(names) - 1) + [True]
    assert all(0 < level < 2**62 for level in levels)
    assert all(level == level_of(name) for level, name in zip(levels, names, strict=True))


def test_a_long_name_is_cut_and_its_level_is_not():
    one, two = (ladder(f"https://a.example/{'x' * 600}{end}/p") for end in "ab")
    assert len(one.names[-1]) == MOST_NAME
    assert one.levels[-1] != two.levels[-1]


def test_a_directory_is_named_by_its_url():
    assert directory_level("https://a.example/").names == ("a.example",)
    shop = directory_level("https://a.example/shop/12345/")
    assert shop.names[-1] == "a.example/shop/#"
    assert shop.levels == ladder("https://a.example/shop/99999/x").levels[:-1]


def test_all_parameters_of_a_path_have_one_group_which_the_url_of_a_directory_names():
    one, other = (ladder(f"https://a.example/x/list?{query}") for query in ("sid=1", "page=2&z"))
    assert one.names[:-1] == other.names[:-1] == ("a.example", "a.example/x", "a.example/x/list")
    assert directory_level("https://a.example/x/list/").levels == one.levels[:-1]
    assert ladder("https://a.example/?q=1").names == ("a.example", "a.example/?q")
    assert ladder("https://a.example/x/list").names == (
        "a.example",
        "a.example/x",
        "a.example/x/*?",
    )
