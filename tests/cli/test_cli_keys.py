"""`recrawl keys`: keys in the database, without a service."""

import json

import pytest
from support.access_cases import bearer
from support.live_server import running

from service.access.keyring import KeyRing
from service.model.access import AuditFilter, Role
from service.storage import open_store


def create(recrawl, url, *options):
    """Create a key by the command; return its text."""
    ended = recrawl("keys", "create", "fleet", *options, database_url=url)
    assert ended.status == 0, ended.err
    return ended.out.strip()


def listed(recrawl, url):
    return [json.loads(line) for line in recrawl("keys", "list", database_url=url).out.splitlines()]


def accepted(url, text):
    """Return the role by which a key opens a service on this database, None where it does not."""
    store = open_store(url, 2)
    ring = KeyRing(store, (), store.clock, n_slots=1)
    ring.refresh()
    caller = ring.caller(text)
    store.close()
    return caller and caller.role


def test_a_key_is_created_listed_rotated_and_revoked(recrawl, database_url):
    old = create(recrawl, database_url, "--role", "crawl", "--expires-days", 30)
    assert accepted(database_url, old) is Role.crawl
    (item,) = listed(recrawl, database_url)
    assert (item["name"], item["role"], item["last_used_at"]) == ("fleet", "crawl", None)
    assert old.startswith(f"rcr_{item['key_id']}_")
    rotated = recrawl("keys", "rotate", item["key_id"], "--grace-s", 60, database_url=database_url)
    new = rotated.out.strip()
    assert "works for 60 s more" in rotated.err
    assert accepted(database_url, old) is accepted(database_url, new) is Role.crawl
    for text in (old, new):
        ended = recrawl("keys", "revoke", text.split("_")[1], "--yes", database_url=database_url)
        assert ended.out.endswith("revoked\n")
        assert accepted(database_url, text) is None
    assert all(item["revoked_at"] for item in listed(recrawl, database_url))


def test_a_new_database_of_a_key_is_named_and_no_other_command_makes_one(recrawl, tmp_path):
    file = tmp_path / "other.db"
    url = f"sqlite:///{file}"
    for command in (("list",), ("revoke", "1234567890", "--yes"), ("rotate", "1234567890")):
        refused = recrawl("keys", *command, database_url=url).refusal()
        assert f"there is no database {file}; see that RECRAWL_DATABASE_URL" in refused
        assert not file.exists()
    first, second = (
        recrawl("keys", "create", "fleet", "--role", "read", database_url=url) for _ in range(2)
    )
    assert f"made a new database {file}; a service refuses this key unless" in first.err
    assert "made a new database" not in second.err
    assert len(listed(recrawl, url)) == 2


def test_the_acts_of_the_commands_are_audited(recrawl, database_url):
    text = create(recrawl, database_url, "--role", "admin")
    recrawl("keys", "revoke", text.split("_")[1], "--yes", database_url=database_url)
    store = open_store(database_url, 2)
    with store.begin(write=False) as tx:
        entries = tx.audit(None, 10, AuditFilter())
    store.close()
    assert [entry.act for entry in entries] == ["key.revoke", "key.create"]
    assert {entry.key for entry in entries} == {"command-line"}
    assert {entry.object for entry in entries} == {text.split("_")[1]}


def test_a_key_of_the_command_opens_a_running_service_and_closes_it_to_others(recrawl, sqlite_url):
    with running(sqlite_url) as live:
        assert live.get("/epochs").status_code == 200
        text = create(recrawl, sqlite_url, "--role", "read")
        live.service.gate.ring.refresh()
        assert live.get("/epochs").status_code == 401
        refused = recrawl("hosts", "list", url=live.url).refusal()
        assert "is not valid; pass one of the service's keys" in refused
        assert live.client.get("/epochs", headers=bearer(text)).status_code == 200


def test_a_key_may_be_limited_to_hosts_and_urls(recrawl, sqlite_url):
    options = ("--host", "B.example", "--host", "a.example", "--url-prefix", "https://C.example")
    create(recrawl, sqlite_url, "--role", "report", *options, "--items-per-s", 2.5)
    (item,) = listed(recrawl, sqlite_url)
    assert item["hosts"] == ["a.example", "b.example"]
    assert item["url_prefixes"] == ["https://c.example/"]
    assert item["items_per_s"] == 2.5


def test_a_list_of_keys_shows_their_limits_to_people(recrawl, sqlite_url, monkeypatch):
    monkeypatch.setattr("service.cli.output.on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    create(recrawl, sqlite_url, "--role", "crawl", "--host", "a.example", "--items-per-s", 7)
    shown = recrawl("keys", "list", database_url=sqlite_url).out
    assert "a.example" in shown
    assert "items per s" in shown


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--role", "root"), "'root' is no role; use read, report, crawl, admin"),
        (("--role", "admin", "--host", "a.example"), "a key of role admin cannot be limited"),
        (("--role", "report", "--host", "a b"), '"a b" is not a host name'),
        (("--role", "report", "--url-prefix", "/news"), "url_prefixes: "),
        (("--role", "read", "--expires-days", "nan"), "not a finite number"),
    ],
)
def test_a_key_that_cannot_be_is_refused_and_not_stored(recrawl, sqlite_url, options, says):
    ended = recrawl("keys", "create", "fleet", *options, database_url=sqlite_url)
    assert ended.status == 2
    assert says in " ".join(ended.err.split()).replace("│ ", "")
    assert listed(recrawl, sqlite_url) == []


@pytest.mark.parametrize("command", ["revoke", "rotate"])
def test_an_unknown_key_is_refused(recrawl, sqlite_url, command):
    ended = recrawl("keys", command, "0123456789", database_url=sqlite_url)
    assert "no key has the id 0123456789" in ended.refusal()


def test_a_revoked_key_is_not_rotated(recrawl, sqlite_url):
    key_id = create(recrawl, sqlite_url, "--role", "read").split("_")[1]
    recrawl("keys", "revoke", key_id, "--yes", database_url=sqlite_url)
    refused = recrawl("keys", "rotate", key_id, database_url=sqlite_url).refusal()
    assert "has been revoked or has expired; create another" in refused


def test_a_server_that_others_reach_is_started_with_a_key_of_the_database(
    recrawl, sqlite_url, monkeypatch
):
    from service.api.server import GracefulServer

    started = []
    monkeypatch.setattr(GracefulServer, "run", lambda self, sockets: started.append(sockets))
    options = ("serve", "--host", "0.0.0.0", "--port", 0)
    refused = recrawl(*options, database_url=sqlite_url)
    assert "make one by `recrawl keys create`" in refused.err
    assert not started
    create(recrawl, sqlite_url, "--role", "admin")
    recrawl(*options, database_url=sqlite_url)
    (sockets,) = started
    for each in sockets:
        each.close()
