"""`recrawl leases` against a running service."""

import json

import pytest
from support.live_server import running


@pytest.fixture
def api(sqlite_url):
    with running(sqlite_url, host_delay_s=0, host_concurrency=0) as live:
        yield live


def test_leases_and_workers_are_listed_and_the_leases_of_a_gone_worker_returned(api, recrawl):
    api.register("https://a.example/1", "https://a.example/2")
    api.client.post("/leases", json={"worker": "gone"})
    listed = recrawl("leases", "list", "--limit", "1", url=api.url).out.splitlines()
    assert [json.loads(line)["worker"] for line in listed] == ["gone"]
    release = ("leases", "release", "--worker", "gone")
    assert recrawl(*release, "--dry-run", url=api.url).out == "2 leases of gone would end\n"
    assert recrawl(*release, url=api.url).out == "2 leases of gone ended\n"
    (worker,) = recrawl("leases", "workers", url=api.url).out.splitlines()
    assert json.loads(worker) == {
        "worker": "gone",
        "running": 0,
        "lost": 2,
        "expired": 0,
        "returned": 2,
        "refused": 0,
    }
