"""What the how-to pages show is run as it stands."""

import re
import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from support.live_server import PATIENCE_S, running, until
from support.local_site import page, redirect, serving
from support.pages import block, terminal
from support.processes import free_port, running_python

from service.cli.options import URL as DEFAULT_URL

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to"


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (HOW_TO / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("page", sorted(HOW_TO.glob("*.md")), ids=lambda page: page.stem)
def test_every_file_linked_exists(page):
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_all_documents_and_examples_hash_in_one_way():
    """Another digest makes every page change once, so a reader may go from one to the next."""
    texts = [ROOT / "README.md", ROOT / "recrawl_client" / "scrapy.py"]
    for directory, names in (("docs", "**/*.md"), ("examples", "*.py")):
        texts += (ROOT / directory).glob(names)
    calls = [
        (text.name, call)
        for text in texts
        for call in re.findall(r"blake2b\(.*\)", text.read_text())
    ]
    assert len(calls) > 10
    assert [(name, call) for name, call in calls if "digest_size=16" not in call] == []


@pytest.mark.dear
def test_the_crawler_of_the_page_goes_on_until_it_is_stopped_and_says_what_it_does(
    sqlite_url, tmp_path
):
    code = blocks("crawl-with-your-own-crawler.md", "python")[0]
    pages = {"/news": page("news"), "/about": redirect(301, "/new"), "/new": page("new")}
    with (
        running(sqlite_url, clock=lambda: datetime.now(UTC)) as live,
        serving(pages) as site,
    ):
        code = code.replace("http://127.0.0.1:8000", live.url)
        code = code.replace("https://example.com", site.url(""))
        with running_python(tmp_path, "-c", code) as crawler:
            until(lambda: len(site.hits) == 3 or crawler.poll() is not None, "all are crawled")
            until(lambda: live.get("/pages/3").json()["last_crawl_at"], "all are reported")
            assert crawler.poll() is None
        moved = live.get("/pages", url=site.url("/about")).json()
    # a second look, at least an hour later, confirms the move
    assert (moved["gone"], moved["redirects_to"]["url"]) == (False, site.url("/new"))
    lines = (tmp_path / "output.txt").read_text().splitlines()
    printed = {line for line in lines if line.endswith(("/news", "/about", "/new"))}
    assert printed == {
        f"{status} {site.url(path)}"
        for path, status in (("/news", 200), ("/about", 301), ("/new", 200))
    }


@pytest.mark.dear
def test_the_crawler_of_the_page_for_asyncio_crawls_in_tasks_and_obeys_robots_txt(
    sqlite_url, tmp_path
):
    text = (HOW_TO / "crawl-with-your-own-crawler.md").read_text()
    (tmp_path / "crawl_async.py").write_text(block(text, "crawl_async.py").text)
    start = block(text, "crawl with asyncio").text.replace("python ", 'exec "$PYTHON" ')
    rules = page("User-agent: mybot\nDisallow: /no\n")
    pages = {"/robots.txt": rules, "/": page("home"), "/no": page("never")}
    away = f"http://127.0.0.1:{free_port()}/"
    with (
        running(
            sqlite_url, clock=lambda: datetime.now(UTC), host_delay_s=0, host_concurrency=0
        ) as live,
        serving(pages) as site,
        terminal(start.replace("http://127.0.0.1:8000", live.url), tmp_path) as log,
    ):
        ids = live.register(site.url("/"), site.url("/no"), away)

        def crawls():
            return [live.get(f"/pages/{n}").json()["last_crawls"] for n in ids]

        until(lambda: all(crawls()), "all are crawled and reported")
        seen = [each[0] for each in crawls()]
    assert [(each["status"], each["robots_denied"]) for each in seen] == [
        (200, False),
        (None, True),
        (0, False),
    ]
    assert site.hits == {"/robots.txt": 1, "/": 1}
    printed = log.read_text()
    assert f"200 {site.url('/')}" in printed
    assert f"{site.url('/no')} robots.txt" in printed
    assert away in printed


@pytest.mark.dear
def test_the_crawler_of_the_page_on_new_pages_registers_the_links_of_its_host(sqlite_url, tmp_path):
    text = (HOW_TO / "find-pages.md").read_text()
    links = "<a href=two#part>2</a> <a href='http://other.example/'>x</a> <a href='http://['>y</a>"
    pages = {
        "/": (200, {"Content-Type": "text/html; charset=utf-8"}, links.encode()),
        "/two": page("<a href=/>back</a><a href='mailto:a@example.com'>mail</a>"),
    }
    with (
        running(sqlite_url, clock=lambda: datetime.now(UTC), host_delay_s=0) as live,
        serving(pages) as site,
    ):
        program = block(text, "discover.py").text.replace("http://127.0.0.1:8000", live.url)
        program = program.replace("https://example.com", site.url(""))
        (tmp_path / "discover.py").write_text(program)
        with terminal('exec "$PYTHON" discover.py', tmp_path) as log:
            until(lambda: f"200 {site.url('/two')}" in log.read_text(), "the link is crawled")
            until(lambda: live.get("/pages/2").json()["last_crawl_at"], "and reported")
        listed = live.get("/pages").json()["items"]
    assert {each["url"] for each in listed} == {site.url("/"), site.url("/two")}
    assert site.hits == {"/": 1, "/two": 1}


@pytest.mark.dear
def test_the_code_of_the_page_on_robots_txt_obeys(sqlite_url, capsys):
    names = {}
    exec(blocks("crawl-with-your-own-crawler.md", "python")[1], names)
    pages = {"/robots.txt": page("User-agent: mybot\nDisallow: /no\n"), "/yes": page("yes")}
    with (
        running(
            sqlite_url, clock=lambda: datetime.now(UTC), host_delay_s=0, host_concurrency=0
        ) as live,
        serving(pages) as site,
    ):
        ids = live.register(site.url("/yes"), site.url("/no"))
        names["crawl_politely"](live.url, names["fetch"])
        crawls = [live.get(f"/pages/{n}").json()["last_crawls"][0] for n in ids]
    assert [crawl["status"] for crawl in crawls] == [200, None]
    assert [crawl["robots_denied"] for crawl in crawls] == [False, True]
    assert site.hits == {"/robots.txt": 1, "/yes": 1}
    assert capsys.readouterr().out == f"{site.url('/no')} robots.txt\n"


def test_the_reference_crawler_has_a_hundred_lines():
    assert len((ROOT / "examples" / "crawler.py").read_text().splitlines()) <= 100


def test_every_setting_of_the_scrapy_page_is_read_and_every_one_read_is_there():
    table = (HOW_TO / "crawl-with-scrapy.md").read_text().split("## Settings")[1]
    modules = sorted((ROOT / "recrawl_client").glob("scrapy*.py"))
    read = "".join(module.read_text() for module in modules)
    named = set(re.findall(r"^\| `(RECRAWL_\w+)` \|", table, re.MULTILINE))
    assert named == set(re.findall(r'"(RECRAWL_\w+)"', read))


UNNAMED = """
from scrapy import Request, Spider

class News(Spider):
    name = "news"

    async def start(self):
        yield Request("https://news.example/", callback=lambda response: None)
"""


@pytest.mark.slow
def test_the_script_of_the_scrapy_page_ends_with_1_where_the_spider_had_to_close(
    sqlite_url, tmp_path
):
    (script,) = [text for text in blocks("crawl-with-scrapy.md", "python") if "sys.exit" in text]
    files = {
        "run.py": script,
        "spiders.py": UNNAMED,
        "scrapy.cfg": "[settings]\ndefault=settings\n",
    }
    with running(sqlite_url) as live:
        files["settings.py"] = (
            'SPIDER_MODULES = ["spiders"]\nSCHEDULER = "recrawl_client.scrapy.Scheduler"\n'
            f'RECRAWL_URL = "{live.url}"\n'
        )
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        with running_python(tmp_path, "run.py") as process:
            assert process.wait(PATIENCE_S) == 1
    assert "closed by recrawl_callback" in (tmp_path / "output.txt").read_text()


def commands_of(page):
    """Return the commands of all shell blocks of a page, as a shell splits them."""
    lines = "".join(blocks(page, "sh")).splitlines()
    return [shlex.split(line) for line in lines]


def test_the_commands_of_the_page_on_reasons_print_what_it_shows(recrawl, sqlite_url):
    with running(sqlite_url) as live:
        live.register("https://example.com/news")
        with capture_logs():
            live.epoch()
        live.clock.advance(seconds=40)
        why, explain = (
            recrawl(*command[1:], url=live.url) for command in commands_of("not-crawled.md")
        )
        shown, explained = blocks("not-crawled.md", "text")
        lines, printed = shown.splitlines(), why.out.splitlines()
        assert printed[:2] + printed[3:] == lines[:2] + lines[3:]  # the third counts from today
        assert explain.out == explained


@pytest.mark.dear
def test_the_commands_of_the_page_on_another_database_carry_pages_and_hosts(recrawl, tmp_path):
    with running(f"sqlite:///{tmp_path}/recrawl.db") as live:
        live.register("https://slow.example/", "https://example.com/")
        live.client.patch("/hosts/slow.example", json={"min_delay_s": 30})
    *commands, last = commands_of("change-database.md")
    outputs = [recrawl(*command[1:]) for command in commands]
    assert [output.status for output in outputs] == [0, 0, 0], outputs
    assert "2 pages exported, and the settings of 1 host and 0 groups" in outputs[0].err
    assert "settings of 1 host and 0 groups imported from" in outputs[-1].out
    assert "settings of 1 host" in recrawl(*last[1:]).out
    with running(f"sqlite:///{tmp_path}/new.db") as live:
        assert live.get("/hosts/slow.example").json()["min_delay_s"] == 30


def test_the_commands_of_the_page_on_inspection_show_a_service(recrawl, sqlite_url):
    with running(sqlite_url) as live:
        live.register("https://example.com/news")
        live.epoch()
        *commands, curl = commands_of("inspect.md")
        outputs = [recrawl(*command[1:], url=live.url) for command in commands]
        assert [output.status for output in outputs] == [0, 0, 0], outputs
        for output, text in zip(
            outputs, ('"health": "ok"', "Then crawled every", "published"), strict=True
        ):
            assert text in output.out
        name, identifier = curl[3].split(": ")
        answer = live.client.get(curl[-1].removeprefix(DEFAULT_URL), headers={name: identifier})
        assert answer.headers["X-Request-ID"] == identifier == "nightly-42"
