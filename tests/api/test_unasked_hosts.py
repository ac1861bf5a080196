"""A host that no crawler asks for, while crawlers ask for others."""

from datetime import timedelta

import pytest
from support.live_server import lease_freely, running

from service.status.asked import LastAsked
from service.storage.queue.columns import LeaseFilter

HOSTS = "a.example", "b.example"


def ask(live, *hosts):
    """Ask for leases and return them at once; wait until the request is stored."""
    assert live.post("/leases", {"worker": "w", "hosts": hosts, "count": 1}).status_code == 200
    for thread in live.service.asked.writing:
        thread.join(timeout=10)


def why(live, host):
    live.register(f"https://{host}/1")  # the other page may have been leased
    return live.get("/pages", url=f"https://{host}/1").json()["why"]


def kinds(live):
    return {each["kind"]: each for each in live.get("/status").json()["needs_you"]}


@pytest.fixture
def live(database_url):
    with running(database_url) as live:
        lease_freely(live)
        for host in HOSTS:
            live.register(f"https://{host}/0")
        yield live


def test_a_host_whose_crawler_died_is_named_with_the_time_of_its_last_request(live):
    for host in HOSTS:
        ask(live, host)
    for _ in range(3):
        live.clock.advance(minutes=8)
        ask(live, "a.example")
    live.clock.advance(minutes=1)
    held = why(live, "b.example")
    assert held["hold"] == "no_crawler"
    assert held["sentence"].startswith(
        "Start a crawler that asks for b.example: no crawler has asked for b.example for 25 "
        "minutes."
    )
    assert why(live, "a.example")["hold"] != "no_crawler"
    need = kinds(live)["host_without_crawler"]
    assert (need["subject"], need["n"]) == ("b.example", 1)
    assert "no crawler has asked for it for 25 minutes" in need["sentence"]
    assert need["remedy"] == "recrawl leases explain --host b.example"
    assert "no_crawler" not in kinds(live)


def explained(live):
    """Return the explanation of leases: its sentence, and that of each hold of a host."""
    why = live.get("/leases", explain="true").json()["explanation"]
    return why["sentence"], {each["hold"]: each["sentence"] for each in why["holds"]}


def test_every_line_of_an_explanation_asks_for_the_crawler_that_is_missed(live):
    live.register(*(f"https://b.example/{n}" for n in range(9)))
    for minutes in (9, 9, 0):
        ask(live, "a.example")
        live.clock.advance(minutes=minutes)
    sentence, lines = explained(live)
    to_do = "Start a crawler that asks for b.example"
    assert (
        sentence == f"{to_do}: 1 page is ready; no crawler has asked for b.example for 18 minutes."
    )
    assert set(lines) == {"host_busy", "no_crawler"}
    assert all(line.startswith(f"{to_do}: ") for line in lines.values()), lines


def test_a_page_that_nobody_takes_for_long_asks_for_an_act_in_every_line(live):
    live.register(*(f"https://b.example/{n}" for n in range(9)))
    assert live.get("/schedule").status_code == 200  # its reader may crawl, so none is missed
    live.clock.advance(minutes=25)
    sentence, lines = explained(live)
    assert sentence.startswith("See whether a crawler asks for ")
    assert set(lines) == {"host_busy", "ready"}
    assert not any("Nothing to do" in line for line in lines.values()), lines
    assert lines["host_busy"].startswith("See whether a crawler asks for b.example: ")


def test_a_host_that_no_crawler_has_ever_asked_for_is_named_since_requests_are_known(live):
    ask(live, "a.example")
    live.clock.advance(minutes=9)
    ask(live, "a.example")
    assert "host_without_crawler" not in kinds(live)
    assert why(live, "b.example")["hold"] != "no_crawler"
    live.clock.advance(minutes=9)
    ask(live, "a.example")
    assert "for 18 minutes" in kinds(live)["host_without_crawler"]["sentence"]
    live.clock.advance(seconds=1)
    ask(live)  # for all hosts
    assert "host_without_crawler" not in kinds(live)
    assert why(live, "b.example")["hold"] != "no_crawler"


def test_another_server_knows_the_requests_of_the_first(live, database_url):
    for host in HOSTS:
        ask(live, host)
    live.clock.advance(minutes=15)
    ask(live, "a.example")
    with running(database_url, epochs=False) as other:
        other.clock.advance(minutes=15)
        assert why(other, "b.example")["hold"] == "no_crawler"
        assert why(other, "a.example")["hold"] != "no_crawler"


def test_a_filter_is_written_once_a_minute(live):
    class Counted(LastAsked):
        n_written = 0

        def write_filters(self):
            self.n_written += 1
            super().write_filters()

    asked, of = Counted(live.service.store), LeaseFilter(("a.example",))
    for seconds in (0, 20, 40, 59, 60, 80):
        asked.note_filter(of, live.clock() + timedelta(seconds=seconds))
        for thread in asked.writing:
            thread.join(timeout=10)
    assert asked.n_written == 2
