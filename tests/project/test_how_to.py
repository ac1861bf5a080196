"""What the how-to pages show is run as it stands."""

import re
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from support.live_server import running

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to"


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (HOW_TO / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("page", sorted(HOW_TO.glob("*.md")), ids=lambda page: page.stem)
def test_every_file_linked_exists(page):
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_crawler_of_the_page_crawls_and_reports(sqlite_url, monkeypatch):
    def get(url, **_):
        return httpx.Response(200, text=url, request=httpx.Request("GET", url))

    monkeypatch.setattr(httpx, "get", get)
    (crawler,) = blocks("crawl-with-your-own-crawler.md", "python")
    with running(sqlite_url, clock=lambda: datetime.now(UTC)) as live:
        exec(crawler.replace("http://127.0.0.1:8000", live.url), {})
        assert live.get("/pages/1").json()["last_crawl_at"] is not None


def test_the_reference_crawler_has_sixty_lines():
    assert len((ROOT / "examples" / "crawler.py").read_text().splitlines()) <= 60


def test_every_setting_of_the_scrapy_page_is_read_and_every_one_read_is_there():
    table = (HOW_TO / "crawl-with-scrapy.md").read_text().split("## Settings")[1]
    read = (ROOT / "recrawl_client" / "scrapy.py").read_text()
    named = set(re.findall(r"^\| `(RECRAWL_\w+)` \|", table, re.MULTILINE))
    assert named == set(re.findall(r'"(RECRAWL_\w+)"', read))
