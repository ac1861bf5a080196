"""The page on costs runs as it stands; its table follows from the rules of the page on sizes."""

import re
from datetime import UTC, datetime

import pytest
from support.live_server import running
from support.pages import DOCS, block

PAGE = (DOCS / "how-to" / "costs.md").read_text()
SOLD_GB = (8, 16, 32, 64, 128, 256, 512)
"""Sizes of machines that are sold, GB."""


def test_the_program_reports_the_costs_of_a_crawl(sqlite_url, monkeypatch, capsys):
    monkeypatch.setenv("RECRAWL_BUDGET", "50 GB")
    with running(sqlite_url, clock=lambda: datetime.now(UTC)) as live:
        live.register("https://example.com/news")
        exec(block(PAGE, "report").text.replace("http://127.0.0.1:8000", live.url), {})
    assert capsys.readouterr().out == "48213.0\n"


def numbers(cells):
    return [float(n.replace(",", "")) for n in re.findall(r"[0-9][0-9,.]*", cells)]


@pytest.mark.parametrize("row", re.findall(r"^\| ([0-9]+ million .*) \|$", PAGE, re.MULTILINE))
def test_a_row_of_the_table_follows_from_the_sizes(row):
    millions, memory, disk, crawls, traffic, month, of_traffic = numbers(row)
    sizing = (DOCS / "how-to" / "sizing.md").read_text()
    per_page = float(re.search(r"`shared_buffers` of Postgres \| ([0-9]+) bytes", sizing)[1])
    log, tables = (
        float(re.search(pattern, sizing)[1])
        for pattern in (r"or ([0-9.]+) GB for 30 days", r"The other tables take ([0-9.]+) GB")
    )
    assert memory == next(gb for gb in SOLD_GB if gb >= 4 * per_page * millions / 1e3)
    assert disk == pytest.approx((log + tables) * millions, rel=0.1)
    assert crawls == 0.2 * millions * 1e6
    assert traffic == crawls * 100e3 / 1e9
    assert month == pytest.approx(5 * memory + 0.1 * disk, abs=1)
    assert of_traffic == traffic * 30 * 0.05
