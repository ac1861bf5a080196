"""An incident of a host is named where somebody looks for its cause."""

from support.live_server import lease_freely, running

URLS = [f"https://a.example/{n}" for n in range(8)]


def test_an_incident_is_a_need_and_the_reason_of_its_pause(database_url):
    with running(database_url) as live:
        lease_freely(live)
        live.register(*URLS)
        for same in (False, True):
            live.clock.advance(days=1)
            at = live.clock().isoformat()
            digests = {url: "sale" if same else url for url in URLS}
            items = [{"url": u, "observed_at": at, "digest": d} for u, d in digests.items()]
            assert live.post("/observations", items[:-1]).json()["accepted"] == len(URLS) - 1
        live.clock.advance(seconds=5)
        (leased,) = live.post("/leases", {"worker": "w"}).json()["items"]
        seen = {"lease": leased["lease"], "status": 200, "digest": "sale"}
        assert live.post("/observations", [seen]).json()["accepted"] == 1
        needs = {each["kind"]: each for each in live.get("/status").json()["needs_you"]}
        assert "8 pages have the same new content" in needs["host_in_incident"]["sentence"]
        assert "host_paused" not in needs
        live.register("https://a.example/new")
        explained = str(live.get("/leases", explain=True).json())
        assert "because most of its pages suddenly show the same" in explained
