"""A need is accepted over a socket: it counts no more, until it ends or begins anew."""

from datetime import timedelta

import pytest
from support.live_server import Live, lease_freely, running

HOST = "a.example"
NARROW = {"kind": "window_too_narrow", "subject": HOST}


@pytest.fixture
def live(sqlite_url):
    """A service with a host that loses crawls to its windows."""
    with running(sqlite_url, host_delay_s=3_600.0) as service:
        lease_freely(service)
        service.register(f"https://{HOST}/1", f"https://{HOST}/2")
        narrow(service)
        yield service


def narrow(service):
    opens = service.clock() + timedelta(hours=2)
    window = f"{opens:%H:%M}-{opens + timedelta(hours=1):%H:%M} UTC"
    service.client.patch(f"/hosts/{HOST}", json={"windows": [window], "min_delay_s": None})
    service.client.put("/budget", json={"budget": "1000 crawls"})
    service.epoch()


def state(live: Live):
    answer = live.get("/status").json()
    kinds = [need["kind"] for need in answer["needs_you"]]
    return [kind for kind in kinds if kind != "no_crawler"], answer["accepted"]


def gauge(live: Live) -> str:
    lines = live.get("/metrics").text.splitlines()
    (line,) = (each for each in lines if 'recrawl_needs_you{kind="window_too_narrow"}' in each)
    return line.split()[-1]


def accept(live: Live, **fields):
    return live.client.put("/needs/accepted", json=NARROW | fields)


def test_an_accepted_need_counts_no_more_until_it_ends(live: Live, recrawl):
    assert state(live) == (["window_too_narrow"], [])
    assert recrawl("status", url=live.url).status == 1
    accepted = accept(live, reason="by contract", for_s=7_200)
    assert accepted.status_code == 200, accepted.text
    assert state(live) == ([], [accepted.json()])
    assert accepted.json()["reason"] == "by contract"
    assert recrawl("status", url=live.url).status == 0
    assert gauge(live) == "0.0"
    live.clock.advance(hours=2)
    live.epoch()
    assert state(live) == (["window_too_narrow"], [])


def test_acceptances_and_withdrawals_are_in_the_audit(live: Live):
    accept(live)
    accept(live, reason="by contract")
    answer = live.client.delete("/needs/accepted", params=NARROW)
    assert answer.status_code == 204
    assert state(live) == (["window_too_narrow"], [])
    withdrawn, replaced, first = live.get("/audit").json()["items"][:3]
    assert (withdrawn["act"], withdrawn["object"]) == ("need.withdraw", f"window_too_narrow {HOST}")
    assert (replaced["before"]["reason"], replaced["after"]["reason"]) == ("", "by contract")
    assert first["act"] == "need.accept"
    until = live.clock() + timedelta(days=30)
    assert first["after"]["until"] == until.isoformat().replace("+00:00", "Z")
    assert live.client.delete("/needs/accepted", params=NARROW).status_code == 404


def test_a_need_that_begins_anew_is_shown_again(live: Live):
    accept(live)
    live.clock.advance(hours=1)
    live.epoch()
    assert state(live)[0] == [], "the next epoch keeps the begin"
    live.client.patch(f"/hosts/{HOST}", json={"windows": None, "min_delay_s": 1})
    live.clock.advance(hours=1)
    live.epoch()
    kinds, (accepted,) = state(live)
    assert (kinds, accepted["since"], accepted["sentence"]) == ([], None, None)
    live.clock.advance(hours=1)
    narrow(live)
    assert state(live) == (["window_too_narrow"], [])


def test_only_a_need_that_holds_is_accepted_and_for_some_time_only(live: Live):
    absent = accept(live, subject="b.example")
    assert absent.status_code == 404
    assert absent.json()["detail"].startswith("No such need; GET /status lists")
    assert "is no kind of needs" in accept(live, kind="boredom").json()["detail"]
    assert accept(live, for_s=90 * 86_400).status_code == 200
    assert accept(live, for_s=90 * 86_400 + 1).status_code == 422
    assert accept(live, reason="x" * 501).status_code == 422


def test_the_command_accepts_lists_and_withdraws(live: Live, recrawl):
    done = recrawl("needs", "accept", "window_too_narrow", HOST, "--for", "2d", url=live.url)
    until = live.clock() + timedelta(days=2)
    text = f"window_too_narrow of {HOST} is accepted until {until:%Y-%m-%d %H:%M:%SZ}\n"
    assert done.out == text
    assert f'"subject": "{HOST}"' in recrawl("needs", "accepted", url=live.url).out
    done = recrawl("needs", "withdraw", "window_too_narrow", HOST, url=live.url)
    assert done.out == f"window_too_narrow of {HOST} is no more accepted\n"
    assert recrawl("needs", "accepted", url=live.url).out == ""
    assert recrawl("needs", "withdraw", "window_too_narrow", HOST, url=live.url).status == 2
