"""`recrawl groups` shows, sets and deletes groups of hosts; what is left out keeps its value."""

import json

import pytest
from support.live_server import Live, running

pytestmark = pytest.mark.dear


@pytest.fixture
def api(sqlite_url) -> Live:
    with running(sqlite_url) as live:
        yield live


def shown(recrawl, api, name="shared-1"):
    return json.loads(recrawl("groups", "show", name, "--to", api.url).out)


def test_a_group_is_set_field_by_field_and_deleted(api: Live, recrawl):
    made = recrawl(
        *("groups", "set", "shared-1", "--member", "a.example", "--member", "b.example"),
        *("--delay", "2s", "--to", api.url),
    )
    assert made.out == "shared-1 is set: min_delay_s 2, members a.example, b.example\n"
    changed = recrawl("groups", "set", "shared-1", "--at-a-time", "3", "--to", api.url)
    assert changed.out == "shared-1 is set: max_concurrency 3\n"
    group = shown(recrawl, api)
    assert (group["min_delay_s"], group["max_concurrency"]) == (2, 3)
    assert group["members"] == ["a.example", "b.example"]
    reset = recrawl("groups", "set", "shared-1", "min_delay_s=null", "--to", api.url)
    assert reset.out == "shared-1 is set: min_delay_s by default\n"
    (listed,) = map(json.loads, recrawl("groups", "list", "--to", api.url).out.splitlines())
    assert (listed["group"], listed["n_members"], listed["max_concurrency"]) == ("shared-1", 2, 3)
    refused = recrawl("groups", "delete", "shared-1", "--to", api.url)
    assert refused.status != 0
    dry = recrawl("groups", "delete", "shared-1", "--dry-run", "--to", api.url)
    assert dry.out == "would be deleted: shared-1; 2 hosts would leave it\n"
    assert api.get("/groups/shared-1").json()["n_members"] == 2
    gone = recrawl("groups", "delete", "shared-1", "--yes", "--to", api.url)
    assert gone.out == "deleted: shared-1; 2 hosts left it\n"
    assert recrawl("groups", "list", "--to", api.url).out == ""


def test_a_group_without_hosts_and_a_set_without_fields_are_named(api: Live, recrawl):
    alone = recrawl("groups", "set", "alone", "--a-day", "100", "--to", api.url)
    assert alone.err == "alone has no host yet; --member adds hosts\n"
    nothing = recrawl("groups", "set", "alone", "--to", api.url)
    assert nothing.status == 2
    assert "nothing to set" in nothing.err
