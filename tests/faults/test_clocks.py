"""Machines whose clocks are minutes apart, or are set by a day, lease and wait as others do."""

from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from support.live_server import cloned, until
from support.processes import serving

from benchmarks.faults.replica import step

pytestmark = pytest.mark.slow


DAY_S, MINUTES_S = 86_400.0, 302.0
DELAY_S = 2.0
URLS = [f"https://h{i % 5}.example/{i}" for i in range(30)]
RUDE = {"host_delay_s": 0, "host_concurrency": 0}


def lease(server, **body) -> list[dict]:
    response = server.client.post("/leases", json={"worker": "w", "count": 100, **body})
    assert response.status_code == 200, response.text
    return response.json()["items"]


def report(server, crawl, **result) -> dict:
    item = {"lease": crawl["lease"], "observed_at": datetime.now(UTC).isoformat(), **result}
    return server.post("/observations", [{"page_id": crawl["page_id"], **item}])


@contextmanager
def replicas(directory, *ahead_s, **settings):
    """Serve one database by replicas whose clocks are so many seconds ahead."""
    with ExitStack() as stack:
        servers = []
        for seconds in ahead_s:
            clock = directory / f"ahead {seconds}"
            step(clock, seconds)
            starting = serving(directory, clock=clock, wait=False, **settings)
            servers.append(stack.enter_context(starting))
        for server in servers:
            until(server.ready, "the replica is ready")
        yield servers


AHEAD_S = (MINUTES_S, -MINUTES_S, DAY_S)


@pytest.fixture(scope="module")
def right_and_wrong(postgres_server, postgres_template, tmp_path_factory):
    """A replica with the right time, and one for each time ahead."""
    directory = tmp_path_factory.mktemp("clocks")
    with (
        cloned(postgres_server, postgres_template) as url,
        replicas(directory, 0.0, *AHEAD_S, database_url=url, **RUDE) as (right, *wrong),
    ):
        yield right, dict(zip(AHEAD_S, wrong, strict=True))


@pytest.mark.parametrize("ahead_s", AHEAD_S)
def test_replicas_whose_clocks_differ_never_lease_a_page_twice(right_and_wrong, ahead_s):
    """Pages of other cases are leased for longer than all cases take, or were just crawled."""
    right, wrong = right_and_wrong[0], right_and_wrong[1][ahead_s]
    wrong.post("/pages", [{"url": f"{url}/{ahead_s}"} for url in URLS])
    first = lease(right, count=15, ttl_s=3600)
    others = lease(wrong, ttl_s=3600)
    assert len(first) == len(others) == 15
    assert {c["page_id"] for c in first}.isdisjoint(c["page_id"] for c in others)
    assert lease(right) == lease(wrong) == []
    ends = datetime.fromisoformat(others[0]["expires_at"]) - datetime.now(UTC)
    assert timedelta(seconds=3400) < ends <= timedelta(seconds=3601)
    assert report(wrong, first[0], changed=True)["leases_ended"] == 1


def test_replicas_whose_clocks_differ_keep_a_host_s_delay(postgres_url, tmp_path):
    settings = {"database_url": postgres_url, "host_delay_s": 30, "host_concurrency": 0}
    with replicas(tmp_path, 0.0, MINUTES_S, **settings) as (right, wrong):
        right.post("/pages", [{"url": url} for url in URLS])
        assert len(lease(right)) == 5
        assert lease(wrong) == []
        host = wrong.client.get("/hosts/h0.example").json()
        opens = datetime.fromisoformat(host["host_queue"]["ready_at"]) - datetime.now(UTC)
        assert timedelta(0) < opens <= timedelta(seconds=31)


@pytest.mark.parametrize("ahead_s", [DAY_S, -DAY_S])
def test_a_clock_that_is_set_and_set_back_shuts_no_host(sqlite_url, tmp_path, ahead_s):
    clock = tmp_path / "clock"
    step(clock, 0.0)
    settings = {"database_url": sqlite_url, "host_delay_s": DELAY_S}
    with serving(tmp_path, clock=clock, **settings) as server:
        server.post("/pages", [{"url": url} for url in URLS])
        first = lease(server)
        assert len(first) == 5
        for seconds in (ahead_s, 0.0):
            step(clock, seconds)
            until(lambda: shifted(server, first[0], seconds), "the clock is followed")  # noqa: B023
            assert {c["page_id"] for c in first}.isdisjoint(c["page_id"] for c in lease(server))
        for crawl in first:
            assert report(server, crawl, changed=False)["leases_ended"] == 1
        reported = datetime.now(UTC)
        given = until(lambda: lease(server), "a host is open again")
        assert datetime.now(UTC) - reported < timedelta(seconds=60)
        assert {c["page_id"] for c in given}.isdisjoint(c["page_id"] for c in first)


def shifted(server, crawl, seconds) -> bool:
    """Whether the server goes by a clock that is so many seconds ahead."""
    answer = server.client.patch(f"/leases/{crawl['lease']}", json={"ttl_s": 300})
    ends = datetime.fromisoformat(answer.json()["expires_at"]) - datetime.now(UTC)
    return abs(ends.total_seconds() - 300 - seconds) < 30
