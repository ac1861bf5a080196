"""Tables of the command line in narrow terminals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cli import output

ROWS = [
    {
        "url": f"https://news.example/section/an-article-of-a-long-name-{n}",
        "state": "active",
        "next_crawl_at": "2026-05-01T12:00:00Z",
        "crawl_rate": 0.25,
        "page_id": n,
    }
    for n in range(3)
]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_table_fits_and_names_what_is_left_out(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    output.echo_lines(ROWS, *ROWS[0])
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    assert ("no room for" in text) == (width < 80)
    if width >= 80:
        assert text.count("2026-05-01 12:00:00Z") == 3
        assert text.count("active") == 3


least = st.integers(1, 40)


@given(st.lists(st.tuples(least, st.integers(0, 60)), min_size=1, max_size=9), st.integers(45, 200))
def test_chosen_columns_have_their_least_width_and_fit(sizes, width):
    wanted = {f"c{n}": (low, low + more) for n, (low, more) in enumerate(sizes)}
    chosen = output.fitting(wanted, width)
    assert next(iter(chosen)) == "c0"
    assert all(wanted[name][0] <= size <= wanted[name][1] for name, size in chosen.items())
    assert sum(chosen.values()) + 3 * (len(chosen) - 1) + 2 <= width
