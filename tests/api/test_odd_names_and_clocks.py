"""Odd names of hosts and odd times of crawlers, from the registration to the report."""

from datetime import timedelta
from urllib.parse import quote

import pytest
from support.live_server import START, lease_freely, running

pytestmark = pytest.mark.dear

LEASED_S, HELD_S = 0, 60
HOSTS = {
    "bücher.example": "xn--bcher-kva.example",
    "UPPER.Example": "upper.example",
    "dot.example.": "dot.example",
    "a_b.example": "a_b.example",
    "[2001:DB8::1]": "[2001:db8::1]",
    "[::ffff:1.2.3.4]": "[::ffff:102:304]",
    "127.1": "127.0.0.1",
    "i❤.ws": "xn--i-7iq.ws",
    "straße.de.": "xn--strae-oqa.de",
    "-a.example": "-a.example",
    "*.b.example": "*.b.example",
    "a..b.example": "a..b.example",
    "ex%61mple.com": "example.com",
}


def test_a_host_has_one_name_however_it_is_written(database_url):
    with running(database_url) as live:
        lease_freely(live)
        for name, normal in HOSTS.items():
            (page_id,) = live.register(f"http://{name}:8080/p")
            assert live.get(f"/pages/{page_id}").json()["url"] == f"http://{normal}:8080/p"
            for form in (name, normal):
                path = f"/hosts/{quote(form, safe='')}"
                assert live.client.patch(path, json={"min_delay_s": 2}).status_code == 200
                assert live.get(path).json()["host"] == normal
                assert [
                    one["page_id"] for one in live.get("/pages", host=form).json()["items"]
                ] == [page_id]
        crawls = live.post("/leases", {"count": 100}).json()["items"]
        assert {crawl["host"] for crawl in crawls} == set(HOSTS.values())
        reports = [{"lease": one["lease"], "status": 200, "digest": "1"} for one in crawls]
        assert live.post("/observations", reports).json()["leases_ended"] == len(HOSTS)


TIMES = {
    # under a lease of 12:00:00 whose report comes at 12:01:00
    "2026-05-01T12:00:30Z": 30,
    "2026-05-01T14:00:30+02:00": 30,
    "2026-05-01T07:00:30-05:00": 30,
    "2026-05-01 12:00:30z": 30,
    "2026-05-01T12:00:30.000000999Z": 30,
    "2026-05-01T09:00:30Z": LEASED_S,  # hours slow
    "2026-05-01T15:00:30Z": HELD_S,  # hours fast
    "2026-05-01T12:00:30+02:00": LEASED_S,  # the wall clock of another zone
    "2026-05-01T12:00:30-05:00": HELD_S,
    "2026-03-29T02:30:00+01:00": LEASED_S,  # an hour that no clock there shows
    "2026-10-25T02:30:00+01:00": HELD_S,  # the second such hour of its night
    "0001-01-01T00:00:00+23:59": LEASED_S,
    "9999-12-31T23:59:59-23:59": HELD_S,
    None: LEASED_S,
}
NO_TIMES = [
    "2026-05-01T12:00:30",
    "2026-05-01",
    "12:00:30Z",
    "2026-02-30T12:00:00Z",
    "",
    1777636830,
]


@pytest.fixture
def leased(database_url):
    """A function that leases n pages of as many hosts, and returns the service and the leases."""
    with running(database_url) as live:
        lease_freely(live)

        def lease(n):
            live.register(*(f"http://h{k}.example/" for k in range(n)))
            crawls = live.post("/leases", {"count": n, "ttl_s": 600}).json()["items"]
            live.clock.advance(seconds=HELD_S)
            return live, crawls

        yield lease


def test_a_crawl_counts_within_its_lease_whatever_the_clock_of_its_crawler(leased):
    live, crawls = leased(len(TIMES))
    found = {}
    for crawl, stated in zip(crawls, TIMES, strict=True):
        report = {"lease": crawl["lease"], "observed_at": stated, "status": 200, "digest": "1"}
        for n_ended in (1, 0):  # sent twice, it counts once
            answer = live.post("/observations", [report]).json()
            assert (answer["accepted"], answer["leases_ended"]) == (n_ended, n_ended), stated
        page = live.get(f"/pages/{crawl['page_id']}").json()
        found[stated] = page["last_crawl_at"][:19]
        assert len(page["last_crawls"]) == 1
    assert found == {
        stated: (START + timedelta(seconds=s)).isoformat()[:19] for stated, s in TIMES.items()
    }


def test_a_time_without_a_zone_ends_its_lease_and_names_the_right_form(leased):
    live, crawls = leased(len(NO_TIMES))
    for crawl, stated in zip(crawls, NO_TIMES, strict=True):
        report = {"lease": crawl["lease"], "observed_at": stated, "status": 200, "digest": "1"}
        answer = live.post("/observations", [report])
        assert (answer.status_code, answer.json()["leases_ended"]) == (422, 1), stated
        assert "with a zone, such as 2026-05-01T12:00:00Z" in answer.json()["detail"]
        page = live.get(f"/pages/{crawl['page_id']}").json()
        assert (page["why"]["hold"], page["n_failures"]) == ("unreported", 0)


def test_a_late_report_changes_neither_the_lease_nor_the_crawl_of_another_worker(leased):
    live, (crawl,) = leased(1)
    page = f"/pages/{crawl['page_id']}"
    sent_at = live.clock()
    live.clock.advance(hours=2)
    (second,) = live.post("/leases", {"count": 1, "worker": "two"}).json()["items"]
    live.clock.advance(seconds=5)
    late = {"lease": crawl["lease"], "observed_at": sent_at.isoformat(), "digest": "1"}
    assert live.post("/observations", [late]).json()["leases_ended"] == 0
    assert live.get(page).json()["why"]["by"] == "two"
    assert live.post("/leases", {"count": 1}).json()["items"] == []
    own = {"lease": second["lease"], "digest": "1"}
    assert live.post("/observations", [own]).json()["leases_ended"] == 1
    again = live.post("/observations", [late | {"digest": "2"}]).json()
    assert (again["accepted"], again["late"], again["leases_ended"]) == (0, 1, 0)
    assert live.get(page).json()["estimate"]["n_changes"] == 0


def test_a_report_of_a_deleted_page_ends_its_lease(leased):
    live, (crawl,) = leased(1)
    other = live.register("http://h0.example/other")
    assert live.client.delete(f"/pages/{crawl['page_id']}").status_code == 204
    assert live.post("/leases", {"count": 1}).json()["items"] == []  # one at a time
    answer = live.post("/observations", [{"lease": crawl["lease"], "digest": "1"}])
    assert (answer.status_code, answer.json()["leases_ended"]) == (422, 1)
    assert answer.json()["rejected"][0]["code"] == "page_not_found"
    live.clock.advance(seconds=2)
    items = live.post("/leases", {"count": 1}).json()["items"]
    assert [item["page_id"] for item in items] == other
