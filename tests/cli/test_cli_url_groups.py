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
        "a.example/calendar/day",
        "a.example/calendar/day?n",
    ]
    states = {"stop": "held", "admit": "admitted", "learn": "open"}
    for command, state in states.items():
        answer = json.loads(recrawl("url-groups", command, GROUP, "--json", url=api.url).out)
        assert (answer["group"], answer["state"]) == ("a.example/calendar", state)
    stopped = recrawl("url-groups", "stop", GROUP, url=api.url)
    assert stopped.out == "a.example/calendar: no new page is crawled; crawled ones go on\n"
    recrawl("url-groups", "learn", GROUP, url=api.url)
    assert recrawl("url-groups", "list", "--stopped", url=api.url).out == ""


def test_the_groups_with_most_waiting_pages_come_first_up_to_a_limit(api, recrawl):
    few, many = ("https://a.example/few/", 12), ("https://b.example/many/", 30)
    api.register(
        *(f"{url}{n}/x?n={i}" for url, size in (few, many) for n in "ab" for i in range(size))
    )

    def names(*options):
        answer = recrawl("url-groups", "list", *options, url=api.url)
        return [json.loads(line)["group"] for line in answer.out.splitlines()], answer.err

    listed, notice = names()
    assert listed[:2] == ["b.example", "b.example/many"]
    assert notice == ""
    some, notice = names("--limit", "3")
    assert some == listed[:3]
    assert notice.startswith(f"{len(listed) - 3} more groups; --limit shows them")
    by_name, _ = names("--sort", "name")
    assert by_name == sorted(listed)
    recrawl("url-groups", "stop", many[0], url=api.url)
    below = {name for name in listed if name.startswith("b.example/many/")}
    assert len(below) == 6
    assert names()[0] == [name for name in names()[0] if name not in below]
    assert set(names()[0]) == set(listed) - below
    assert names("--sort", "name")[0] == by_name


def test_a_rule_of_a_group_without_a_page_is_set_with_a_notice(api, recrawl):
    api.register(*(f"{GROUP}day?n={i}" for i in range(3)))
    notice = "no new page has come to it yet"
    for command in ("stop", "admit"):
        ended = recrawl("url-groups", command, "https://a.example/nosuch/", url=api.url)
        assert (ended.status, notice in ended.err) == (0, True)
        assert notice not in recrawl("url-groups", command, GROUP, url=api.url).err
