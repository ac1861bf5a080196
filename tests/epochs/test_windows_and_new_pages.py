"""An epoch of a running service: a host at its capacity, and new pages of other hosts."""

from datetime import timedelta

import pytest
from support.live_server import running

A, B = "http://a.example/1", "http://b.example/new"


@pytest.mark.dear
def test_a_windowed_host_at_its_capacity_and_a_new_page_elsewhere_have_an_epoch(database_url):
    options = {"bandwidth": 100_000, "admission": "all", "host_delay_s": 2}
    with running(database_url, **options) as live:
        live.client.patch("/hosts/a.example", json={"windows": ["00:00-23:00 UTC"]})
        live.register(A, B)
        for hours, digest in ((3, "x"), (1, "y")):
            at = (live.clock() - timedelta(hours=hours)).isoformat()
            live.post("/observations", [{"url": A, "observed_at": at, "digest": digest}])
        live.service.runner.run_once()
        epoch = live.get("/epochs/latest").json()
        assert epoch["status"] == "published"
        pages = [live.get("/pages", url=url).json() for url in (A, B)]
        rates = {page["url"]: page["schedule"]["crawl_rate"] for page in pages}
        assert rates[B] > 0
        assert rates[A] <= 43_200
        (plan,) = live.get("/plan", bandwidth=10_000_000).json()["items"]
        assert plan["bandwidth_used"] <= 43_200
