"""The pages on copies and on many pages run as they stand."""

import json
import os
import re
import subprocess
import sys
from datetime import timedelta

import pytest
from support.live_server import START, Live, running
from support.pages import DOCS, block, blocks, shell
from support.processes import ROOT

from service.api.requests.filters import PageParameters

SERVICE = "http://127.0.0.1:8000"


@pytest.fixture
def live(sqlite_url) -> Live:
    with running(sqlite_url) as live:
        yield live


def text_of(name):
    return (DOCS / "how-to" / f"{name}.md").read_text()


def test_the_commands_of_the_page_on_copies_judge_them(live, recrawl):
    crawled = {"observed_at": START.isoformat(), "digest": "1"}
    (command,) = blocks(text_of("fresh-copies"), "sh")
    news, about = command.text.split()[2:]
    live.post("/observations", [{"url": news, **crawled}])
    live.clock.advance(hours=1)
    output = recrawl(*command.text.split()[1:], url=live.url)
    assert output.status == 1
    kept, fetched = output.out.splitlines()
    assert kept.startswith("keep")
    assert kept.endswith(news)
    assert fetched == f"fetch  never fetched  {about}"


@pytest.mark.dear
def test_the_program_of_the_page_on_copies_names_the_pages_to_fetch(sqlite_url, tmp_path):
    key = "k" * 32
    with running(sqlite_url, api_keys=(key,)) as live:
        url = "https://example.com/news"
        at = [START - timedelta(days=10) + timedelta(hours=i) for i in range(200)]
        observations = [
            {"url": url, "observed_at": when.isoformat(), "digest": str(i)}
            for i, when in enumerate(at)
        ]
        assert live.post("/observations", observations).json()["accepted"] == 200
        program = tmp_path / "refresh.py"
        program.write_text(block(text_of("fresh-copies"), "refresh.py").text)
        live.clock.now = START
        source = program.read_text().replace(
            "datetime.now(UTC)", f"datetime.fromisoformat({START.isoformat()!r})"
        )
        program.write_text(source)
        done = subprocess.run(
            [sys.executable, str(program), live.url],
            env={**os.environ, "PYTHONPATH": str(ROOT), "RECRAWL_API_KEY": key},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f"fetch {url}, stale with 100%\n"


@pytest.mark.slow
def test_the_commands_of_the_page_on_many_pages_list_change_and_delete(live, tmp_path):
    live.register("https://example.com/blog/1", "https://example.com/blog/2")
    live.register("https://example.com/news", tags=["news"])
    commands, curl, by_load = blocks(text_of("many-pages"), "sh")
    printed = shell(commands.text, tmp_path, url=live.url)
    assert "1 (exact)" in printed
    assert printed.partition("(exact)")[2].split("\n")[1:-1] == [
        "2 pages would be changed",
        "2 pages of 2 changed",
        "2 pages of 2 due",
        "0 pages of 0 deleted",
    ]
    shell(curl.text.replace(SERVICE, live.url), tmp_path)
    header, *rows = (tmp_path / "blog.csv").read_text().splitlines()
    assert header.startswith("page_id,url,state,tags")
    assert [row.split(",")[1] for row in rows] == [
        page["url"] for page in live.get("/pages", tag="blog").json()["items"]
    ]
    assert len(rows) == 2
    listed = shell(by_load.text, tmp_path, url=live.url).splitlines()
    assert [json.loads(line)["host"] for line in listed] == ["example.com"]


def test_every_filter_of_the_page_on_many_pages_exists():
    table = text_of("many-pages").partition("| filter |")[2].partition("\n\n")[0]
    first = "".join(row.split("|")[1] for row in table.splitlines()[2:])
    assert set(re.findall(r"`(\w+)`", first)) == set(PageParameters._fields)


@pytest.mark.dear
@pytest.mark.parametrize("step", [1, -1])
def test_the_log_of_another_crawler_and_the_budget_come_in_any_order(sqlite_url, tmp_path, step):
    text = text_of("come-from-another-crawler")
    (tmp_path / "log.ndjson").write_text(block(text, "log.ndjson").text)
    with running(sqlite_url) as live:
        for title in ("send the log", "set the budget")[::step]:
            script = block(text, title).text.replace(SERVICE, live.url)
            shell(script, tmp_path, url=live.url)
        epoch = live.epoch()
        assert (epoch["planned"], epoch["overhead"]) == (5_400.0, 0.0)
        assert live.get("/budget").json()["spent_today"] == 0.0
        assert live.get("/status").json()["today"]["n_reported"] == 0
        assert live.get("/changes").json()["items"] == []
        assert live.get("/pages", url="https://a.example/old").json()["gone"]
