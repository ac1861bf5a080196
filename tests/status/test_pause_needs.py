"""What needs somebody because a host pauses, with the status that caused the pause."""

import pytest
from support.live_server import running

pytestmark = pytest.mark.dear

URL = "https://slow.example/1"


@pytest.fixture
def live(database_url):
    with running(database_url) as service:
        service.register(URL, "https://slow.example/2")
        yield service


@pytest.mark.parametrize(
    ("report", "cause", "act"),
    [
        ({"status": 503}, "asked for a pause with status 503", "Crawl slow.example less"),
        ({"status": 429, "retry_after_s": 9}, "asked for a pause with status 429", "Crawl"),
        ({"status": 502}, "failed with status 502", "See what slow.example answers"),
        ({"status": 0}, "did not answer", "See whether slow.example can be reached"),
    ],
    ids=["503", "429", "502", "silent"],
)
def test_a_pause_names_what_the_host_answered(live, report, cause, act):
    for _ in range(7):
        live.clock.advance(minutes=40)
        known = {"url": URL, "observed_at": live.clock().isoformat()}
        assert not live.post("/observations", [known | report]).json()["rejected"]
    paused = {need["kind"]: need for need in live.get("/status").json()["needs_you"]}["host_paused"]
    assert cause in paused["sentence"]
    assert paused["sentence"].startswith(act)
    assert f"because it {cause}" in live.get("/leases", explain="true").text
