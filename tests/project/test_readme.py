"""The README shows what the service does."""

import json
import re
import shlex
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from support.live_server import running as running_at
from support.live_server import until
from support.local_site import page, serving
from support.pages import (
    DOCS,
    ROOT,
    assert_agrees,
    assert_same_text,
    blocks,
    documents,
    shell,
    terminal,
)

from service.api.assembly import open_service
from service.api.server import running
from service.runtime.settings import read_settings

README = (ROOT / "README.md").read_text()
SERVICE = "http://127.0.0.1:8000"
AWAY = "http://127.0.0.1:9/"
"""A site that does not answer."""


def now() -> datetime:
    return datetime.now(UTC)


def section(title: str, text: str = README) -> str:
    return text.split(f"## {title}\n")[1].split("\n## ", maxsplit=1)[0]


DUE = re.compile(r"due [^,]+ ago, at [^,]+")


@pytest.mark.dear
def test_quickstart_and_crawler_print_in_reading_order_what_is_shown(tmp_path):
    service = open_service(read_settings(database_url=f"sqlite:///{tmp_path}/readme.db"))
    with running(service) as url, serving({"/": page("home")}) as site:
        text = README.replace(SERVICE, url)
        check_the_quickstart(text, url, tmp_path)
        (crawler,) = blocks(text, "python")
        away = f'crawl.url.replace("https://example.com", "{site.url("")}")'
        program = crawler.text.replace("get(crawl.url)", f"get({away})")
        (tmp_path / "crawler.py").write_text(program)
        with terminal('exec "$PYTHON" crawler.py', tmp_path) as log:
            lines = ("404 https://example.com/news", "200 https://example.com/")
            until(lambda: all(line in log.read_text() for line in lines), "both are crawled")


def check_the_quickstart(text: str, url: str, directory: Path) -> None:
    """Run the commands; each answer is the one shown."""
    n_compared, output = 0, ""
    for block in blocks(section("Quickstart", text)):
        if block.language == "sh":
            output = shell(block.text, directory)
            until(lambda: httpx.get(f"{url}/epochs/latest").is_success, "the first epoch")
            continue
        n_compared += 1
        if block.language == "json":
            assert_agrees(documents(output)[-1], json.loads(block.text))
            assert not re.search(r"\d\.\d*(0{6}|9{6})\d", output), "a rounding error"
        else:
            # a due time has a random part
            assert_same_text(DUE.sub("due then", output), DUE.sub("due then", block.text))
    assert n_compared == 4


@pytest.mark.dear
def test_the_crawler_crawls_reports_prints_failures_and_goes_on(sqlite_url, tmp_path):
    (crawler,) = blocks(README, "python")
    with (
        serving({path: page(path) for path in ("/", "/late")}) as site,
        running_at(sqlite_url, clock=now, embedded=True, host_delay_s=0) as live,
    ):
        program = crawler.text.replace(SERVICE, live.url).replace(
            "https://example.com", site.url("")
        )
        (tmp_path / "crawler.py").write_text(program)
        with terminal('exec "$PYTHON" crawler.py', tmp_path) as log:
            until(lambda: log.read_text().count("200 http") == 1, "the page is crawled")
            live.register(AWAY)
            until(lambda: reported(live.client, AWAY), "a site that does not answer is reported")
            until(lambda: f"no answer {AWAY} " in log.read_text(), "and printed with the reason")
            live.register(site.url("/late"))
            until(lambda: f"200 {site.url('/late')}" in log.read_text(), "the loop goes on")
            until(lambda: reported(live.client, site.url("/late")), "the report arrives")
    assert dict(site.hits) == {"/": 1, "/late": 1}


def reported(client: httpx.Client, url: str) -> bool:
    return client.get("/pages", params={"url": url}).json()["last_crawl_at"] is not None


HEAD = README.split("\n## ", maxsplit=1)[0]


def test_the_first_block_is_the_demo_and_the_tests():
    first, start, *_ = blocks(README)
    commands = [line.partition("#")[0].split() for line in first.text.splitlines()]
    assert commands == [["make", "demo"], ["make", "test"]]
    assert start.text in HEAD


@pytest.mark.slow
def test_the_commands_to_start_install_what_is_here_and_start_a_server(tmp_path):
    *environment, install, serve = blocks(HEAD, "sh")[1].text.splitlines()
    assert environment == ["python3 -m venv recrawl-env", ". recrawl-env/bin/activate"]
    assert shlex.split(install) == ["pip", "install", "./recrawl_client", "."]
    assert all((ROOT / path / "pyproject.toml").is_file() for path in shlex.split(install)[2:])
    with terminal(f"{serve} --port 0", tmp_path) as log:
        printed = until(lambda: re.search(r"Recrawl serves at (\S+)", log.read_text()), "it serves")
        assert httpx.get(f"{printed[1]}/docs").is_success
        assert httpx.get(f"{printed[1]}/console", follow_redirects=True).is_success
    assert (tmp_path / "recrawl.db").is_file()


def test_uv_finds_the_four_distributions_in_the_clone():
    """`uv run recrawl serve` needs no index for them."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]
    folders = [ROOT, *(ROOT / folder for folder in table["workspace"]["members"])]
    names = {
        tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"]
        for folder in folders
    }
    assert names == set(table["sources"])
    assert all(source == {"workspace": True} for source in table["sources"].values())


def test_the_front_is_short_and_has_no_words_of_the_theory():
    front = README + (DOCS / "index.md").read_text()
    assert len(README.split()) <= 1_000
    assert not re.findall(r"certificate|harmonic|multiplier|bursty", front, re.IGNORECASE)


def test_every_file_linked_exists():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len(links) > 20
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_target_of_make_exists():
    targets = set(re.findall(r"(?:`|^)make ([\w-]+)", README, re.MULTILINE))
    assert targets <= set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets >= {"demo", "test", "docs"}
