"""Callbacks by name: spiders through Recrawl give the items that they give without it.

Real Scrapy processes, a live service, a site on this machine.
"""

import json
import logging
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from scrapy import Request, Spider
from scrapy.settings import Settings
from scrapy.utils.test import get_crawler
from support.live_server import PATIENCE_S, running
from support.local_site import page, redirect, serving
from support.processes import running_python

from recrawl_client.scrapy import Scheduler
from recrawl_client.scrapy_notes import (
    MOST_BYTES,
    MOST_NAMED,
    NoJson,
    Notes,
    NotKept,
    ReportingErrback,
    TooLong,
    UnnamedFunction,
)

SPIDERS = """
from scrapy import Request, Spider
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

def item(response, by, **values):
    depth = response.meta["depth"]
    return {"path": response.url.split("/", 3)[3], "by": by, "depth": depth, **values}

class Failing:
    def failed(self, failure):
        shown = failure.request.url.split("/", 3)[3]
        yield {"failed": shown, "kwargs": failure.request.cb_kwargs}

class Chain(Failing, Spider):
    name = "chain"

    def parse(self, response):
        yield item(response, "parse")
        for rank, path in enumerate(["a", "b", "gone", "moved"]):
            yield response.follow(
                path, self.parse_detail, errback=self.failed,
                cb_kwargs={"rank": rank, "of": ["x", None]}, meta={"section": path.upper()},
            )

    def parse_detail(self, response, rank, of):
        section = response.meta["section"]
        yield item(response, "parse_detail", rank=rank, of=of, section=section)
        yield response.follow("/more/%d" % rank, self.__more, meta=response.meta)

    async def __more(self, response):
        yield item(response, "more", section=response.meta["section"])

class Rules(Failing, CrawlSpider):
    name = "rules"
    rules = [
        Rule(LinkExtractor(allow="/list/"), follow=True),
        Rule(
            LinkExtractor(allow=["/item/", "/gone"]), callback="parse_item", errback="failed",
            cb_kwargs={"kind": "item"},
        ),
        Rule(LinkExtractor(allow="/other/"), callback=lambda response: [item(response, "lambda")]),
    ]

    def parse_start_url(self, response):
        yield item(response, "start")

    def parse_item(self, response, kind):
        yield item(response, "parse_item", kind=kind, text=response.meta["link_text"])
"""


def links(*paths):
    return page("".join(f"<a href='{path}'>to {path}</a>" for path in paths))


CHAIN = {path: page(path) for path in ("/", "/a", "/b", *(f"/more/{i}" for i in range(4)))}
CHAIN |= {"/moved": redirect(301, "/new"), "/new": page("new")}
REFRESH = "<meta http-equiv='refresh' content='0; url=/f'>"
RULES = {"/": links("/list/1", "/item/1", "/gone"), "/list/1": links("/list/2", "/item/2")}
RULES |= {"/list/2": links("/item/1", "/item/3", "/other/1"), "/item/3": links("/list/3")}
RULES |= {path: page(path) for path in ("/item/1", "/item/2", "/other/1", "/list/3")}


@pytest.fixture
def live(sqlite_url, monkeypatch):
    monkeypatch.setenv("RECRAWL_HOST_DELAY_S", "0")
    monkeypatch.setenv("RECRAWL_HOST_CONCURRENCY", "0")
    with running(sqlite_url, clock=lambda: datetime.now(UTC)) as live:
        yield live


RUN = """
import json, sys
from scrapy.crawler import CrawlerProcess
import spiders

name, start, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
process = CrawlerProcess({"ROBOTSTXT_OBEY": False, "LOG_LEVEL": "INFO", **settings})
process.crawl(getattr(spiders, name), start_urls=[start] if start else [])
process.start()
"""


def items(directory, spiders, name, start, live=None, **settings):
    """Run a spider to its end, and return its distinct items and its log.

    A page that is gone may be looked at again within seconds, and then fails twice.
    """
    path = directory / ("by_recrawl" if live else "plain")
    path.mkdir()
    (path / "spiders.py").write_text(spiders)
    (path / "run.py").write_text(RUN)
    settings |= {"FEEDS": {"items.jsonl": {"format": "jsonlines"}}, "DEPTH_LIMIT": 9}
    if live:
        settings |= {"SCHEDULER": "recrawl_client.scrapy.Scheduler", "RECRAWL_URL": live.url}
        settings |= {"RECRAWL_CLOSE_IDLE_S": 1}
    with running_python(path, "run.py", name, start, json.dumps(settings)) as process:
        assert process.wait(PATIENCE_S) == 0
    log = (path / "output.txt").read_text()
    made = path / "items.jsonl"
    lines = made.read_text().splitlines() if made.exists() else []
    return sorted({json.dumps(json.loads(line), sort_keys=True) for line in lines}), log


@pytest.mark.slow
@pytest.mark.parametrize(("name", "pages", "n"), [("Chain", CHAIN, 8), ("Rules", RULES, 6)])
def test_a_spider_gives_the_same_items_through_recrawl_as_without(name, pages, n, tmp_path, live):
    with serving(pages) as site:
        plain, log = items(tmp_path, SPIDERS, name, site.url("/"))
        assert len(plain) == n, log
        ours, log = items(tmp_path, SPIDERS, name, site.url("/"), live)
    assert ours == plain, log
    assert "ERROR" not in log
    assert live.get("/hosts/127.0.0.1").json()["n_leased"] == 0


LATER = """
from scrapy import Spider

class Later(Spider):
    name = "later"

    def parse(self, response):
        yield {"by": "parse", "path": response.url[-2:]}

    def parse_item(self, response, n):
        yield {"by": "parse_item", "path": response.url[-2:], "n": n}
"""


@pytest.mark.slow
def test_another_process_finds_callbacks_by_name_and_leaves_pages_of_unknown_ones(tmp_path, live):
    kept = {"callback": "parse_item", "cb_kwargs": {"n": 7}}
    notes = {"/a": {"scrapy": kept}, "/b": {"of": "another crawler"}, "/c": None}
    notes |= {"/d": {"scrapy": {"callback": "parse_old"}}, "/e": {"scrapy": kept}}
    with serving({path: page(path) for path in (*notes, "/f")} | {"/e": page(REFRESH)}) as site:
        for path, note in notes.items():
            live.register(site.url(path), note=note)
        made, log = items(tmp_path, LATER, "Later", "", live)
        assert site.hits["/d"] == 0
        assert live.get("/pages", url=site.url("/b")).json()["note"] == notes["/b"]
        unknown = live.get("/pages", url=site.url("/d")).json()
    assert [json.loads(line) for line in made] == [
        {"by": "parse", "path": "/b"},
        {"by": "parse", "path": "/c"},
        *({"by": "parse_item", "path": path, "n": 7} for path in ("/a", "/e", "/f")),
    ]
    assert log.count("the spider has no method 'parse_old', which is the callback of pages") == 1
    assert unknown["unfinished"]["ending"] == "returned"


TWO = """
from scrapy import Spider

class First(Spider):
    name = "first"

    def parse(self, response):
        yield {"by": self.name, "path": response.url[-2:]}
        yield response.follow("/c", self.parse_item)

    def parse_item(self, response):
        yield {"by": self.name, "path": response.url[-2:]}

class Second(First):
    name = "second"
"""


@pytest.mark.slow
@pytest.mark.parametrize("callback", ["parse", "parse_item"])
def test_a_spider_does_not_parse_the_pages_of_another_one_and_names_it(callback, tmp_path, live):
    pages = {path: page(path) for path in ("/a", "/b", "/c")}
    with serving(pages) as site:
        of = {"spider": "second", "callback": callback}
        live.register(site.url("/b"), note={"scrapy": of})
        made, log = items(tmp_path, TWO, "First", site.url("/a"), live)
        assert site.hits["/b"] == 0
        (need,) = live.get("/status").json()["needs_you"]
    assert [json.loads(line)["path"] for line in made] == ["/a", "/c"]
    assert log.count("this spider, 'first', has leased pages of the spider 'second'") == 1
    assert (need["kind"], need["subject"]) == ("leases_returned", "first")


UNNAMED = """
from scrapy import Request, Spider

class Unnamed(Spider):
    name = "unnamed"

    def parse(self, response):
        yield Request(response.url + "a", callback=lambda response: {"lost": True})
        yield Request(response.url + "b", callback=lambda response: {"lost": True})
"""


@pytest.mark.slow
def test_a_spider_whose_callbacks_have_no_name_closes_and_says_what_to_do(tmp_path, live):
    with serving({"/": page("home")}) as site:
        made, log = items(tmp_path, UNNAMED, "Unnamed", site.url("/"), live)
        refused = f"ERROR: the page of <GET {site.url('/a')}> is not registered: its callback"
    assert made == []
    assert refused in log
    assert "Make it a method and pass values by cb_kwargs" in log
    assert log.count("is not registered") == 1
    assert "'finish_reason': 'recrawl_callback'" in log
    assert "'recrawl/request_refused': 2" in log


class Named(Spider):
    name = "named"

    def parse_item(self, response, **kwargs):
        pass

    def failed(self, failure):
        pass

    def __private(self, response):
        pass

    def private(self):
        return self.__private


URL = "https://a.example/"


@pytest.fixture
def notes():
    return Notes(SimpleNamespace(spider=Named()), Settings())


def kept(notes, **request):
    """Return what the note of a request keeps beside the name of its spider."""
    note = notes.of(Request(URL, **request))
    of = json.loads(note.json)["scrapy"]
    assert of.pop("spider") == "named"
    assert note.is_plain == (of == {})
    return of


def test_a_note_brings_back_names_arguments_and_meta_of_a_request(notes):
    spider = notes.crawler.spider
    given = {"callback": spider.parse_item, "errback": spider.failed}
    given |= {"cb_kwargs": {"n": 1, "of": [None, 1.5]}, "meta": {"section": "x"}}
    back = notes.request(json.loads(notes.of(Request(URL, **given)).json))
    assert back == given
    again = Request(URL, **back | {"errback": ReportingErrback(print, print, back["errback"])})
    assert notes.of(again) == notes.of(Request(URL, **given))
    mangled = kept(notes, callback=spider.private())
    assert notes.request({"scrapy": mangled})["callback"] == spider.private()


def test_a_plain_request_and_what_scrapy_writes_in_meta_keep_the_spider_alone(notes):
    written = {"depth": 3, "download_latency": 0.1, "download_slot": "a.example", "recrawl": 1}
    assert kept(notes) == {}
    assert kept(notes, meta=written | {"_auth_proxy": "http://p", "redirect_times": 1}) == {}
    assert kept(notes, errback=ReportingErrback(print, print, None)) == {}
    limited = Notes(notes.crawler, Settings({"DEPTH_LIMIT": 5}))
    assert kept(limited, meta=written) == {"meta": {"depth": 3}}


def test_meta_that_is_no_json_is_left_out_with_one_warning(notes, caplog):
    for n in range(2):
        assert kept(notes, meta={"page": object(), "n": n + 1}) == {"meta": {"n": n + 1}}
    (record,) = caplog.records
    assert "meta['page'] of <GET https://a.example/> is lost" in record.getMessage()


def test_a_request_that_no_note_can_keep_is_refused_with_its_name_and_a_remedy(notes):
    spider = notes.crawler.spider
    for function in (lambda response: None, Named().parse_item, kept):
        with pytest.raises(UnnamedFunction, match=f"<GET {URL}>.* Make it a method"):
            kept(notes, callback=function)
    for value in ((1, 2), {1: 2}, datetime.now(UTC), float("nan"), "\ud800", object()):
        with pytest.raises(NoJson, match=r"cb_kwargs\['value'\].* Pass texts, numbers"):
            kept(notes, callback=spider.parse_item, cb_kwargs={"value": value})
    room = MOST_BYTES - len(notes.of(Request(URL, cb_kwargs={"value": ""})).json)
    assert len(notes.of(Request(URL, cb_kwargs={"value": "x" * room})).json) == MOST_BYTES
    with pytest.raises(TooLong, match="have 1,025 bytes of JSON, and Recrawl keeps at most 1,024"):
        kept(notes, cb_kwargs={"value": "x" * (room + 1)})
    assert kept(notes, meta={"rule": 1, "link_text": "x" * MOST_BYTES}) == {"meta": {"rule": 1}}


def test_each_refused_url_is_one_error_and_a_line_states_that_further_ones_are_hidden(caplog):
    crawler = get_crawler(Named)
    crawler.spider = Named()
    scheduler = Scheduler.from_crawler(crawler)
    refused = [Request(f"{URL}{n}", cb_kwargs={"of": (1, 2)}) for n in range(MOST_NAMED + 2)]
    refused[1] = refused[1].replace(cb_kwargs={"of": "x" * MOST_BYTES})
    caplog.set_level(logging.ERROR, "recrawl_client")
    for request in (*refused[:-2], *refused):  # the parents of most are crawled twice
        assert not scheduler.enqueue_request(request)
    errors = [record.getMessage() for record in caplog.records]
    assert len(errors) == MOST_NAMED + 1
    for request, error in zip(refused, errors[:-1], strict=False):
        assert error.startswith(f"the page of {request} is not registered")
    assert "The statistics count further ones" in errors[-1]
    assert crawler.stats.get_value("recrawl/request_refused") == 2 * MOST_NAMED + 2


def test_the_first_request_decides_and_an_unfiltered_one_replaces_it(live):
    crawler = get_crawler(Named, {"RECRAWL_URL": live.url})
    crawler.spider = spider = Named()
    scheduler = Scheduler.from_crawler(crawler)
    live.register(URL, note={"of": "another crawler"})
    with scheduler.client, scheduler.pages:
        for number, unfiltered in ((1, False), (2, False), (3, True), (4, False)):
            request = Request(URL + "a", spider.parse_item, cb_kwargs={"number": number})
            assert scheduler.enqueue_request(request.replace(dont_filter=unfiltered))
        assert scheduler.enqueue_request(Request(URL))
        assert scheduler.enqueue_request(Request(URL + "b", spider.parse_item))
        assert scheduler.enqueue_request(Request(URL + "b", dont_filter=True))
    notes = [live.get("/pages", url=URL + path).json()["note"] for path in ("a", "", "b")]
    last = {"spider": "named", "callback": "parse_item", "cb_kwargs": {"number": 3}}
    assert notes == [{"scrapy": last}, {"of": "another crawler"}, {"scrapy": {"spider": "named"}}]


@pytest.mark.parametrize("name", ["parse_old", "name", 7])
def test_a_note_with_a_name_that_is_no_method_is_not_crawled(notes, name):
    with pytest.raises(NotKept, match=r"has no method .* Restore the method"):
        notes.request({"scrapy": {"spider": "named", "callback": name}})


def test_a_page_of_another_spider_is_not_crawled_unless_the_settings_name_that_spider(notes):
    note = {"scrapy": {"spider": "old", "callback": "parse_item"}}
    remedy = "hosts of its own by RECRAWL_HOSTS.* set RECRAWL_SPIDER to 'old'"
    with pytest.raises(NotKept, match=f"'named', has leased pages of the spider 'old'.*{remedy}"):
        notes.request(note)
    renamed = Notes(notes.crawler, Settings({"RECRAWL_SPIDER": "old"}))
    assert renamed.request(note)["callback"] == notes.crawler.spider.parse_item
    assert json.loads(renamed.of(Request(URL)).json) == {"scrapy": {"spider": "old"}}


@pytest.mark.parametrize("note", [None, 7, {"path": "s3://b/k"}, {"scrapy": 1}])
def test_a_note_of_another_crawler_has_no_effect(notes, note):
    assert notes.request(note) == {"meta": {}}


class Other(Named):
    name = "other"


def test_a_spider_takes_over_the_pages_that_it_yields_and_the_right_one_takes_them_back(live):
    def spider_of(cls, **unfiltered):
        crawler = get_crawler(cls, {"RECRAWL_URL": live.url})
        crawler.spider = spider = cls()
        scheduler = Scheduler.from_crawler(crawler)
        with scheduler.client, scheduler.pages:
            scheduler.enqueue_request(Request(URL + "start", dont_filter=True))
            scheduler.enqueue_request(Request(URL + "named", spider.parse_item))
            scheduler.enqueue_request(Request(URL + "plain", **unfiltered))
        pages = [live.get("/pages", url=URL + path).json() for path in ("start", "named", "plain")]
        return [page["note"]["scrapy"]["spider"] for page in pages]

    assert spider_of(Named) == ["named", "named", "named"]
    assert spider_of(Other) == ["other", "other", "named"]
    assert spider_of(Named) == ["named", "named", "named"]
    assert spider_of(Other, dont_filter=True) == ["other", "other", "other"]
    assert spider_of(Named) == ["named", "named", "other"]
    live.register(URL + "plain", note={"scrapy": {"spider": "named"}})
    assert spider_of(Named) == ["named", "named", "named"]
