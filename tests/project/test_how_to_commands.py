"""Commands of the pages on hosts, sitemaps, IndexNow and replays run as they stand, offline."""

import gzip
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.hubs import open_hub
from support.live_server import Live, running
from support.local_site import page, serving
from support.pages import DOCS, block, blocks, documents, shell

SERVICE = "http://127.0.0.1:8000"
ROBOTS = "User-agent: *\nCrawl-delay: 7\n"
SITEMAP = """<?xml version="1.0"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
  <url><loc>https://example.com/</loc></url><url><loc>https://example.com/news</loc></url>
</urlset>"""


def scripts(name: str, live: Live) -> list[str]:
    """Return the shell blocks of a page, for a service at another address."""
    page = (DOCS / "how-to" / f"{name}.md").read_text()
    return [block.text.replace(SERVICE, live.url) for block in blocks(page, "sh")]


@pytest.fixture
def live(sqlite_url):
    with running(sqlite_url, clock=lambda: datetime.now(UTC)) as live:
        yield live


@pytest.mark.slow
def test_hosts_are_set_as_the_page_on_politeness_sets_them(live, tmp_path):
    settings, robots, latency, group = scripts("politeness", live)
    shell(settings, tmp_path, url=live.url)
    host = live.get("/hosts/example.com").json()
    assert (host["min_delay_s"], host["max_concurrency"]) == (0.2, 4)
    mirrored = tmp_path / "mirror" / "b.example" / "robots.txt"
    mirrored.parent.mkdir(parents=True)
    mirrored.write_text(ROBOTS)
    with serving({"/robots.txt": page(ROBOTS)}) as site:
        shell(
            robots.replace("https://example.com/robots", site.url("/robots")),
            tmp_path,
            url=live.url,
        )
    assert live.get("/hosts/example.com").json()["robots_delay_s"] == 7.0
    assert live.get("/hosts/b.example").json()["robots_delay_s"] == 7.0
    shell(latency, tmp_path, url=live.url)
    host = live.get("/hosts/example.com").json()
    assert (host["latency_factor"], host["max_delay_s"]) == (5.0, 30.0)
    shell(group, tmp_path, url=live.url)
    assert live.get("/groups/shared-1").json()["members"] == ["a.example", "b.example"]


def test_plans_are_shown_as_the_page_on_budgets_shows_them(live, recrawl):
    live.register("https://example.com/", "https://example.com/news")
    live.epoch()
    plan, table = scripts("choose-a-budget", live)
    answer = live.client.get(re.search(r"'(http.*)'", plan)[1]).json()
    assert [item["bandwidth"] for item in answer["items"]] == [2000.0, 4000.0]
    ended = recrawl(*table.split()[1:], url=live.url)
    assert ended.status == 0
    assert "4,000" in ended.out


def test_a_sitemap_is_passed_on_as_the_page_passes_it_on(live, tmp_path):
    script = scripts("feed-sitemaps", live)[0]
    fetch, post = script.split("|")
    (tmp_path / "sitemap.xml.gz").write_bytes(gzip.compress(SITEMAP.encode()))
    assert fetch.split() == ["curl", "-sS", "https://example.com/sitemap.xml.gz"]
    answer = documents(shell(f"cat sitemap.xml.gz | {post}", tmp_path))[-1]
    assert (answer["kind"], answer["created"], answer["complete"]) == ("urlset", 2, True)
    page = (DOCS / "how-to" / "feed-sitemaps.md").read_text()
    assert answer.keys() == json.loads(blocks(page, "json")[0].text).keys()


def test_indexnow_is_called_as_the_page_calls_it(live, tmp_path):
    page = (DOCS / "how-to" / "indexnow.md").read_text()
    answers = documents(shell(scripts("indexnow", live)[0], tmp_path))
    assert answers[-1] == json.loads(blocks(page, "json")[0].text)


FEED = """<feed xmlns="http://www.w3.org/2005/Atom"><link rel="hub" href="/hub"/>
<entry><link href="/news"/><updated>2026-05-01T08:00:00Z</updated></entry></feed>"""


@pytest.mark.slow
def test_a_feed_is_subscribed_to_as_the_page_subscribes(live, tmp_path):
    script, others = scripts("websub", live)
    with open_hub() as hub:
        hub.documents["/feed"] = hub.documents["/news"] = ({}, FEED.encode())
        addresses = {
            "https://example.com/feed": f"{hub.url}/feed --private",
            "https://example.com/news": f"{hub.url}/news --private",
            "https://recrawl.example.org": live.url,
            "RECRAWL_API_KEY=…": "",
        }
        for name, address in addresses.items():
            assert name in script + others
            script, others = script.replace(name, address), others.replace(name, address)
        output = shell(script, tmp_path)
        (subscription,) = documents(output.partition("\n")[2])
        assert (subscription["hub"], subscription["signed"]) == (f"{hub.url}/hub", True)
        assert subscription["verified_at"] is not None
        assert [sent.status_code for sent in hub.distribute(FEED.encode())] == [202]
        news = live.get("/pages", url=f"{hub.url}/news").json()
        assert news["estimate"]["last_ping_at"] == "2026-05-01T08:00:00Z"
        shell(others, tmp_path, url=live.url)
        listed = {one["topic"]: one for one in live.get("/websub").json()["items"]}
        hosts = ["example.blogspot.com", "www.example.net"]
        assert listed[f"{hub.url}/feed"]["listed_hosts"] == hosts
        assert listed[f"{hub.url}/news"]["host_policy"] == "any"
        foreign = FEED.replace('href="/news"', 'href="https://other.example/news"').encode()
        hub.distribute(foreign)
        name = listed[f"{hub.url}/feed"]["id"]
        assert shell(f"recrawl websub show {name}", tmp_path, url=live.url).count("cross_host") == 1
    page = (DOCS / "how-to" / "websub.md").read_text()
    (shown,) = live.get(f"/websub/{name}/state").json()["last_rejected"]
    rejected = json.loads(block(page, "a rejected entry").text)
    assert rejected.keys() == shown.keys()
    assert (rejected["url"], rejected["code"]) == (shown["url"], shown["code"])
    assert rejected["detail"].replace("example.com", "127.0.0.1") == shown["detail"]


@pytest.mark.slow
def test_a_made_up_site_is_replayed_as_the_page_replays_it(tmp_path):
    page = (DOCS / "how-to" / "replay.md").read_text()
    output = shell(blocks(page, "sh")[0].text, tmp_path)
    folder = Path(re.findall(r"--out (\S+)", blocks(page, "sh")[0].text)[0])
    assert "staleness" in output
    assert (tmp_path / folder / "report.html").is_file()


def output_of(name: str) -> str:
    """Return the first block of a page that is output."""
    text = (DOCS / "how-to" / f"{name}.md").read_text()
    return blocks(text, "text")[0].text


def watched(name: str, n: int, live: Live, folder: Path, pages: dict, at: str) -> str:
    """Run a block of a page that watches a site, on a site of this machine, once."""
    script = scripts(name, live)[n].replace(" RECRAWL_API_KEY=…", "")
    with serving(pages) as site:
        assert f"{at} --user-agent" in script
        here = at.replace("https://example.com", site.url(""))
        script = script.replace(f"{at} ", f"{here} --once --private --delay 0 ")
        return shell(script, folder).replace(site.url(""), "https://example.com")


@pytest.mark.slow
def test_a_site_is_watched_as_the_page_watches_it(live, tmp_path):
    entry = "<{0}><loc>/{1}</loc><lastmod>2026-04-30T12:00:01Z</lastmod></{0}>".format
    names = ("news.xml", "archive.xml")
    index = "".join(entry("sitemap", name) for name in names)
    pages = {
        "/robots.txt": page("Sitemap: /sitemap_index.xml"),
        "/sitemap_index.xml": page(f"<sitemapindex>{index}</sitemapindex>"),
        **{f"/{name}": page(f"<urlset>{entry('url', name[0])}</urlset>") for name in names},
    }
    shown = watched("feed-sitemaps", 1, live, tmp_path, pages, "https://example.com")
    assert shown.splitlines()[:2] == output_of("feed-sitemaps").splitlines()[:2]
    assert "https://example.com/news.xml: urlset, 1 new" in shown
    assert (tmp_path / "recrawl-watch.db").is_file()


@pytest.mark.slow
def test_a_feed_is_followed_as_the_page_follows_it(live, tmp_path):
    items = "".join(f"<item><link>/{n}</link></item>" for n in range(2))
    pages = {"/feed": page(f"<rss><channel>{items}</channel></rss>")}
    shown = watched("feeds", 0, live, tmp_path, pages, "https://example.com/feed")
    assert shown == output_of("feeds")
