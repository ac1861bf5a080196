"""The page on acts, run as it stands."""

import shlex

import pytest
from support.live_server import Live, running
from support.pages import DOCS, block, shell

PAGE = (DOCS / "how-to" / "act.md").read_text()
SERVICE = "http://127.0.0.1:8000"


@pytest.fixture
def live(sqlite_url):
    with running(sqlite_url) as live:
        live.register("https://example.com/", "https://example.com/old", tags=["old"])
        live.register("https://example.com/older", tags=["old"])
        live.register("https://example.com/new")
        yield live


def run(recrawl, live: Live, title: str):
    """Run the commands of a block; return their output."""
    outputs = []
    for line in block(PAGE, title).text.splitlines():
        ended = recrawl(*shlex.split(line)[1:], url=live.url)
        assert ended.status == 0, (line, ended.err)
        outputs.append(ended.out)
    return outputs


def test_the_commands_of_the_page_act(live, recrawl):
    _, shown, unset = run(recrawl, live, "budget")
    assert '"budget": "10,000 crawls"' in shown
    assert unset.startswith("none is set")
    assert live.get("/budget").json()["set_by"] == "default"
    run(recrawl, live, "host")
    host = live.get("/hosts/example.com").json()
    assert (host["min_delay_s"], host["max_concurrency"], host["max_crawl_rate"]) == (2, 1, 5000)
    run(recrawl, live, "all hosts")
    one, pages, host = run(recrawl, live, "delete")
    assert one == "https://example.com/old is deleted\n"
    assert pages == "2 pages of 2 deleted\n"
    assert host == "deleted: example.com, 1 page\n"
    acts = [entry["act"] for entry in reversed(live.get("/audit").json()["items"])]
    assert acts == [
        *("budget.set", "budget.unset", "host.pause", "host.resume", "host.change"),
        *("service.pause", "service.resume"),
        *("page.delete", "pages.delete", "pages.delete", "host.delete"),
    ]
    run(recrawl, live, "who")


@pytest.mark.dear
@pytest.mark.parametrize("title", ["budget", "host", "all hosts"])
def test_the_requests_of_the_page_do_the_same(live, tmp_path, title):
    script = block(PAGE, f"{title} over HTTP").text.replace(SERVICE, live.url)
    script = script.replace("curl ", "curl -sS --fail ")
    assert shell(script, tmp_path)
    acts = {entry["act"].partition(".")[2] for entry in live.get("/audit").json()["items"]}
    assert acts in ({"set", "unset"}, {"pause", "resume"})
