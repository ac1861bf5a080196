"""The crawler in TypeScript, built by the commands of its page, on a live service and a site."""

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.busy_front import fronting
from support.live_server import PATIENCE_S, Live, lease_freely, running, until
from support.local_site import page, serving
from support.npm import ENVIRONMENT, PROGRAM
from support.pages import DOCS, block
from support.processes import ROOT
from support.watched_site import N_PAGES, WatchedSite, linked

pytestmark = [pytest.mark.slow, pytest.mark.external]

PAGE = (DOCS / "how-to" / "crawl-with-typescript.md").read_text()
ADMIN = "an administrator of this service"


def run(script: str, folder: Path) -> str:
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3_000:] + ended.stderr[-3_000:]
    return ended.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Return a checkout in which the commands of the page have run: the folder of the example."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "openapi", folder / "openapi")
    ignored = shutil.ignore_patterns("node_modules", "out", "schema.ts")
    shutil.copytree(ROOT / "examples/typescript", folder / "examples/typescript", ignore=ignored)
    run(block(PAGE, "build").text, folder)
    return folder / "examples/typescript"


@pytest.fixture
def live(sqlite_url) -> Iterator[Live]:
    options = {"host_delay_s": 0, "host_concurrency": 0}
    with running(sqlite_url, clock=lambda: datetime.now(UTC), **options) as live:
        lease_freely(live)
        yield live


@contextmanager
def crawling(built: Path, url: str, log: Path, key: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Run the crawler as the page runs it, until it is asked to end; then it must end well."""
    command = block(PAGE, "crawl").text.replace("http://127.0.0.1:8000", url).split()
    assert command[0] == "node"
    environment = {**ENVIRONMENT, **({"RECRAWL_API_KEY": key} if key else {})}
    with log.open("wb") as out:
        crawler = subprocess.Popen(
            [PROGRAM, *command[1:]], cwd=built, env=environment, stdout=out, stderr=out
        )
    try:
        yield crawler
        crawler.send_signal(signal.SIGTERM)
        assert crawler.wait(PATIENCE_S) == 0, log.read_text()
    finally:
        crawler.kill()
        crawler.wait()


def statuses(live: Live) -> dict[str, int | None]:
    """Return the status of each crawled page by its path."""
    pages = live.get("/pages", limit=100).json()["items"]
    shown = [live.get(f"/pages/{each['page_id']}").json() for each in pages]
    return {
        re.sub(r"^https?://[^/]+", "", each["url"]): each["last_crawls"][0]["status"]
        for each in shown
        if each["last_crawls"]
    }


def test_a_site_is_crawled_once_and_reported_with_what_it_said(built, live, tmp_path):
    pages = {
        **linked(),
        "/dated": (
            200,
            {"ETag": '"5f3a"', "Last-Modified": "Wed, 01 Apr 2026 09:30:00 GMT"},
            b"dated",
        ),
        "/busy": (503, {"Retry-After": "7"}, b"later"),
    }
    with serving(pages, WatchedSite) as site:
        paths = [f"/{k}" for k in range(N_PAGES)] + ["/old", "/private", "/gone", "/dated"]
        live.register(*map(site.url, paths))
        with crawling(built, live.url, tmp_path / "log"):
            until(lambda: len(statuses(live)) >= len(paths), "all are reported")
            live.register(site.url("/busy"))
            until(lambda: "/busy" in statuses(live), "the busy page is reported")
        expected = dict.fromkeys(paths, 200) | {"/old": 301, "/gone": 404, "/busy": 503}
        assert statuses(live) == expected | {"/private": None}
        assert site.twice == []
        assert max(n for path, n in site.hits.items() if path != "/robots.txt") == 1
        assert site.hits["/private"] == 0
        dated = live.get("/pages", url=site.url("/dated")).json()
        assert (dated["etag"], dated["last_modified"]) == ('"5f3a"', "2026-04-01T09:30:00Z")
        assert live.get("/pages", url=site.url("/private")).json()["last_crawls"][0][
            "robots_denied"
        ]
        old = live.get("/pages", url=site.url("/old")).json()
        assert old["redirects_to"]["url"] == site.url("/1")
    assert live.get("/leases").json()["items"] == []


def test_a_busy_service_is_asked_again_after_its_wait_with_the_same_request(built, live, tmp_path):
    with serving(linked(), WatchedSite) as site:
        live.register(site.url("/0"))
        # each of the sixteen tasks is refused once at least
        refusals = [(429, "1"), (503, "1"), (502, "")] * 10
        with fronting(live.url, *refusals) as front, crawling(built, front.url, tmp_path / "log"):
            until(lambda: statuses(live) == {"/0": 200}, "the page is reported")
        posts = [key for method, path, key in front.seen if path == "/leases" and method == "POST"]
    assert len(posts) - len({*posts}) >= len(refusals)  # every refusal was repeated with its key
    assert site.hits["/0"] == 1
    # `fetch` shows no time of its request, so the service counts the delay from the report
    assert not any(b"observed_at" in body for body in front.bodies)


def test_the_limit_of_a_key_slows_the_crawler_and_stops_nothing(built, sqlite_url, tmp_path):
    options = {"host_delay_s": 0, "host_concurrency": 0, "api_keys": [ADMIN]}
    with (
        running(sqlite_url, clock=lambda: datetime.now(UTC), **options) as live,
        serving(linked(), WatchedSite) as site,
    ):
        lease_freely(live)
        live.register(*(site.url(f"/{k}") for k in range(4)))
        made = live.post("/keys", {"name": "slow", "role": "crawl", "items_per_s": 2}).json()
        with crawling(built, live.url, tmp_path / "log", made["key"]):
            until(lambda: len(statuses(live)) == 4, "all are reported")
            until(lambda: "429, again in" in (tmp_path / "log").read_text(), "the limit is met")


def test_a_long_crawl_keeps_its_lease_and_a_lost_lease_ends_it(built, sqlite_url, tmp_path):
    pages = {"/robots.txt": page(""), "/kept": page("kept"), "/lost": page("lost")}
    options = {"host_delay_s": 0, "host_concurrency": 0, "lease_ttl_s": 6}
    with (
        running(sqlite_url, clock=lambda: datetime.now(UTC), **options) as live,
        serving(pages, WatchedSite) as site,
    ):
        site.pause_s = 10.0  # longer than the lease
        lease_freely(live)
        live.register(site.url("/kept"))
        with crawling(built, live.url, tmp_path / "log"):
            until(lambda: statuses(live) == {"/kept": 200}, "it is reported")
            assert site.hits["/kept"] == 1
            live.register(site.url("/lost"))
            until(lambda: site.at_once["/lost"], "it is fetched")
            (lease,) = live.get("/leases").json()["items"]
            ended = live.client.delete("/leases", params={"worker": lease["worker"]})
            assert ended.status_code == 200, ended.text
            log = tmp_path / "log"
            until(lambda: f"lost {site.url('/lost')}" in log.read_text(), "it is dropped")
        assert f"200 {site.url('/kept')}" in log.read_text()


def test_a_crawler_that_ends_returns_and_reports_what_it_has(built, live, tmp_path):
    with serving(linked(), WatchedSite) as site:
        site.pause_s = 1.0
        live.register(*(site.url(f"/{k}") for k in range(N_PAGES)))
        with crawling(built, live.url, tmp_path / "log"):
            until(lambda: len(site.at_once) == N_PAGES + 1, "all are asked for")
        assert statuses(live) == {f"/{k}": 200 for k in range(N_PAGES)}
        assert set(site.hits) == {"/robots.txt", *(f"/{k}" for k in range(N_PAGES))}
    assert live.get("/leases").json()["items"] == []


def test_without_the_service_the_crawler_waits_and_ends_at_a_signal(built, tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as out:
        crawler = subprocess.Popen(
            [PROGRAM, "out/crawler.js", "http://127.0.0.1:9"], cwd=built, stdout=out, stderr=out
        )
    try:
        until(lambda: log.read_text().count("again in") > 16, "it tries again")
        crawler.send_signal(signal.SIGTERM)
        assert crawler.wait(60) == 1
    finally:
        crawler.kill()
        crawler.wait()
    assert "the service does not answer" in log.read_text()


def test_the_short_program_of_the_page_compiles_and_registers(built, live):
    folder = built / "register"
    (folder / "src").mkdir(parents=True)
    shutil.copy(built / "src/schema.ts", folder / "src/schema.ts")
    shutil.copy(built / "tsconfig.json", folder / "tsconfig.json")
    (folder / "src/register.ts").write_text(block(PAGE, "register.ts").text)
    run(f"{built}/node_modules/.bin/tsc --project .", folder)
    shutil.copy(built / "package.json", folder / "package.json")
    assert run(f"node out/register.js {live.url}", folder) == "1 new\n"
