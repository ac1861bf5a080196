"""The live demo: a site that really changes, and the reference crawler that keeps up with it."""

import re
import subprocess
import sys
from datetime import timedelta

import httpx
import numpy as np
import pytest
from support.sim_cases import world_of

from recrawl_lab.worlds import site as sites
from recrawl_lab.worlds.site import NEWS, SHOP, SLOW, STRICT, Site, part, serving, site_of
from recrawl_lab.worlds.world import synthetic_world


class Clock:
    """Seconds that a test sets; a day of the site lasts one."""

    at = 0.0

    def __call__(self):
        return self.at


@pytest.fixture
def site():
    """A page that changes at 1.0 and one that changes at 2.0, on two hosts."""
    return Site(world_of([[1.0], [2.0]]), (NEWS, STRICT), day_s=1.0, clock=Clock())


def fetch(site, url, known=None):
    return site.answer(url, known)


def test_a_page_changes_when_the_world_says_and_its_etag_with_it(site):
    first = fetch(site, f"http://{NEWS}/page/0")
    assert (first.status, first.headers["ETag"]) == (200, '"0-0"')
    assert site.fresh().tolist() == [True, False]
    site.clock.at = 1.5
    assert site.fresh().tolist() == [False, False]
    again = fetch(site, f"http://{NEWS}/page/0", '"0-0"')
    assert (again.status, again.headers["ETag"]) == (200, '"0-1"')
    assert again.body != first.body
    assert fetch(site, f"http://{NEWS}/page/0", '"0-1"').status == 304
    assert site.fresh().tolist() == [True, False]
    assert (site.n_seen, site.crawls().at.tolist()) == (1, [0.0, 1.5, 1.5])


@pytest.mark.parametrize("url", ["/page/9", "/page/1", "/page/x", "/", "/page/"])
def test_a_page_that_is_not_the_hosts_is_not_found(site, url):
    assert fetch(site, f"http://{NEWS}{url}").status == 404


def test_a_host_in_a_hurry_is_told_to_wait(site):
    statuses = [fetch(site, f"http://{STRICT}/page/1") for _ in range(2)]
    assert [answer.status for answer in statuses] == [200, 429]
    assert statuses[1].headers == {"Retry-After": "5"}


def test_a_sitemap_lies_about_every_third_page(site):
    site.clock.at = 1.75
    document = fetch(site, f"http://{NEWS}/sitemap.xml").body.decode()
    assert re.findall("<lastmod>(.*?)</lastmod>", document) == [site._lastmod(0, 1.75)]
    told = [site._lastmod(page, 1.75) for page in (0, 1)]
    assert told == [(site.began + timedelta(seconds=1.75)).isoformat(), site.began.isoformat()]


def test_hosts_share_the_pages_and_a_part_keeps_its_changes():
    site = site_of(synthetic_world(40, 5.0, rng=np.random.default_rng(1)), day_s=1.0)
    assert [site.host.count(host) for host in (NEWS, SHOP, SLOW, STRICT)] == [16, 16, 4, 4]
    some = part(site.world, np.array([3, 39]))
    assert some.url == (site.world.url[3], site.world.url[39])
    assert some.changes_of(1).tolist() == site.world.changes_of(39).tolist()


@pytest.mark.dear
def test_the_site_is_met_where_the_proxy_is_and_nothing_else_is(monkeypatch):
    monkeypatch.setattr(sites, "SLOW_S", 0.0)
    site = site_of(synthetic_world(40, 5.0, rng=np.random.default_rng(1)), day_s=60.0)
    with serving(site) as proxy, httpx.Client(proxy=proxy) as web:
        assert web.get(site.world.url[0]).status_code == 200
        assert web.get(site.world.url[35]).status_code == 200
        assert web.get("http://elsewhere.example/page/0").status_code == 404


@pytest.mark.slow
def test_the_live_demo_ends_by_itself_and_says_what_it_measured(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", "service", "demo", "--live", "--seconds", "10", "--seed", "3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    said = " ".join(ended.stdout.split())
    counts = re.search(r"(\d+) crawls, (\d+) of them answered 304; (\d+) found a change", said)
    crawls, same, changes = map(int, counts.groups())
    assert crawls > 100
    assert 0 < same < crawls
    assert 0 < changes < crawls
    strict = r"strict.example answered 429 (\d+) times and was then not crawled for (\d+) s"
    n_busy, silence_s = map(int, re.search(strict, said).groups())
    assert 1 <= n_busy <= 4
    assert silence_s >= 1
    assert float(re.search(r"got a fresh copy ([\d.]+)% of the time", said)[1]) > 30
