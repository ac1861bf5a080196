"""The rough web: its world, its server, the checks in histories made up for them, short runs."""

import socket
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.live_server import PATIENCE_S, until

from benchmarks.http.processes import free_port
from benchmarks.rough import checker
from benchmarks.rough.behaviours import BEHAVIOURS, WELL_BEHAVED
from benchmarks.rough.behaviours.answers import plain
from benchmarks.rough.checker import (
    Check,
    blocked_too_long,
    checks,
    freshness,
    nearness,
    of_one_run,
    starved,
    too_near,
    without_content,
)
from benchmarks.rough.run import Look, Plan, Played, play
from benchmarks.rough.server import Request, Site
from benchmarks.rough.world import (
    CRAWL_EVERY_S,
    N_HOSTS,
    OUTAGE_S,
    PAGES_PER_HOST,
    Host,
    RoughWorld,
    made,
)

pytestmark = pytest.mark.dear

POSTGRES = "postgresql://postgres@127.0.0.1:5432/postgres"

# -- the world


def test_half_of_the_hosts_have_all_behaviours_once():
    world = made(1, 60.0, rough=True)
    odd = [host.behaviour.name for host in world.hosts if host.number % 2]
    assert sorted(odd) == sorted(BEHAVIOURS)
    assert len(odd) == N_HOSTS // 2
    assert {host.behaviour for host in world.hosts if host.number % 2 == 0} == {WELL_BEHAVED}
    assert {host.behaviour for host in made(1, 60.0, rough=False).hosts} == {WELL_BEHAVED}
    assert len({host.address for host in world.hosts}) == N_HOSTS


def test_the_changes_are_the_same_beside_a_calm_half_and_others_with_another_seed():
    rough, calm = (made(1, 60.0, rough=kind) for kind in (True, False))
    other = made(2, 60.0, rough=True)
    assert np.array_equal(rough.changed_at, calm.changed_at)
    assert np.array_equal(rough.first, calm.first)
    assert len(other.changed_at) != len(rough.changed_at)


def test_pages_change_as_often_as_their_rates_say():
    seconds = 4_000.0
    world = made(3, seconds, rough=False)
    n = np.diff(world.first)
    # the mean of 1/s over a logarithm that is uniform between 5 s and 600 s
    expected = seconds * (1 / 5 - 1 / 600) / np.log(600 / 5)
    assert n.mean() == pytest.approx(expected, rel=0.1)
    assert n.min() < 20
    assert n.max() > 500
    assert ((world.changed_at > 0) & (world.changed_at <= seconds)).all()


def test_outages_come_only_to_hosts_that_have_them():
    world = made(1, 600.0, rough=True)
    for host in world.hosts:
        inside = [host.outage(at) for at in np.arange(0.0, 600.0, 1.0)]
        assert host.behaviour.in_outages or not any(inside)
        for at, one in enumerate(inside):
            assert one is None or one[0] <= at < one[1] == one[0] + OUTAGE_S
    away = [h.outage_at for h in world.hosts if h.behaviour.in_outages]
    assert np.mean([len(starts) for starts in away]) == pytest.approx(1 + 575 / 90, rel=0.3)


@settings(max_examples=50)
@given(
    changes=st.lists(st.lists(st.integers(1, 99), max_size=5), min_size=2, max_size=3),
    crawls=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 99)), max_size=8),
)
def test_freshness_is_that_of_a_look_at_every_half_second(changes, crawls):
    changes = [sorted(set(times)) for times in changes]
    first = np.cumsum([0, *map(len, changes)])
    flat = np.array([at for times in changes for at in times], float)
    world = replace(tiny(), changed_at=flat, first=first)
    pages = np.array([0, 1])
    stale = 0
    for page in pages:
        for at in np.arange(0.25, 100.0, 0.5):
            last = max((t for p, t in crawls if p == page and t <= at), default=0)
            stale += any(last < changed <= at for changed in changes[page])
    at = np.array([t for _, t in crawls], float)
    page = np.array([p for p, _ in crawls], np.int64)
    assert world.fresh(page, at, pages) == pytest.approx(1 - stale / 400)


# -- the server


@pytest.fixture(scope="module")
def site():
    site = Site(made(1, 60.0, rough=True), free_port())
    with site.serving():
        yield site


def ask(site, host, path, *headers, within_s=0.3):
    """Return what a host sends in a short time after the request is known, at most a megabyte."""
    n = len(site.log)
    lines = [f"GET {path} HTTP/1.1", f"Host: {host.address}", *headers, "", ""]
    got = b""
    with socket.create_connection((host.address, site.port), timeout=within_s) as connection:
        connection.sendall("\r\n".join(lines).encode())
        until(lambda: len(site.log) > n, "the request is written down")
        try:
            while len(got) < 1_000_000 and (part := connection.recv(65_536)):
                got += part
        except (TimeoutError, ConnectionResetError):
            pass
    return got


@pytest.mark.dear
def test_a_host_that_behaves_well_answers_conditional_requests(site):
    host = site.world.hosts[0]
    content = ask(site, host, "/p3")
    assert content.startswith(b"HTTP/1.1 200 OK\r\n")
    etag = content.partition(b"ETag: ")[2].partition(b"\r\n")[0].decode()
    version = site.world.version(3, site.now())
    assert etag in (f'"{version}"', f'"{version - 1}"')
    again = ask(site, host, "/p3", f'If-None-Match: "{site.world.version(3, site.now())}"')
    assert again.startswith((b"HTTP/1.1 304", b"HTTP/1.1 200"))
    assert b"Allow: /" in ask(site, host, "/robots.txt")
    assert ask(site, host, "/nowhere").startswith(b"HTTP/1.1 404")
    assert [r.page for r in site.log if r.host == 0] == [3, 3, None, None]


def test_a_request_is_dated_by_its_arrival_while_the_site_stands_still():
    standing, go_on = threading.Event(), threading.Event()

    def stall(visit):
        standing.set()
        go_on.wait()
        return plain(visit)

    site = Site(tiny(replace(WELL_BEHAVED, answer=stall)), free_port())
    calm, slow = site.world.hosts
    with (
        site.serving(),
        socket.create_connection((slow.address, site.port)) as other,
        socket.create_connection((calm.address, site.port)) as connection,
    ):
        for k in range(3):  # the first one arrives before its connection is accepted
            standing.clear()
            go_on.clear()
            other.sendall(b"GET /p0 HTTP/1.1\r\n\r\n")
            assert standing.wait(PATIENCE_S)
            before = site.now()
            connection.sendall(f"GET /p{k} HTTP/1.1\r\n\r\n".encode())
            after = site.now()
            until(lambda: site.now() > after + 0.1, "the site stands still")  # noqa: B023
            go_on.set()
            until(lambda: len(site.log) == 2 * k + 2, "the request is written down")  # noqa: B023
            last = site.log[-1]
            assert last.path == f"/p{k}"
            assert before - 0.005 <= last.at <= after + 0.005
            assert last.read_at >= after + 0.1


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_every_behaviour_answers_and_is_written_down(site, name):
    (host,) = (host for host in site.world.hosts if host.behaviour.name == name)
    if host.behaviour.in_outages:
        site.started_at = time.monotonic() - float(host.outage_at[0]) - 1.0
    n = len(site.log)
    paths = ("/robots.txt", "/p0", "/p1?x=1", "/p2/", "/p3;jsessionid=1", "/calendar/2026-05", "/")
    for path in paths:
        ask(site, host, path, within_s=0.02)
    mine = [request for request in site.log[n:] if request.host == host.number]
    assert [request.path for request in mine] == list(paths)
    assert site.faults == []
    if name.startswith(("outage-", "redirect-")) and name != "outage-maintenance":
        assert mine[0].content
        assert not mine[1].content


def test_a_behaviour_that_raises_is_a_fault_of_the_web():
    site = Site(tiny(), 0)

    def broken(_):
        raise ZeroDivisionError

    host = replace(site.world.hosts[1], behaviour=replace(WELL_BEHAVED, answer=broken))
    assert site.answer(host, "/p0", {}, 0, 1.0).code == 500
    assert "ZeroDivisionError" in site.faults[0]


# -- the checks


def tiny(behaviour=WELL_BEHAVED, outages=()):
    hosts = (Host(0, WELL_BEHAVED, np.zeros(0)), Host(1, behaviour, np.array(outages, float)))
    n = len(hosts) * PAGES_PER_HOST
    return RoughWorld(hosts, np.zeros(0), np.zeros(n + 1, np.int64), 100.0)


def request(at, host=1, k=0, status=200, asked_s=0.0, path=None, late_s=0.0):
    page = host * PAGES_PER_HOST + k if path is None else None
    content = status == 200
    return Request(at, host, path or f"/p{k}", page, status, content, asked_s, (), at + late_s)


def played(*log, world=None, looks=(), **given):
    site = Site(world or tiny(), 0, log=[*log])
    return Played(site, site.world.seconds, looks=[*looks], **given)


def everywhere(every_s=20.0):
    """Requests of all well-behaved pages, a second apart at least."""
    times = np.arange(0.0, 100.0, every_s)
    return [request(at + k, host=0, k=k) for at in times for k in range(PAGES_PER_HOST)]


def test_a_request_before_the_delay_of_its_host_is_found():
    assert not [*too_near(played(request(1.0), request(1.96), request(2.0, host=0)))]
    (found,) = too_near(played(request(1.9), request(1.0, k=1)))
    assert "0.900 s after /p1" in found
    assert not [*too_near(played(request(1.0, path="/robots.txt"), request(1.1)))]
    assert not [*too_near(played(request(1.0, status=0), request(1.1)))], "a cut connection"
    assert [*too_near(played(request(1.0, status=0), request(1.1, k=1)))]
    assert not [*too_near(played(request(1.0), request(1.5)), early_s=0.5)]
    slow = tiny(replace(WELL_BEHAVED, delay_s=3.0))
    assert [*too_near(played(request(1.0), request(3.5), world=slow))]


def test_requests_that_the_site_read_late_are_set_apart_by_their_arrival():
    def shown(*log):
        check = nearness(played(*log))
        return check.figure, check.examples[-1]

    first, second = request(1.0, k=1, late_s=0.09), request(2.0)
    assert shown(first, second) == (0, "set apart: 1, read up to 90 ms after they arrived")
    # late, but within what is allowed
    assert shown(request(1.0, late_s=0.04), second)[1].startswith("set apart: 0, read up to 40 ms")
    # early by more than the stall explains
    figure, late = shown(request(1.1, late_s=0.09), second)
    assert (figure, late.partition(",")[0]) == (1, "set apart: 0")
    # a stall hides no request that came too early
    figure, late = shown(request(1.0), request(1.9, late_s=0.1))
    assert (figure, late.partition(",")[0]) == (1, "set apart: 0")
    # early without a stall, beside a stall of another host
    figure, _ = shown(request(1.0), request(1.9), request(1.0, host=0, late_s=0.5))
    assert figure == 1


def test_a_page_without_requests_is_starved():
    assert not [*starved(played(*everywhere()))]
    (found,) = starved(played(*(r for r in everywhere() if r.page != 4)))
    assert found.endswith("/p4: 100 s without a request")
    once = [r for r in everywhere() if r.page != 4 or r.at < 20]
    assert not [*starved(played(*once))], "a run of less than five minutes"
    found = [*starved(played(*once, world=replace(tiny(), seconds=400.0)))]
    assert found[4].endswith("/p4: 396 s without a request")


def blocked(*spans, end=100):
    """Looks at a host that is blocked in some spans, each with the end that is shown."""
    looks = []
    for at in range(end + 1):
        until = [float(e) for s, e in spans if s <= at < e]
        looks.append(Look(float(at), {"127.45.0.2": max(until)} if until else {}, 0))
    return looks


def test_a_block_is_compared_with_the_trouble_and_the_wishes_of_its_host():
    well = [request(5.0)]
    one = [*well, request(10.0, status=503)]
    assert not [*blocked_too_long(played(*one, looks=blocked((10, 130))))]
    (found,) = blocked_too_long(played(*one, looks=blocked((10, 131))))
    assert "blocked for 121 s from 10 s on, failed for 0 s, asked for 0 s" in found
    asked = [*well, request(10.0, status=503, asked_s=300.0)]
    assert not [*blocked_too_long(played(*asked, looks=blocked((10, 310))))]
    assert not [*blocked_too_long(played(*asked, looks=blocked((25, 310))))], "seen late"
    assert [*blocked_too_long(played(*asked, looks=blocked((10, 600))))]
    long = [*well, request(10.0, status=0), request(50.0, status=0)]
    assert not [*blocked_too_long(played(*long, looks=blocked((10, 250))))]
    cured = [*long[:2], request(30.0), request(50.0, status=0)]
    assert [*blocked_too_long(played(*cured, looks=blocked((50, 250))))]
    outage = tiny(replace(WELL_BEHAVED, in_outages=True), outages=(5.0,))
    assert not [*blocked_too_long(played(*one, world=outage, looks=blocked((10, 170))))]


def test_a_block_that_ended_is_as_long_as_it_was():
    (spell,) = checker.spells(played(looks=blocked((10, 30), end=60)))
    assert (spell.start, spell.end) == (10.0, 30.0)
    # an end that was moved forward by an operator ends the spell
    looks = [Look(1.0, {"127.45.0.2": 90.0}, 0), Look(2.0, {}, 0)]
    (spell,) = checker.spells(played(looks=looks))
    assert (spell.start, spell.end) == (1.0, 2.0)


def test_leases_without_an_answer_with_content_count():
    looks = [Look(0.0, {}, 0), Look(150.0, {}, 30), Look(300.0, {}, 130)]
    world = replace(tiny(), seconds=300.0)
    content = [request(150.0 + k) for k in range(80)]
    content += [request(160.5, status=503), request(161.5, path="/robots.txt"), request(20.0)]
    check = without_content(played(*content, world=world, looks=looks))
    # 106 leases after the first two minutes
    assert check.figure == pytest.approx(1 - 80 / 106)
    assert check.judged
    assert not check.passed
    assert without_content(played(*content, looks=looks)).passed, "too short to judge"


def test_freshness_is_compared_with_that_of_the_calm_run():
    changed = replace(tiny(), changed_at=np.array([10.0]), first=np.array([0, *[1] * 20]))
    seen = played(request(11.0, host=0), world=changed)
    missed = played(request(9.0, host=0), request(11.0, host=1), world=changed)
    assert freshness(seen, seen).figure == 1.0
    check = freshness(missed, seen)
    # of ten pages one is stale for 90 s in place of 1 s
    assert check.figure == pytest.approx(0.91 / 0.999)
    assert not check.passed
    alone = checks(replace(missed, looks=blocked()), None)
    assert alone[0].name.startswith("leased crawls")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"answers": {"200": 9, "503": 1}}, "answers 5xx of the service"),
        ({"n_leased": 1}, "leases after the end of the crawler"),
        ({"service_log": "Traceback (most recent call last)"}, "tracebacks in the log"),
        ({"faults": ["the crawler ended early"]}, "faults of the crawler"),
    ],
)
def test_faults_of_the_service_and_the_crawler_are_found(given, name):
    well = of_one_run(played(*everywhere(), answers={"200": 9}))
    assert all(check.passed for check in well), well
    ill = of_one_run(played(*everywhere(), **given))
    failed = [check.name for check in ill if not check.passed]
    assert len(failed) == 1
    assert failed[0].startswith(name)


def test_a_bound_from_below_is_one():
    assert Check("name", 0.98, 0.97, at_least=True).passed
    assert not Check("name", 0.96, 0.97, at_least=True).passed
    assert not Check("name", 1, 0).passed


# -- runs

BUSY_S = 0.5
"""Time by which a request may come too early while other tests load the machine, seconds."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "crawler"),
    [("sqlite", "example"), ("postgres", "example"), ("sqlite", "asyncio"), ("sqlite", "scrapy")],
)
def test_a_minute_on_the_rough_web(store, crawler, tmp_path):
    plan = Plan(60.0, store, crawler, 1, POSTGRES, tmp_path)
    run = play(plan, rough=True)
    failed = [check for check in of_one_run(run, BUSY_S) if not check.passed]
    assert not failed
    pages = [request for request in run.site.log if request.page is not None]
    assert len(pages) > 0.4 * len(run.site.world) * 60 / CRAWL_EVERY_S
    assert checker.fresh(run) > 0.5
