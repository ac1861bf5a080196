"""`recrawl url-groups` against a running service."""

import json

import pytest
from support.live_server import running

GROUP = "https://a.example/calendar/"


@pytest.fixture
def api(sqlite_url):
    with running(sqlite_url, admission="learned", host_delay_s=0, host_concurrency=0) as live:
        yield live


def test_groups_are_listed_stopped_and_admitted(api, recrawl):
    api.register(*(f"{GROUP}day?n={i}" for i in range(20)))
    lines = recrawl("url-groups", "list", "a.example/cal", url=api.url).out.splitlines()
    assert [json.loads(line)["group"] for line in lines] == [
        "a.example/calendar",
        "a.example/calendar/day?n",
    ]
    states = {"stop": "held", "admit": "admitted", "learn": "open"}
    for command, state in states.items():
        answer = json.loads(recrawl("url-groups", command, GROUP, "--json", url=api.url).out)
        assert (answer["group"], answer["state"]) == ("a.example/calendar", state)
    stopped = recrawl("url-groups", "stop", GROUP, url=api.url)
    assert stopped.out == "a.example/calendar: no new page is crawled\n"
    recrawl("url-groups", "learn", GROUP, url=api.url)
    assert recrawl("url-groups", "list", "--stopped", url=api.url).out == ""
