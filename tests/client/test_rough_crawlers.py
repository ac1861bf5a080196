"""The example crawlers on hosts that misbehave: real processes, a live service."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from support.live_server import running, until
from support.processes import running_python

from benchmarks.http.processes import free_port
from benchmarks.rough.behaviours import BEHAVIOURS, WELL_BEHAVED
from benchmarks.rough.behaviours.bodies import slow
from benchmarks.rough.server import Site
from benchmarks.rough.world import PAGES_PER_HOST, Host, RoughWorld
from recrawl_client import Client
from service.budget.keeper import Keeper

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = pytest.mark.parametrize("program", ["crawler.py", "async_crawler.py"])


@pytest.fixture
def live(sqlite_url):
    with running(sqlite_url, clock=lambda: datetime.now(UTC)) as live:
        yield live


def site_of(*behaviours):
    hosts = tuple(Host(200 + k, b, np.zeros(0)) for k, b in enumerate(behaviours))
    n = (200 + len(hosts)) * PAGES_PER_HOST
    return Site(RoughWorld(hosts, np.zeros(0), np.zeros(n + 1, np.int64), 1e6), free_port())


def crawled(program, live, site, directory, paths=("/p0",)):
    """Return the pages of each host, once all are reported."""
    urls = [site.url(host, path) for host in site.world.hosts for path in paths]
    with site.serving(), Client(live.url) as client:
        client.register(*urls)
        with running_python(directory, EXAMPLES / program, live.url):
            until(lambda: all(client.page(url).last_crawls for url in urls), "all are reported")
        return [client.page(url) for url in urls]


@pytest.mark.slow
@PROGRAMS
def test_an_endless_body_is_content_up_to_a_limit(program, tmp_path, live):
    site = site_of(*(BEHAVIOURS[name] for name in ("body-endless", "body-huge", "body-bomb")))
    pages = crawled(program, live, site, tmp_path)
    assert [page.last_crawls[0].status for page in pages] == [200] * 3
    assert [page.n_failures for page in pages] == [0] * 3
    assert "Traceback" not in (tmp_path / "output.txt").read_text()


@pytest.mark.slow
@PROGRAMS
def test_a_redirect_to_no_address_is_a_redirect_and_no_silence(program, tmp_path, live):
    site = site_of(BEHAVIOURS["redirect-odd"])
    paths = [f"/p{k}" for k in range(9)]
    pages = crawled(program, live, site, tmp_path, paths)
    assert [page.last_crawls[0].status for page in pages] == [301] * 9
    assert site.log[-1].status == 301


@pytest.mark.slow
@PROGRAMS
def test_a_crawl_is_as_old_as_its_request(program, tmp_path, live):
    answered = []

    def late(visit):
        answer = slow(visit) if visit.path == "/p0" else WELL_BEHAVED.answer(visit)
        answered.append(datetime.now(UTC))
        return answer

    site = site_of(replace(WELL_BEHAVED, answer=late))
    (page,) = crawled(program, live, site, tmp_path)
    # the answer came two seconds after the request
    assert abs((page.last_crawl_at - answered[-1]).total_seconds()) < 1.0


@pytest.mark.dear
@PROGRAMS
def test_a_crawler_outlives_internal_errors_of_the_service(program, tmp_path, live, monkeypatch):
    grant, left = Keeper.grant, [3]

    def failing(*args, **options):
        if left[0]:
            left[0] -= 1
            raise AttributeError("a defect of the service")
        return grant(*args, **options)

    monkeypatch.setattr(Keeper, "grant", failing)
    (page,) = crawled(program, live, site_of(WELL_BEHAVED), tmp_path)
    assert left == [0]
    assert page.last_crawls[0].status == 200
    assert "Traceback" not in (tmp_path / "output.txt").read_text()
